// SPDX-License-Identifier: Apache-2.0
// Walks through the CUDA runtime as a program does that a CUDA compiler made, and prints what each step shows. All is
// the same on each machine and under each limit, but for lines that begin with `memory`.
//
// usage: runtime          walks
//        runtime ipc      the second process: handles come on its input
//        runtime broken   a launch that writes where nothing is, and what comes after it
//        runtime reset    a context that somebody else retained ends
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime_cuda.h"

enum { N = 1024, MIB = 1 << 20, PIECE = 128 * MIB, PIECES = 256 };
typedef struct { ipc_t memory, written, read; } handles_t;

static void must(error_t code, const char *what) {
  if (code) { printf("%s: %d %s\n", what, code, cudaGetErrorName(code)); exit(66); }
}
#define MUST(call) must(call, #call)

// One call a line: C does not say in which order arguments are made.
static void say(const char *what, error_t code) { printf("%s: %d\n", what, code); }

// Whether another library says that it was made for this runtime.
static int is_for(int runtime, const char *file, const char *name) {
  void *library = dlopen(file, RTLD_NOW);
  void *found = library ? dlsym(library, name) : NULL;
  return found && ((size_t(*)(void))found)() == (size_t)runtime;
}

static void devices(void) {
  int count = 0, driver = 0, runtime = 0, device = -1, major = 0, found = 0;
  struct { device_t properties; unsigned guard; } place = {.guard = 4711};
  char bus[32] = "";
  MUST(cudaGetDeviceCount(&count));
  MUST(cudaDriverGetVersion(&driver));
  MUST(cudaRuntimeGetVersion(&runtime));
  printf("cublas, cublasLt and cudnn are for this runtime %d %d %d\n",
         is_for(runtime, CUDA >= 13 ? "libcublas.so.13" : "libcublas.so.12", "cublasGetCudartVersion"),
         is_for(runtime, CUDA >= 13 ? "libcublasLt.so.13" : "libcublasLt.so.12", "cublasLtGetCudartVersion"),
         is_for(runtime, "libcudnn.so.9", "cudnnGetCudartVersion"));
  printf("devices %d runtime %d on driver of that or later %d\n", count, runtime / 1000, driver >= runtime);
  for (int i = 0; i < count; i++) {
    MUST(cudaGetDeviceProperties_v2(&place.properties, i));
    MUST(cudaDeviceGetAttribute(&major, 75, i));
    MUST(cudaDeviceGetPCIBusId(bus, sizeof bus, i));
    printf("device %d %s sm_%d bus %s warp %d shared %zu registers %d guard %u\n", i, place.properties.name, major * 10,
           bus, place.properties.warp, place.properties.shared, place.properties.registers, place.guard);
    printf("memory of device %d: %zu\n", i, place.properties.memory);
  }
  MUST(cudaSetDevice(count - 1));
  MUST(cudaGetDevice(&found));
  MUST(cudaSetDevice(0));
  MUST(cudaGetDevice(&device));
  printf("device chosen %d and %d\n", found == count - 1, device);
  unsigned flags[2] = {0, 0};
  MUST(cudaGetDeviceFlags(&flags[0]));
  MUST(cudaSetDeviceFlags(8 | 4));
  MUST(cudaGetDeviceFlags(&flags[1]));
  MUST(cudaSetDeviceFlags(0));
  printf("flags %u, then %u\n", flags[0], flags[1]);
  say("a device that is none", cudaSetDevice(count));
  say("last error", cudaGetLastError());
  say("then", cudaGetLastError());
}

static void *other_thread(void *device) {
  *(int *)device = -1;
  MUST(cudaGetDevice(device));
  return (void *)(intptr_t)cudaPeekAtLastError();
}

