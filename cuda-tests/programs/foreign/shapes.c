// SPDX-License-Identifier: Apache-2.0
// Small programs of the shapes in which the driver API is usually learned, linked with libcuda.so.1 as those are.
// usage: shapes WHAT [PTX]; prints results that are the same on every run, with and without a limit.
#include <cuda.h>
#include <math.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DO(call) do { \
    CUresult result_ = (call); \
    if (result_) { \
        const char *name_ = "?"; \
        cuGetErrorName(result_, &name_); \
        fprintf(stderr, "%s: %s\n", #call, name_); \
        exit(1); \
    } } while (0)
#define N 5000

static CUdevice device;
static CUcontext context;
static CUmodule module;

static void begin(const char *ptx)
{
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
#if CUDA_VERSION >= 13000
    DO(cuCtxCreate(&context, NULL, 0, device));
#else
    DO(cuCtxCreate(&context, 0, device));
#endif
    if (ptx) DO(cuModuleLoad(&module, ptx));
}

static CUfunction kernel(const char *name)
{
    CUfunction function;
    DO(cuModuleGetFunction(&function, module, name));
    return function;
}

// Adds two vectors that lie at these addresses of the device and says how many sums are right.
static void add(CUfunction function, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c)
{
    static float x[N], y[N], z[N];
    for (int i = 0; i < N; i++) x[i] = i, y[i] = 3 * i;
    DO(cuMemcpyHtoD(a, x, sizeof x));
    DO(cuMemcpyHtoD(b, y, sizeof y));
    int n = N;
    void *list[] = {&a, &b, &c, &n};
    DO(cuLaunchKernel(function, (N + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, list, NULL));
    DO(cuCtxSynchronize());
    DO(cuMemcpyDtoH(z, c, sizeof z));
    int right = 0;
    for (int i = 0; i < N; i++) right += z[i] == 4 * i;
    printf("%d of %d sums are right\n", right, N);
}

static void vector_add(void)
{
    CUdeviceptr at[3];
    for (int i = 0; i < 3; i++) DO(cuMemAlloc(&at[i], N * sizeof(float)));
    add(kernel("vector_add"), at[0], at[1], at[2]);
    for (int i = 0; i < 3; i++) DO(cuMemFree(at[i]));
}

static void matrix_multiply(void)
{
    enum { ROWS = 32, INNER = 24, COLUMNS = 40 };
    static float a[ROWS * INNER], b[INNER * COLUMNS], c[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * INNER; i++) a[i] = i % 7;
    for (int i = 0; i < INNER * COLUMNS; i++) b[i] = i % 5;
    CUdeviceptr da, db, dc;
    DO(cuMemAlloc(&da, sizeof a));
    DO(cuMemAlloc(&db, sizeof b));
    DO(cuMemAlloc(&dc, sizeof c));
    DO(cuMemcpyHtoD(da, a, sizeof a));
    DO(cuMemcpyHtoD(db, b, sizeof b));
    int inner = INNER, width = COLUMNS;
    // Parameters in one buffer, as the older form of a launch has them.
    struct { CUdeviceptr c, a, b; int inner, width; } parameters = {dc, da, db, inner, width};
    size_t size = sizeof parameters;
    void *extra[] = {
        CU_LAUNCH_PARAM_BUFFER_POINTER, &parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END,
    };
    DO(cuLaunchKernel(kernel("matrix_multiply"), COLUMNS / 8, ROWS / 8, 1, 8, 8, 1, 0, NULL, NULL, extra));
    DO(cuMemcpyDtoH(c, dc, sizeof c));
    int right = 0;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) {
            float sum = 0;
            for (int k = 0; k < INNER; k++) sum += a[row * INNER + k] * b[k * COLUMNS + column];
            right += fabsf(sum - c[row * COLUMNS + column]) < 1e-3f;
        }
    printf("%d of %d elements are right\n", right, ROWS * COLUMNS);
}

static void device_query(void)
{
    int count, version, value;
    char name[80];
    DO(cuDeviceGetCount(&count));
    DO(cuDriverGetVersion(&version));
    DO(cuDeviceGetName(name, sizeof name, device));
    // How many there are and whose peers they are is the job's matter: asked, not printed.
    printf("version %d, %s\n", version, name);
    for (int attribute = 1; attribute < 119; attribute++)
        if (!cuDeviceGetAttribute(&value, attribute, device)) printf("%d=%d ", attribute, value);
    printf("\n");
    for (int other = 0; other < count; other++) {
        int can = -1;
        if (other != device) DO(cuDeviceCanAccessPeer(&can, device, other));
    }
}

