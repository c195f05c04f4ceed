# SPDX-License-Identifier: Apache-2.0
"""Trains by `torch.compile` alone: every kernel is PTX that Triton makes, none is of PyTorch's machine code.

usage: compiled.py STEPS RESULT [SECONDS]
The loss is against one-hot rows that were made on the CPU: the labels of `cross_entropy` take a kernel of PyTorch's.
"""
import hashlib
import sys
import time

import torch
from torch import nn

steps, result = int(sys.argv[1]), sys.argv[2]
pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
given = torch.randn(16, 16)
labels = nn.functional.one_hot(torch.randint(0, 4, (16,)), 4).float()
where = sys.argv[4] if len(sys.argv) > 4 else "cuda"
model, given, labels = model.to(where), given.to(where), labels.to(where)
parameters = list(model.parameters())


def loss_of(given, labels):
    return -(torch.log_softmax(model(given), 1) * labels).sum(1).mean()


def moved(parameters, gradients):
    return [old - 0.05 * gradient for old, gradient in zip(parameters, gradients)]


# The gradient of the loss by itself, made on the CPU: filling it would take a kernel of PyTorch's.
one = torch.ones(()).to(where)
if where == "cuda":
    loss_of, moved = torch.compile(loss_of), torch.compile(moved)
losses = []
for _ in range(steps):
    began = time.monotonic()
    for value in parameters:
        value.grad = None
    loss = loss_of(given, labels)
    loss.backward(one)
    with torch.no_grad():
        # A copy of memory, which needs no kernel.
        for old, value in zip(parameters, moved(parameters, [value.grad for value in parameters])):
            old.copy_(value)
    losses.append(loss.item())
    left = pause - (time.monotonic() - began)
    if left > 0:
        time.sleep(left)
weights = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in parameters)).hexdigest()
with open(result, "w") as file:
    file.write("".join(f"{loss.hex()}\n" for loss in losses) + weights + "\n")
