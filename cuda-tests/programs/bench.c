// SPDX-License-Identifier: Apache-2.0
// Times one kind of driver call and prints nanoseconds per call, best and median of several batches.
//
// usage: bench pass|hooked|alloc|managed|pitch|array|mipmap|physical|graph|async|info|sync CALLS
//        bench hold MEBIBYTES
//        bench spawn COUNT COMMAND [ARG...]
//        bench attach COUNT
//        bench gate CALLS THREADS
//        bench steps 1
//
//   pass     cuDriverGetVersion, which the library does not export
//   hooked   cuMemFree of NULL, the shortest hook that forwards
//   alloc    cuMemAlloc + cuMemFree of 4 KiB
//   async    cuMemAllocAsync and cuMemFreeAsync of 4 KiB on one stream, from a pool that has them: nanoseconds of the
//            allocation (median and 99th percentile) and of the free (median), without the clock's own cost
//   info     cuMemGetInfo
//   sync     cuCtxSynchronize with nothing in flight
//   gate     cuLaunchKernel of no function, which the driver refuses at once, in turns through a function that only
//            forwards to the driver and as the program finds it: nanoseconds of a call in runs of calls (median of
//            both), and of calls timed one by one (median of both, 99th percentile of both)
//   steps    instructions of that call: straight, forwarded and as found
//   spawn    vfork+exec+wait of a command, 10th percentile and median of COUNT
//   attach   COUNT child processes call cuInit at once: time until the last has returned
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
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
  double *took = malloc(calls * sizeof *took), *freed = malloc(calls * sizeof *freed);
  double *clock = malloc(calls * sizeof *clock);
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
    int (*begin)(void *, int) = need(library, "cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = need(library, "cuStreamEndCapture");
    int (*alloc)(uint64_t *, size_t, void *) = need(library, "cuMemAllocAsync");
    int (*release)(uint64_t, void *) = need(library, "cuMemFreeAsync");
    int (*make)(void **, void *, unsigned long long) = need(library, "cuGraphInstantiateWithFlags");
    void *graph; uint64_t p;
    launch = need(library, "cuGraphLaunch");
    sync = need(library, "cuStreamSynchronize");
    if (create(&stream, 1) || begin(stream, 1)) return 1;
    if (alloc(&p, 4096, stream) || release(p, stream) || end(stream, &graph)) return 1;
    if (make(&executable, graph, 0)) return 1;
  }
  return launch(executable, stream) || sync(stream);
}

static const struct { const char *name; int (*pair)(void); } FAMILIES[] = {
  {"managed", managed_pair}, {"pitch", pitch_pair}, {"array", array_pair}, {"mipmap", mipmap_pair},
  {"physical", physical_pair}, {"graph", graph_launch},
};

// The call that a launch is, up to the point where the driver looks at the function: what stands before it is the gate.
typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);
static launch_fn found, driver;

// The library's own function of that name, whatever dlsym says.
static void *own(void *handle, const char *name) {
  struct link_map *map = handle;
  const ElfW(Sym) *symbols = NULL;
  const char *strings = NULL;
  const uint32_t *hash = NULL;
  for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
    if (d->d_tag == DT_SYMTAB) symbols = (const void *)d->d_un.d_ptr;
    if (d->d_tag == DT_STRTAB) strings = (const char *)d->d_un.d_ptr;
    if (d->d_tag == DT_GNU_HASH) hash = (const uint32_t *)d->d_un.d_ptr;
  }
  if (!symbols || !strings || !hash) exit(65);
  uint32_t h = 5381, buckets = hash[0], first = hash[1], bloom = hash[2];
  for (const char *c = name; *c; c++) h = h * 33 + (unsigned char)*c;
  const uint32_t *bucket = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
  uint32_t i = bucket[h % buckets];
  if (i < first) exit(65);
  for (;; i++) {
    if (!strcmp(strings + symbols[i].st_name, name)) return (void *)(map->l_addr + symbols[i].st_value);
    if (chain[i - first] & 1) exit(65);
  }
}

// What any function in between costs, whatever it does: the arguments go through the stack once more.
__attribute__((noinline)) static int forward(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e,
                                             unsigned g, unsigned shared, void *stream, void **parameters,
                                             void **extra) {
  int result = driver(f, a, b, c, d, e, g, shared, stream, parameters, extra);
  __asm__ volatile("" ::: "memory");
  return result;
}

static int refused(launch_fn launch) { return launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

// A clock that waits for what is before it and is not overtaken by what is after.
#if defined(__x86_64__)
static inline uint64_t tick(void) {
  uint32_t low, high;
  __asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high)::"memory");
  return (uint64_t)high << 32 | low;
}
#else
static inline uint64_t tick(void) { return (uint64_t)now(); }
#endif

static void *bench_context;
enum { SAMPLES = 1000, SINGLES = 20000, MOST_THREADS = 64 };
// By kind: forwarded, found.
struct launcher {
  pthread_t thread;
  pthread_barrier_t *barrier;
  long calls;
  double run[2][SAMPLES], single[2][SINGLES];
};

