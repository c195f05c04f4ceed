// SPDX-License-Identifier: Apache-2.0
// Many clients that do nothing: COUNT processes call cuInit, then all wait until this one ends.
//
// usage: crowd COUNT     prints "ready" when all have, or ends with 1 when one could not
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  long count = argc == 2 ? atol(argv[1]) : 0;
  int report[2];
  if (count < 1 || pipe(report)) return 64;
  for (long i = 0; i < count; i++) {
    pid_t child = fork();
    if (child < 0) { perror("fork"); return 1; }
    if (child) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(report[0]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    char said = init && init(0) == 0;
    if (write(report[1], &said, 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(report[1]);
  for (long i = 0; i < count; i++) {
    char said;
    if (read(report[0], &said, 1) != 1 || !said) return 1;
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
