// SPDX-License-Identifier: Apache-2.0
// Commands of client.c about stream-ordered pools and graph memory. Names are found when they are first used, so that a
// client can be steered on a driver that has none of them.
//
//   stream S | streamsync S | ctxsync | eventsync S | hold S | unhold
//   pool P [MAX] | pooldestroy P | pooltrim P BYTES | poolkeep P BYTES | poolfigures P | usepool P   (P: "default" too)
//   allocasync BYTES NAME [S] | allocpool BYTES NAME P [S] | freeasync NAME [S]
//   poolloop ROUNDS BYTES SEED | poolthreads THREADS ROUNDS BYTES
//   graph G BYTES PAIRS | graphlaunch G TIMES [S] | graphupload G [S] | graphdestroy G | graphtrim | graphfigures
//   captureabort BYTES

enum { NAMES = 64 };
typedef void *CUhandle;
struct named { char name[16]; CUhandle handle; };
static struct named streams[NAMES], pools[NAMES], execs[NAMES];

struct pool_props {
  int alloc_type, handle_types, location_type, location_id;
  void *attributes;
  size_t max_size;
  char rest[56];
};

static void *late(const char *name) {
  void *p = dlsym(driver_handle ? driver_handle : RTLD_DEFAULT, name);
  if (!p) die(name);
  return p;
}
#define CALL(name, types, ...) ({ static CUresult (*f) types; if (!f) *(void **)&f = late(#name); f(__VA_ARGS__); })

static struct named *named(struct named *list, const char *name, int create) {
  struct named *empty = NULL;
  for (int i = 0; i < NAMES; i++) {
    if (list[i].name[0] && !strcmp(list[i].name, name)) return &list[i];
    if (!empty && !list[i].name[0]) empty = &list[i];
  }
  if (!create || !empty) return NULL;
  snprintf(empty->name, sizeof empty->name, "%s", name);
  return empty;
}

static CUhandle stream_named(const char *name) {
  struct named *found = name ? named(streams, name, 0) : NULL;
  return found ? found->handle : NULL;
}

static CUhandle pool_named(const char *name) {
  struct named *found = named(pools, name, 0);
  CUhandle pool = found ? found->handle : NULL;
  if (!found && !strcmp(name, "default")) CALL(cuDeviceGetDefaultMemPool, (CUhandle *, int), &pool, 0);
  return pool;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static void wait_for_release(void *unused) { (void)unused; pthread_mutex_lock(&held); pthread_mutex_unlock(&held); }

static CUresult alloc_async(CUdeviceptr *p, size_t bytes, CUhandle pool, CUhandle stream) {
  if (pool) return CALL(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUhandle, CUhandle), p, bytes, pool, stream);
  return CALL(cuMemAllocAsync, (CUdeviceptr *, size_t, CUhandle), p, bytes, stream);
}

static CUresult free_async(CUdeviceptr p, CUhandle stream) {
  return CALL(cuMemFreeAsync, (CUdeviceptr, CUhandle), p, stream);
}

static CUresult stream_sync(CUhandle stream) { return CALL(cuStreamSynchronize, (CUhandle), stream); }

struct pool_worker { CUcontext context; long rounds; size_t bytes; unsigned seed; CUhandle pool; long denied, odd; };

// Random sizes up to `bytes`, up to 8 alive, synchronised now and then; ends with nothing alive.
static void *pool_work(void *argument) {
  struct pool_worker *w = argument;
  CUdeviceptr alive[8] = {0};
  CUhandle stream = NULL;
  cu.cuCtxSetCurrent(w->context);
  w->odd += CALL(cuStreamCreate, (CUhandle *, unsigned), &stream, 1) != 0;
  for (long i = 0; i < w->rounds; i++) {
    int k = rand_r(&w->seed) % 8;
    CUresult r;
    if (alive[k]) {
      // Now and then at once instead of in order.
      r = rand_r(&w->seed) % 16 ? free_async(alive[k], stream) : (stream_sync(stream), cu.cuMemFree_v2(alive[k]));
      alive[k] = 0;
    } else {
      size_t bytes = 1 + ((size_t)rand_r(&w->seed) * 2654435761u) % w->bytes;
      r = alloc_async(&alive[k], bytes, i & 1 ? w->pool : NULL, stream);
      if (r) alive[k] = 0;
      if (r == 2) { w->denied++; r = 0; }
    }
    w->odd += r != 0;
    if (rand_r(&w->seed) % 32 == 0) w->odd += stream_sync(stream) != 0;
  }
  for (int k = 0; k < 8; k++) if (alive[k]) w->odd += free_async(alive[k], stream) != 0;
  w->odd += stream_sync(stream) != 0;
  w->odd += CALL(cuStreamDestroy_v2, (CUhandle), stream) != 0;
  return NULL;
}