static void *launch_often(void *argument) {
  struct launcher *l = argument;
  const launch_fn kinds[2] = {forward, found};
  int (*use)(void *) = need(library, "cuCtxSetCurrent");
  use(bench_context);
  for (int i = 0; i < 1000; i++) refused(found);
  pthread_barrier_wait(l->barrier);
  double begin = now();
  uint64_t first = tick();
  for (int s = 0; s < SAMPLES; s++) {
    for (int kind = 0; kind < 2; kind++) {
      double start = now();
      for (long i = 0; i < l->calls; i++) refused(kinds[kind]);
      l->run[kind][s] = (now() - start) / l->calls;
    }
  }
  double ns_of_tick = (now() - begin) / (tick() - first);
  for (int s = 0; s < SINGLES; s++) {
    for (int kind = 0; kind < 2; kind++) {
      uint64_t start = tick();
      refused(kinds[kind]);
      l->single[kind][s] = (tick() - start) * ns_of_tick;
    }
  }
  return NULL;
}

// Forwarded and found, in turns, by `threads` threads at once.
static int launches(long calls, int threads) {
  pthread_barrier_t barrier;
  struct launcher *all = calloc(MOST_THREADS, sizeof *all);
  double *samples = malloc(sizeof(double) * MOST_THREADS * SINGLES);
  if (!all || !samples || threads < 1 || threads > MOST_THREADS || calls < SAMPLES) return 64;
  pthread_barrier_init(&barrier, NULL, threads);
  for (int i = 0; i < threads; i++) {
    all[i].barrier = &barrier;
    all[i].calls = calls / SAMPLES;
    if (pthread_create(&all[i].thread, NULL, launch_often, &all[i])) return 65;
  }
  for (int i = 0; i < threads; i++) pthread_join(all[i].thread, NULL);
  double half[2], single[2], most[2];
  for (int kind = 0; kind < 2; kind++) {
    for (int i = 0; i < threads; i++) memcpy(samples + i * SAMPLES, all[i].run[kind], sizeof all[i].run[kind]);
    qsort(samples, threads * SAMPLES, sizeof *samples, ascending);
    half[kind] = samples[threads * SAMPLES / 2];
    for (int i = 0; i < threads; i++) memcpy(samples + i * SINGLES, all[i].single[kind], sizeof all[i].single[kind]);
    qsort(samples, threads * SINGLES, sizeof *samples, ascending);
    single[kind] = samples[threads * SINGLES / 2];
    most[kind] = samples[(long)threads * SINGLES * 99 / 100];
  }
  printf("%.2f %.2f %.2f %.2f %.2f %.2f\n", half[0], half[1], single[0], single[1], most[0], most[1]);
  return 0;
}

static volatile long steps;
static void on_step(int unused) { (void)unused; steps++; }

// Instructions of one call: the processor traps after each, where it can be told to. The three kinds are counted in
// turns and the smallest of many counts is kept, because a driver does more in some calls than in others, sometimes for
// a while.
static int count_instructions(void) {
#if defined(__x86_64__)
  const launch_fn kinds[3] = {driver, forward, found};
  long counted[3];
  signal(SIGTRAP, on_step);
  for (int i = 0; i < 300; i++) refused(kinds[i % 3]);
  for (int again = 0; again < 100; again++) {
    for (int kind = 0; kind < 3; kind++) {
      steps = 0;
      launch_fn launch = kinds[kind];
      __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
      launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
      __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
      if (again == 0 || steps < counted[kind]) counted[kind] = steps;
    }
  }
  printf("%ld %ld %ld\n", counted[0], counted[1], counted[2]);
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
    double *took = malloc(calls * sizeof *took);
    if (!took || calls < 1) return 65;
    for (long i = 0; i < calls; i++) {
      pid_t child; int status;
      double start = now();
      if (posix_spawn(&child, argv[3], NULL, NULL, argv + 3, environ)) return 65;
      waitpid(child, &status, 0);
      took[i] = now() - start;
    }
    qsort(took, calls, sizeof *took, ascending);
    printf("%.0f %.0f\n", took[calls / 10], took[calls / 2]);
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
  int (*finish)(void) = need(h, "cuCtxSynchronize");
  void *context; int v; uint64_t p; size_t a, b2;
  double first = now();
  if (init(0)) return 66;
  double attached = now() - first;
  if (create(&context, 0, 0)) return 66;
  if (!strcmp(argv[1], "init")) { printf("%.2f %.2f\n", attached, attached); return 0; }
  if (!strcmp(argv[1], "async")) return pairs_in_order(h, calls);
  if (!strcmp(argv[1], "hold")) {
    /* Holds so many mebibytes until its input ends; writes to them at first and at each line of it. */
    int (*fill)(uint64_t, unsigned char, size_t) = need(h, "cuMemsetD8_v2");
    size_t bytes = (size_t)calls << 20;
    if (alloc(&p, bytes)) return 67;
    for (int c = '\n'; c != EOF; c = getchar()) {
      if (c != '\n') continue;
      if (fill(p, 165, bytes) || finish()) return 68;
      puts("0");
      fflush(stdout);
    }
    return release(p) ? 67 : 0;
  }
  library = h;
  bench_context = context;
  found = need(h, "cuLaunchKernel");
  driver = own(h, "cuLaunchKernel");
  if (!strcmp(argv[1], "steps")) return count_instructions();
  if (!strcmp(argv[1], "gate")) return launches(calls, argc > 3 ? atoi(argv[3]) : 1);
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
    else if (!strcmp(argv[1], "sync")) for (long i = 0; i < calls; i++) finish();
    else if (!strcmp(argv[1], "info")) for (long i = 0; i < calls; i++) info(&a, &b2);
    else return 64;
    batch[b] = now() - start;
  }
  report(batch, calls);
  return 0;
}
