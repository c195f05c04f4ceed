// SPDX-License-Identifier: Apache-2.0
// A CUDA driver API client that uses a device in one pattern for a while of device time, for tests of sharing.
//
// usage: time_client DEVICE_SECONDS PATTERN [ARGUMENT...]
//   kernel NS                     kernels of so many nanoseconds behind each other in one stream
//   ptds NS                       the same in the default stream of the thread
//   queue N NS LEGACY             the same with N in flight, each waited for by an event; in the legacy default stream
//                                 if LEGACY is 1
//   streams N NS                  the same in N streams at once
//   threads N NS                  the same in N threads, each with a stream
//   contexts N NS                 the same in N contexts, each with a thread
//   graph NS NODES                graphs of NODES kernels behind each other
//   burst GPU_NS CPU_NS           a kernel, a wait for its end, a sleep if CPU_NS is not 0
//   hang                          a kernel that never ends
//   past NS                       as kernel, launched by the driver's own function, past the library
//   forge NS OFFSET BYTES         as kernel, and a thread writes zeros over BYTES of the page in which the library
//                                 tells the broker what the program has under way
//   host NS CPU_NS                three kernels and behind them a host function in the same stream that waits CPU_NS
//   collective NS DEVICE...       rounds of a kernel on each device and a wait of each device for all others
//   rank NS FILE RANK RANKS DEVICE   the same with a process for each device; they meet in the words of FILE
//
// DEVICE_SECONDS may have decimals; 0 is until SIGTERM, which ends every pattern. SIGUSR1 makes it launch nothing, and
// the next SIGUSR1 makes it go on (not where it waits for others: hang, collective, rank). Time is measured with
// events: it is the device's, and it passes for every program there. Ranks end together, when rank 0 says so. What is
// in flight is bounded (four batches of half a millisecond, or four units), and the program blocks for it; it never
// spins. At the end it prints one line:
//
//   PATTERN launches=N units=N elapsed_ns=N checks=ok
//
// A unit is what the pattern repeats: a kernel, a graph, a burst, a round. The check is that the program had the device
// for at least the time that the kernels take, and for rounds that every rank has reached the last one. `checks=failed`
// ends with 1, a driver that refuses something with 70. TIME_CLIENT_KERNELS is the folder of the PTX texts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void *handle;
typedef uint64_t deviceptr;

#define LAUNCH (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **)
#define DRIVER(X) \
  X(cuInit, (unsigned)) \
  X(cuCtxCreate_v2, (handle *, unsigned, int)) \
  X(cuCtxSetCurrent, (handle)) \
  X(cuModuleLoadData, (handle *, const void *)) \
  X(cuModuleGetFunction, (handle *, handle, const char *)) \
  X(cuStreamCreate, (handle *, unsigned)) \
  X(cuStreamBeginCapture_v2, (handle, int)) \
  X(cuStreamEndCapture, (handle, handle *)) \
  X(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long)) \
  X(cuGraphLaunch, (handle, handle)) \
  X(cuEventCreate, (handle *, unsigned)) \
  X(cuEventRecord, (handle, handle)) \
  X(cuEventRecord_ptsz, (handle, handle)) \
  X(cuEventSynchronize, (handle)) \
  X(cuEventElapsedTime, (float *, handle, handle)) \
  X(cuLaunchKernel, LAUNCH) \
  X(cuLaunchHostFunc, (handle, void (*)(void *), void *)) \
  X(cuLaunchKernel_ptsz, LAUNCH) \
  X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
  X(cuMemHostGetDevicePointer_v2, (deviceptr *, void *, unsigned)) \
  X(cuStreamWriteValue64_v2, (handle, deviceptr, uint64_t, unsigned))

#define FIELD(name, args) int(*name) args;
static struct { DRIVER(FIELD) } cu;

