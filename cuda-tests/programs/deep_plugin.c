// SPDX-License-Identifier: Apache-2.0
// A library that is opened with RTLD_DEEPBIND: which of two functions of one name it finds, and what its driver lets it
// allocate. It looks the driver's functions up, or is linked with it (-DLINKED). With -DEARLY its constructor
// does so; with -DOPENS another library of this kind does it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// The program has one of this name too; each must find its own.
int whose_am_i(void) { return TAG; }

#ifdef LINKED
extern int cuInit(unsigned);
extern int cuDeviceGet(int *, int);
extern int cuCtxCreate_v2(void **, unsigned, int);
extern int cuMemAlloc_v2(uint64_t *, size_t);
// An address in data, which is filled in at load.
int (*const get_device)(int *, int) = cuDeviceGet;
#endif

#ifndef LINKED
static int (*cuInit)(unsigned);
static int (*cuDeviceGet)(int *, int);
static int (*cuCtxCreate_v2)(void **, unsigned, int);
static int (*cuMemAlloc_v2)(uint64_t *, size_t);
#define get_device cuDeviceGet

#ifdef EARLY
__attribute__((constructor))
#endif
static void look_up(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return;
  cuInit = (int (*)(unsigned))dlsym(driver, "cuInit");
  cuDeviceGet = (int (*)(int *, int))dlsym(driver, "cuDeviceGet");
  cuCtxCreate_v2 = (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
  cuMemAlloc_v2 = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
}
#endif

int try_driver(size_t fits, size_t over) {
  uint64_t p;
  void *context;
  int device;
#if !defined(LINKED) && !defined(EARLY)
  look_up();
#endif
  printf("init %d\n", cuInit(0));
  printf("device %d\n", get_device(&device, 0));
  printf("context %d\n", cuCtxCreate_v2(&context, 0, device));
  printf("fits %d\n", cuMemAlloc_v2(&p, fits));
  printf("over %d\n", cuMemAlloc_v2(&p, over));
  fflush(stdout);
  return 0;
}

#ifdef OPENS
// By a name that only this library's own search path leads to.
int run(size_t fits, size_t over) {
  void *other = dlopen(OPENS, RTLD_NOW | RTLD_DEEPBIND);
  int (*run_other)(size_t, size_t) = other ? (int (*)(size_t, size_t))dlsym(other, "run") : NULL;
  if (!run_other) fprintf(stderr, "deep_plugin: %s\n", dlerror());
  return run_other ? run_other(fits, over) : 67;
}
#else
int run(size_t fits, size_t over) {
  printf("whose %d\n", whose_am_i());
  return try_driver(fits, over);
}
#endif