static void memory(void) {
  size_t free_bytes = 0, total = 0, by_entry[2] = {0, 0};
  void *block = NULL, *found = NULL, *error = NULL;
  int status = -1, device = -1;
  pthread_t thread;
  MUST(cudaMalloc(&block, 64 * MIB));
  MUST(cudaMemGetInfo(&free_bytes, &total));
  printf("memory total %zu\n", total);
  MUST(cudaGetDriverEntryPointByVersion("cuMemGetInfo", &found, 12000, 0, &status));
  error_t code = ((error_t(*)(size_t *, size_t *))found)(&by_entry[0], &by_entry[1]);
  printf("free within total %d, by the driver's entry point %d %d the same %d\n", free_bytes + 64 * MIB <= total,
         status, code, by_entry[1] == total);
  MUST(cudaFree(block));
  code = cudaMalloc(&block, total + 1);
  printf("beyond %d %s: %s\n", code, cudaGetErrorName(code), cudaGetErrorString(code));
  pthread_create(&thread, NULL, other_thread, &device);
  pthread_join(thread, &error);
  printf("another thread's error %d device %d\n", (int)(intptr_t)error, device);
  say("last error, looked at", cudaPeekAtLastError());
  say("last error", cudaGetLastError());
  say("then", cudaGetLastError());
  MUST(cudaMalloc(&block, 0));
  printf("nothing is null %d\n", block == NULL);
  say("and freed", cudaFree(block));
}

static void copies(void) {
  unsigned char host[4 * 64], back[4 * 64] = {0};
  void *device = NULL;
  for (unsigned i = 0; i < sizeof host; i++) host[i] = (unsigned char)(i * 7);
  MUST(cudaMalloc(&device, sizeof host));
  MUST(cudaMemcpy(device, host, sizeof host, TO_DEVICE));
  MUST(cudaMemcpy(back, device, sizeof host, EITHER));
  printf("copied %d\n", memcmp(host, back, sizeof host) == 0);
  MUST(cudaMemset(device, 0x1a5, sizeof host));
  MUST(cudaMemcpy2D(device, 64, host, 64, 16, 4, TO_DEVICE));
  MUST(cudaMemcpy(back, device, sizeof host, TO_HOST));
  printf("plane %d %#x and around it %#x %#x\n", memcmp(back + 64, host + 64, 16), back[0], back[16], back[255]);
  say("a direction that is none", cudaMemcpy(back, device, 1, 5));
  MUST(cudaFree(device));
  say("freed twice", cudaFree(device));
  say("last error", cudaGetLastError());
}

static void kernels(void) {
  float values[N], new_factors[4] = {3, 5, 7, 9}, total = 0;
  unsigned count = 0;
  size_t bytes = 0;
  void *at = NULL;
  float *device = NULL, *sum = NULL;
  for (int i = 0; i < N; i++) values[i] = (float)i;
  MUST(cudaMalloc((void **)&device, sizeof values));
  MUST(cudaMalloc((void **)&sum, sizeof total));
  MUST(cudaMemcpy(device, values, sizeof values, TO_DEVICE));
  LAUNCH(N / 128, 128, NULL, scale_by_constant(device, 1, N));
  MUST(cudaMemcpyToSymbol(factors, new_factors, sizeof new_factors, 0, TO_DEVICE));
  LAUNCH(N / 128, 128, NULL, scale_by_constant(device, 2, N));
  MUST(cudaGetLastError());
  MUST(cudaMemset(sum, 0, sizeof total));
  LAUNCH(2, 256, NULL, sum_reduce(sum, device, N));
  MUST(cudaMemcpy(&total, sum, sizeof total, TO_HOST));
  MUST(cudaMemcpyFromSymbol(&count, &launches, sizeof count, 0, TO_HOST));
  MUST(cudaGetSymbolSize(&bytes, factors));
  MUST(cudaGetSymbolAddress(&at, factors));
  printf("sum %.0f after %u launches\n", total, count);
  printf("variable of %zu bytes at an address %d\n", bytes, at != NULL);
  say("beyond it", cudaMemcpyToSymbol(factors, new_factors, 8, 12, TO_DEVICE));
  say("no variable", cudaGetSymbolAddress(&at, &count));
  (void)cudaGetLastError();
  LAUNCH(1, 2048, NULL, fill_u32((unsigned *)device, 1, N));
  say("a block too large", cudaGetLastError());
  LAUNCH(1, 1, NULL, nobody());
  say("a function nobody registered", cudaGetLastError());
  dim3 one = {1, 1, 1};
  size_t shared = 0;
  stream_t stream = NULL;
  say("no configuration", __cudaPopCallConfiguration(&one, &one, &shared, &stream));
  (void)cudaGetLastError();
  MUST(cudaFree(device));
  MUST(cudaFree(sum));
}