// Memory that is made in one piece, mapped and given access step by step. Returns its address.
static CUdeviceptr map(size_t *size, CUmemGenericAllocationHandle *handle, CUmemAllocationHandleType type, int fd)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    size_t granularity;
    CUdeviceptr at;
    DO(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    *size = (*size + granularity - 1) / granularity * granularity;
    if (fd < 0) DO(cuMemCreate(handle, *size, &prop, 0));
    else DO(cuMemImportFromShareableHandle(handle, (void *)(size_t)fd, type));
    DO(cuMemAddressReserve(&at, *size, 0, 0, 0));
    DO(cuMemMap(at, *size, 0, *handle, 0));
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DO(cuMemSetAccess(at, *size, &access, 1));
    return at;
}

static void unmap(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle handle)
{
    DO(cuMemUnmap(at, size));
    DO(cuMemRelease(handle));
    DO(cuMemAddressFree(at, size));
}

static void vector_add_mapped(void)
{
    CUdeviceptr at[3];
    CUmemGenericAllocationHandle handle[3];
    size_t size[3];
    for (int i = 0; i < 3; i++) {
        size[i] = N * sizeof(float);
        at[i] = map(&size[i], &handle[i], 0, -1);
    }
    add(kernel("vector_add"), at[0], at[1], at[2]);
    for (int i = 0; i < 3; i++) unmap(at[i], size[i], handle[i]);
}

static void send_descriptor(int to, int fd)
{
    char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(to, &message, 0) != 1) exit(2);
}

static int receive_descriptor(int from)
{
    char room[CMSG_SPACE(sizeof(int))], byte;
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) exit(2);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

// A parent makes memory, a child that it forked before it used the driver maps and fills it, the parent reads.
static void shared_between_processes(const char *ptx)
{
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int pair[2], status;
    CUmemGenericAllocationHandle handle;
    size_t size = N * sizeof(float);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) exit(2);
    pid_t child = fork();
    begin(ptx);
    if (child == 0) {
        CUdeviceptr at = map(&size, &handle, type, receive_descriptor(pair[1]));
        DO(cuMemsetD32(at, 77, N));
        DO(cuCtxSynchronize());
        unmap(at, size, handle);
        exit(0);
    }
    int fd;
    static unsigned words[N];
    CUdeviceptr at = map(&size, &handle, type, -1);
    DO(cuMemExportToShareableHandle(&fd, handle, type, 0));
    send_descriptor(pair[0], fd);
    waitpid(child, &status, 0);
    DO(cuMemcpyDtoH(words, at, sizeof words));
    int right = 0;
    for (int i = 0; i < N; i++) right += words[i] == 77;
    printf("child ended %d, %d of %d words are its\n", status, right, N);
    unmap(at, size, handle);
}

static void CUDA_CB note(void *data) { ++*(int *)data; }

// Copies, two kernels and a host function as one graph, built node by node and by capture; launched often.
static void graph(void)
{
    static float x[N], y[N], z[N];
    for (int i = 0; i < N; i++) x[i] = i, y[i] = 1;
    CUdeviceptr a, b, c;
    DO(cuMemAlloc(&a, sizeof x));
    DO(cuMemAlloc(&b, sizeof x));
    DO(cuMemAlloc(&c, sizeof x));
    CUstream stream;
    CUgraph built;
    CUgraphExec exec;
    int n = N, notes = 0;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int is_captured = 0; is_captured < 2; is_captured++) {
        void *list[] = {&a, &b, &c, &n};
        if (is_captured) {
            DO(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
            DO(cuMemcpyHtoDAsync(a, x, sizeof x, stream));
            DO(cuMemcpyHtoDAsync(b, y, sizeof y, stream));
            DO(cuLaunchKernel(kernel("vector_add"), (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream, list, NULL));
            DO(cuMemcpyDtoHAsync(z, c, sizeof z, stream));
            DO(cuLaunchHostFunc(stream, note, &notes));
            DO(cuStreamEndCapture(stream, &built));
        } else {
            CUgraphNode set[2], add, call;
            DO(cuGraphCreate(&built, 0));
            CUDA_MEMSET_NODE_PARAMS zero = {.elementSize = 4, .width = N, .height = 1};
            zero.dst = a;
            DO(cuGraphAddMemsetNode(&set[0], built, NULL, 0, &zero, context));
            zero.dst = b;
            DO(cuGraphAddMemsetNode(&set[1], built, NULL, 0, &zero, context));
            CUDA_KERNEL_NODE_PARAMS params = {.func = kernel("vector_add"), .gridDimX = (N + 127) / 128, .gridDimY = 1,
                .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1, .kernelParams = list};
            DO(cuGraphAddKernelNode(&add, built, set, 2, &params));
            CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = &notes};
            DO(cuGraphAddHostNode(&call, built, &add, 1, &host));
        }
        size_t nodes = 0;
        DO(cuGraphGetNodes(built, NULL, &nodes));
        DO(cuGraphInstantiate(&exec, built, 0));
        for (int i = 0; i < 3; i++) DO(cuGraphLaunch(exec, stream));
        DO(cuStreamSynchronize(stream));
        printf("%zu nodes, %d notes, last sum %g\n", nodes, notes, z[N - 1]);
        DO(cuGraphExecDestroy(exec));
        DO(cuGraphDestroy(built));
    }
}

