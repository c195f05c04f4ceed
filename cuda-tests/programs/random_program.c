// SPDX-License-Identifier: Apache-2.0
// A CUDA driver API client that does random things whose results and codes do not depend on time, and prints them all:
// two runs with the same arguments must print the same, whatever is preloaded.
//
// usage: random_program SEED STEPS THREADS free|turns
//
// Each thread has four streams: two that do not block, of different priority, one that blocks, and its default stream.
// A stream has buffers of its own, and only its work touches them, so that the order in each stream fixes what they
// hold; streams meet through events. Work is kernels in every form of launch (programmatic serialisation and events,
// priorities, cooperative, the first forms), copies, memory sets, words, host functions, stream-ordered memory, and
// graphs captured in all three modes, some of them spoilt on purpose.
// `free`: threads run beside each other; none calls what the capture of another thread forbids. `turns`: one call at a
// time in a random order of threads, in which captures forbid and are spoilt, with the legacy stream and calls that
// wait for everything.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_program_driver.h"

enum { VALUES = 128, BYTES = VALUES * 4, STREAMS = 4, OWN_DEFAULT = 3, EVENTS = 4, MOST = 16, NOT_READY = 600 };
enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, GLOBAL = 0, RELAXED = 2 };

// What only the work of one stream touches.
struct stream {
  handle handle;
  deviceptr main, side;           // device buffers
  float *copy;                    // host memory of the driver
  uint64_t *word;
  uint32_t called;                // by host functions
  handle graph;                   // instantiated; runs in this stream only
};

struct thread {
  int number, step;
  uint64_t random;
  struct stream streams[STREAMS];
  handle events[EVENTS], forks[2], untimed;
  FILE *log;
  char *text;
  size_t length;
};

static handle context, fill, saxpy, add, scale, spin, first_form;
static deviceptr constants;
static const float *host_constants;
static int takes_turns, threads, whose;
static long steps;
static int is_alive[MOST];
static uint64_t order_random;
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_passed = PTHREAD_COND_INITIALIZER;

static uint64_t draw(uint64_t *state, uint64_t below) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (*state * 2685821657736338717ull >> 16) % below;
}

static unsigned any(struct thread *t, unsigned below) { return draw(&t->random, below); }

static int note(struct thread *t, const char *what, int code) {
  fprintf(t->log, "%d.%d %s %d\n", t->number, t->step, what, code);
  return code;
}

// Whether work is over by now is a matter of time, and not told.
static int note_readiness(struct thread *t, const char *what, int code) {
  return note(t, what, code == NOT_READY ? 0 : code);
}

