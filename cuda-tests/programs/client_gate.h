// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client for the gate: one call of each family, captures, threads. Included by client.c only.
//
//   gateready FILE          a stream, buffers, the kernels in FILE, an event and a graph
//   do NAME                 one call; the answer is its result. The result of what was launched is not waited for
//   capture MODE            a kernel, a fill and a copy into a graph in this mode; answers its nodes
//   capturebegin MODE / captureend    the same in two steps, in the stream of `do`
//   doing NAME / done       the call in a thread; waits for the thread and answers the result
//   gatethreads THREADS ROUNDS        threads that each add up by kernels; answers how many sums are wrong
//   holdthreads THREADS ROUNDS        threads that each launch, wait, ask, allocate, free and capture; answers as above
//   many STREAMS            a kernel in each of so many new streams, behind the event; they stay
//   spins COUNT NS          so many kernels that take so long, in the stream of `do`
//   nullspins COUNT NS      the same in the legacy default stream
//   overlappingspins COUNT NS   as spins, each of which may begin before the one ahead has ended
//   standing                a host function in the stream of `do` that does not return before `unhold`
//   eventin S / behind S    the event in this stream; the stream of `do` behind this stream
//   caught SIGNAL / handled           counts a signal instead of its default action; answers the count
struct copy2d {
  size_t src_x, src_y; int src_type; const void *src_host; CUdeviceptr src; void *src_array; size_t src_pitch;
  size_t dst_x, dst_y; int dst_type; void *dst_host; CUdeviceptr dst; void *dst_array; size_t dst_pitch, width, height;
};
struct launch_config { unsigned grid[3], block[3], shared; CUhandle stream; void *attributes; unsigned count; };
// The arguments' types of calls that stand here more than once.
#define EX_ARGUMENTS (struct launch_config *, void *, void **, void **)
#define ASYNC_COPY_ARGUMENTS (CUdeviceptr, CUdeviceptr, size_t, CUhandle)
enum { GATE_WORDS = 4096 };
static struct {
  CUhandle stream, other, event, fill, spin, exec; CUdeviceptr a, b; uint32_t *host; CUcontext context;
} gated;

static CUresult gate_kernel_on(CUhandle stream, CUdeviceptr where, uint32_t value) {
  uint32_t count = GATE_WORDS;
  void *arguments[] = {&where, &value, &count};
  return cu.cuLaunchKernel(gated.fill, GATE_WORDS / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

static CUresult gate_capture_body(CUhandle stream) {
  CUresult r = gate_kernel_on(stream, gated.a, 7);
  if (!r) r = CALL(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUhandle), gated.b, 1, GATE_WORDS, stream);
  if (!r) r = CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUhandle), gated.b, gated.a, 4096, stream);
  return r;
}

static CUresult gate_capture_end(CUhandle stream, CUhandle *exec, size_t *nodes) {
  CUhandle graph = NULL;
  CUresult r = CALL(cuStreamEndCapture, (CUhandle, CUhandle *), stream, &graph);
  if (!r) r = CALL(cuGraphGetNodes, (CUhandle, CUhandle *, size_t *), graph, NULL, nodes);
  if (!r) r = CALL(cuGraphInstantiateWithFlags, (CUhandle *, CUhandle, unsigned long long), exec, graph, 0);
  if (graph) CALL(cuGraphDestroy, (CUhandle), graph);
  return r;
}

static CUresult gate_ready(const char *file) {
  void *module = NULL;
  char *text = padded(file, 0);
  size_t nodes = 0, bytes = GATE_WORDS * 4;
  CUresult r = cu.cuModuleLoadData(&module, text);
  free(text);
  if (!r) r = cu.cuModuleGetFunction(&gated.fill, module, "fill_u32");
  if (!r) r = cu.cuModuleGetFunction(&gated.spin, module, "spin_ns");
  if (!r) r = CALL(cuStreamCreate, (CUhandle *, unsigned), &gated.stream, 1);
  if (!r) r = CALL(cuStreamCreate, (CUhandle *, unsigned), &gated.other, 1);
  if (!r) r = CALL(cuEventCreate, (CUhandle *, unsigned), &gated.event, 0);
  if (!r) r = cu.cuMemAlloc_v2(&gated.a, bytes);
  if (!r) r = cu.cuMemAlloc_v2(&gated.b, bytes);
  if (!r) r = CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&gated.host, bytes, 0);
  if (!r) r = CALL(cuStreamBeginCapture_v2, (CUhandle, int), gated.stream, 2);
  if (!r) r = gate_capture_body(gated.stream);
  if (!r) r = gate_capture_end(gated.stream, &gated.exec, &nodes);
  if (!r) r = cu.cuCtxGetCurrent(&gated.context);
  return r;
}

