// SPDX-License-Identifier: Apache-2.0
// A signal's handler leaves a call that waits by a jump, and the thread calls the driver no more.
//
// usage: jump_rest KERNELS     `inside` before cuCtxSynchronize waits for a kernel of that file that does not end; a
//                              second later `outside`, and it reads its input to the end
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sigjmp_buf before;

static void jump(int signal) { (void)signal; siglongjmp(before, 1); }

static void *need(void *driver, const char *name) {
  void *found = dlsym(driver, name);
  if (!found) { fprintf(stderr, "jump_rest: no %s\n", name); exit(65); }
  return found;
}

static void say(const char *what) { puts(what); fflush(stdout); }

// Deep enough that what is called after the jump stands above the call that was left.
static __attribute__((noinline)) int wait_deep(int (*synchronise)(void), int depth) {
  volatile char room[512] = {0};
  int result = depth ? wait_deep(synchronise, depth - 1) : synchronise();
  return result + room[0];
}

int main(int argc, char **argv) {
  static char text[1 << 16];
  if (argc != 2) return 64;
  FILE *file = fopen(argv[1], "r");
  if (!file) return 64;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need(driver, "cuInit");
  int (*create)(void **, unsigned, int) = need(driver, "cuCtxCreate_v2");
  int (*load)(void **, const void *) = need(driver, "cuModuleLoadData");
  int (*find)(void **, void *, const char *) = need(driver, "cuModuleGetFunction");
  int (*synchronise)(void) = need(driver, "cuCtxSynchronize");
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                void **) = need(driver, "cuLaunchKernel");
  void *context, *module, *endless;
  if (init(0) || create(&context, 0, 0) || load(&module, text) || find(&endless, module, "spin_for_ever")) return 66;
  if (launch(endless, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 67;
  struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
  sigaction(SIGALRM, &action, NULL);
  if (sigsetjmp(before, 1) == 0) {
    say("inside");
    alarm(1);
    wait_deep(synchronise, 8);
    return 68;
  }
  say("outside");
  char line[64];
  while (fgets(line, sizeof line, stdin)) {}
  // The kernel runs on.
  _exit(0);
}
