// SPDX-License-Identifier: Apache-2.0
// Whole kernels that exercise the interpreter; compiled to interpreter_kernels.ptx, see README.md.

// One 16x16 tile of c = a * b for square matrices whose size is a multiple of 16.
extern "C" __global__ void matmul_tile(float *c, const float *a, const float *b, int n)
{
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int step = 0; step < n; step += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + step + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(step + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void shuffle_sum(float *sums, const float *from)
{
    float value = from[blockIdx.x * blockDim.x + threadIdx.x];
    for (int by = 16; by > 0; by /= 2)
        value += __shfl_xor_sync(0xffffffff, value, by);
    if (threadIdx.x % 32 == 0)
        sums[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = value;
}

extern "C" __global__ void histogram(unsigned *bins, const unsigned char *from, int n)
{
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&own[from[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&bins[i], own[i]);
}

// Steps of the Collatz sequence: every thread loops a different number of times, with a branch inside.
extern "C" __global__ void collatz(unsigned *steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long value = i + 1;
    unsigned count = 0;
    while (value != 1) {
        if (value & 1)
            value = 3 * value + 1;
        else
            value /= 2;
        count++;
    }
    steps[i] = count;
}

__device__ __noinline__ unsigned long long factorial(unsigned n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

extern "C" __global__ void recursion(unsigned long long *result)
{
    result[threadIdx.x] = factorial(threadIdx.x % 20);
}

typedef int (*operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ operation operations[3] = {add, subtract, multiply};

extern "C" __global__ void function_pointers(int *result, int a, int b)
{
    result[threadIdx.x] = operations[threadIdx.x % 3](a, b + threadIdx.x);
}

extern "C" __global__ void math_functions(float *result, const float *from, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = from[i];
    result[8 * i + 0] = sinf(x);
    result[8 * i + 1] = cosf(x * 1000);
    result[8 * i + 2] = expf(x);
    result[8 * i + 3] = logf(fabsf(x) + 1);
    result[8 * i + 4] = powf(fabsf(x), 1.7f);
    result[8 * i + 5] = tanhf(x);
    result[8 * i + 6] = sqrtf(fabsf(x)) / (1 + x * x);
    result[8 * i + 7] = (float)erf((double)x);
}

struct point { float x, y, z; int tag; };

extern "C" __global__ void structures(point *result, point by, const point *from, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        point p = from[i];
        p.x += by.x, p.y *= by.y, p.z -= by.z, p.tag ^= by.tag;
        result[i] = p;
    }
}

// A lock taken by every thread, also by those of one warp.
extern "C" __global__ void spin_lock(unsigned *lock, unsigned *counter)
{
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0u, 1u) == 0) {
            *(volatile unsigned *)counter += 1;
            __threadfence();
            atomicExch(lock, 0u);
            done = true;
        }
    }
}

// Every block waits until all have arrived: needs all blocks to be in progress at once.
extern "C" __global__ void grid_barrier(unsigned *arrived, unsigned *seen)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < gridDim.x)
            ;
        seen[blockIdx.x] = *(volatile unsigned *)arrived;
    }
}

extern "C" __global__ void votes(unsigned *result, int n)
{
    int lane = threadIdx.x & 31;
    result[threadIdx.x * 6 + 0] = __ballot_sync(0xffffffff, lane % 3 == 0);
    result[threadIdx.x * 6 + 1] = __any_sync(0xffffffff, lane == n) * 2 + __all_sync(0xffffffff, lane < n);
    result[threadIdx.x * 6 + 2] = __match_any_sync(0xffffffff, lane / 5);
    result[threadIdx.x * 6 + 3] = lane < 7 ? __activemask() : 0;
    result[threadIdx.x * 6 + 4] = __syncthreads_count(threadIdx.x % 4 == 1);
    result[threadIdx.x * 6 + 5] = __syncthreads_or(threadIdx.x == n) * 2 + __syncthreads_and(threadIdx.x < n);
}

extern "C" __global__ void print_and_check(int limit)
{
    int i = threadIdx.x;
    printf("thread %d of %u: %5.2f %s|%-4x|%c %lld\n", i, blockDim.x, i * 1.5, "text", i + 10, 'a' + i,
           (long long)i << 40);
    if (i >= limit)
        asm("trap;");
}

// 128-bit arithmetic: carries.
extern "C" __global__ void wide_product(unsigned long long *result, unsigned long long a, unsigned long long b)
{
    unsigned __int128 product = (unsigned __int128)a * b + ((unsigned __int128)b << 64) - a;
    result[0] = (unsigned long long)product;
    result[1] = (unsigned long long)(product >> 64);
}

extern __shared__ int dynamic[];

extern "C" __global__ void reverse_dynamic(int *values)
{
    __shared__ int fixed[4];
    fixed[threadIdx.x & 3] = 7;
    dynamic[threadIdx.x] = values[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    values[blockIdx.x * blockDim.x + threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x] + fixed[1] - 7;
}

extern "C" __global__ void local_array(int *result, const int *order)
{
    int table[32];
    for (int i = 0; i < 32; i++)
        table[order[i]] = i * i + threadIdx.x;
    int sum = 0;
    for (int i = 0; i < 32; i++)
        sum = sum * 3 + table[i];
    result[threadIdx.x] = sum;
}

extern "C" __global__ void many_cases(int *result, int n)
{
    int i = threadIdx.x, value;
    switch (i % 11) {
    case 0: value = i + n; break;
    case 1: value = i * n; break;
    case 2: value = i - n; break;
    case 3: value = i ^ n; break;
    case 4: value = i | n; break;
    case 5: value = i & n; break;
    case 6: value = n / (i + 1); break;
    case 7: value = n % (i + 1); break;
    case 8: value = n << (i & 7); break;
    case 9: value = n >> (i & 7); break;
    default: value = -1;
    }
    result[i] = value;
}