static void about_kernels(void) {
  struct { function_t attributes; unsigned guard; } place = {.guard = 4711};
  int blocks = 0;
  MUST(cudaFuncGetAttributes(&place.attributes, (const void *)sum_reduce));
  printf("sum_reduce threads %d shared %zu ptx %d guard %u\n", place.attributes.threads, place.attributes.shared,
         place.attributes.ptx, place.guard);
  MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, (const void *)sum_reduce, 1024, 0, 0));
  printf("occupancy %d\n", blocks);
  say("attributes of nothing", cudaFuncGetAttributes(&place.attributes, (const void *)nobody));
  (void)cudaGetLastError();
}

static void count_up(void *counter) { ++*(int *)counter; }

static void streams(void) {
  stream_t first = NULL, second = NULL;
  event_t begun = NULL, ended = NULL, other = NULL;
  int least = 0, most = 0, priority = 0, counter = 0;
  float milliseconds = 0;
  MUST(cudaDeviceGetStreamPriorityRange(&least, &most));
  MUST(cudaStreamCreateWithFlags(&first, 1));
  MUST(cudaStreamCreateWithPriority(&second, 1, most));
  MUST(cudaStreamGetPriority(second, &priority));
  printf("priority %d of %d to %d\n", priority, least, most);
  MUST(cudaEventCreate(&begun));
  MUST(cudaEventCreate(&ended));
  MUST(cudaEventCreateWithFlags(&other, 2));
  MUST(cudaEventRecord(begun, first));
  LAUNCH(1, 1, first, spin_ns(20000000));
  MUST(cudaLaunchHostFunc(first, count_up, &counter));
  MUST(cudaEventRecord(ended, first));
  MUST(cudaStreamWaitEvent(second, ended, 0));
  MUST(cudaLaunchHostFunc(second, count_up, &counter));
  MUST(cudaStreamSynchronize(second));
  MUST(cudaEventElapsedTime(&milliseconds, begun, ended));
  printf("host functions %d, at least 20 ms %d\n", counter, milliseconds >= 20);
  say("event", cudaEventQuery(ended));
  MUST(cudaEventRecord(other, first));
  MUST(cudaEventSynchronize(other));
  say("time of an event without", cudaEventElapsedTime(&milliseconds, begun, other));
  say("last error", cudaGetLastError());
  say("stream", cudaStreamQuery(first));
  MUST(cudaEventDestroy(begun));
  MUST(cudaEventDestroy(ended));
  MUST(cudaEventDestroy(other));
  MUST(cudaStreamDestroy(first));
  MUST(cudaStreamDestroy(second));
}

