# SPDX-License-Identifier: Apache-2.0
"""Asks for more than the limit, gets CUDA_ERROR_OUT_OF_MEMORY, frees, retries and succeeds; then asks for more twice.

Plain ctypes on the driver API: what a caching allocator does when the device is full, and one that has nothing to free.
"""
import ctypes as c
import sys

driver = c.CDLL("libcuda.so.1")
OUT_OF_MEMORY = 2


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    if result:
        sys.exit(f"{name}: error {result}")


def allocate(size):
    pointer = c.c_uint64()
    return driver.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(size)), pointer


call("cuInit", 0)
context, total, free, card = c.c_void_p(), c.c_size_t(), c.c_size_t(), c.c_size_t()
call("cuCtxCreate_v2", c.byref(context), 0, 0)
call("cuDeviceTotalMem_v2", c.byref(total), 0)
call("cuMemGetInfo_v2", c.byref(free), c.byref(card))
print(f"the device shows {total.value / 2**30:.2f} GiB in all, {free.value / 2**30:.2f} GiB free")
if total.value != card.value:
    sys.exit("two views of the total differ")
first_result, first = allocate(total.value * 6 // 10)
second_result, _ = allocate(total.value * 6 // 10)
print(f"60 % of it: result {first_result}; another 60 %: result {second_result}")
if (first_result, second_result) != (0, OUT_OF_MEMORY):
    sys.exit("expected 0, then CUDA_ERROR_OUT_OF_MEMORY (2)")
call("cuMemFree_v2", first)
retry_result, retry = allocate(total.value * 6 // 10)
print(f"freed the first, asked again: result {retry_result}")
if retry_result:
    sys.exit("expected success after the free")
more_results = [allocate(total.value * 6 // 10)[0] for _ in range(2)]
print(f"60 % more, twice, with nothing freed: results {more_results[0]} and {more_results[1]}")
if more_results != [OUT_OF_MEMORY] * 2:
    sys.exit("expected CUDA_ERROR_OUT_OF_MEMORY (2) twice")
call("cuMemFree_v2", retry)
