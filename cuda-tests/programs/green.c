// SPDX-License-Identifier: Apache-2.0
// Takes all memory it can get after each thing that one can do with green contexts.
//
// usage: green CHUNK     prints what it holds at each step, in bytes, then `end`; ends with its input
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SM = 1, DEFAULT_STREAM = 1, MOST = 64 };

typedef struct { int type; unsigned char body[140]; } resource_t;

static void *driver;
static size_t chunk, held;
static uint64_t addresses[MOST];
static int count;
static int (*allocate)(uint64_t *, size_t);
static int (*release)(uint64_t);

static void *need(const char *name) {
  void *found = dlsym(driver, name);
  if (!found) { fprintf(stderr, "green: no %s\n", name); exit(65); }
  return found;
}

static void must(int code, const char *what) {
  if (code) { fprintf(stderr, "green: %s: %d\n", what, code); exit(66); }
}

static void take_all(const char *step) {
  while (count < MOST && allocate(&addresses[count], chunk) == 0) { count++; held += chunk; }
  printf("%s %zu\n", step, held);
  fflush(stdout);
}

static void give_one(void) {
  must(release(addresses[--count]), "cuMemFree");
  held -= chunk;
}

int main(int argc, char **argv) {
  if (argc != 2) return 64;
  chunk = strtoull(argv[1], NULL, 10);
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 65;
  int (*init)(unsigned) = need("cuInit");
  int (*resource_of)(int, resource_t *, int) = need("cuDeviceGetDevResource");
  int (*split)(resource_t *, unsigned *, const resource_t *, resource_t *, unsigned, unsigned) =
      need("cuDevSmResourceSplitByCount");
  int (*describe)(void **, resource_t *, unsigned) = need("cuDevResourceGenerateDesc");
  int (*create)(void **, void *, int, unsigned) = need("cuGreenCtxCreate");
  int (*destroy)(void *) = need("cuGreenCtxDestroy");
  int (*convert)(void **, void *) = need("cuCtxFromGreenCtx");
  int (*set)(void *) = need("cuCtxSetCurrent");
  int (*create_plain)(void **, unsigned, int) = need("cuCtxCreate_v2");
  int (*destroy_plain)(void *) = need("cuCtxDestroy_v2");
  allocate = need("cuMemAlloc_v2");
  release = need("cuMemFree_v2");

  must(init(0), "cuInit");
  resource_t all, groups[2], rest;
  unsigned wanted = 2;
  void *description[2], *green[2], *context, *again;
  memset(&all, 0, sizeof all);
  must(resource_of(0, &all, SM), "cuDeviceGetDevResource");
  must(split(groups, &wanted, &all, &rest, 0, 8), "cuDevSmResourceSplitByCount");
  if (wanted != 2) return 67;
  for (int i = 0; i < 2; i++) {
    must(describe(&description[i], &groups[i], 1), "cuDevResourceGenerateDesc");
    must(create(&green[i], description[i], 0, DEFAULT_STREAM), "cuGreenCtxCreate");
  }
  must(convert(&context, green[0]), "cuCtxFromGreenCtx");
  must(set(context), "cuCtxSetCurrent");
  take_all("first");
  for (int i = 0; i < 3; i++) must(convert(&again, green[0]), "cuCtxFromGreenCtx");
  if (again != context) return 68;
  take_all("again");
  must(convert(&context, green[1]), "cuCtxFromGreenCtx");
  must(set(context), "cuCtxSetCurrent");
  take_all("second");
  // What was allocated in it is the primary context's, and stays; so it does when a plain context comes in its place.
  must(destroy(green[1]), "cuGreenCtxDestroy");
  must(convert(&context, green[0]), "cuCtxFromGreenCtx");
  must(set(context), "cuCtxSetCurrent");
  take_all("destroyed");
  give_one();
  int before = count;
  must(create_plain(&again, 0, 0), "cuCtxCreate");
  take_all("beside");
  must(destroy_plain(again), "cuCtxDestroy");
  held -= (count - before) * chunk;
  count = before;
  must(set(context), "cuCtxSetCurrent");
  take_all("alone");
  // With the last green context the primary one ends, and all memory with it.
  must(destroy(green[0]), "cuGreenCtxDestroy");
  held = 0;
  count = 0;
  must(create(&green[0], description[0], 0, DEFAULT_STREAM), "cuGreenCtxCreate");
  must(convert(&context, green[0]), "cuCtxFromGreenCtx");
  must(set(context), "cuCtxSetCurrent");
  take_all("anew");
  must(destroy(green[0]), "cuGreenCtxDestroy");
  printf("end\n");
  fflush(stdout);
  while (getchar() != EOF) {}
  return 0;
}