#define CALL(name, ...) note(t, #name, cu.name(__VA_ARGS__))
// With the stream as H in the arguments. A thread's default stream is named in either way.
#define ON(s, name, ...) ({ \
    int is_twin = s == OWN_DEFAULT && any(t, 2); \
    handle H = is_twin ? NULL : t->streams[s].handle; \
    note(t, #name, is_twin ? cu.name##_ptsz(__VA_ARGS__) : cu.name(__VA_ARGS__)); })

static void need(int code, const char *what) {
  if (code) { fprintf(stderr, "random_program: %s: %d\n", what, code); exit(70); }
}
#define NEED(name, ...) need(cu.name(__VA_ARGS__), #name)

static void next_turn(void) {
  int left = 0;
  for (int i = 0; i < threads; i++) left += is_alive[i];
  if (!left) return;
  int skip = draw(&order_random, left);
  for (whose = 0; !is_alive[whose] || skip-- > 0; whose++) {}
  pthread_cond_broadcast(&turn_passed);
}

static void wait_for_turn(struct thread *t, int passes_on) {
  if (!takes_turns) return;
  pthread_mutex_lock(&turn_lock);
  if (passes_on) next_turn();
  while (whose != t->number) pthread_cond_wait(&turn_passed, &turn_lock);
  pthread_mutex_unlock(&turn_lock);
}

// ---- one piece of work of a stream ----------------------------------------------------------------------------

static void bad_launch(struct thread *t, int s) {
  void *arguments[] = {&(uint64_t){1000}};
  switch (any(t, 4)) {
    case 0: ON(s, cuLaunchKernel, spin, 0, 1, 1, 1, 1, 1, 0, H, arguments, NULL); break;
    case 1: ON(s, cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, H, arguments, NULL); break;
    case 2: ON(s, cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 1 << 22, H, arguments, NULL); break;
    default: ON(s, cuLaunchCooperativeKernel, spin, 1 << 20, 1, 1, 1024, 1, 1, 0, H, arguments);
  }
}

static void launch(struct thread *t, int s, handle function, void **arguments) {
  switch (any(t, 5)) {
    case 0: ON(s, cuLaunchCooperativeKernel, function, 2, 1, 1, 64, 1, 1, 0, H, arguments); break;
    case 1: {
      // A pair of which the second may begin before the first has ended.
      struct attribute list[4] = {{.id = 6, .value.number = 1}, {.id = 8, .value.number = -(int)any(t, 6)}};
      unsigned count = 2;
      if (any(t, 3) == 0) list[count++] = (struct attribute){.id = 2, .value.number = 1};
      if (any(t, 3) == 0) list[count++] = (struct attribute){.id = 7, .value.event = {t->untimed, 0, 0}};
      struct config c = {{2, 1, 1}, {64, 1, 1}, 0, t->streams[s].handle, list, count};
      ON(s, cuLaunchKernelEx, (c.stream = H, &c), function, arguments, NULL);
      break;
    }
    default: ON(s, cuLaunchKernel, function, 2, 1, 1, 64, 1, 1, 0, H, arguments, NULL);
  }
}

static void mark_call(void *argument) {
  uint32_t **call = argument;
  *call[0] = *call[0] * 31 + (uint32_t)(uintptr_t)call[1];
}

static void call_host(struct thread *t, int s) {
  // Kept for as long as a graph may call it again.
  uint32_t **call = malloc(2 * sizeof *call);
  call[0] = &t->streams[s].called;
  call[1] = (uint32_t *)(uintptr_t)any(t, 1000);
  ON(s, cuLaunchHostFunc, H, mark_call, call);
}

static void borrow_memory(struct thread *t, int s, deviceptr to) {
  deviceptr p = 0;
  if (ON(s, cuMemAllocAsync, &p, BYTES, H)) return;
  ON(s, cuMemsetD32Async, p, any(t, 100), VALUES, H);
  ON(s, cuMemcpyAsync, to, p, BYTES / 2, H);
  ON(s, cuMemFreeAsync, p, H);
}

// `to` is a buffer of `home`; the work runs in `s`, which is `home` or takes part in its capture.
static void work(struct thread *t, int s, int home, deviceptr to) {
  struct stream *own = &t->streams[home];
  unsigned value = 0x3f800000 + any(t, 4) * 0x800000;
  float factor = 1 + any(t, 3);
  int count = 1 + any(t, VALUES), which = any(t, 4);
  uint64_t ns = 1000 + any(t, 30000);
  switch (any(t, 14)) {
    case 0: launch(t, s, fill, (void *[]){&to, &value, &count}); break;
    case 1: case 2: launch(t, s, saxpy, (void *[]){&to, &constants, &factor, &count}); break;
    case 3: launch(t, s, add, (void *[]){&to, &to, &constants, &count}); break;
    case 4: launch(t, s, scale, (void *[]){&to, &which, &count}); break;
    case 5: launch(t, s, spin, (void *[]){&ns}); break;
    case 6: ON(s, cuMemsetD32Async, to, value, count, H); break;
    case 7: ON(s, cuMemcpyHtoDAsync_v2, to, host_constants, BYTES / 4, H); break;
    case 8: if (s == home) ON(s, cuMemcpyDtoHAsync_v2, own->copy, to, BYTES, H); break;
    case 9: if (s == home) call_host(t, s); break;
    case 10: if (s == home) ON(s, cuStreamWriteValue64_v2, H, (deviceptr)(uintptr_t)own->word, t->step, 0); break;
    case 11: borrow_memory(t, s, to); break;
    case 12: bad_launch(t, s); break;
    default:
      // The first forms keep their settings with the function: one thread's.
      if (t->number || s == OWN_DEFAULT) break;
      CALL(cuFuncSetBlockShape, first_form, 64, 1, 1);
      CALL(cuParamSetSize, first_form, 16);
      CALL(cuParamSetv, first_form, 0, &to, 8);
      CALL(cuParamSeti, first_form, 8, value);
      CALL(cuParamSeti, first_form, 12, count);
      CALL(cuLaunchGridAsync, first_form, 2, 1, t->streams[s].handle);
  }
}

// ---- whole steps ----------------------------------------------------------------------------------------------

// Calls that a capture of another thread may forbid: free threads ask for leave first.
static int ask_leave(struct thread *t) {
  int mode = RELAXED;
  if (!takes_turns) CALL(cuThreadExchangeStreamCaptureMode, &mode);
  return mode;
}

static void give_leave_back(struct thread *t, int mode) {
  if (!takes_turns) CALL(cuThreadExchangeStreamCaptureMode, &mode);
}

static void wait_for(struct thread *t, int s) {
  int mode = ask_leave(t);
  if (any(t, 2)) ON(s, cuStreamSynchronize, H);
  else note_readiness(t, "cuStreamQuery", cu.cuStreamQuery(t->streams[s].handle));
  give_leave_back(t, mode);
}

// One stream's buffer into another's, both waiting for each other.
static void exchange(struct thread *t, int from, int to) {
  if (from == to) return;
  int count = VALUES;
  struct stream *a = &t->streams[from], *b = &t->streams[to];
  ON(from, cuEventRecord, t->forks[0], H);
  ON(to, cuStreamWaitEvent, H, t->forks[0], 0);
  launch(t, to, add, (void *[]){&b->main, &a->main, &constants, &count});
  ON(to, cuEventRecord, t->forks[1], H);
  ON(from, cuStreamWaitEvent, H, t->forks[1], 0);
}

static void use_event(struct thread *t, int s) {
  int e = any(t, EVENTS), other = any(t, EVENTS);
  float ms;
  int mode;
  switch (any(t, 4)) {
    case 0: case 1:
      ON(s, cuEventRecord, t->events[e], H);
      break;
    case 2:
      ON(s, cuStreamWaitEvent, H, t->events[e], 0);
      break;
    default:
      mode = ask_leave(t);
      note_readiness(t, "cuEventQuery", cu.cuEventQuery(t->events[e]));
      CALL(cuEventSynchronize, t->events[e]);
      CALL(cuEventSynchronize, t->events[other]);
      // Where a wait was refused it may not be over.
      note_readiness(t, "cuEventElapsedTime", cu.cuEventElapsedTime(&ms, t->events[e], t->events[other]));
      give_leave_back(t, mode);
  }
}

// What a captured stream does not bear. Free threads spoil their own captures only.
static void spoil(struct thread *t, int s) {
  deviceptr p;
  switch (any(t, takes_turns ? 6 : 3)) {
    case 0: ON(s, cuStreamSynchronize, H); break;
    case 1: ON(s, cuStreamWaitEvent, H, t->events[any(t, EVENTS)], 0); break;
    case 2: ON(s, cuEventRecord, t->forks[1], H); note(t, "cuEventQuery", cu.cuEventQuery(t->forks[1])); break;
    case 3: if (!CALL(cuMemAlloc_v2, &p, 4096)) CALL(cuMemFree_v2, p); break;
    case 4: CALL(cuCtxSynchronize); break;
    default: CALL(cuMemsetD8_v2, t->streams[s].side, 0, 4);
  }
}

static void run_graph(struct thread *t, int s) {
  struct stream *own = &t->streams[s];
  if (own->graph) ON(s, cuGraphLaunch, own->graph, H);
}

static void capture(struct thread *t, int s) {
  struct stream *own = &t->streams[s];
  int other = (s + 1) % STREAMS, has_forked = 0, status = 0;
  handle graph = NULL, made = NULL;
  if (ON(s, cuStreamBeginCapture_v2, H, (int)any(t, 3))) return;
  for (int i = 0, n = 1 + any(t, 8); i < n; i++) {
    wait_for_turn(t, 1);
    switch (any(t, 8)) {
      case 0:
        if (!has_forked && !ON(s, cuEventRecord, t->forks[0], H))
          has_forked = !ON(other, cuStreamWaitEvent, H, t->forks[0], 0);
        break;
      case 1: case 2:
        if (has_forked) work(t, other, s, own->side);
        break;
      case 3:
        if (any(t, 6) == 0) spoil(t, s);
        break;
      default: work(t, s, s, own->main);
    }
  }
  ON(s, cuStreamIsCapturing, H, &status);
  note(t, "status", status);
  // Once in a while a fork is not joined.
  if (has_forked && any(t, 8)) {
    ON(other, cuEventRecord, t->forks[1], H);
    ON(s, cuStreamWaitEvent, H, t->forks[1], 0);
  }
  wait_for_turn(t, 1);
  if (ON(s, cuStreamEndCapture, H, &graph)) return;
  size_t nodes = 0;
  CALL(cuGraphGetNodes, graph, NULL, &nodes);
  note(t, "nodes", nodes);
  if (!CALL(cuGraphInstantiateWithFlags, &made, graph, 0)) {
    if (own->graph) CALL(cuGraphExecDestroy, own->graph);
    own->graph = made;
    for (int i = any(t, 3); i >= 0; i--) wait_for_turn(t, 1), run_graph(t, s);
  }
  CALL(cuGraphDestroy, graph);
}

static void wait_for_everything(struct thread *t, int s) {
  deviceptr p;
  float values[4];
  switch (any(t, 4)) {
    case 0: CALL(cuCtxSynchronize); break;
    case 1: CALL(cuMemcpyDtoH_v2, values, constants, sizeof values); break;
    case 2: if (!CALL(cuMemAlloc_v2, &p, 1 << 16)) CALL(cuMemFree_v2, p); break;
    default: {
      uint64_t ns = 2000;
      CALL(cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 0, any(t, 2) ? NULL : t->streams[s].handle, (void *[]){&ns}, NULL);
    }
  }
}

static void *run(void *argument) {
  struct thread *t = argument;
  wait_for_turn(t, 0);
  CALL(cuCtxSetCurrent, context);
  for (t->step = 1; t->step <= steps; t->step++) {
    int s = any(t, STREAMS);
    wait_for_turn(t, 1);
    switch (any(t, 20)) {
      case 0: case 1: capture(t, s); break;
      case 2: exchange(t, s, any(t, STREAMS)); break;
      case 3: case 4: use_event(t, s); break;
      case 5: wait_for(t, s); break;
      case 6: run_graph(t, s); break;
      case 7: if (takes_turns) wait_for_everything(t, s); break;
      default: work(t, s, s, any(t, 4) ? t->streams[s].main : t->streams[s].side);
    }
  }
  for (int s = 0; s < STREAMS; s++) {
    int mode = ask_leave(t);
    ON(s, cuStreamSynchronize, H);
    give_leave_back(t, mode);
  }
  if (takes_turns) {
    pthread_mutex_lock(&turn_lock);
    is_alive[t->number] = 0;
    next_turn();
    pthread_mutex_unlock(&turn_lock);
  }
  return NULL;
}

// ---- beginning and end ----------------------------------------------------------------------------------------

static void reach_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) { fprintf(stderr, "random_program: %s\n", dlerror()); exit(70); }
#define LOAD(name, args) *(void **)&cu.name = dlsym(library, #name); need(!cu.name, #name);
#define LOAD_BOTH(name, args) LOAD(name, args) LOAD(name##_ptsz, args)
  PLAIN(LOAD) TWINS(LOAD_BOTH)
}

