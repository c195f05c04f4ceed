# SPDX-License-Identifier: Apache-2.0
"""The recipes' `train.py`: a program of the driver API that notes the devices and the limit that it sees, and runs into
the limit.

Appends one JSON line to `seen` beside itself (process id, devices, total of its device, results of allocating 60 % of
that total twice), holds its memory until a file `go` is there, and ends. LOCAL_RANK chooses the device where the job
has several.
"""
import ctypes
import json
import os
import pathlib
import time

PATIENCE = 60
here = pathlib.Path(__file__).absolute().parent
driver = ctypes.CDLL("libcuda.so.1")
count, total, free = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
context, pointers = ctypes.c_void_p(), [ctypes.c_uint64(), ctypes.c_uint64()]


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    if result:
        raise SystemExit(f"{name}: error {result}")


call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
device = int(os.environ.get("LOCAL_RANK", 0)) % count.value
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
# At the limit the driver's answer is 2, CUDA_ERROR_OUT_OF_MEMORY.
size = ctypes.c_size_t(total.value * 6 // 10)
results = [driver.cuMemAlloc_v2(ctypes.byref(pointer), size) for pointer in pointers]
line = {"pid": os.getpid(), "devices": count.value, "total": total.value, "results": results}
with open(here / "seen", "a") as seen:
    seen.write(json.dumps(line) + "\n")
print(f"{count.value} device(s), {total.value / 2**30:.1f} GiB", flush=True)
until = time.monotonic() + PATIENCE
while not (here / "go").exists() and time.monotonic() < until:
    time.sleep(0.02)
call("cuMemFree_v2", pointers[0])
call("cuCtxDestroy_v2", context)
