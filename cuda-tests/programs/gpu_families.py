# SPDX-License-Identifier: Apache-2.0
"""Each allocation family of the driver API once: by how much the job's view falls, and the driver's own figure rises.

Prints one JSON line a family: bytes asked, the fall of cuMemGetInfo's free figure (the ledger, inside a job), the rise
of NVML's figure for this process (the driver's truth), and both again after the free. Plain ctypes: nothing but the
driver, NVML and python3 is needed.
"""
import ctypes as c
import json
import os
import sys

cuda, nvml = c.CDLL("libcuda.so.1"), c.CDLL("libnvidia-ml.so.1")
BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 256 << 20
POINTER = c.c_uint64


class Refused(Exception):
    pass


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        raise Refused(f"{name}: {result}")


class Memory(c.Structure):
    _fields_ = [("pid", c.c_uint), ("used", c.c_ulonglong), ("instance", c.c_uint), ("compute", c.c_uint)]


def truth():
    """Bytes that the driver holds for this process."""
    count, rows = c.c_uint(256), (Memory * 256)()
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, c.byref(count), rows):
        raise Refused("NVML lists no processes")
    return sum(row.used for row in rows[: count.value] if row.pid == os.getpid())


def view():
    """Bytes that the program is told are free."""
    free, total = c.c_size_t(), c.c_size_t()
    call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
    return free.value


class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]


class PoolProps(c.Structure):
    _fields_ = [
        ("allocType", c.c_int), ("handleTypes", c.c_int), ("location", Location), ("security", c.c_void_p),
        ("maxSize", c.c_size_t), ("usage", c.c_ushort), ("reserved", c.c_ubyte * 54),
    ]


class VmmProps(c.Structure):
    _fields_ = [
        ("type", c.c_int), ("handleTypes", c.c_int), ("location", Location), ("win32", c.c_void_p),
        ("flags", c.c_ubyte * 8),
    ]


class Array3D(c.Structure):
    _fields_ = [
        ("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t),
        ("format", c.c_int), ("channels", c.c_uint), ("flags", c.c_uint),
    ]


FLOAT, PINNED, DEVICE = 0x20, 1, 1


def linear():
    p = POINTER()
    call("cuMemAlloc_v2", c.byref(p), c.c_size_t(BYTES))
    return lambda: call("cuMemFree_v2", p)


def pitched():
    p, pitch = POINTER(), c.c_size_t()
    call("cuMemAllocPitch_v2", c.byref(p), c.byref(pitch), c.c_size_t(1000), c.c_size_t(BYTES // 1024), 4)
    return lambda: call("cuMemFree_v2", p)


def managed():
    p = POINTER()
    call("cuMemAllocManaged", c.byref(p), c.c_size_t(BYTES), 1)
    return lambda: call("cuMemFree_v2", p)


def array_3d():
    a, side = c.c_void_p(), round((BYTES // 16) ** (1 / 3))
    call("cuArray3DCreate_v2", c.byref(a), c.byref(Array3D(side, side, side, FLOAT, 4, 0)))
    return lambda: call("cuArrayDestroy", a)


def mipmapped():
    a, side = c.c_void_p(), int((BYTES * 3 // 4 // 4) ** 0.5)
    call("cuMipmappedArrayCreate", c.byref(a), c.byref(Array3D(side, side, 0, FLOAT, 1, 0)), 8)
    return lambda: call("cuMipmappedArrayDestroy", a)


def default_pool():
    p = POINTER()
    call("cuMemAllocAsync", c.byref(p), c.c_size_t(BYTES), None)

    def free():
        call("cuMemFreeAsync", p, None)
        call("cuStreamSynchronize", None)

    return free


def custom_pool():
    pool, p = c.c_void_p(), POINTER()
    call("cuMemPoolCreate", c.byref(pool), c.byref(PoolProps(PINNED, 0, Location(DEVICE, 0))))
    call("cuMemAllocFromPoolAsync", c.byref(p), c.c_size_t(BYTES), pool, None)

    def free():
        call("cuMemFreeAsync", p, None)
        call("cuStreamSynchronize", None)
        call("cuMemPoolDestroy", pool)

    return free


def physical():
    h, props = c.c_uint64(), VmmProps(PINNED, 0, Location(DEVICE, 0))
    call("cuMemCreate", c.byref(h), c.c_size_t(BYTES), c.byref(props), c.c_ulonglong(0))
    return lambda: call("cuMemRelease", h)


def graph():
    """A captured allocation and its free; launched once, so that the memory is there, then trimmed."""
    stream, made, executable, p = c.c_void_p(), c.c_void_p(), c.c_void_p(), POINTER()
    call("cuStreamCreate", c.byref(stream), 1)
    call("cuStreamBeginCapture_v2", stream, 1)
    call("cuMemAllocAsync", c.byref(p), c.c_size_t(BYTES), stream)
    call("cuMemFreeAsync", p, stream)
    call("cuStreamEndCapture", stream, c.byref(made))
    call("cuGraphInstantiateWithFlags", c.byref(executable), made, c.c_ulonglong(0))
    call("cuGraphLaunch", executable, stream)
    call("cuStreamSynchronize", stream)

    def free():
        call("cuGraphExecDestroy", executable)
        call("cuGraphDestroy", made)
        call("cuDeviceGraphMemTrim", 0)
        call("cuStreamDestroy_v2", stream)

    return free


def host():
    p = c.c_void_p()
    call("cuMemHostAlloc", c.byref(p), c.c_size_t(BYTES), 0)
    return lambda: call("cuMemFreeHost", p)


call("cuInit", 0)
nvml.nvmlInit_v2()
handle = c.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(handle))
context = c.c_void_p()
call("cuDevicePrimaryCtxRetain", c.byref(context), 0)
call("cuCtxSetCurrent", context)
print(json.dumps({"family": "context", "view": view(), "truth": truth()}), flush=True)
for family in (linear, pitched, managed, array_3d, mipmapped, default_pool, custom_pool, physical, graph, host):
    before = view(), truth()
    row = {"family": family.__name__, "asked": BYTES}
    try:
        free = family()
        row["view"], row["truth"] = before[0] - view(), truth() - before[1]
        free()
        row["view_left"], row["truth_left"] = before[0] - view(), truth() - before[1]
    except Refused as refused:
        row["refused"] = str(refused)
    print(json.dumps(row), flush=True)