static void graphs(void) {
  stream_t stream = NULL;
  graph_t graph = NULL;
  exec_t executable = NULL;
  float *device = NULL, values[4] = {1, 2, 3, 4};
  int status = -1;
  size_t nodes = 0;
  MUST(cudaStreamCreateWithFlags(&stream, 1));
  MUST(cudaMalloc((void **)&device, sizeof values));
  MUST(cudaMemcpy(device, values, sizeof values, TO_DEVICE));
  MUST(cudaStreamBeginCapture(stream, 0));
  MUST(cudaStreamIsCapturing(stream, &status));
  LAUNCH(1, 4, stream, scale_by_constant(device, 0, 4));
  LAUNCH(1, 2, stream, scale_by_constant(device, 1, 2));
  MUST(cudaMemcpyAsync(values, device, sizeof values, TO_HOST, stream));
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphGetNodes(graph, NULL, &nodes));
  printf("captured %d: %zu nodes, and nothing ran: %g\n", status, nodes, values[0]);
  MUST(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; i++) MUST(cudaGraphLaunch(executable, stream));
  MUST(cudaStreamSynchronize(stream));
  printf("replayed %g %g %g %g\n", values[0], values[1], values[2], values[3]);
  MUST(cudaStreamBeginCapture(stream, 0));
  graph_t none = NULL;
  say("waiting in a capture", cudaStreamSynchronize(stream));
  say("which ends it", cudaStreamEndCapture(stream, &none));
  say("last error", cudaGetLastError());
  MUST(cudaGraphExecDestroy(executable));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaStreamDestroy(stream));
  MUST(cudaFree(device));
}

static void pools(void) {
  pool_t pool = NULL;
  void *first = NULL, *second = NULL;
  uint64_t keep = UINT64_MAX, used = 0, kept = 0;
  unsigned value = 0;
  MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
  MUST(cudaMemPoolSetAttribute(pool, 4, &keep));
  MUST(cudaMallocAsync(&first, 32 * MIB, NULL));
  LAUNCH(1, 32, NULL, fill_u32(first, 4711, 32));
  MUST(cudaMemcpy(&value, first, sizeof value, TO_HOST));
  MUST(cudaMallocAsync(&second, 32 * MIB, NULL));
  MUST(cudaFreeAsync(second, NULL));
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolGetAttribute(pool, 7, &used));
  MUST(cudaMemPoolGetAttribute(pool, 5, &kept));
  printf("pool: %u, used %llu MiB of %llu\n", value, (unsigned long long)used / MIB, (unsigned long long)kept / MIB);
  MUST(cudaFreeAsync(first, NULL));
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolTrimTo(pool, 0));
  MUST(cudaMemPoolGetAttribute(pool, 5, &kept));
  printf("trimmed to %llu\n", (unsigned long long)kept);
}

// What a framework that maps memory itself calls: the driver's functions, by their entry points.
static void *entry(const char *name) {
  void *found = NULL;
  int status = -1;
  MUST(cudaGetDriverEntryPointByVersion(name, &found, 12000, 0, &status));
  if (status || !found) { printf("%s: %d\n", name, status); exit(66); }
  return found;
}

// Not more pieces than memory has room for, and not few.
static void granted(const char *by, int pieces, size_t total, error_t refused) {
  int room = (int)(total / PIECE);
  printf("pieces by %s: no more than fit %d, at least half %d, then %d\n", by, pieces <= room, pieces >= room / 2,
         refused);
}

static void until_it_is_full(void) {
  // CUmemAllocationProp: pinned memory of device 0.
  const struct { int kind, handles, place, device; void *none; char flags[8]; } asked = {.kind = 1, .place = 1};
  error_t (*create)(uint64_t *, size_t, const void *, unsigned long long) =
    (error_t(*)(uint64_t *, size_t, const void *, unsigned long long))entry("cuMemCreate");
  error_t (*release)(uint64_t) = (error_t(*)(uint64_t))entry("cuMemRelease");
  size_t free_bytes = 0, total = 0;
  uint64_t handles[PIECES];
  void *blocks[PIECES];
  error_t code = 0;
  int count = 0;
  MUST(cudaMemGetInfo(&free_bytes, &total));
  while (count < PIECES && (code = create(&handles[count], PIECE, &asked, 0)) == 0) count++;
  granted("cuMemCreate", count, total, code);
  while (count) MUST(release(handles[--count]));
  while (count < PIECES && (code = cudaMallocAsync(&blocks[count], PIECE, NULL)) == 0) count++;
  granted("cudaMallocAsync", count, total, code);
  say("last error", cudaGetLastError());
  while (count) MUST(cudaFreeAsync(blocks[--count], NULL));
  MUST(cudaDeviceSynchronize());
  pool_t pool = NULL;
  MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
  MUST(cudaMemPoolTrimTo(pool, 0));
}

