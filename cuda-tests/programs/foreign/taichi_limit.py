# SPDX-License-Identifier: Apache-2.0
"""Taichi, whose core is opened with RTLD_DEEPBIND, takes 1.5 GiB: all of it, or as much as its limit leaves.

usage: taichi_limit.py fits|denied
"""
import sys

import taichi as ti

ti.init(arch=ti.cuda, device_memory_GB=0.05, offline_cache=False, log_level=ti.CRITICAL)
arrays, denied = [], False
try:
    for _ in range(6):
        arrays.append(ti.ndarray(dtype=ti.f32, shape=64 << 20))
        ti.sync()
except RuntimeError as error:
    denied = "CUDA_ERROR_OUT_OF_MEMORY" in str(error)
expected = (len(arrays) < 6 and denied) if sys.argv[1] == "denied" else len(arrays) == 6
print("as expected" if expected else f"{len(arrays)} arrays, denied: {denied}")
sys.stdout.flush()
sys.exit(not expected)