static void gate_host_function(void *unused) { (void)unused; }
static void gate_callback(CUhandle stream, CUresult result, void *unused) { (void)stream; (void)result; (void)unused; }

// Kernels that take so long; `kind` is the verb.
static CUresult gate_spins(const char *kind, unsigned long long count, unsigned long long ns) {
  void *arguments[] = {&ns};
  struct { int id; char pad[4]; int value; char rest[60]; } attribute = {.id = 6, .value = 1};
  struct launch_config config = {{1, 1, 1}, {1, 1, 1}, 0, gated.stream, &attribute, 1};
  CUhandle stream = strcmp(kind, "nullspins") ? gated.stream : NULL;
  CUresult r = 0;
  for (unsigned long long i = 0; !r && i < count; i++) {
    if (!strcmp(kind, "overlappingspins"))
      r = CALL(cuLaunchKernelEx, EX_ARGUMENTS, &config, gated.spin, arguments, NULL);
    else
      r = cu.cuLaunchKernel(gated.spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
  }
  return r;
}

static CUresult gate_do(const char *name) {
  size_t bytes = GATE_WORDS * 4;
  CUhandle s = gated.stream, made = NULL;
  CUdeviceptr p = 0;
  CUresult r;
  uint32_t value = 3, count = GATE_WORDS;
  void *arguments[] = {&gated.a, &value, &count};
  struct copy2d copy = {
    .src_type = 2, .src = gated.a, .src_pitch = 256,
    .dst_type = 2, .dst = gated.b, .dst_pitch = 256,
    .width = 256, .height = 8,
  };
  struct launch_config config = {{1, 1, 1}, {64, 1, 1}, 0, s, NULL, 0};
#define DIMENSIONS unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
#define IS(which) !strcmp(name, which)
  if (IS("kernel")) return gate_kernel_on(s, gated.a, 3);
  if (IS("kernel_null")) return gate_kernel_on(NULL, gated.a, 3);
  if (IS("kernel_ptsz")) return CALL(cuLaunchKernel_ptsz, (void *, DIMENSIONS, void *, void **, void **),
    gated.fill, 1, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL);
  if (IS("kernel_ex")) return CALL(cuLaunchKernelEx, EX_ARGUMENTS, &config, gated.fill, arguments, NULL);
  if (IS("kernel_ex_overlapping")) {
    // Programmatic stream serialisation: may begin before what is ahead ends.
    struct { int id; char pad[4]; int value; char rest[60]; } attribute = {.id = 6, .value = 1};
    config.attributes = &attribute; config.count = 1;
    return CALL(cuLaunchKernelEx, EX_ARGUMENTS, &config, gated.fill, arguments, NULL);
  }
  if (IS("cooperative")) return CALL(cuLaunchCooperativeKernel, (void *, DIMENSIONS, void *, void **),
    gated.fill, 1, 1, 1, 64, 1, 1, 0, s, arguments);
  if (IS("grid")) return CALL(cuLaunchGrid, (void *, int, int), NULL, 1, 1);
  if (IS("grid_async")) return CALL(cuLaunchGridAsync, (void *, int, int, CUhandle), NULL, 1, 1, s);
  if (IS("launch")) return CALL(cuLaunch, (void *), NULL);
  if (IS("together")) return CALL(cuLaunchCooperativeKernelMultiDevice, (void *, unsigned, unsigned), NULL, 0, 0);
  if (IS("graph")) return CALL(cuGraphLaunch, (CUhandle, CUhandle), gated.exec, s);
  if (IS("graph_ptsz")) return CALL(cuGraphLaunch_ptsz, (CUhandle, CUhandle), gated.exec, s);
  if (IS("memset")) return CALL(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUhandle), gated.a, 1, bytes, s);
  if (IS("memset_ptsz")) return CALL(cuMemsetD32Async_ptsz, (CUdeviceptr, unsigned, size_t, CUhandle),
    gated.a, 1, 64, NULL);
  if (IS("memset_2d")) return CALL(cuMemsetD2D32Async, (CUdeviceptr, size_t, unsigned, size_t, size_t, CUhandle),
    gated.a, 256, 1, 64, 8, s);
  if (IS("memset_now")) return cu.cuMemsetD8_v2(gated.a, 1, bytes);
  if (IS("dtod")) return CALL(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t), gated.b, gated.a, bytes);
  if (IS("dtod_async")) return CALL(cuMemcpyDtoDAsync_v2, ASYNC_COPY_ARGUMENTS, gated.b, gated.a, bytes, s);
  if (IS("unified_inside")) return CALL(cuMemcpyAsync, ASYNC_COPY_ARGUMENTS, gated.b, gated.a, bytes, s);
  if (IS("copy_2d")) return CALL(cuMemcpy2DAsync_v2, (struct copy2d *, CUhandle), &copy, s);
  if (IS("prefetch")) return CALL(cuMemPrefetchAsync, (CUdeviceptr, size_t, int, CUhandle), gated.a, 0, 0, s);

  if (IS("htod")) return CALL(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t), gated.a, gated.host, bytes);
  if (IS("dtoh")) return cu.cuMemcpyDtoH_v2(gated.host, gated.a, bytes);
  if (IS("htod_async")) return CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUhandle),
    gated.a, gated.host, bytes, s);
  if (IS("dtoh_async")) return CALL(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUhandle),
    gated.host, gated.a, bytes, s);
  if (IS("unified_across")) return CALL(cuMemcpyAsync, ASYNC_COPY_ARGUMENTS,
    gated.a, (CUdeviceptr)gated.host, bytes, s);
  if (IS("copy_2d_across")) {
    copy.src_type = 1; copy.src_host = gated.host;
    return CALL(cuMemcpy2DAsync_v2, (struct copy2d *, CUhandle), &copy, s);
  }

  if (IS("host_function")) return CALL(cuLaunchHostFunc, (CUhandle, void (*)(void *), void *),
    s, gate_host_function, NULL);
  if (IS("callback")) return CALL(cuStreamAddCallback,
    (CUhandle, void (*)(CUhandle, CUresult, void *), void *, unsigned), s, gate_callback, NULL, 0);
  if (IS("stream_sync")) return stream_sync(s);
  if (IS("context_sync")) return cu.cuCtxSynchronize();
  if (IS("event_record")) return CALL(cuEventRecord, (CUhandle, CUhandle), gated.event, s);
  if (IS("event_sync")) return CALL(cuEventSynchronize, (CUhandle), gated.event);
  if (IS("event_query")) return CALL(cuEventQuery, (CUhandle), gated.event);
  if (IS("stream_query")) return CALL(cuStreamQuery, (CUhandle), s);
  if (IS("stream_wait")) return CALL(cuStreamWaitEvent, (CUhandle, CUhandle, unsigned), s, gated.event, 0);
  if (IS("graph_upload")) return CALL(cuGraphUpload, (CUhandle, CUhandle), gated.exec, s);
  if (IS("alloc_and_free")) return (r = cu.cuMemAlloc_v2(&p, 4096)) ? r : cu.cuMemFree_v2(p);
  if (IS("alloc_and_free_async")) return (r = alloc_async(&p, 4096, NULL, s)) ? r : free_async(p, s);
  if (IS("stream_life")) {
    r = CALL(cuStreamCreate, (CUhandle *, unsigned), &made, 1);
    return r ? r : CALL(cuStreamDestroy_v2, (CUhandle), made);
  }
  if (IS("event_life")) {
    r = CALL(cuEventCreate, (CUhandle *, unsigned), &made, 0);
    return r ? r : CALL(cuEventDestroy_v2, (CUhandle), made);
  }
  fprintf(stderr, "client: no call %s\n", name); exit(64);
}

