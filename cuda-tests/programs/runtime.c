// SPDX-License-Identifier: Apache-2.0
// Walks the CUDA runtime as a program of nvcc's does: registers a fat binary, launches from it, and uses memory,
// streams, events, graphs, pools, handles for other processes, attributes, errors and fork. Prints a line for each
// part, and ends with 1 at the first surprise. The prototypes are written out: no header of the vendor is needed.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if CUDA == 13 // linked with libcudart.so.13, which has the properties under their plain name
#define PROPERTIES cudaGetDeviceProperties
#else
#define PROPERTIES cudaGetDeviceProperties_v2
#endif

typedef struct { unsigned x, y, z; } dim3;
typedef struct { char bytes[64]; } ipc_handle;
typedef void *stream_t;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, stream_t);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, stream_t *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream_t);
int cudaGetDeviceCount(int *), cudaGetDevice(int *), cudaSetDevice(int);
int cudaGetLastError(void), cudaPeekAtLastError(void), cudaDeviceSynchronize(void);
const char *cudaGetErrorName(int), *cudaGetErrorString(int);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);
int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
int cudaMemcpyAsync(void *, const void *, size_t, int, stream_t);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
int cudaStreamCreate(stream_t *), cudaStreamSynchronize(stream_t), cudaStreamDestroy(stream_t);
int cudaStreamBeginCapture(stream_t, int), cudaStreamEndCapture(stream_t, void **);
int cudaEventCreate(void **), cudaEventRecord(void *, stream_t), cudaEventSynchronize(void *);
int cudaEventElapsedTime(float *, void *, void *), cudaEventDestroy(void *);
int cudaEventCreateWithFlags(void **, unsigned), cudaIpcGetEventHandle(ipc_handle *, void *);
int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long), cudaGraphLaunch(void *, stream_t);
int cudaGraphExecDestroy(void *), cudaGraphDestroy(void *), cudaGraphGetNodes(void *, void **, size_t *);
int cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t);
int cudaDeviceGetDefaultMemPool(void **, int), cudaMemPoolTrimTo(void *, size_t);
int cudaIpcGetMemHandle(ipc_handle *, void *), cudaPointerGetAttributes(void *, const void *);
int cudaIpcOpenMemHandle(void **, ipc_handle, unsigned), cudaIpcCloseMemHandle(void *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
int cudaFuncGetAttributes(void *, const void *), cudaDeviceGetAttribute(int *, int, int);
int cudaMallocArray(void **, const void *, size_t, size_t, unsigned), PROPERTIES(void *, int);

#define COUNT 1000
#define SUCCEEDS(call) expect(#call, call, 0, __LINE__)
#define ANSWERS(code, call) expect(#call, call, code, __LINE__)

static void expect(const char *call, int got, int wanted, int line) {
    if (got != wanted) {
        fprintf(stderr, "runtime.c:%d: %s answered %d, not %d\n", line, call, got, wanted);
        exit(1);
    }
}

static void part(const char *name) {
    printf("%s\n", name);
    fflush(stdout);
}

// As a compiler writes it: y = factor * x + y.
static const char PTX[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n.global .align 4 .f32 factor = 0f40000000;\n"
    ".visible .entry axpy(.param .u64 px, .param .u64 py, .param .u32 pn)\n{\n"
    ".reg .pred %p<2>; .reg .f32 %f<5>; .reg .b32 %r<6>; .reg .b64 %rd<8>;\n"
    "ld.param.u64 %rd1, [px];\nld.param.u64 %rd2, [py];\nld.param.u32 %r1, [pn];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1;\n@%p1 bra DONE;\ncvta.to.global.u64 %rd3, %rd1;\ncvta.to.global.u64 %rd4, %rd2;\n"
    "mul.wide.u32 %rd5, %r5, 4;\nadd.s64 %rd6, %rd3, %rd5;\nadd.s64 %rd7, %rd4, %rd5;\n"
    "ld.global.f32 %f1, [%rd6];\nld.global.f32 %f2, [%rd7];\nld.global.f32 %f3, [factor];\n"
    "fma.rn.f32 %f4, %f3, %f1, %f2;\nst.global.f32 [%rd7], %f4;\nDONE:\nret;\n}\n";

// A fat binary with one entry, the text above.
static struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    uint16_t kind, entry_version;
    uint32_t entry_header_bytes;
    uint64_t payload_bytes;
    uint32_t packed_bytes, reserved;
    uint16_t minor, major;
    uint32_t arch, name_offset, name_bytes;
    uint64_t flags, zero, unpacked_bytes;
    char text[(sizeof PTX + 7) & ~7ul];
} container = {
    .magic = 0xba55ed50, .version = 1, .header_bytes = 16, .kind = 1, .entry_version = 0x101,
    .entry_header_bytes = 64, .minor = 0, .major = 8, .arch = 75,
};
static struct { uint32_t magic, version; const void *data; void *more; } wrapper = {0x466243b1, 1, &container, NULL};

static void **binary;
static float factor; // the shadow of the variable

static void axpy(float *x, float *y, unsigned n) { // what a compiler makes of axpy<<<...>>>
    void *arguments[] = {&x, &y, &n};
    dim3 grid, block;
    size_t shared;
    stream_t stream;
    SUCCEEDS(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    SUCCEEDS(cudaLaunchKernel((const void *)axpy, grid, block, arguments, shared, stream));
}

static void launch(float *x, float *y, stream_t stream) {
    dim3 grid = {(COUNT + 127) / 128, 1, 1}, block = {128, 1, 1};
    if (!__cudaPushCallConfiguration(grid, block, 0, stream)) axpy(x, y, COUNT);
}

static void registers(void) {
    memcpy(container.text, PTX, sizeof PTX);
    container.payload_bytes = sizeof container.text;
    container.bytes = sizeof container - 16;
    binary = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(binary, (const char *)axpy, "axpy", "axpy", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(binary, (char *)&factor, "factor", "factor", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(binary);
}

static void expect_all(const float *device, float value, int line) {
    static float host[COUNT];
    SUCCEEDS(cudaMemcpy(host, device, sizeof host, 2));
    for (int i = 0; i < COUNT; i++)
        if (host[i] != value) {
            fprintf(stderr, "runtime.c:%d: element %d is %g, not %g\n", line, i, host[i], value);
            exit(1);
        }
}

static void walks_graphs(float *x, float *y, stream_t stream) {
    void *graph = NULL, *exec = NULL;
    size_t nodes = 0;
    SUCCEEDS(cudaStreamBeginCapture(stream, 0));
    launch(x, y, stream);
    launch(x, y, stream);
    SUCCEEDS(cudaStreamEndCapture(stream, &graph));
    SUCCEEDS(cudaGraphGetNodes(graph, NULL, &nodes));
    expect("nodes", (int)nodes, 2, __LINE__);
    SUCCEEDS(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    SUCCEEDS(cudaGraphLaunch(exec, stream));
    SUCCEEDS(cudaStreamSynchronize(stream));
    SUCCEEDS(cudaGraphExecDestroy(exec));
    SUCCEEDS(cudaGraphDestroy(graph));
}

static void walks_pools(stream_t stream) {
    void *pool = NULL, *piece = NULL;
    SUCCEEDS(cudaDeviceGetDefaultMemPool(&pool, 0));
    SUCCEEDS(cudaMallocAsync(&piece, 1 << 20, stream));
    SUCCEEDS(cudaFreeAsync(piece, stream));
    SUCCEEDS(cudaStreamSynchronize(stream));
    SUCCEEDS(cudaMemPoolTrimTo(pool, 0));
}

// The child is another program image: this one would be refused as a fork.
static void walks_handles(const char *self, float *y) {
    ipc_handle handle;
    char text[129];
    SUCCEEDS(cudaIpcGetMemHandle(&handle, y));
    for (int i = 0; i < 64; i++) sprintf(text + 2 * i, "%02x", (unsigned char)handle.bytes[i]);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, text, (char *)NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    expect("the reader", status, 0, __LINE__);
}

static int reads(const char *text) {
    ipc_handle handle;
    void *y = NULL;
    for (int i = 0; i < 64; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.bytes[i] = (char)byte;
    }
    SUCCEEDS(cudaIpcOpenMemHandle(&y, handle, 1));
    expect_all(y, 21, __LINE__);
    SUCCEEDS(cudaIpcCloseMemHandle(y));
    return 0;
}

static void walks_errors(void) {
    void *p = NULL;
    size_t free_bytes = 0, total = 0;
    dim3 one = {1, 1, 1}, wrong = {4096, 1, 1};
    SUCCEEDS(cudaMemGetInfo(&free_bytes, &total));
    ANSWERS(2, cudaMalloc(&p, total + 1));
    ANSWERS(2, cudaPeekAtLastError());
    ANSWERS(2, cudaGetLastError());
    SUCCEEDS(cudaGetLastError());
    expect("the name", strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"), 0, __LINE__);
    expect("the text", strcmp(cudaGetErrorString(2), "out of memory"), 0, __LINE__);
    ANSWERS(101, cudaSetDevice(99));
    ANSWERS(21, cudaMemcpy(&one, &wrong, 12, 9));
    ANSWERS(9, cudaLaunchKernel((const void *)axpy, one, wrong, NULL, 0, NULL));
    ANSWERS(98, cudaLaunchKernel(&one, one, one, NULL, 0, NULL));
    ANSWERS(13, cudaMemcpyToSymbol(&one, &wrong, 4, 0, 1));
    ANSWERS(801, cudaMallocArray(&p, NULL, 1, 1, 0));
    ANSWERS(801, cudaMallocArray(&p, NULL, 1, 1, 0));
    ANSWERS(801, cudaGetLastError());
}

static void walks_attributes(float *y) {
    char properties[1032], function[144], pointer[88];
    int value = 0, blocks = 0;
    SUCCEEDS(cudaDeviceGetAttribute(&value, 75, 0));
    SUCCEEDS(PROPERTIES(properties, 0));
    expect("major", *(int *)(properties + 360), value, __LINE__);
    size_t free_bytes = 0, total = 0;
    SUCCEEDS(cudaMemGetInfo(&free_bytes, &total));
    expect("total", *(size_t *)(properties + 288) == total, 1, __LINE__);
    SUCCEEDS(cudaFuncGetAttributes(function, (const void *)axpy));
    expect("threads", *(int *)(function + 24) >= 128, 1, __LINE__);
    SUCCEEDS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)axpy, 128, 0));
    expect("blocks", blocks > 0, 1, __LINE__);
    SUCCEEDS(cudaPointerGetAttributes(pointer, y));
    expect("device memory", *(int *)pointer, 2, __LINE__);
    SUCCEEDS(cudaPointerGetAttributes(pointer, &value));
    expect("unregistered", *(int *)pointer, 0, __LINE__);
}

static void walks_fork(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(cudaDeviceSynchronize() == 3 && cudaSetDevice(0) == 3 ? 0 : 1);
    waitpid(child, &status, 0);
    expect("the forked child", status, 0, __LINE__);
}

int main(int count, char **arguments) {
    float *x = NULL, *y = NULL, *pinned = NULL, three = 3, found = 0, milliseconds = -1;
    stream_t stream = NULL;
    void *start = NULL, *end = NULL, *shared = NULL;
    ipc_handle handle;
    if (count > 1) return reads(arguments[1]);
    registers();
    SUCCEEDS(cudaMalloc((void **)&x, COUNT * 4));
    SUCCEEDS(cudaMalloc((void **)&y, COUNT * 4));
    SUCCEEDS(cudaHostAlloc((void **)&pinned, COUNT * 4, 0));
    for (int i = 0; i < COUNT; i++) pinned[i] = 3;
    SUCCEEDS(cudaMemset(y, 0, COUNT * 4));
    SUCCEEDS(cudaMemcpy2D(x, 40, pinned, 40, 40, COUNT / 10, 1));
    part("memory");
    launch(x, y, NULL);
    SUCCEEDS(cudaDeviceSynchronize());
    expect_all(y, 6, __LINE__);
    part("launch");
    SUCCEEDS(cudaMemcpyToSymbol(&factor, &three, 4, 0, 1));
    SUCCEEDS(cudaMemcpyFromSymbol(&found, &factor, 4, 0, 2));
    expect("the variable", found == 3, 1, __LINE__);
    SUCCEEDS(cudaMemset(y, 0, COUNT * 4));
    part("variables");
    SUCCEEDS(cudaStreamCreate(&stream));
    SUCCEEDS(cudaEventCreate(&start));
    SUCCEEDS(cudaEventCreate(&end));
    SUCCEEDS(cudaMemcpyAsync(y, pinned, COUNT * 4, 1, stream));
    SUCCEEDS(cudaEventRecord(start, stream));
    SUCCEEDS(cudaEventRecord(end, stream));
    SUCCEEDS(cudaEventSynchronize(end));
    SUCCEEDS(cudaEventElapsedTime(&milliseconds, start, end));
    expect("the time", milliseconds >= 0, 1, __LINE__);
    expect_all(y, 3, __LINE__);
    part("streams");
    walks_graphs(x, y, stream);
    expect_all(y, 21, __LINE__);
    part("graphs");
    walks_pools(stream);
    part("pools");
    walks_handles(arguments[0], y);
    SUCCEEDS(cudaEventCreateWithFlags(&shared, 6));
    SUCCEEDS(cudaIpcGetEventHandle(&handle, shared));
    part("handles");
    walks_attributes(y);
    part("attributes");
    walks_errors();
    part("errors");
    walks_fork();
    part("fork");
    SUCCEEDS(cudaEventDestroy(start));
    SUCCEEDS(cudaEventDestroy(end));
    SUCCEEDS(cudaEventDestroy(shared));
    SUCCEEDS(cudaStreamDestroy(stream));
    SUCCEEDS(cudaFreeHost(pinned));
    SUCCEEDS(cudaFree(x));
    SUCCEEDS(cudaFree(y));
    __cudaUnregisterFatBinary(binary);
    part("end");
    return 0;
}
