// SPDX-License-Identifier: Apache-2.0
// Kernels of shapes.c, compiled to PTX by scripts/foreign.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

#define TILE 8
// C = A × B with tiles in shared memory; all sizes are multiples of the tile.
extern "C" __global__ void matrix_multiply(float *c, const float *a, const float *b, int inner, int width)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int at = 0; at < inner; at += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * inner + at + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * width + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * width + column] = sum;
}

// Each thread asks the hardware which lane it is, in PTX of its own.
extern "C" __global__ void lanes(unsigned *to)
{
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    to[blockIdx.x * blockDim.x + threadIdx.x] = lane;
}

// The least value of each block, and the clock before and after.
extern "C" __global__ void timed_least(const float *from, float *to, long long *clocks)
{
    extern __shared__ float part[];
    if (threadIdx.x == 0)
        clocks[blockIdx.x] = clock64();
    part[threadIdx.x] = from[threadIdx.x];
    part[threadIdx.x + blockDim.x] = from[threadIdx.x + blockDim.x];
    for (unsigned d = blockDim.x; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d && part[threadIdx.x + d] < part[threadIdx.x])
            part[threadIdx.x] = part[threadIdx.x + d];
    }
    if (threadIdx.x == 0)
        to[blockIdx.x] = part[0];
    __syncthreads();
    if (threadIdx.x == 0)
        clocks[blockIdx.x + gridDim.x] = clock64();
}
