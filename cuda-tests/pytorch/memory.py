# SPDX-License-Identifier: Apache-2.0
"""Fills the GPU with blocks of 100 MiB, and prints what PyTorch's allocator counted.

usage: memory.py [MIB]   (PYTORCH_CUDA_ALLOC_CONF chooses the allocator)
"""
import gc
import re
import sys

import torch

size = int(sys.argv[1] if len(sys.argv) > 1 else 100) << 20
free, total = torch.cuda.mem_get_info()
print("total", total)
print("free", free)
blocks = []
try:
    while len(blocks) < 10_000:
        blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    sys.exit("10,000 blocks and never refused")
except torch.cuda.OutOfMemoryError as refused:
    text = str(refused)
print("blocks", len(blocks))
capacity = re.search(r"(?:total capacity of|Device limit\s*:)\s*([0-9.]+ ?\w+)", text)
print("capacity", capacity.group(1) if capacity else text.splitlines()[0])
stats = torch.cuda.memory_stats()
for key in ("num_ooms", "num_alloc_retries"):
    print(key, stats.get(key))
# What was cached goes back for one large block: the allocator recovers by itself.
del blocks[1:]
gc.collect()
larger = torch.empty(3 * size, dtype=torch.uint8, device="cuda")
print("recovered", larger.numel() == 3 * size)
stats = torch.cuda.memory_stats()
for key in ("num_ooms", "num_alloc_retries"):
    print(key, stats.get(key))
