// SPDX-License-Identifier: Apache-2.0
// The driver functions that random_program.c calls, and the structures of their arguments. Included by it only.
typedef void *handle;
typedef uint64_t deviceptr;
typedef void (*host_fn)(void *);

struct attribute {
  int id;
  char pad[4];
  union { char pad[64]; int number; struct { handle event; int flags, trigger; } event; } value;
};
struct config { unsigned grid[3], block[3], shared; handle stream; struct attribute *attributes; unsigned count; };

// Plain entry points, and those with a twin that means the thread's default stream.
#define PLAIN(X) \
  X(cuInit, (unsigned)) \
  X(cuCtxCreate_v2, (handle *, unsigned, int)) \
  X(cuCtxSetCurrent, (handle)) \
  X(cuCtxSynchronize, (void)) \
  X(cuModuleLoadData, (handle *, const void *)) \
  X(cuModuleGetFunction, (handle *, handle, const char *)) \
  X(cuModuleGetGlobal_v2, (deviceptr *, size_t *, handle, const char *)) \
  X(cuStreamCreateWithPriority, (handle *, unsigned, int)) \
  X(cuEventCreate, (handle *, unsigned)) \
  X(cuEventQuery, (handle)) \
  X(cuEventSynchronize, (handle)) \
  X(cuEventElapsedTime, (float *, handle, handle)) \
  X(cuMemAlloc_v2, (deviceptr *, size_t)) \
  X(cuMemFree_v2, (deviceptr)) \
  X(cuMemcpyDtoH_v2, (void *, deviceptr, size_t)) \
  X(cuMemsetD8_v2, (deviceptr, unsigned char, size_t)) \
  X(cuMemHostAlloc, (void **, size_t, unsigned)) \
  X(cuMemHostGetDevicePointer_v2, (deviceptr *, void *, unsigned)) \
  X(cuThreadExchangeStreamCaptureMode, (int *)) \
  X(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long)) \
  X(cuGraphGetNodes, (handle, handle *, size_t *)) \
  X(cuGraphDestroy, (handle)) \
  X(cuGraphExecDestroy, (handle)) \
  X(cuFuncSetBlockShape, (handle, int, int, int)) \
  X(cuParamSetSize, (handle, unsigned)) \
  X(cuParamSeti, (handle, int, unsigned)) \
  X(cuParamSetv, (handle, int, void *, unsigned)) \
  X(cuLaunchGridAsync, (handle, int, int, handle))

#define LAUNCH (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **)
#define TWINS(X) \
  X(cuLaunchKernel, LAUNCH) \
  X(cuLaunchKernelEx, (const struct config *, handle, void **, void **)) \
  X(cuLaunchCooperativeKernel, \
    (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **)) \
  X(cuLaunchHostFunc, (handle, host_fn, void *)) \
  X(cuMemsetD32Async, (deviceptr, unsigned, size_t, handle)) \
  X(cuMemcpyAsync, (deviceptr, deviceptr, size_t, handle)) \
  X(cuMemcpyDtoHAsync_v2, (void *, deviceptr, size_t, handle)) \
  X(cuMemcpyHtoDAsync_v2, (deviceptr, const void *, size_t, handle)) \
  X(cuMemAllocAsync, (deviceptr *, size_t, handle)) \
  X(cuMemFreeAsync, (deviceptr, handle)) \
  X(cuStreamWriteValue64_v2, (handle, deviceptr, uint64_t, unsigned)) \
  X(cuEventRecord, (handle, handle)) \
  X(cuStreamWaitEvent, (handle, handle, unsigned)) \
  X(cuStreamSynchronize, (handle)) \
  X(cuStreamQuery, (handle)) \
  X(cuStreamBeginCapture_v2, (handle, int)) \
  X(cuStreamEndCapture, (handle, handle *)) \
  X(cuStreamIsCapturing, (handle, int *)) \
  X(cuGraphLaunch, (handle, handle))

#define FIELD(name, args) int(*name) args;
#define FIELDS(name, args) int(*name) args; int(*name##_ptsz) args;
static struct { PLAIN(FIELD) TWINS(FIELDS) } cu;
