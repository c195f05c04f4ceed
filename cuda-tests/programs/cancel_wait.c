// SPDX-License-Identifier: Apache-2.0
// A thread that launches until it is cancelled.
//
// usage: cancel_wait [OTHERS]     `ready`, once so many other threads have launched and live on; a line of input starts
//                                 the thread, another cancels it, `cancelled`; ends with its input
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

static sem_t has_launched;

static void *launch_once(void *unused) {
  (void)unused;
  set(context);
  launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  sem_post(&has_launched);
  for (;;) pause();
}

static void say(const char *what) { puts(what); fflush(stdout); }

int main(int argc, char **argv) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need(driver, "cuInit");
  int (*create)(void **, unsigned, int) = need(driver, "cuCtxCreate_v2");
  launch = need(driver, "cuLaunchKernel");
  set = need(driver, "cuCtxSetCurrent");
  if (init(0) || create(&context, 0, 0)) return 66;
  char line[64];
  pthread_t thread;
  sem_init(&has_launched, 0, 0);
  for (int others = argc > 1 ? atoi(argv[1]) : 0; others > 0; others--) {
    if (pthread_create(&thread, NULL, launch_once, NULL)) return 67;
    sem_wait(&has_launched);
  }
  say("ready");
  if (!fgets(line, sizeof line, stdin) || pthread_create(&thread, NULL, launch_for_ever, NULL)) return 67;
  if (!fgets(line, sizeof line, stdin)) return 0;
  pthread_cancel(thread);
  pthread_join(thread, NULL);
  say("cancelled");
  while (fgets(line, sizeof line, stdin)) {}
  return 0;
}
