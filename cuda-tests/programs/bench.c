// SPDX-License-Identifier: Apache-2.0
// Times one kind of driver call and prints nanoseconds per call, best and median of several batches.
//
// usage: bench pass|hooked|alloc|async|info CALLS      bench spawn COUNT COMMAND [ARG...]      bench attach COUNT
// pass: cuDriverGetVersion (not exported by the library); hooked: cuMemFree of NULL (the shortest hook that forwards);
// alloc: cuMemAlloc + cuMemFree of 4 KiB; async: cuMemAllocAsync + cuMemFreeAsync of 4 KiB on one stream, from a pool
// that has them (nanoseconds of one pair, median and 99th percentile, the clock's own cost left out); info: cuMemGetInfo;
// spawn: vfork+exec+wait of a command; attach: COUNT child processes call cuInit at once, time until the last has
// returned.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
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
  double *took = malloc(calls * sizeof *took), *clock = malloc(calls * sizeof *clock);
  if (!took || !clock || create(&stream, 1) || pool_of(&pool, 0) || set(pool, 4, &keep)) return 66;
  for (long i = -1000; i < calls; i++) {
    double start = now();
    if (alloc(&p, 4096, stream) || release(p, stream)) return 67;
    double end = now();
    if (i >= 0) took[i] = end - start, clock[i] = now() - end;
    if (i % 256 == 0 && sync(stream)) return 67;
  }
  qsort(took, calls, sizeof *took, ascending);
  qsort(clock, calls, sizeof *clock, ascending);
  printf("%.2f %.2f\n", took[calls / 2] - clock[calls / 2], took[calls * 99 / 100] - clock[calls / 2]);
  return 0;
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
