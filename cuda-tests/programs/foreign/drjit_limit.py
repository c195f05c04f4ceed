# SPDX-License-Identifier: Apache-2.0
"""Dr.Jit, whose libraries are opened with RTLD_DEEPBIND, takes 384 MiB: all of it, or as much as its limit leaves.

usage: drjit_limit.py fits|denied
"""
import sys

import drjit as dr
from drjit.cuda import Float

arrays, denied = [], False
try:
    for i in range(6):
        array = dr.arange(Float, 16 << 20) * 2.0 + float(i)
        dr.eval(array)
        dr.sync_thread()
        arrays.append(array)
except RuntimeError as error:
    denied = "out of memory" in str(error)
sums = [array[5] for array in arrays]
right = sums == [10.0 + i for i in range(len(arrays))]
expected = right and ((len(arrays) < 6 and denied) if sys.argv[1] == "denied" else len(arrays) == 6)
print("as expected" if expected else f"{len(arrays)} arrays, first elements {sums}, denied: {denied}")
sys.stdout.flush()
sys.exit(not expected)