static struct { pthread_t thread; char name[32]; CUresult result; } doing;
static void *gate_doer(void *unused) {
  (void)unused;
  cu.cuCtxSetCurrent(gated.context);
  doing.result = gate_do(doing.name);
  return NULL;
}

struct gate_worker { pthread_t thread; long rounds, wrong; };
// Fills and copies one after the other in a stream of its own; what arrives is what was sent.
static void *gate_work(void *argument) {
  struct gate_worker *w = argument;
  CUhandle stream = NULL;
  CUdeviceptr p = 0;
  uint32_t seen[2];
  cu.cuCtxSetCurrent(gated.context);
  w->wrong += CALL(cuStreamCreate, (CUhandle *, unsigned), &stream, 1) != 0;
  w->wrong += cu.cuMemAlloc_v2(&p, GATE_WORDS * 4) != 0;
  for (uint32_t i = 1; i <= w->rounds; i++) {
    w->wrong += gate_kernel_on(stream, p, i) != 0;
    w->wrong += CALL(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUhandle), p, i + 1, 1, stream) != 0;
    if (i % 8) continue;
    w->wrong += stream_sync(stream) != 0;
    w->wrong += cu.cuMemcpyDtoH_v2(seen, p, sizeof seen) != 0;
    w->wrong += seen[0] != i + 1 || seen[1] != i;
  }
  w->wrong += stream_sync(stream) != 0;
  w->wrong += cu.cuMemFree_v2(p) != 0;
  w->wrong += CALL(cuStreamDestroy_v2, (CUhandle), stream) != 0;
  return NULL;
}

