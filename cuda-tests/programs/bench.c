// SPDX-License-Identifier: Apache-2.0
// Times one kind of driver call and prints nanoseconds per call, best and median of several batches.
//
// usage: bench pass|hooked|alloc|managed|pitch|array|mipmap|physical|graph|async|info CALLS
//             bench spawn COUNT COMMAND [ARG...]      bench attach COUNT
// pass: cuDriverGetVersion (not exported by the library); hooked: cuMemFree of NULL (the shortest hook that forwards);
// alloc: cuMemAlloc + cuMemFree of 4 KiB; async: cuMemAllocAsync and cuMemFreeAsync of 4 KiB on one stream, from a pool
// that has them (nanoseconds of the allocation, median and 99th percentile, and the free's median, the clock's own cost left
// out); info: cuMemGetInfo;
// spawn: vfork+exec+wait of a command; attach: COUNT child processes call cuInit at once, time until the last has
// returned.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

enum { BATCHES = 15 };

static void report(double *batch, long calls) {
  qsort(batch, BATCHES, sizeof *batch, ascending);
  printf("%.2f %.2f\n", batch[0] / calls, batch[BATCHES / 2] / calls);
}

static void *need(void *handle, const char *name) {
  void *p = dlsym(handle, name);
  if (!p) { fprintf(stderr, "bench: %s missing\n", name); exit(65); }
  return p;
}

// Pairs in stream order from a pool that keeps what it has.
static int pairs_in_order(void *h, long calls) {
  int (*create)(void **, unsigned) = need(h, "cuStreamCreate");
  int (*alloc)(uint64_t *, size_t, void *) = need(h, "cuMemAllocAsync");
  int (*release)(uint64_t, void *) = need(h, "cuMemFreeAsync");
  int (*sync)(void *) = need(h, "cuStreamSynchronize");
  int (*pool_of)(void **, int) = need(h, "cuDeviceGetDefaultMemPool");
  int (*set)(void *, int, void *) = need(h, "cuMemPoolSetAttribute");
  void *stream, *pool;
  uint64_t keep = UINT64_MAX, p;
  double *took = malloc(calls * sizeof *took), *freed = malloc(calls * sizeof *freed), *clock = malloc(calls * sizeof *clock);
  if (!took || !freed || !clock || create(&stream, 1) || pool_of(&pool, 0) || set(pool, 4, &keep)) return 66;
  for (long i = -1000; i < calls; i++) {
    double start = now();
    if (alloc(&p, 4096, stream)) return 67;
    double middle = now();
    if (release(p, stream)) return 67;
    double end = now();
    if (i >= 0) took[i] = middle - start, freed[i] = end - middle, clock[i] = now() - end;
    if (i % 256 == 0 && sync(stream)) return 67;
  }
  qsort(took, calls, sizeof *took, ascending);
  qsort(freed, calls, sizeof *freed, ascending);
  qsort(clock, calls, sizeof *clock, ascending);
  double tick = clock[calls / 2];
  printf("%.2f %.2f %.2f\n", took[calls / 2] - tick, took[calls * 99 / 100] - tick, freed[calls / 2] - tick);
  return 0;
}

// A family's allocation and its free, of the same small size each time.
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
struct physical { int type, handles, location_type, location; void *win32; char flags[8]; };
static void *library;

static int managed_pair(void) {
  static int (*alloc)(uint64_t *, size_t, unsigned), (*release)(uint64_t);
  if (!alloc) alloc = need(library, "cuMemAllocManaged"), release = need(library, "cuMemFree_v2");
  uint64_t p;
  return alloc(&p, 4096, 1) || release(p);
}

static int pitch_pair(void) {
  static int (*alloc)(uint64_t *, size_t *, size_t, size_t, unsigned), (*release)(uint64_t);
  if (!alloc) alloc = need(library, "cuMemAllocPitch_v2"), release = need(library, "cuMemFree_v2");
  uint64_t p; size_t pitch;
  return alloc(&p, &pitch, 1000, 4, 4) || release(p);
}

static int array_pair(void) {
  static int (*make)(void **, const struct array3d *), (*end)(void *);
  if (!make) make = need(library, "cuArray3DCreate_v2"), end = need(library, "cuArrayDestroy");
  struct array3d shape = {64, 16, 0, 0x20, 1, 0}; void *a;
  return make(&a, &shape) || end(a);
}

