# SPDX-License-Identifier: Apache-2.0
"""The GPU that a process sees first, by the driver API. As a program: prints what it saw and how much it got."""
import ctypes
import json
import os

# Limits are whole units of the driver's.
UNIT = 2 << 20


def check(condition, *facts):
    """An assertion that shows the facts."""
    assert condition, "; ".join(map(str, facts))


class Gpu:
    """This process's first GPU, by the driver API."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, count, uuid = ctypes.c_void_p(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.call("cuDeviceGetUuid_v2", uuid, 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.seen = {"pid": os.getpid(), "count": count.value, "uuid": bytes(uuid).hex(), "total": total.value}

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: error {code}")

    def all(self):
        """Takes blocks until none is given any more, and says how many bytes that were."""
        taken = 0
        for size in (256 << 20, 16 << 20, UNIT):
            while (code := self.driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))) == 0:
                taken += size
            # CUDA_ERROR_OUT_OF_MEMORY
            check(code == 2, "the driver's answer", code)
        return {**self.seen, "taken": taken}


if __name__ == "__main__":
    print(json.dumps(Gpu().all()))
