# SPDX-License-Identifier: Apache-2.0
"""What one job sees of its device, asked of the driver by ctypes and of NVML by nvidia-ml-py, before and after a fork.

One JSON object a line: which process (parent, child before cuInit, child after it) and every figure that a library
gave. Waits for a line on standard input before each of its steps, so that a test can measure at the same moment.
"""
import ctypes
import json
import os
import sys

import pynvml

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code:
        raise SystemExit(f"driver result {code}")


def size(number=0):
    return ctypes.c_size_t(number)


def nvml_view(view):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    first = pynvml.nvmlDeviceGetMemoryInfo(handle)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    view["nvml1"] = [first.total, first.free, first.used]
    view["nvml2"] = [second.total, second.free, second.used]
    view["count"] = pynvml.nvmlDeviceGetCount()
    view["processes"] = sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    by_uuid = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    by_pci = pynvml.nvmlDeviceGetHandleByPciBusId(pynvml.nvmlDeviceGetPciInfo(handle).busId)
    view["uuids"] = [pynvml.nvmlDeviceGetUUID(h) for h in (handle, by_uuid, by_pci)]


def driver_view(view):
    free, total = size(), size()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    view["info"] = [total.value, free.value]
    check(cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0))
    view["total"] = total.value
    uuid = (ctypes.c_ubyte * 16)()
    check(cuda.cuDeviceGetUuid(uuid, 0))
    digits = bytes(uuid).hex()
    view["uuid"] = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def start(bytes_held):
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuInit(0))
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), size(bytes_held)))


def say(view):
    print(json.dumps(view), flush=True)


def go_on():
    if not sys.stdin.readline():
        raise SystemExit("the input ended")


def in_child(act):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the child failed")


def whole_child():
    start(64 * MIB)
    pynvml.nvmlInit()
    go_on()
    view = {"who": "child", "pid": os.getpid()}
    driver_view(view)
    nvml_view(view)
    say(view)
    go_on()


def nvml_child():
    pynvml.nvmlInit()
    go_on()
    view = {"who": "late child", "pid": os.getpid()}
    nvml_view(view)
    say(view)
    go_on()


say({"who": "begin", "pid": os.getpid()})
in_child(whole_child)
start(256 * MIB)
pynvml.nvmlInit()
go_on()
parent = {"who": "parent", "pid": os.getpid()}
driver_view(parent)
nvml_view(parent)
say(parent)
go_on()
in_child(nvml_child)
