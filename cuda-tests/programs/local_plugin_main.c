// SPDX-License-Identifier: Apache-2.0
// Opens local_plugin (which is linked against libcuda.so.1) RTLD_LOCAL; the plugin's RTLD_DEFAULT must find what the
// plugin's scope holds, under a preload as without. Prints the results of an allocation at and over a size.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 4) return 64;
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!plugin) { fprintf(stderr, "%s\n", dlerror()); return 65; }
  void *(*look_up)(const char *) = (void *(*)(const char *))dlsym(plugin, "plugin_look_up");
  int (*init)(unsigned) = (int (*)(unsigned))look_up("cuInit");
  int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))look_up("cuCtxCreate_v2");
  int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))look_up("cuMemAlloc_v2");
  if (!init || !create || !alloc) { printf("missing\n"); return 1; }
  void *context; uint64_t p;
  printf("init %d\n", init(0));
  printf("ctx %d\n", create(&context, 0, 0));
  printf("fits %d\n", alloc(&p, strtoull(argv[2], NULL, 0)));
  printf("over %d\n", alloc(&p, strtoull(argv[3], NULL, 0)));
  return 0;
}
