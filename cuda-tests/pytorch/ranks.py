# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training by two processes over gloo, each on a GPU of its own.

usage: ranks.py   (prints the last loss and whether both ended with the same weights)
"""
import hashlib
import os
import socket

import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch import nn


def rank_of(rank, port, results):
    # Debian builds PyTorch without libuv.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), USE_LIBUV="0")
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.cuda.set_device(rank)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    given = torch.randn(2, 16, 8)[rank].cuda()
    wanted = given.sum(1, keepdim=True)
    parallel = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(given), wanted)
        loss.backward()
        optimizer.step()
    weights = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    results.put((rank, loss.item().hex(), weights))
    distributed.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = processes.get_context("spawn")
    results = spawn.Queue()
    ranks = [spawn.Process(target=rank_of, args=(rank, port, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = sorted(results.get(timeout=240) for _ in ranks)
    for process in ranks:
        process.join(60)
    assert found[0][2] == found[1][2], "the ranks' weights differ"
    print("losses", found[0][1], found[1][1], found[0][2])
