# SPDX-License-Identifier: Apache-2.0
"""Fills device memory, says so, and after each line of standard input says whether it is what it was.

usage: gpu_suspend.py BYTES
"""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
total = int(sys.argv[1])
PIECE = 1 << 30


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: {code}")


device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
pieces = []
for number in range((total + PIECE - 1) // PIECE):
    size = min(PIECE, total - number * PIECE)
    at = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    # Each 64 MiB has a byte of its own.
    for part in range(0, size, 64 << 20):
        start, length, byte = at.value + part, min(64 << 20, size - part), len(pieces) % 251
        call("cuMemsetD8_v2", ctypes.c_uint64(start), byte, ctypes.c_size_t(length))
        pieces.append((start, length, byte))
call("cuCtxSynchronize")
print("up", flush=True)
back = ctypes.create_string_buffer(64 << 20)
for _ in sys.stdin:
    # The first call after a checkpoint is a synchronise: unheld, drivers 580 and 595 die of it.
    call("cuCtxSynchronize")
    others = 0
    for at, length, byte in pieces:
        call("cuMemcpyDtoH_v2", back, ctypes.c_uint64(at), ctypes.c_size_t(length))
        others += back.raw[:length].count(byte) != length
    print("same" if others == 0 else f"{others} pieces differ", flush=True)
