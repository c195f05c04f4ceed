// SPDX-License-Identifier: Apache-2.0
// Leaves a call that waits for the broker, and calls again.
//
// usage: lock_out jump|cancel|other|spin
//
// After `ready` and a line of input it leaves the call and says `out`; after another line it calls again and says
// `again CODE`; it ends with its input.
//   jump     a handler jumps out, and the same thread calls again
//   cancel   the thread is cancelled, and another thread calls
//   other    a handler jumps out, and another thread calls while the first thread sleeps
//   spin     as other, while the first thread computes
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf before;
static volatile sig_atomic_t is_asking;
static int (*info)(size_t *, size_t *);
static int (*set)(void *);
static void *context;

static void jump(int signal) {
  (void)signal;
  if (!is_asking) return;
  is_asking = 0;
  siglongjmp(before, 1);
}

static void *need(void *driver, const char *name) {
  void *found = dlsym(driver, name);
  if (!found) { fprintf(stderr, "lock_out: no %s\n", name); exit(65); }
  return found;
}

static int ask(void) {
  size_t free_bytes, total;
  return info(&free_bytes, &total);
}

static void *ask_for_ever(void *unused) {
  (void)unused;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  set(context);
  is_asking = 1;
  for (;;) ask();
}

static atomic_int has_asked;

static void *ask_once(void *code) {
  set(context);
  *(int *)code = ask();
  has_asked = 1;
  return NULL;
}

static void say(const char *what) { puts(what); fflush(stdout); }

int main(int argc, char **argv) {
  if (argc != 2) return 64;
  int is_cancel = !strcmp(argv[1], "cancel"), is_spin = !strcmp(argv[1], "spin");
  int is_other = is_spin || !strcmp(argv[1], "other");
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need(driver, "cuInit");
  int (*create)(void **, unsigned, int) = need(driver, "cuCtxCreate_v2");
  info = need(driver, "cuMemGetInfo_v2");
  set = need(driver, "cuCtxSetCurrent");
  if (init(0) || create(&context, 0, 0) || ask()) return 66;
  char line[64];
  pthread_t thread;
  say("ready");
  if (!fgets(line, sizeof line, stdin)) return 0;
  if (is_cancel) {
    if (pthread_create(&thread, NULL, ask_for_ever, NULL)) return 67;
    while (!is_asking) usleep(1000);
    usleep(200000);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
  } else {
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200000}, {0, 200000}}, off = {{0, 0}, {0, 0}};
    if (sigsetjmp(before, 1) == 0) {
      setitimer(ITIMER_REAL, &timer, NULL);
      for (;;) {
        is_asking = 1;
        ask();
        is_asking = 0;
      }
    }
    setitimer(ITIMER_REAL, &off, NULL);
    signal(SIGALRM, SIG_DFL);
  }
  say("out");
  if (!fgets(line, sizeof line, stdin)) return 0;
  // Whoever waits for ever is ended by this.
  alarm(60);
  int code = -1;
  if (is_other) {
    if (pthread_create(&thread, NULL, ask_once, &code)) return 67;
    while (is_spin && !has_asked) {}
    pthread_join(thread, NULL);
  } else {
    code = ask();
  }
  alarm(0);
  printf("again %d\n", code);
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {}
  return 0;
}