static int mipmap_pair(void) {
  static int (*make)(void **, const struct array3d *, unsigned), (*end)(void *);
  if (!make) make = need(library, "cuMipmappedArrayCreate"), end = need(library, "cuMipmappedArrayDestroy");
  struct array3d shape = {64, 16, 0, 0x20, 1, 0}; void *a;
  return make(&a, &shape, 3) || end(a);
}

static int physical_pair(void) {
  static int (*make)(uint64_t *, size_t, const struct physical *, unsigned long long), (*end)(uint64_t);
  if (!make) make = need(library, "cuMemCreate"), end = need(library, "cuMemRelease");
  struct physical on_device = {.type = 1, .location_type = 1}; uint64_t h;
  return make(&h, 2 << 20, &on_device, 0) || end(h);
}

// One launch of a graph that allocates and frees, and its end.
static int graph_launch(void) {
  static int (*launch)(void *, void *), (*sync)(void *);
  static void *stream, *executable;
  if (!launch) {
    int (*create)(void **, unsigned) = need(library, "cuStreamCreate");
    int (*begin)(void *, int) = need(library, "cuStreamBeginCapture_v2"), (*end)(void *, void **) = need(library, "cuStreamEndCapture");
    int (*alloc)(uint64_t *, size_t, void *) = need(library, "cuMemAllocAsync"), (*release)(uint64_t, void *) = need(library, "cuMemFreeAsync");
    int (*make)(void **, void *, unsigned long long) = need(library, "cuGraphInstantiateWithFlags");
    void *graph; uint64_t p;
    launch = need(library, "cuGraphLaunch");
    sync = need(library, "cuStreamSynchronize");
    if (create(&stream, 1) || begin(stream, 1) || alloc(&p, 4096, stream) || release(p, stream) || end(stream, &graph)) return 1;
    if (make(&executable, graph, 0)) return 1;
  }
  return launch(executable, stream) || sync(stream);
}

static const struct { const char *name; int (*pair)(void); } FAMILIES[] = {
  {"managed", managed_pair}, {"pitch", pitch_pair}, {"array", array_pair}, {"mipmap", mipmap_pair},
  {"physical", physical_pair}, {"graph", graph_launch},
};

// The call that a launch is, up to the point where the driver looks at the function: what stands before it is the gate.
typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_fn launch, forward_to;

// What any function in between costs, whatever it does: the arguments go through the stack once more.
__attribute__((noinline)) static int forward(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
                                             unsigned shared, void *stream, void **parameters, void **extra) {
  int result = forward_to(f, a, b, c, d, e, g, shared, stream, parameters, extra);
  __asm__ volatile("" ::: "memory");
  return result;
}

static void *bench_context;
enum { SAMPLES = 2000 };
struct launcher { pthread_t thread; pthread_barrier_t *barrier; long calls; double sample[SAMPLES]; };

static void *launch_often(void *argument) {
  struct launcher *l = argument;
  int (*use)(void *) = need(library, "cuCtxSetCurrent");
  use(bench_context);
  pthread_barrier_wait(l->barrier);
  for (int s = 0; s < SAMPLES; s++) {
    double start = now();
    for (long i = 0; i < l->calls; i++) launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    l->sample[s] = now() - start;
  }
  return NULL;
}

// Median and 99th percentile of one thread's calls, by the mean of short runs of them, while `threads` do the same.
static int launches(long calls, int threads, int is_forwarded) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, threads);
  static struct launcher all[64];
  launch = forward_to = need(library, "cuLaunchKernel");
  if (is_forwarded) launch = forward;
  for (int i = 0; i < threads; i++) {
    all[i].barrier = &barrier;
    all[i].calls = calls / SAMPLES;
    if (pthread_create(&all[i].thread, NULL, launch_often, &all[i])) return 65;
  }
  for (int i = 0; i < threads; i++) pthread_join(all[i].thread, NULL);
  qsort(all[0].sample, SAMPLES, sizeof *all[0].sample, ascending);
  double of_call = calls / SAMPLES;
  printf("%.2f %.2f\n", all[0].sample[SAMPLES / 2] / of_call, all[0].sample[SAMPLES * 99 / 100] / of_call);
  return 0;
}

static volatile long steps;
static void on_step(int unused) { (void)unused; steps++; }