#define CALL(name, ...) do { \
    int answered = cu.name(__VA_ARGS__); \
    if (answered) { fprintf(stderr, "time_client: %s: %d\n", #name, answered); _exit(70); } \
  } while (0)

enum { RING = 4, DEEPEST = 512, BATCH_NS = 500000, MOST = 64, PAGE = 4096 };
enum { BLOCKING_SYNC = 1, NON_BLOCKING = 1, THREAD_LOCAL = 1 };

static volatile sig_atomic_t is_over, is_held;
static double limit_ms;

static void stop(int signal) {
  (void)signal;
  is_over = 1;
}

static void hold_or_go_on(int signal) {
  (void)signal;
  is_held = !is_held;
}

// What is in flight ends, nothing is launched: until told to go on, or to end.
static void stand(void) {
  struct timespec moment = {0, 2000000};
  while (is_held && !is_over) nanosleep(&moment, NULL);
}

static void reach_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) { fprintf(stderr, "time_client: %s\n", dlerror()); exit(70); }
#define LOAD(name, args) \
  *(void **)&cu.name = dlsym(library, #name); \
  if (!cu.name) { fprintf(stderr, "time_client: %s\n", #name); exit(70); }
  DRIVER(LOAD)
}

// A function of a library as its own symbol table names it: what the C library's dlsym finds behind a preload.
static void *own_symbol(void *library, const char *name) {
  struct link_map *map = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map)) return NULL;
  const ElfW(Sym) *symbol = NULL;
  const char *names = NULL;
  size_t length = 0;
  for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag; entry++) {
    if (entry->d_tag == DT_SYMTAB) symbol = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) names = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRSZ) length = entry->d_un.d_val;
  }
  // The names stand behind the symbols.
  for (; (const char *)symbol < names; symbol++)
    if (symbol->st_value && symbol->st_name < length && !strcmp(names + symbol->st_name, name))
      return (void *)(map->l_addr + symbol->st_value);
  return NULL;
}

static void go_past(void) {
  *(void **)&cu.cuLaunchKernel = own_symbol(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
  if (!cu.cuLaunchKernel) { fprintf(stderr, "time_client: no own cuLaunchKernel\n"); exit(70); }
}

struct forgery { char *from; size_t bytes; };

// Kernels are many times longer than its pauses: whatever a launch writes is gone before the kernel's end.
static void *forge(void *argument) {
  struct forgery *forgery = argument;
  struct timespec pause = {0, 200000};
  for (;; nanosleep(&pause, NULL)) memset(forgery->from, 0, forgery->bytes);
  return NULL;
}

// Finds the page among this process's mappings by its first word, as any program could.
static void begin_to_forge(size_t offset, size_t bytes) {
  static struct forgery forgery;
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  if (!maps) { perror("/proc/self/maps"); exit(70); }
  while (!forgery.from && fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    char access[8];
    if (sscanf(line, "%lx-%lx %7s", &from, &to, access) != 3) continue;
    if (strcmp(access, "rw-s") || !strstr(line, "/memfd:")) continue;
    if (to - from >= offset + bytes && !memcmp((void *)from, "PTGC", 4))
      forgery = (struct forgery){(char *)from + offset, bytes};
  }
  fclose(maps);
  if (!forgery.from) { fprintf(stderr, "time_client: no page of Partage is mapped here\n"); exit(70); }
  pthread_t id;
  pthread_create(&id, NULL, forge, &forgery);
}

static handle kernel(const char *file, const char *name) {
  static char text[1 << 20];
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("TIME_CLIENT_KERNELS") ? getenv("TIME_CLIENT_KERNELS") : ".", file);
  pthread_mutex_lock(&one_at_a_time);
  FILE *f = fopen(path, "r");
  if (!f) { perror(path); exit(70); }
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  handle module, function;
  CALL(cuModuleLoadData, &module, text);
  CALL(cuModuleGetFunction, &function, module, name);
  pthread_mutex_unlock(&one_at_a_time);
  return function;
}

// One stream of work that repeats.
struct worker {
  handle context, stream, spin, graph;
  int is_per_thread;
  uint64_t ns, per_unit;          // nanoseconds of a kernel; kernels of a unit
  handle first, ring[RING];       // events
  uint64_t units, batches;
  double elapsed_ms;
};

