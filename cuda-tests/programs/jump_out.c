// SPDX-License-Identifier: Apache-2.0
// A signal's handler leaves calls by a jump; what the program allocates afterwards is its own call, not the driver's.
//
// usage: jump_out BYTES [KERNELS]
//
// After each jump it asks for BYTES, which its limit does not allow, and says how often it got them. It leaves
// launches;
// with KERNELS cuCtxSynchronize, which waits for a kernel of that file, and looks cuMemAlloc_v2 up again each time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUNDS = 20 };

typedef int (*launcher)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);

static sigjmp_buf before;
static volatile sig_atomic_t is_calling;

static void jump(int signal) {
  (void)signal;
  if (!is_calling) return;
  is_calling = 0;
  siglongjmp(before, 1);
}

static void *need(void *driver, const char *name) {
  void *found = dlsym(driver, name);
  if (!found) { fprintf(stderr, "jump_out: no %s\n", name); exit(65); }
  return found;
}

// Starts a kernel that does not end.
static int occupy(void *driver, const char *kernels) {
  static char text[1 << 16];
  int (*load)(void **, const void *) = need(driver, "cuModuleLoadData");
  int (*find)(void **, void *, const char *) = need(driver, "cuModuleGetFunction");
  launcher launch = (launcher)need(driver, "cuLaunchKernel");
  FILE *file = fopen(kernels, "r");
  if (!file) return -1;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  void *module, *endless;
  int result = load(&module, text);
  if (!result) result = find(&endless, module, "spin_for_ever");
  return result ? result : launch(endless, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 3) return 64;
  size_t bytes = strtoull(argv[1], NULL, 10);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need(driver, "cuInit");
  int (*create)(void **, unsigned, int) = need(driver, "cuCtxCreate_v2");
  int (*allocate)(uint64_t *, size_t) = need(driver, "cuMemAlloc_v2");
  int (*synchronise)(void) = need(driver, "cuCtxSynchronize");
  int (*launch)(const void *, void *, void **, void **) = need(driver, "cuLaunchKernelEx");
  launcher launch_plain = (launcher)need(driver, "cuLaunchKernel");
  struct { unsigned sizes[7]; void *stream, *attributes; unsigned count; } config = {{1, 1, 1, 1, 1, 1, 0}, 0, 0, 0};
  void *context;
  if (init(0) || create(&context, 0, 0)) return 66;
  if (argc == 3 && occupy(driver, argv[2])) return 67;
  // The first launch takes the long way.
  if (argc == 2) launch(&config, NULL, NULL, NULL);
  struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
  sigaction(SIGALRM, &action, NULL);
  int given = 0;
  for (volatile int round = 0; round < ROUNDS; round++) {
    // Until the timer meets a call; it comes again when it met what lies between two.
    struct itimerval timer = {{0, 700}, {0, 1000 + rand() % 3000}}, off = {{0, 0}, {0, 0}};
    if (sigsetjmp(before, 1) == 0) {
      setitimer(ITIMER_REAL, &timer, NULL);
      // The driver refuses both: no function is named.
      for (;;) {
        is_calling = 1;
        if (argc == 3) synchronise();
        else if (round % 2) launch(&config, NULL, NULL, NULL);
        else launch_plain(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        is_calling = 0;
      }
    }
    setitimer(ITIMER_REAL, &off, NULL);
    uint64_t address;
    given += allocate(&address, bytes) == 0;
    if (argc == 3) allocate = need(driver, "cuMemAlloc_v2");
  }
  printf("rounds %d given %d\n", ROUNDS, given);
  fflush(stdout);
  // The kernel runs on.
  _exit(0);
}
