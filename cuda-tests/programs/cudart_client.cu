// SPDX-License-Identifier: Apache-2.0
// A program on the CUDA runtime, as nvcc builds it (static libcudart): sees its limit, meets it, recovers, computes.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void add_one(int *values, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += 1;
}

int main(int argc, char **argv) {
  size_t limit = argc > 1 ? strtoull(argv[1], nullptr, 0) : 0, free_bytes = 0, total = 0;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) || cudaMemGetInfo(&free_bytes, &total)) return 1;
  void *first = nullptr, *second = nullptr;
  cudaError_t fits = cudaMalloc(&first, limit / 2);
  cudaError_t over = cudaMalloc(&second, limit);
  cudaGetLastError();
  cudaError_t freed = cudaFree(first);
  int *values = nullptr, host[256] = {0};
  cudaError_t again = cudaMalloc(&values, sizeof host);
  cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice);
  add_one<<<1, 256>>>(values, 256);
  cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost);
  int right = 1;
  for (int v : host) right &= v == 1;
  printf("properties %zu total %zu fits %d over %d freed %d again %d right %d\n",
         properties.totalGlobalMem, total, fits, over, freed, again, right);
  return !(fits == cudaSuccess && over == cudaErrorMemoryAllocation && again == cudaSuccess && right);
}