// One call of each kind after the other, in a stream of its own, and what arrives is what was sent.
static void *hold_work(void *argument) {
  struct gate_worker *w = argument;
  CUhandle stream = NULL, event = NULL, exec = NULL;
  CUdeviceptr kept = 0, p = 0;
  uint32_t seen[2];
  size_t nodes = 0, bytes = GATE_WORDS * 4;
  cu.cuCtxSetCurrent(gated.context);
  w->wrong += CALL(cuStreamCreate, (CUhandle *, unsigned), &stream, 1) != 0;
  w->wrong += CALL(cuEventCreate, (CUhandle *, unsigned), &event, 0) != 0;
  w->wrong += cu.cuMemAlloc_v2(&kept, bytes) != 0;
  for (uint32_t i = 1; i <= w->rounds; i++) {
    w->wrong += gate_kernel_on(stream, kept, i) != 0;
    w->wrong += CALL(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUhandle), kept, i + 1, 1, stream) != 0;
    w->wrong += CALL(cuEventRecord, (CUhandle, CUhandle), event, stream) != 0;
    CUresult moment = CALL(cuStreamQuery, (CUhandle), stream);
    w->wrong += moment != 0 && moment != 600;
    w->wrong += cu.cuMemAlloc_v2(&p, bytes) != 0;
    w->wrong += stream_sync(stream) != 0;
    w->wrong += cu.cuMemcpyDtoH_v2(seen, kept, sizeof seen) != 0;
    w->wrong += seen[0] != i + 1 || seen[1] != i;
    w->wrong += cu.cuMemFree_v2(p) != 0;
    if (i % 4) continue;
    // Of this thread alone: other threads allocate meanwhile.
    w->wrong += CALL(cuStreamBeginCapture_v2, (CUhandle, int), stream, 1) != 0;
    w->wrong += gate_kernel_on(stream, kept, i) != 0;
    w->wrong += gate_capture_end(stream, &exec, &nodes) != 0 || nodes != 1;
    w->wrong += CALL(cuGraphLaunch, (CUhandle, CUhandle), exec, stream) != 0;
    w->wrong += stream_sync(stream) != 0;
    w->wrong += CALL(cuGraphExecDestroy, (CUhandle), exec) != 0;
  }
  w->wrong += cu.cuMemFree_v2(kept) != 0;
  w->wrong += CALL(cuEventDestroy_v2, (CUhandle), event) != 0;
  w->wrong += CALL(cuStreamDestroy_v2, (CUhandle), stream) != 0;
  return NULL;
}

static volatile sig_atomic_t gate_caught;
static void gate_catch(int unused) { (void)unused; gate_caught++; }