// Instructions of one call: the processor traps after each. Only where it can be told to.
static int count_instructions(void) {
#if defined(__x86_64__)
  for (int i = 0; i < 100; i++) launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  signal(SIGTRAP, on_step);
  __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
  printf("%ld %ld\n", steps, steps);
  return 0;
#else
  return 69;
#endif
}

int main(int argc, char **argv) {
  if (argc < 3) return 64;
  long calls = atol(argv[2]);
  double batch[BATCHES];
  if (!strcmp(argv[1], "spawn")) {
    for (int b = 0; b < BATCHES; b++) {
      double start = now();
      for (long i = 0; i < calls; i++) {
        pid_t child; int status;
        if (posix_spawn(&child, argv[3], NULL, NULL, argv + 3, environ)) return 65;
        waitpid(child, &status, 0);
      }
      batch[b] = now() - start;
    }
    report(batch, calls);
    return 0;
  }
  if (!strcmp(argv[1], "attach")) {
    pthread_barrier_t *barrier = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, calls + 1);
    for (long i = 0; i < calls; i++) {
      if (fork() == 0) {
        void *h = dlopen("libcuda.so.1", RTLD_NOW);
        if (!h) _exit(1);
        int (*init)(unsigned) = need(h, "cuInit");
        pthread_barrier_wait(barrier);
        int r = init(0);
        pthread_barrier_wait(barrier);
        _exit(r != 0);
      }
    }
    pthread_barrier_wait(barrier);
    double start = now();
    pthread_barrier_wait(barrier);
    double took = now() - start;
    int failed = 0, status;
    while (wait(&status) > 0) failed += status != 0;
    printf("%.2f %d\n", took / 1e6, failed);
    return failed != 0;
  }
  void *h = dlopen("libcuda.so.1", RTLD_NOW);
  if (!h) { fprintf(stderr, "bench: %s\n", dlerror()); return 65; }
  int (*init)(unsigned) = need(h, "cuInit");
  int (*create)(void **, unsigned, int) = need(h, "cuCtxCreate_v2");
  int (*version)(int *) = need(h, "cuDriverGetVersion");
  int (*alloc)(uint64_t *, size_t) = need(h, "cuMemAlloc_v2");
  int (*release)(uint64_t) = need(h, "cuMemFree_v2");
  int (*info)(size_t *, size_t *) = need(h, "cuMemGetInfo_v2");
  void *context; int v; uint64_t p; size_t a, b2;
  double first = now();
  if (init(0)) return 66;
  double attached = now() - first;
  if (create(&context, 0, 0)) return 66;
  if (!strcmp(argv[1], "init")) { printf("%.2f %.2f\n", attached, attached); return 0; }
  if (!strcmp(argv[1], "async")) return pairs_in_order(h, calls);
  library = h;
  bench_context = context;
  int is_forwarded = !strcmp(argv[1], "forward");
  if (!strncmp(argv[1], "steps", 5)) {
    launch = forward_to = need(h, "cuLaunchKernel");
    if (strcmp(argv[1], "steps")) launch = forward;
    return count_instructions();
  }
  if (is_forwarded || !strcmp(argv[1], "launch")) return launches(calls, argc > 3 ? atoi(argv[3]) : 1, is_forwarded);
  for (size_t f = 0; f < sizeof FAMILIES / sizeof *FAMILIES; f++) {
    if (strcmp(argv[1], FAMILIES[f].name)) continue;
    for (int b = 0; b < BATCHES; b++) {
      double start = now();
      for (long i = 0; i < calls; i++) if (FAMILIES[f].pair()) return 67;
      batch[b] = now() - start;
    }
    report(batch, calls);
    return 0;
  }
  for (int b = 0; b < BATCHES; b++) {
    double start = now();
    if (!strcmp(argv[1], "pass")) for (long i = 0; i < calls; i++) version(&v);
    else if (!strcmp(argv[1], "hooked")) for (long i = 0; i < calls; i++) release(0);
    else if (!strcmp(argv[1], "alloc")) for (long i = 0; i < calls; i++) { if (alloc(&p, 4096)) return 67; release(p); }
    else if (!strcmp(argv[1], "info")) for (long i = 0; i < calls; i++) info(&a, &b2);
    else return 64;
    batch[b] = now() - start;
  }
  report(batch, calls);
  return 0;
}
