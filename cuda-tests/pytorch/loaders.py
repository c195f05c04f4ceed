# SPDX-License-Identifier: Apache-2.0
"""Batches from worker processes: by fork, by spawn, pinned; and CUDA in a forked child, which PyTorch refuses.

usage: loaders.py
"""
import multiprocessing
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, at):
        return torch.full((16,), float(at)) ** 2


def total(**options):
    sums = [batch.to("cuda", non_blocking=True).sum() for batch in DataLoader(Squares(), batch_size=8, **options)]
    return torch.stack(sums).sum().item()


def in_a_child():
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as refused:
        sys.exit(7 if "Cannot re-initialize CUDA in forked subprocess" in str(refused) else 8)
    sys.exit(9)


if __name__ == "__main__":
    torch.zeros(1, device="cuda")
    wanted = 16 * sum(at * at for at in range(40))
    for name, options in {
        "in the process": {},
        "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
        "fork, pinned": {"num_workers": 2, "multiprocessing_context": "fork", "pin_memory": True},
        "spawn": {"num_workers": 2, "multiprocessing_context": "spawn"},
    }.items():
        assert total(**options) == wanted, name
        print("ok:", name)
    child = multiprocessing.get_context("fork").Process(target=in_a_child)
    child.start()
    child.join()
    assert child.exitcode == 7, child.exitcode
    print("ok: refused in a forked child")
