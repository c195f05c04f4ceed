# SPDX-License-Identifier: Apache-2.0
"""cuda.core under a limit: stream-ordered memory, its own exception, recovery after freeing, right numbers."""
import sys

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from cuda.bindings import driver

SOURCE = """
extern "C" __global__ void axpy(float a, float* x, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) x[i] = a * x[i] + 1;
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
architecture = "".join(map(str, device.compute_capability))
compiled = Program(SOURCE, "c++", options=ProgramOptions(arch=f"compute_{architecture}")).compile("ptx")
axpy = compiled.get_kernel("axpy")


def is_right():
    buffer = device.allocate(4 * 4096, stream=stream)
    host = np.arange(4096, dtype=np.float32)
    expected = 2 * host + 1
    driver.cuMemcpyHtoDAsync(int(buffer.handle), host.ctypes.data, host.nbytes, int(stream.handle))
    launch(stream, LaunchConfig(grid=32, block=128), axpy, np.float32(2), buffer, np.uint64(4096))
    driver.cuMemcpyDtoHAsync(host.ctypes.data, int(buffer.handle), host.nbytes, int(stream.handle))
    stream.sync()
    buffer.close(stream)
    # Until the stream has come to the free, the pool cannot give its memory up for a larger block.
    stream.sync()
    return np.array_equal(host, expected)


# Before the pool holds anything: what it keeps for reuse is in use to everybody else.
_, free, total = driver.cuMemGetInfo()
print("right before", is_right())
print("total", total)
half = device.allocate(free * 6 // 10, stream=stream)
try:
    device.allocate(free * 6 // 10, stream=stream)
    sys.exit("no exception beyond the limit")
except Exception as error:
    print("out of memory", type(error).__name__, "OUT_OF_MEMORY" in str(error))
print("right while full", is_right())
half.close(stream)
stream.sync()
again = device.allocate(free * 6 // 10, stream=stream)
print("right after", is_right())