static int gate_command(const char *verb, char *a, char *b) {
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0, y = b ? strtoull(b, NULL, 0) : 0;
  size_t nodes = 0;
  CUhandle exec = NULL;
  if (!strcmp(verb, "gateready")) {
    printf("gateready %d\n", gate_ready(a));
  } else if (!strcmp(verb, "do")) {
    printf("do %d\n", gate_do(a));
  } else if (!strcmp(verb, "capture")) {
    CUresult r = CALL(cuStreamBeginCapture_v2, (CUhandle, int), gated.stream, (int)x);
    if (!r) r = gate_capture_body(gated.stream);
    if (!r) r = gate_capture_end(gated.stream, &exec, &nodes);
    if (!r) r = CALL(cuGraphExecDestroy, (CUhandle), exec);
    printf("capture %d %zu\n", r, nodes);
  } else if (!strcmp(verb, "capturebegin")) {
    printf("capturebegin %d\n", CALL(cuStreamBeginCapture_v2, (CUhandle, int), gated.stream, (int)x));
  } else if (!strcmp(verb, "captureend")) {
    CUresult r = gate_capture_body(gated.stream);
    if (!r) r = gate_capture_end(gated.stream, &exec, &nodes);
    if (!r) r = CALL(cuGraphExecDestroy, (CUhandle), exec);
    printf("captureend %d %zu\n", r, nodes);
  } else if (!strcmp(verb, "otherkernel")) {
    printf("otherkernel %d\n", gate_kernel_on(gated.other, gated.b, 9));
  } else if (!strcmp(verb, "doing")) {
    snprintf(doing.name, sizeof doing.name, "%s", a);
    printf("doing %d\n", pthread_create(&doing.thread, NULL, gate_doer, NULL));
  } else if (!strcmp(verb, "done")) {
    pthread_join(doing.thread, NULL);
    printf("done %d\n", doing.result);
  } else if (!strcmp(verb, "spins") || !strcmp(verb, "nullspins") || !strcmp(verb, "overlappingspins")) {
    printf("%s %d\n", verb, gate_spins(verb, x, y));
  } else if (!strcmp(verb, "standing")) {
    pthread_mutex_trylock(&held);
    printf("standing %d\n",
           CALL(cuLaunchHostFunc, (CUhandle, void (*)(void *), void *), gated.stream, wait_for_release, NULL));
  } else if (!strcmp(verb, "eventin")) {
    printf("eventin %d\n", CALL(cuEventRecord, (CUhandle, CUhandle), gated.event, stream_named(a)));
  } else if (!strcmp(verb, "behind")) {
    CUresult r = CALL(cuEventRecord, (CUhandle, CUhandle), gated.event, stream_named(a));
    if (!r) r = CALL(cuStreamWaitEvent, (CUhandle, CUhandle, unsigned), gated.stream, gated.event, 0);
    printf("behind %d\n", r);
  } else if (!strcmp(verb, "many")) {
    CUresult r = 0;
    for (unsigned long long i = 0; !r && i < x; i++) {
      CUhandle stream = NULL;
      r = CALL(cuStreamCreate, (CUhandle *, unsigned), &stream, 1);
      if (!r) r = CALL(cuStreamWaitEvent, (CUhandle, CUhandle, unsigned), stream, gated.event, 0);
      if (!r) r = gate_kernel_on(stream, gated.a, 3);
    }
    printf("many %d\n", r);
  } else if (!strcmp(verb, "gatethreads") || !strcmp(verb, "holdthreads")) {
    void *(*work)(void *) = strcmp(verb, "holdthreads") ? gate_work : hold_work;
    struct gate_worker *workers = calloc(x, sizeof *workers);
    long wrong = 0;
    for (unsigned long long i = 0; i < x; i++) {
      workers[i].rounds = y;
      wrong += pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0;
    }
    for (unsigned long long i = 0; i < x; i++) { pthread_join(workers[i].thread, NULL); wrong += workers[i].wrong; }
    free(workers);
    printf("%s %ld\n", verb, wrong);
  } else if (!strcmp(verb, "caught")) {
    printf("caught %d\n", signal((int)x, gate_catch) == SIG_ERR);
  } else if (!strcmp(verb, "handled")) {
    printf("handled %d\n", (int)gate_caught);
  } else {
    return 0;
  }
  return 1;
}