static handle load(handle *module) {
  static char text[1 << 20];
  const char *folder = getenv("TIME_CLIENT_KERNELS");
  char path[4096];
  snprintf(path, sizeof path, "%s/test_kernels.ptx", folder ? folder : ".");
  FILE *f = fopen(path, "r");
  if (!f) { perror(path); exit(70); }
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  NEED(cuModuleLoadData, module, text);
  return *module;
}

static void prepare(struct thread *t, int number, uint64_t seed) {
  t->number = number;
  t->random = (seed ^ (number + 1) * 0x9E3779B97F4A7C15ull) | 1;
  t->log = open_memstream(&t->text, &t->length);
  is_alive[number] = 1;
  for (int s = 0; s < STREAMS; s++) {
    struct stream *stream = &t->streams[s];
    if (s == OWN_DEFAULT) stream->handle = (handle)2;
    else NEED(cuStreamCreateWithPriority, &stream->handle, s < 2 ? NON_BLOCKING : 0, s == 1 ? -5 : 0);
    NEED(cuMemAlloc_v2, &stream->main, 2 * BYTES);
    NEED(cuMemsetD8_v2, stream->main, 0, 2 * BYTES);
    stream->side = stream->main + BYTES;
    NEED(cuMemHostAlloc, (void **)&stream->copy, BYTES + 8, 0);
    memset(stream->copy, 0, BYTES + 8);
    stream->word = (uint64_t *)((char *)stream->copy + BYTES);
  }
  for (int e = 0; e < EVENTS; e++) NEED(cuEventCreate, &t->events[e], e % 2);
  for (int e = 0; e < 2; e++) NEED(cuEventCreate, &t->forks[e], DISABLE_TIMING);
  NEED(cuEventCreate, &t->untimed, DISABLE_TIMING);
}