static void pool_threads(int threads, long rounds, size_t bytes, unsigned seed, CUhandle pool) {
  pthread_t ids[64];
  struct pool_worker workers[64] = {0};
  CUcontext context = NULL;
  cu.cuCtxGetCurrent(&context);
  long denied = 0, odd = 0;
  for (int i = 0; i < threads; i++) {
    workers[i] = (struct pool_worker){context, rounds, bytes, seed * 64 + i, pool, 0, 0};
    pthread_create(&ids[i], NULL, pool_work, &workers[i]);
  }
  for (int i = 0; i < threads; i++) { pthread_join(ids[i], NULL); denied += workers[i].denied; odd += workers[i].odd; }
  odd += cu.cuCtxSynchronize() != 0;
  printf("poolthreads odd=%ld denied=%ld\n", odd, denied);
}

// `pairs` allocations of `bytes`, all alive at once and then freed, captured on a stream of its own.
static CUresult capture_pairs(CUhandle *graph, size_t bytes, int pairs, int abort_it) {
  CUhandle stream = NULL;
  CUdeviceptr p[64] = {0};
  CUresult r = CALL(cuStreamCreate, (CUhandle *, unsigned), &stream, 1);
  if (!r) r = CALL(cuStreamBeginCapture_v2, (CUhandle, int), stream, 2);
  for (int i = 0; !r && i < pairs && i < 64; i++) r = alloc_async(&p[i], bytes, NULL, stream);
  for (int i = 0; !r && !abort_it && i < pairs && i < 64; i++) r = free_async(p[i], stream);
  if (!r && abort_it) {
    // A call that no capture can hold: the capture is over, and says so when it is ended.
    stream_sync(stream);
    r = CALL(cuStreamEndCapture, (CUhandle, CUhandle *), stream, graph);
  } else if (!r) {
    r = CALL(cuStreamEndCapture, (CUhandle, CUhandle *), stream, graph);
  }
  CALL(cuStreamDestroy_v2, (CUhandle), stream);
  return r;
}