static void show(const char *what, const void *at) {
  struct { pointer_t attributes; unsigned guard; } place = {.guard = 4711};
  MUST(cudaPointerGetAttributes(&place.attributes, at));
  pointer_t *found = &place.attributes;
  printf("%s: type %d device %d, on it %d, on the host %d, guard %u\n", what, found->type, found->device,
         found->device_pointer == at, found->host_pointer == at, place.guard);
#if CUDA >= 13
  if (found->locality != -1) printf("close to part %d of a device\n", found->locality);
#endif
}

static void kinds_of_memory(void) {
  static float own[1024];
  float *pinned = NULL, *managed = NULL;
  void *device = NULL;
  MUST(cudaMalloc(&device, 4 * sizeof *pinned));
  MUST(cudaMallocHost((void **)&pinned, 4 * sizeof *pinned));
  MUST(cudaMallocManaged((void **)&managed, 4 * sizeof *managed, 1));
  for (int i = 0; i < 4; i++) managed[i] = pinned[i] = (float)(i + 1);
  LAUNCH(1, 4, NULL, scale_by_constant(managed, 1, 4));
  MUST(cudaMemcpyAsync(device, pinned, 4 * sizeof *pinned, TO_DEVICE, NULL));
  LAUNCH(1, 4, NULL, scale_by_constant(device, 2, 4));
  MUST(cudaMemcpyAsync(pinned, device, 4 * sizeof *pinned, TO_HOST, NULL));
  MUST(cudaDeviceSynchronize());
  printf("managed %g %g, page-locked %g %g\n", managed[0], managed[3], pinned[0], pinned[3]);
  show("device", device);
  show("page-locked", pinned);
  show("managed", managed);
  show("the program's own", own);
  MUST(cudaHostRegister(own, sizeof own, 0));
  show("registered", own);
  MUST(cudaHostUnregister(own));
  MUST(cudaFree(device));
  MUST(cudaFree(managed));
  MUST(cudaFreeHost(pinned));
}

// Ends a process of our own, and says how it ended.
static int ended(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Starts this program again, with `input` on its standard input.
static pid_t again(const char *word, const void *input, size_t bytes) {
  int ends[2];
  fflush(stdout);
  if (pipe(ends)) exit(67);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[0], 0);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "runtime", word, NULL);
    _exit(68);
  }
  if (write(ends[1], input, bytes) != (ssize_t)bytes) exit(67);
  close(ends[0]);
  close(ends[1]);
  return child;
}

static void to_another_process(void) {
  handles_t handles;
  unsigned *device = NULL, value = 0;
  event_t written = NULL, read = NULL;
  MUST(cudaMalloc((void **)&device, N * sizeof *device));
  MUST(cudaEventCreateWithFlags(&written, 2 | 4));
  MUST(cudaEventCreateWithFlags(&read, 2 | 4));
  MUST(cudaIpcGetMemHandle(&handles.memory, device));
  MUST(cudaIpcGetEventHandle(&handles.written, written));
  MUST(cudaIpcGetEventHandle(&handles.read, read));
  LAUNCH(1, 1, NULL, spin_ns(5000000));
  LAUNCH(N / 128, 128, NULL, fill_u32(device, 4711, N));
  MUST(cudaEventRecord(written, NULL));
  int code = ended(again("ipc", &handles, sizeof handles));
  MUST(cudaStreamWaitEvent(NULL, read, 0));
  MUST(cudaMemcpy(&value, device + N - 1, sizeof value, TO_HOST));
  printf("the second process ended with %d and left %u\n", code, value);
  MUST(cudaEventDestroy(written));
  MUST(cudaEventDestroy(read));
  MUST(cudaFree(device));
}

