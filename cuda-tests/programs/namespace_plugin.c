// SPDX-License-Identifier: Apache-2.0
// Opened with dlmopen into a namespace of its own, it loads the driver there: no preload reaches that copy.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

int plugin_run(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return -1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
  int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
  void *context; uint64_t p;
  int r = init(0);
  if (!r) r = create(&context, 0, 0);
  if (!r) r = alloc(&p, 1 << 20);
  return r;
}
