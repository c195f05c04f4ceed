# SPDX-License-Identifier: Apache-2.0
"""tinygrad under a limit: its own out-of-memory exception, recovery after freeing, right numbers."""
import ctypes
import sys

from tinygrad import Device, Tensor
from tinygrad.dtype import dtypes


def is_right():
    # Written out: tinygrad would fold a range or an identity on the CPU, for which it wants another compiler.
    left = Tensor([float(i) for i in range(64 * 64)]).reshape(64, 64)
    right = Tensor([float(i % 65 == 0) for i in range(64 * 64)]).reshape(64, 64)
    return (left @ right * 2 + 1).sum().item() == 2.0 * sum(range(64 * 64)) + 64 * 64


def fill(count):
    return Tensor.ones(count, dtype=dtypes.uint8).contiguous().realize()


print("right before", is_right())
free, total = ctypes.c_size_t(), ctypes.c_size_t()
ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print("total", total.value)
half_bytes = free.value * 6 // 10
half = fill(half_bytes)
try:
    fill(half_bytes)
    sys.exit("no exception beyond the limit")
except MemoryError as error:
    print("out of memory", type(error).__name__)
except Exception as error:
    print("out of memory", type(error).__name__, "out of memory" in str(error).lower())
print("right while full", is_right())
del half
Device[Device.DEFAULT].synchronize()
again = fill(half_bytes)
print("right after", is_right())
