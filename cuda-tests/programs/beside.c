// SPDX-License-Identifier: Apache-2.0
// Loads libraries before its first call of the CUDA runtime and after its last.
//
// usage: beside BEFORE AFTER...
#include <dlfcn.h>
#include <stdio.h>

int cudaGetDeviceCount(int *);

static int load(const char *path) {
  if (dlopen(path, RTLD_NOW)) return 0;
  printf("%s\n", dlerror());
  return 1;
}

int main(int count, char **words) {
  int devices = 0;
  if (count < 2 || load(words[1]) || cudaGetDeviceCount(&devices)) return 1;
  printf("%d devices\n", devices);
  for (int i = 2; i < count; i++)
    if (load(words[i])) return 1;
  return 0;
}
