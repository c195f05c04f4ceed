// SPDX-License-Identifier: Apache-2.0
// A thread that launches until it is cancelled.
//
// usage: cancel_wait     `ready`; a line of input cancels the thread, `cancelled`; ends with its input
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
static int (*set)(void *);
static void *context;

static void *need(void *driver, const char *name) {
  void *found = dlsym(driver, name);
  if (!found) { fprintf(stderr, "cancel_wait: no %s\n", name); exit(65); }
  return found;
}

static void *launch_for_ever(void *unused) {
  (void)unused;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  set(context);
  // The driver refuses: no function is named.
  for (;;) launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void say(const char *what) { puts(what); fflush(stdout); }

int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need(driver, "cuInit");
  int (*create)(void **, unsigned, int) = need(driver, "cuCtxCreate_v2");
  launch = need(driver, "cuLaunchKernel");
  set = need(driver, "cuCtxSetCurrent");
  if (init(0) || create(&context, 0, 0)) return 66;
  say("ready");
  char line[64];
  pthread_t thread;
  if (!fgets(line, sizeof line, stdin) || pthread_create(&thread, NULL, launch_for_ever, NULL)) return 67;
  if (!fgets(line, sizeof line, stdin)) return 0;
  pthread_cancel(thread);
  pthread_join(thread, NULL);
  say("cancelled");
  while (fgets(line, sizeof line, stdin)) {}
  return 0;
}
