// SPDX-License-Identifier: Apache-2.0
// Another hooking library, as profilers and allocators ship them: overrides dlsym and one driver function, and finds
// what it replaced with RTLD_NEXT. Preloaded before and after ours, neither may recurse or hide the other.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <stdint.h>
#include <unistd.h>

static int calls;

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
  static int (*next)(uint64_t *, size_t);
  if (!next) {
    next = (int (*)(uint64_t *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (!next) {
      void *driver = dlopen("libcuda.so.1", RTLD_NOW);
      next = driver ? (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2") : NULL;
    }
  }
  calls++;
  return next ? next(pointer, bytes) : 34;
}

int second_hook_calls(void) { return calls; }

// malloc is the classic: an allocator shim looks it up with RTLD_NEXT on the first allocation of the process.
void *malloc(size_t bytes) {
  static void *(*next)(size_t);
  if (!next) next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return next(bytes);
}
