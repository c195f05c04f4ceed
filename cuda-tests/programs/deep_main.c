// SPDX-License-Identifier: Apache-2.0
// Opens each library that is named with RTLD_DEEPBIND and has it try the driver: deep_main FITS OVER now|lazy FILE...
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The libraries have one of this name too; each must find its own.
int whose_am_i(void) { return 0; }

int main(int argc, char **argv) {
  if (argc < 5) return 64;
  size_t fits = strtoull(argv[1], NULL, 0), over = strtoull(argv[2], NULL, 0);
  int flags = RTLD_DEEPBIND | (strcmp(argv[3], "now") ? RTLD_LAZY : RTLD_NOW);
  for (int i = 4; i < argc; i++) {
    void *library = dlopen(argv[i], flags);
    int (*run)(size_t, size_t) = library ? (int (*)(size_t, size_t))dlsym(library, "run") : NULL;
    if (!run) {
      fprintf(stderr, "deep_main: %s\n", dlerror());
      return 65;
    }
    if (run(fits, over)) return 66;
  }
  printf("mine %d\n", whose_am_i());
  return 0;
}
