// SPDX-License-Identifier: Apache-2.0
// What a program declares of the CUDA runtime, written down from its public documentation, and the code that a CUDA
// compiler puts beside a program's own: its fat binary, which the constructor registers, and the launches.
//
// CUDA: 12 or 13. FATBIN: the path of the fat binary, as text.
#include <stddef.h>
#include <stdint.h>

typedef int error_t;
typedef struct { unsigned x, y, z; } dim3;
typedef struct { char reserved[64]; } ipc_t;
// cudaMemcpy3DParms: the array that is copied from comes first.
typedef struct { void *source_array; char rest[152]; } memcpy3d_t;
typedef void *stream_t, *event_t, *graph_t, *exec_t, *pool_t;
typedef struct {
  size_t shared, constant, local;
  int threads, registers, ptx, binary, rest[25];
} function_t;
typedef struct {
  int type, device;
  void *device_pointer, *host_pointer;
#if CUDA >= 13
  int locality, unused;
  long reserved[7];
#endif
} pointer_t;
// The fields that come first, and room for the others.
typedef struct {
  char name[256], uuid[16], luid[8];
  unsigned mask;
  size_t memory, shared;
  int registers, warp;
  char rest[CUDA >= 13 ? 1008 - 312 : 1032 - 312];
} device_t;
_Static_assert(sizeof(function_t) == 144 && sizeof(pointer_t) == (CUDA >= 13 ? 88 : 24), "as the public headers");
_Static_assert(sizeof(device_t) == (CUDA >= 13 ? 1008 : 1032), "as the public headers");

// Directions of copies.
enum { TO_DEVICE = 1, TO_HOST = 2, EITHER = 4 };

#if CUDA >= 13
#define cudaGetDeviceProperties_v2 cudaGetDeviceProperties
#endif

error_t cudaGetDeviceCount(int *), cudaGetDevice(int *), cudaSetDevice(int);
error_t cudaGetDeviceFlags(unsigned *), cudaSetDeviceFlags(unsigned), cudaDeviceReset(void);
error_t cudaDriverGetVersion(int *), cudaRuntimeGetVersion(int *);
error_t cudaGetDeviceProperties_v2(device_t *, int), cudaDeviceGetAttribute(int *, int, int);
error_t cudaDeviceGetPCIBusId(char *, int, int), cudaDeviceSynchronize(void);
error_t cudaGetLastError(void), cudaPeekAtLastError(void);
const char *cudaGetErrorName(error_t), *cudaGetErrorString(error_t);
error_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);
error_t cudaMallocHost(void **, size_t), cudaFreeHost(void *), cudaHostRegister(void *, size_t, unsigned);
error_t cudaHostUnregister(void *), cudaMallocManaged(void **, size_t, unsigned);
error_t cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
error_t cudaMemcpyAsync(void *, const void *, size_t, int, stream_t), cudaMemsetAsync(void *, int, size_t, stream_t);
error_t cudaMemcpy3D(const memcpy3d_t *);
error_t cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
error_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
error_t cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
error_t cudaGetSymbolAddress(void **, const void *), cudaGetSymbolSize(size_t *, const void *);
error_t cudaPointerGetAttributes(pointer_t *, const void *);
error_t cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamCreateWithPriority(stream_t *, unsigned, int);
error_t cudaStreamDestroy(stream_t), cudaStreamQuery(stream_t), cudaStreamSynchronize(stream_t);
error_t cudaStreamWaitEvent(stream_t, event_t, unsigned), cudaDeviceGetStreamPriorityRange(int *, int *);
error_t cudaStreamGetPriority(stream_t, int *), cudaLaunchHostFunc(stream_t, void (*)(void *), void *);
error_t cudaEventCreate(event_t *), cudaEventCreateWithFlags(event_t *, unsigned), cudaEventDestroy(event_t);
error_t cudaEventRecord(event_t, stream_t), cudaEventQuery(event_t), cudaEventSynchronize(event_t);
error_t cudaEventElapsedTime(float *, event_t, event_t);
error_t cudaStreamBeginCapture(stream_t, int), cudaStreamEndCapture(stream_t, graph_t *);
error_t cudaStreamIsCapturing(stream_t, int *), cudaGraphInstantiate(exec_t *, graph_t, unsigned long long);
error_t cudaGraphGetNodes(graph_t, void **, size_t *), cudaGraphLaunch(exec_t, stream_t);
error_t cudaGraphExecDestroy(exec_t), cudaGraphDestroy(graph_t);
error_t cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t);
error_t cudaDeviceGetDefaultMemPool(pool_t *, int), cudaMemPoolGetAttribute(pool_t, int, void *);
error_t cudaMemPoolSetAttribute(pool_t, int, void *), cudaMemPoolTrimTo(pool_t, size_t);
error_t cudaIpcGetMemHandle(ipc_t *, void *), cudaIpcOpenMemHandle(void **, ipc_t, unsigned);
error_t cudaIpcCloseMemHandle(void *);
error_t cudaIpcGetEventHandle(ipc_t *, event_t), cudaIpcOpenEventHandle(event_t *, ipc_t);
error_t cudaFuncGetAttributes(function_t *, const void *);
error_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, const void *, int, size_t, unsigned);
error_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
error_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream_t);
error_t cudaCreateTextureObject(void *, void *, void *, void *);

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **), __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, stream_t);
error_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, stream_t *);