// Answers whether the verb was one of ours.
static int pool_command(const char *verb, char *a, char *b, char *c, char *d) {
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0, y = b ? strtoull(b, NULL, 0) : 0;
  if (!strcmp(verb, "stream")) {
    printf("stream %d\n", CALL(cuStreamCreate, (CUhandle *, unsigned), &named(streams, a, 1)->handle, 1));
  } else if (!strcmp(verb, "streamsync")) {
    printf("streamsync %d\n", stream_sync(stream_named(a)));
  } else if (!strcmp(verb, "ctxsync")) {
    printf("ctxsync %d\n", cu.cuCtxSynchronize());
  } else if (!strcmp(verb, "eventsync")) {
    CUhandle event = NULL;
    CUresult r = CALL(cuEventCreate, (CUhandle *, unsigned), &event, 0);
    if (!r) r = CALL(cuEventRecord, (CUhandle, CUhandle), event, stream_named(a));
    if (!r) r = CALL(cuEventSynchronize, (CUhandle), event);
    if (!r) r = CALL(cuEventDestroy_v2, (CUhandle), event);
    printf("eventsync %d\n", r);
  } else if (!strcmp(verb, "hold")) {
    // Work that does not end before `unhold`; of as many streams as one likes.
    pthread_mutex_trylock(&held);
    printf("hold %d\n",
           CALL(cuLaunchHostFunc, (CUhandle, void (*)(void *), void *), stream_named(a), wait_for_release, NULL));
  } else if (!strcmp(verb, "unhold")) {
    pthread_mutex_unlock(&held); printf("unhold\n");
  } else if (!strcmp(verb, "pool")) {
    struct pool_props props = {.alloc_type = 1, .location_type = 1, .location_id = 0, .max_size = y};
    CUhandle *made = &named(pools, a, 1)->handle;
    printf("pool %d\n", CALL(cuMemPoolCreate, (CUhandle *, const struct pool_props *), made, &props));
  } else if (!strcmp(verb, "pooldestroy")) {
    struct named *pool = named(pools, a, 0);
    CUresult r = CALL(cuMemPoolDestroy, (CUhandle), pool ? pool->handle : pool_named(a));
    if (pool && !r) pool->name[0] = 0;
    printf("pooldestroy %d\n", r);
  } else if (!strcmp(verb, "pooltrim")) {
    printf("pooltrim %d\n", CALL(cuMemPoolTrimTo, (CUhandle, size_t), pool_named(a), y));
  } else if (!strcmp(verb, "poolkeep")) {
    uint64_t bytes = y;
    printf("poolkeep %d\n", CALL(cuMemPoolSetAttribute, (CUhandle, int, void *), pool_named(a), 4, &bytes));
  } else if (!strcmp(verb, "poolfigures")) {
    uint64_t reserved = 0, used = 0;
    CUresult r = CALL(cuMemPoolGetAttribute, (CUhandle, int, void *), pool_named(a), 5, &reserved);
    if (!r) r = CALL(cuMemPoolGetAttribute, (CUhandle, int, void *), pool_named(a), 7, &used);
    printf("poolfigures %d %llu %llu\n", r, (unsigned long long)reserved, (unsigned long long)used);
  } else if (!strcmp(verb, "usepool")) {
    printf("usepool %d\n", CALL(cuDeviceSetMemPool, (int, CUhandle), 0, pool_named(a)));
  } else if (!strcmp(verb, "allocasync") || !strcmp(verb, "allocpool")) {
    int from_pool = verb[5] == 'p';
    CUdeviceptr p = 0;
    CUresult r = alloc_async(&p, x, from_pool ? pool_named(c) : NULL, stream_named(from_pool ? d : c));
    if (!r && b) { int i = slot_of(b, 1); slots[i].ptr = p; slots[i].bytes = x; }
    printf("%s %d\n", verb, r);
  } else if (!strcmp(verb, "freeasync")) {
    int i = slot_of(a ? a : "", 0);
    CUresult r = i < 0 ? -1 : free_async(slots[i].ptr, stream_named(b));
    if (i >= 0 && !r) slots[i].name[0] = 0;
    printf("freeasync %d\n", r);
  } else if (!strcmp(verb, "poolthreads")) {
    pool_threads(x, y, strtoull(c, NULL, 0), d ? atoi(d) : 1, pool_named("mine"));
  } else if (!strcmp(verb, "graph")) {
    CUhandle graph = NULL;
    struct named *exec = named(execs, a, 1);
    CUresult r = capture_pairs(&graph, y, c ? atoi(c) : 1, 0);
    if (!r) r = CALL(cuGraphInstantiateWithFlags, (CUhandle *, CUhandle, unsigned long long), &exec->handle, graph, 0);
    if (!r) r = CALL(cuGraphDestroy, (CUhandle), graph);
    if (r) exec->name[0] = 0;
    printf("graph %d\n", r);
  } else if (!strcmp(verb, "graphlaunch")) {
    CUresult r = 0;
    for (unsigned long long i = 0; !r && i < (b ? y : 1); i++)
      r = CALL(cuGraphLaunch, (CUhandle, CUhandle), named(execs, a, 0)->handle, stream_named(c));
    printf("graphlaunch %d\n", r);
  } else if (!strcmp(verb, "graphupload")) {
    printf("graphupload %d\n", CALL(cuGraphUpload, (CUhandle, CUhandle), named(execs, a, 0)->handle, stream_named(b)));
  } else if (!strcmp(verb, "graphdestroy")) {
    struct named *exec = named(execs, a, 0);
    CUresult r = CALL(cuGraphExecDestroy, (CUhandle), exec->handle);
    if (!r) exec->name[0] = 0;
    printf("graphdestroy %d\n", r);
  } else if (!strcmp(verb, "graphtrim")) {
    printf("graphtrim %d\n", CALL(cuDeviceGraphMemTrim, (int), 0));
  } else if (!strcmp(verb, "graphfigures")) {
    uint64_t used = 0, reserved = 0;
    CUresult r = CALL(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, 0, &used);
    if (!r) r = CALL(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, 2, &reserved);
    printf("graphfigures %d %llu %llu\n", r, (unsigned long long)reserved, (unsigned long long)used);
  } else if (!strcmp(verb, "captureabort")) {
    CUhandle graph = NULL;
    printf("captureabort %d\n", capture_pairs(&graph, x, 2, 1));
  } else {
    return 0;
  }
  return 1;
}
