// SPDX-License-Identifier: Apache-2.0
// Runs namespace_plugin in a dlmopen namespace, then waits for the end of its input.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *plugin = argc > 1 ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : NULL;
  if (!plugin) { fprintf(stderr, "%s\n", dlerror()); return 65; }
  int (*run)(void) = (int (*)(void))dlsym(plugin, "plugin_run");
  printf("plugin %d\n", run());
  fflush(stdout);
  while (getchar() != EOF) {}
  return 0;
}