static void spin(struct worker *w) {
  void *arguments[] = {&w->ns};
  if (w->is_per_thread) CALL(cuLaunchKernel_ptsz, w->spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
  else CALL(cuLaunchKernel, w->spin, 1, 1, 1, 1, 1, 1, 0, w->stream, arguments, NULL);
}

static void record(struct worker *w, handle event) {
  if (w->is_per_thread) CALL(cuEventRecord_ptsz, event, NULL);
  else CALL(cuEventRecord, event, w->stream);
}

// Precondition: its context is current.
static void prepare(struct worker *w, uint64_t ns) {
  w->ns = ns;
  w->per_unit = 1;
  w->spin = kernel("test_kernels.ptx", "spin_ns");
  if (!w->is_per_thread) CALL(cuStreamCreate, &w->stream, NON_BLOCKING);
  CALL(cuEventCreate, &w->first, BLOCKING_SYNC);
  for (int i = 0; i < RING; i++) CALL(cuEventCreate, &w->ring[i], BLOCKING_SYNC);
}

static uint64_t batch_of(const struct worker *w) {
  uint64_t unit = w->ns * w->per_unit, fit = unit ? BATCH_NS / unit : MOST;
  return fit < 1 ? 1 : fit > MOST ? MOST : fit;
}

// Waits for the oldest batch when the ring is full.
static void make_room(struct worker *w) {
  if (w->batches < RING) return;
  handle oldest = w->ring[w->batches % RING];
  CALL(cuEventSynchronize, oldest);
  float ms = 0;
  CALL(cuEventElapsedTime, &ms, w->first, oldest);
  if (limit_ms > 0 && ms >= limit_ms) is_over = 1;
}

static void add_batch(struct worker *w) {
  stand();
  if (!w->batches) record(w, w->first);
  make_room(w);
  for (uint64_t i = 0, n = batch_of(w); i < n; i++, w->units++) {
    if (w->graph) CALL(cuGraphLaunch, w->graph, w->stream);
    else spin(w);
  }
  record(w, w->ring[w->batches++ % RING]);
}

static void drain(struct worker *w) {
  if (!w->batches) return;
  handle last = w->ring[(w->batches - 1) % RING];
  CALL(cuEventSynchronize, last);
  float ms = 0;
  CALL(cuEventElapsedTime, &ms, w->first, last);
  w->elapsed_ms = ms;
}

static void *saturate(void *argument) {
  struct worker *w = argument;
  CALL(cuCtxSetCurrent, w->context);
  while (!is_over) add_batch(w);
  drain(w);
  return NULL;
}

// Events tell milliseconds as a float: half a microsecond or a millionth is lost.
static int has_its_time(const struct worker *w) {
  double least = 1e-6 * w->ns * w->per_unit * w->units;
  return w->elapsed_ms * 1.000001 + 0.0005 >= least;
}

static int report(const char *pattern, const struct worker *workers, int count, int is_right) {
  uint64_t launches = 0, units = 0;
  double elapsed = 0;
  for (int i = 0; i < count; i++) {
    launches += workers[i].units * workers[i].per_unit;
    units += workers[i].units;
    if (workers[i].elapsed_ms > elapsed) elapsed = workers[i].elapsed_ms;
    is_right &= has_its_time(&workers[i]);
  }
  printf("%s launches=%llu units=%llu elapsed_ns=%.0f checks=%s\n", pattern, (unsigned long long)launches,
         (unsigned long long)units, elapsed * 1e6, is_right ? "ok" : "failed");
  fflush(stdout);
  return !is_right;
}

static void run_threads(struct worker *workers, int count, void *(*body)(void *)) {
  pthread_t ids[MOST];
  for (int i = 0; i < count; i++) pthread_create(&ids[i], NULL, body, &workers[i]);
  for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
}

static void burst(struct worker *w, uint64_t cpu_ns) {
  struct timespec pause = {cpu_ns / 1000000000, cpu_ns % 1000000000};
  record(w, w->first);
  while (!is_over) {
    stand();
    spin(w);
    w->units++;
    record(w, w->ring[0]);
    CALL(cuEventSynchronize, w->ring[0]);
    float ms = 0;
    CALL(cuEventElapsedTime, &ms, w->first, w->ring[0]);
    w->elapsed_ms = ms;
    if (limit_ms > 0 && ms >= limit_ms) break;
    if (cpu_ns) nanosleep(&pause, NULL);
  }
}

static void wait_on_the_host(void *pause) { nanosleep(pause, NULL); }

static void host(struct worker *w, uint64_t cpu_ns) {
  static struct timespec pause;
  pause = (struct timespec){cpu_ns / 1000000000, cpu_ns % 1000000000};
  w->per_unit = 3;
  for (record(w, w->first); !is_over; w->units++) {
    stand();
    make_room(w);
    for (uint64_t i = 0; i < w->per_unit; i++) spin(w);
    CALL(cuLaunchHostFunc, w->stream, wait_on_the_host, &pause);
    record(w, w->ring[w->batches++ % RING]);
  }
  drain(w);
}

// So many kernels in flight, whatever the driver or who stands before it makes of that.
static void queue(struct worker *w, uint64_t depth, int is_legacy) {
  static handle ends[DEEPEST];
  if (is_legacy) w->stream = NULL;
  for (uint64_t i = 0; i < depth; i++) CALL(cuEventCreate, &ends[i], BLOCKING_SYNC);
  record(w, w->first);
  for (; !is_over; w->units++) {
    stand();
    handle oldest = ends[w->units % depth];
    if (w->units >= depth) CALL(cuEventSynchronize, oldest);
    spin(w);
    record(w, oldest);
    w->batches = w->units + 1;
  }
  if (w->batches) CALL(cuEventSynchronize, ends[(w->batches - 1) % depth]);
  float ms = 0;
  if (w->batches) CALL(cuEventElapsedTime, &ms, w->first, ends[(w->batches - 1) % depth]);
  w->elapsed_ms = ms;
}

static void capture(struct worker *w, uint64_t nodes) {
  handle graph, made;
  CALL(cuStreamBeginCapture_v2, w->stream, THREAD_LOCAL);
  for (uint64_t i = 0; i < nodes; i++) spin(w);
  CALL(cuStreamEndCapture, w->stream, &graph);
  CALL(cuGraphInstantiateWithFlags, &made, graph, 0);
  w->graph = made;
  w->per_unit = nodes;
}

static int hang(void) {
  sigset_t term, none;
  sigemptyset(&none);
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, NULL);
  handle stream, endless = kernel("time_kernels.ptx", "spin_for_ever");
  CALL(cuStreamCreate, &stream, NON_BLOCKING);
  CALL(cuLaunchKernel, endless, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
  while (!is_over) sigsuspend(&none);
  printf("hang launches=1 units=0 elapsed_ns=0 checks=ok\n");
  fflush(stdout);
  // Nobody waits for the kernel, the driver's own end neither.
  _exit(0);
}

#include "time_client_ranks.h"

static uint64_t number(int argc, char **argv, int index) {
  if (index >= argc) { fprintf(stderr, "time_client: %s needs more arguments\n", argv[2]); exit(64); }
  return strtoull(argv[index], NULL, 0);
}

int main(int argc, char **argv) {
  if (argc < 3) { fprintf(stderr, "usage: time_client DEVICE_SECONDS PATTERN [ARGUMENT...]\n"); return 64; }
  limit_ms = atof(argv[1]) * 1000;
  const char *pattern = argv[2];
  struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  action.sa_handler = hold_or_go_on;
  sigaction(SIGUSR1, &action, NULL);
  reach_driver();
  CALL(cuInit, 0);
  static struct worker workers[MOST];
  if (!strcmp(pattern, "collective")) {
    if (argc < 5 || argc - 4 > MOST) return 64;
    return collective(number(argc, argv, 3), argc - 4, argv + 4);
  }
  if (!strcmp(pattern, "rank")) {
    int device = number(argc, argv, 7), ranks = number(argc, argv, 6);
    if (ranks > MOST) return 64;
    return rank(number(argc, argv, 3), argv[4], number(argc, argv, 5), ranks, device);
  }
  int is_many = !strcmp(pattern, "streams") || !strcmp(pattern, "threads") || !strcmp(pattern, "contexts");
  int is_queue = !strcmp(pattern, "queue");
  int count = is_many ? number(argc, argv, 3) : 1;
  if (count < 1 || count > MOST) return 64;
  for (int i = 0; i < count; i++) {
    if (i == 0 || !strcmp(pattern, "contexts")) CALL(cuCtxCreate_v2, &workers[i].context, 0, 0);
    else workers[i].context = workers[0].context;
  }
  if (!strcmp(pattern, "hang")) return hang();
  uint64_t ns = number(argc, argv, is_many || is_queue ? 4 : 3);
  for (int i = 0; i < count; i++) {
    CALL(cuCtxSetCurrent, workers[i].context);
    workers[i].is_per_thread = !strcmp(pattern, "ptds");
    prepare(&workers[i], ns);
  }
  if (!strcmp(pattern, "past")) go_past();
  if (!strcmp(pattern, "forge")) begin_to_forge(number(argc, argv, 4), number(argc, argv, 5));
  if (!strcmp(pattern, "kernel") || !strcmp(pattern, "ptds") || !strcmp(pattern, "past") || !strcmp(pattern, "forge")) {
    saturate(&workers[0]);
  } else if (!strcmp(pattern, "threads") || !strcmp(pattern, "contexts")) {
    run_threads(workers, count, saturate);
  } else if (!strcmp(pattern, "streams")) {
    while (!is_over) for (int i = 0; i < count; i++) add_batch(&workers[i]);
    for (int i = 0; i < count; i++) drain(&workers[i]);
  } else if (is_queue) {
    uint64_t depth = number(argc, argv, 3);
    if (depth < 1 || depth > DEEPEST) return 64;
    queue(&workers[0], depth, number(argc, argv, 5) == 1);
  } else if (!strcmp(pattern, "graph")) {
    capture(&workers[0], number(argc, argv, 4));
    saturate(&workers[0]);
  } else if (!strcmp(pattern, "burst")) {
    burst(&workers[0], number(argc, argv, 4));
  } else if (!strcmp(pattern, "host")) {
    host(&workers[0], number(argc, argv, 4));
  } else {
    fprintf(stderr, "time_client: unknown pattern %s\n", pattern);
    return 64;
  }
  return report(pattern, workers, count, 1);
}