__asm__(".section .nv_fatbin, \"a\"\n.balign 8\nfatbin:\n.incbin \"" FATBIN "\"\n.previous\n");
extern const unsigned char fatbin[] __attribute__((visibility("hidden")));

static const struct { int magic, version; const void *code; void *file; } wrapper
  __attribute__((section(".nvFatBinSegment"), used)) = {0x466243b1, 1, fatbin, NULL};
static void **binary;

// What stands for a kernel in the program: takes the launch's configuration, and launches.
static void launch_of(const void *stub, void **arguments) {
  dim3 grid, block;
  size_t shared;
  stream_t stream;
  if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == 0)
    (void)cudaLaunchKernel(stub, grid, block, arguments, shared, stream);
}

static void fill_u32(unsigned *to, unsigned value, int n) {
  launch_of((const void *)fill_u32, (void *[]){&to, &value, &n});
}
static void scale_by_constant(float *values, int which, int n) {
  launch_of((const void *)scale_by_constant, (void *[]){&values, &which, &n});
}
static void sum_reduce(float *total, const float *from, int n) {
  launch_of((const void *)sum_reduce, (void *[]){&total, &from, &n});
}
static void spin_ns(unsigned long long ns) { launch_of((const void *)spin_ns, (void *[]){&ns}); }
static void illegal_write(void) { launch_of((const void *)illegal_write, (void *[]){NULL}); }
static void nobody(void) { launch_of((const void *)nobody, (void *[]){NULL}); }

// The program's own copies of its device's variables: their addresses are their names.
static unsigned launches;
static float factors[4];

// `kernel<<<blocks, threads, 0, stream>>>(...)`.
#define LAUNCH(blocks, threads, stream, call) \
  do { \
    if (__cudaPushCallConfiguration((dim3){blocks, 1, 1}, (dim3){threads, 1, 1}, 0, stream) == 0) call; \
  } while (0)

static void unregister(void) __attribute__((destructor));
static void unregister(void) { __cudaUnregisterFatBinary(binary); }

static void one(const void *stub, const char *name) {
  __cudaRegisterFunction(binary, stub, (char *)name, name, -1, NULL, NULL, NULL, NULL, NULL);
}

static void registered(void) __attribute__((constructor));
static void registered(void) {
  binary = __cudaRegisterFatBinary((void *)&wrapper);
  one((const void *)fill_u32, "fill_u32");
  one((const void *)scale_by_constant, "scale_by_constant");
  one((const void *)sum_reduce, "sum_reduce");
  one((const void *)spin_ns, "spin_ns");
  one((const void *)illegal_write, "illegal_write");
  __cudaRegisterVar(binary, (char *)&launches, "launches", "launches", 0, sizeof launches, 0, 0);
  __cudaRegisterVar(binary, (char *)factors, "factors", "factors", 0, sizeof factors, 1, 0);
  __cudaRegisterFatBinaryEnd(binary);
}