static int second_process(void) {
  handles_t handles;
  unsigned *device = NULL, value = 0;
  event_t written = NULL, read_by_us = NULL;
  if (read(0, &handles, sizeof handles) != (ssize_t)sizeof handles) return 67;
  MUST(cudaIpcOpenMemHandle((void **)&device, handles.memory, 1));
  MUST(cudaIpcOpenEventHandle(&written, handles.written));
  MUST(cudaIpcOpenEventHandle(&read_by_us, handles.read));
  MUST(cudaStreamWaitEvent(NULL, written, 0));
  MUST(cudaMemcpy(&value, device + N - 1, sizeof value, TO_HOST));
  printf("in a second process %u\n", value);
  LAUNCH(N / 128, 128, NULL, fill_u32(device, 815, N));
  MUST(cudaEventRecord(read_by_us, NULL));
  MUST(cudaDeviceSynchronize());
  MUST(cudaEventDestroy(written));
  MUST(cudaEventDestroy(read_by_us));
  MUST(cudaIpcCloseMemHandle(device));
  return 0;
}

static int broken(void) {
  void *block = NULL;
  MUST(cudaMalloc(&block, MIB));
  LAUNCH(1, 1, NULL, illegal_write());
  say("broken: waited", cudaDeviceSynchronize());
  say("broken: memory", cudaMalloc(&block, MIB));
  printf("broken: %s\n", cudaGetErrorName(cudaGetLastError()));
  return 0;
}

static int reset(void) {
  // A context that the driver alone knows of.
  error_t (*retain)(void **, int) = (error_t(*)(void **, int))entry("cuDevicePrimaryCtxRetain");
  error_t (*state)(int, unsigned *, int *) = (error_t(*)(int, unsigned *, int *))entry("cuDevicePrimaryCtxGetState");
  void *context = NULL, *block = NULL;
  unsigned flags = 0;
  int before = -1, after = -1;
  MUST(retain(&context, 0));
  MUST(state(0, &flags, &before));
  MUST(cudaDeviceReset());
  MUST(state(0, &flags, &after));
  printf("reset: active %d, then %d\n", before, after);
  MUST(cudaMalloc(&block, MIB));
  MUST(cudaDeviceReset());
  say("reset: freed", cudaFree(block));
  return 0;
}

static void forked(void) {
  void *block = NULL;
  error_t (*init)(unsigned) = (error_t(*)(unsigned))entry("cuInit");
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    say("a forked child's driver", init(0));
    error_t code = cudaMalloc(&block, MIB);
    printf("a forked child %d %s\n", code, cudaGetErrorName(code));
    say("its device", cudaSetDevice(0));
    LAUNCH(1, 1, NULL, spin_ns(1));
    say("its launch", cudaGetLastError());
    fflush(stdout);
    _exit(0);
  }
  printf("the forked child ended with %d\n", ended(child));
  MUST(cudaMalloc(&block, MIB));
  MUST(cudaFree(block));
}

int main(int count, char **words) {
  const char *word = count > 1 ? words[1] : "";
  if (*word) return strcmp(word, "ipc") == 0 ? second_process() : strcmp(word, "reset") == 0 ? reset() : broken();
  devices();
  memory();
  copies();
  kernels();
  about_kernels();
  streams();
  graphs();
  pools();
  until_it_is_full();
  kinds_of_memory();
  to_another_process();
  forked();
  int code = ended(again("broken", "", 0));
  printf("the broken process ended with %d\n", code);
  code = ended(again("reset", "", 0));
  printf("the reset process ended with %d\n", code);
  memcpy3d_t of_an_array = {.source_array = &code};
  say("a copy of an array", cudaMemcpy3D(&of_an_array));
  say("not built", cudaCreateTextureObject(NULL, NULL, NULL, NULL));
  say("not built", cudaCreateTextureObject(NULL, NULL, NULL, NULL));
  puts("end");
  return 0;
}
