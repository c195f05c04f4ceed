// SPDX-License-Identifier: Apache-2.0
// Small kernels that the tests of several parts launch. Compiled to test_kernels.ptx; see README.md.

extern "C" __global__ void vector_add(float *sum, const float *a, const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        sum[i] = a[i] + b[i];
}

extern "C" __global__ void fill_u32(unsigned *to, unsigned value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = value;
}

extern "C" __global__ void saxpy(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

// Keeps the device busy. The simulated driver books exactly `ns` for a kernel of this name.
extern "C" __global__ void spin_ns(unsigned long long ns)
{
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begun < ns);
}

// Adds the n values of `from` to *total; any grid, blocks of a power of two up to 1024 threads.
extern "C" __global__ void sum_reduce(float *total, const float *from, int n)
{
    __shared__ float partial[1024];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += from[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(total, partial[0]);
}

// Writes where nothing is allocated.
extern "C" __global__ void illegal_write(void)
{
    *(volatile unsigned *)0x10 = 1;
}

__device__ unsigned launches;
__constant__ float factors[4] = {1, 2, 4, 8};

// Counts its launches in a variable, and scales by a constant that the program may replace.
extern "C" __global__ void scale_by_constant(float *values, int which, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0)
        atomicAdd(&launches, 1u);
    if (i < n)
        values[i] *= factors[which & 3];
}
