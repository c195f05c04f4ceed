# SPDX-License-Identifier: Apache-2.0
"""Numba under a limit: its own out-of-memory exception, recovery after freeing, right numbers before and after.

Its kernels are machine code when nvJitLink is installed, which the simulated driver does not run; without nvJitLink,
Numba links PTX through the driver.
"""
import sys

import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def is_right():
    x, y = np.arange(4096, dtype=np.float32), np.ones(4096, dtype=np.float32)
    out = cuda.device_array(4096, dtype=np.float32)
    axpy[32, 128](np.float32(2), cuda.to_device(x), cuda.to_device(y), out)
    return np.array_equal(out.copy_to_host(), 2 * x + 1)


print("right before", is_right())
free, total = cuda.current_context().get_memory_info()
print("total", total)
half = cuda.device_array(free * 6 // 10, dtype=np.uint8)
try:
    cuda.device_array(free * 6 // 10, dtype=np.uint8)
    sys.exit("no exception beyond the limit")
except CudaAPIError as error:
    print("out of memory", error.code, "OUT_OF_MEMORY" in str(error))
print("right while full", is_right())
del half
cuda.current_context().deallocations.clear()
again = cuda.device_array(free * 6 // 10, dtype=np.uint8)
print("right after", is_right())