static void inline_ptx(void)
{
    static unsigned words[128];
    CUdeviceptr at;
    DO(cuMemAlloc(&at, sizeof words));
    void *list[] = {&at};
    DO(cuLaunchKernel(kernel("lanes"), 2, 1, 1, 64, 1, 1, 0, NULL, list, NULL));
    DO(cuMemcpyDtoH(words, at, sizeof words));
    int right = 0;
    for (int i = 0; i < 128; i++) right += words[i] == (unsigned)i % 32;
    printf("%d of 128 lanes are right\n", right);
}

static void clocks(void)
{
    enum { BLOCKS = 16, THREADS = 64 };
    static float values[2 * THREADS], least[BLOCKS];
    static long long times[2 * BLOCKS];
    for (int i = 0; i < 2 * THREADS; i++) values[i] = (i * 37) % 101 + 5;
    CUdeviceptr from, to, at;
    DO(cuMemAlloc(&from, sizeof values));
    DO(cuMemAlloc(&to, sizeof least));
    DO(cuMemAlloc(&at, sizeof times));
    DO(cuMemcpyHtoD(from, values, sizeof values));
    void *list[] = {&from, &to, &at};
    DO(cuLaunchKernel(kernel("timed_least"), BLOCKS, 1, 1, THREADS, 1, 1, sizeof values, NULL, list, NULL));
    DO(cuMemcpyDtoH(least, to, sizeof least));
    DO(cuMemcpyDtoH(times, at, sizeof times));
    int ordered = 0;
    for (int i = 0; i < BLOCKS; i++) ordered += times[i] < times[i + BLOCKS] && least[i] == 5;
    printf("%d of %d blocks have their least value, and clocks that go forward\n", ordered, BLOCKS);
}

// A program compiled at run time for this device's architecture, loaded as machine code.
static void compiled_at_run_time(void)
{
    const char *source = "extern \"C\" __global__ void vector_add(const float *a, const float *b, float *c, int n)\n"
                         "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }\n";
    int major, minor;
    DO(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    DO(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    char option[32];
    snprintf(option, sizeof option, "--gpu-architecture=sm_%d%d", major, minor);
    const char *options[] = {option};
    nvrtcProgram program;
    size_t size = 0;
    if (nvrtcCreateProgram(&program, source, "add.cu", 0, NULL, NULL) || nvrtcCompileProgram(program, 1, options)
        || nvrtcGetCUBINSize(program, &size))
        exit(3);
    char *image = malloc(size);
    if (!image || nvrtcGetCUBIN(program, image)) exit(3);
    DO(cuModuleLoadDataEx(&module, image, 0, NULL, NULL));
    vector_add();
    nvrtcDestroyProgram(&program);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "", *ptx = count > 2 ? words[2] : NULL;
    if (!strcmp(what, "shared")) {
        shared_between_processes(ptx);
        return 0;
    }
    begin(ptx);
    if (!strcmp(what, "add")) vector_add();
    else if (!strcmp(what, "matrix")) matrix_multiply();
    else if (!strcmp(what, "query")) device_query();
    else if (!strcmp(what, "mapped")) vector_add_mapped();
    else if (!strcmp(what, "graph")) graph();
    else if (!strcmp(what, "inline")) inline_ptx();
    else if (!strcmp(what, "clock")) clocks();
    else if (!strcmp(what, "compiled")) compiled_at_run_time();
    else return 64;
    DO(cuCtxDestroy(context));
    return 0;
}