static uint64_t sum(const void *bytes, size_t count) {
  uint64_t hash = 1469598103934665603ull;
  for (size_t i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
  return hash;
}

static void tell(struct thread *t) {
  fclose(t->log);
  fputs(t->text, stdout);
  for (int s = 0; s < STREAMS; s++) {
    struct stream *stream = &t->streams[s];
    float buffers[2 * VALUES];
    NEED(cuMemcpyDtoH_v2, buffers, stream->main, sizeof buffers);
    unsigned long long held = sum(buffers, sizeof buffers), copied = sum(stream->copy, BYTES), word = *stream->word;
    printf("%d.%d buffers %016llx copy %016llx", t->number, s, held, copied);
    printf(" called %u word %llu\n", stream->called, word);
  }
}

int main(int argc, char **argv) {
  static struct thread all[MOST];
  if (argc != 5) { fprintf(stderr, "usage: random_program SEED STEPS THREADS free|turns\n"); return 64; }
  uint64_t seed = strtoull(argv[1], NULL, 0);
  steps = atol(argv[2]);
  threads = atoi(argv[3]);
  takes_turns = !strcmp(argv[4], "turns");
  if (threads < 1 || threads > MOST) return 64;
  order_random = seed * 0x9E3779B97F4A7C15ull | 1;
  reach_driver();
  NEED(cuInit, 0);
  NEED(cuCtxCreate_v2, &context, 0, 0);
  handle module, other;
  load(&module);
  NEED(cuModuleGetFunction, &fill, module, "fill_u32");
  NEED(cuModuleGetFunction, &saxpy, module, "saxpy");
  NEED(cuModuleGetFunction, &add, module, "vector_add");
  NEED(cuModuleGetFunction, &scale, module, "scale_by_constant");
  NEED(cuModuleGetFunction, &spin, module, "spin_ns");
  NEED(cuModuleGetFunction, &first_form, load(&other), "fill_u32");
  float values[VALUES];
  for (int i = 0; i < VALUES; i++) values[i] = i % 7;
  host_constants = values;
  NEED(cuMemAlloc_v2, &constants, BYTES);
  // A copy in stream order waits for nobody, so the whole is waited for before the threads begin.
  NEED(cuMemcpyHtoDAsync_v2, constants, values, BYTES, NULL);
  for (int i = 0; i < threads; i++) prepare(&all[i], i, seed);
  NEED(cuCtxSynchronize);
  pthread_t ids[MOST];
  if (takes_turns) next_turn();
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, run, &all[i]);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  NEED(cuCtxSynchronize);
  for (int i = 0; i < threads; i++) tell(&all[i]);
  deviceptr counter;
  size_t size;
  unsigned launches = 0;
  NEED(cuModuleGetGlobal_v2, &counter, &size, module, "launches");
  NEED(cuMemcpyDtoH_v2, &launches, counter, sizeof launches);
  printf("launches %u\n", launches);
  return 0;
}
