# SPDX-License-Identifier: Apache-2.0
"""PyTorch under a limit, with whichever allocator the environment chose. usage: gpu_torch.py PART LIMIT_BYTES

Parts: `fill` (allocate until out of memory, read the exception, free, allocate again), `graph` (a captured step
replayed 1,000 times: same numbers as eager, nothing drifts), `loader` (a DataLoader with worker processes feeding the
GPU).
Prints one JSON document.
"""
import json
import sys

import torch

PART, LIMIT = sys.argv[1], int(sys.argv[2])
MIB = 1 << 20


def block(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def fill():
    held, text = [], ""
    try:
        while len(held) * 256 * MIB < 2 * LIMIT:
            held.append(block(256))
    except torch.cuda.OutOfMemoryError as error:
        text = str(error)
    got = len(held) * 256 * MIB
    held.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    again = 0
    try:
        while again * 256 * MIB < got:
            held.append(block(256))
            again += 1
    except torch.cuda.OutOfMemoryError:
        pass
    free, total = torch.cuda.mem_get_info()
    return {"got": got, "again": again * 256 * MIB, "text": text, "total": total, "free": free}


def graph():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    x = torch.randn(64, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = model(x)
    captured.replay()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(1000):
        captured.replay()
    torch.cuda.synchronize()
    is_same = torch.equal(y, model(x)) or torch.allclose(y, model(x), rtol=1e-3, atol=1e-4)
    return {"same": is_same, "drift": before - torch.cuda.mem_get_info()[0]}


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((1024,), float(index))


def loader():
    data = torch.utils.data.DataLoader(Squares(), batch_size=32, num_workers=4, pin_memory=True)
    total = sum(batch.cuda(non_blocking=True).sum() for batch in data).item()
    return {"sum": total, "expected": 1024.0 * sum(range(512))}


print(json.dumps({"fill": fill, "graph": graph, "loader": loader}[PART]()))
