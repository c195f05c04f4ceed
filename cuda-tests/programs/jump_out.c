// SPDX-License-Identifier: Apache-2.0
// A signal's handler leaves launches by a jump. An allocation afterwards is the program's own call, not one that the
// driver makes inside a launch.
//
// usage: jump_out BYTES     after each jump asks for BYTES, which its limit does not allow; says how often it got them
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { ROUNDS = 20 };

static sigjmp_buf before;
static volatile sig_atomic_t is_launching;

static void jump(int signal) {
  (void)signal;
  if (!is_launching) return;
  is_launching = 0;
  siglongjmp(before, 1);
}

static void *need(void *driver, const char *name) {
  void *found = dlsym(driver, name);
  if (!found) { fprintf(stderr, "jump_out: no %s\n", name); exit(65); }
  return found;
}

int main(int argc, char **argv) {
  if (argc != 2) return 64;
  size_t bytes = strtoull(argv[1], NULL, 10);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need(driver, "cuInit");
  int (*create)(void **, unsigned, int) = need(driver, "cuCtxCreate_v2");
  int (*allocate)(uint64_t *, size_t) = need(driver, "cuMemAlloc_v2");
  int (*launch)(const void *, void *, void **, void **) = need(driver, "cuLaunchKernelEx");
  int (*launch_plain)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **) = need(driver, "cuLaunchKernel");
  struct { unsigned sizes[7]; void *stream, *attributes; unsigned count; } config = {{1, 1, 1, 1, 1, 1, 0}, 0, 0, 0};
  void *context;
  if (init(0) || create(&context, 0, 0)) return 66;
  // The first launch takes the long way.
  launch(&config, NULL, NULL, NULL);
  struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
  sigaction(SIGALRM, &action, NULL);
  int given = 0;
  for (volatile int round = 0; round < ROUNDS; round++) {
    // Until the timer meets a launch; it comes again when it met what lies between two.
    struct itimerval timer = {{0, 700}, {0, 1000 + rand() % 3000}}, off = {{0, 0}, {0, 0}};
    if (sigsetjmp(before, 1) == 0) {
      setitimer(ITIMER_REAL, &timer, NULL);
      // The driver refuses both: no function is named.
      for (;;) {
        is_launching = 1;
        if (round % 2) launch(&config, NULL, NULL, NULL);
        else launch_plain(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        is_launching = 0;
      }
    }
    setitimer(ITIMER_REAL, &off, NULL);
    uint64_t address;
    given += allocate(&address, bytes) == 0;
  }
  printf("rounds %d given %d\n", ROUNDS, given);
  return 0;
}
