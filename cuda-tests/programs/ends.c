// SPDX-License-Identifier: Apache-2.0
// Workers that end, and what they had is allocated at once by who waited for that: their parent, then a sibling.
//
// usage: ends COUNT MIB        each way of ending COUNT times; prints who was denied, and ends with 1 if anybody was
//        ends worker HOW MIB   HOW: exit, kill, segv. Ends with the driver's code where it gets no memory
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*init)(unsigned), (*create)(void **, unsigned, int), (*allocate)(unsigned long long *, size_t),
    (*release)(unsigned long long);

static int ready(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
  if (!driver) return 1;
  init = (int (*)(unsigned))dlsym(driver, "cuInit");
  create = (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
  allocate = (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
  release = (int (*)(unsigned long long))dlsym(driver, "cuMemFree_v2");
  int result = init(0);
  return result ? result : create(&context, 0, 0);
}

static int take(size_t bytes) {
  unsigned long long memory;
  int result = allocate(&memory, bytes);
  return result ? result : release(memory);
}

static int work(const char *how, size_t bytes) {
  unsigned long long memory;
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  int result = ready();
  if (!result) result = allocate(&memory, bytes);
  if (result) return result;
  if (how[0] == 'k') raise(SIGKILL);
  if (how[0] == 's') *(volatile int *)8 = 1;
  return 0;
}

/// A worker of this program: answers whether it had its memory.
static int worker(const char *how, const char *mib) {
  pid_t child = fork();
  if (!child) {
    execl("/proc/self/exe", "ends", "worker", how, mib, (char *)0);
    _exit(99);
  }
  int status;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) == 0;
}

/// A process that allocates when it is told to, and says what it got.
static void sibling(int in, int out, size_t bytes) {
  char said = (char)ready();
  while (write(out, &said, 1) == 1 && read(in, &said, 1) == 1) said = (char)take(bytes);
  _exit(0);
}

int main(int count, char **arguments) {
  if (count == 4 && !strcmp(arguments[1], "worker")) return work(arguments[2], strtoull(arguments[3], 0, 10) << 20);
  if (count != 3) return 64;
  int rounds = atoi(arguments[1]), to[2], from[2];
  size_t bytes = strtoull(arguments[2], 0, 10) << 20;
  if (pipe(to) || pipe(from)) return 1;
  if (!fork()) {
    close(to[1]);
    sibling(to[0], from[1], bytes);
  }
  char said = 1;
  if (ready() || read(from[0], &said, 1) != 1 || said) return 2;
  const char *ways[] = {"exit", "kill", "segv"};
  int parent = 0, other = 0, workers = 0;
  for (int way = 0; way < 3; way++) {
    for (int round = 0; round < rounds; round++) {
      workers += !worker(ways[way], arguments[2]);
      parent += take(bytes) != 0;
      workers += !worker(ways[way], arguments[2]);
      if (write(to[1], &said, 1) != 1 || read(from[0], &said, 1) != 1) return 3;
      other += said != 0;
    }
  }
  printf("denied: parent %d, sibling %d, workers %d\n", parent, other, workers);
  close(to[1]);
  wait(0);
  return parent + other + workers != 0;
}
