# SPDX-License-Identifier: Apache-2.0
"""Trains a small model, and writes its losses and a hash of its weights, to the last bit.

usage: train.py mlp|cnn|transformer STEPS cpu|cuda|graph RESULT [SECONDS]
  graph: on the GPU, forward and backward captured as CUDA graphs
  SECONDS: what a step takes at least, so that it can be moved meanwhile
Data and weights are made on the CPU from a fixed seed: the same numbers on every device.
"""
import hashlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """One block of a transformer, with attention as matrix products: no kernel of cuDNN's or of flash attention."""

    def __init__(self, words=64, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(words, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.words = nn.Linear(width, words)

    def forward(self, words):
        x = self.embedding(words)
        batch, length, width = x.shape
        q, k, v = self.asked(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        x = x + self.mixed((weights @ v).transpose(1, 2).reshape(batch, length, width))
        x = x + self.narrow(functional.gelu(self.wide(self.after(x))))
        return self.words(x).flatten(0, 1)


def mlp():
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.0), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
    return model, torch.randn(32, 20), torch.randint(0, 5, (32,))


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 5))
    return model, torch.randn(8, 1, 16, 16), torch.randint(0, 5, (8,))


def transformer():
    words = torch.randint(0, 64, (4, 13))
    return Block(), words[:, :-1].contiguous(), words[:, 1:].flatten()


def main():
    name, steps, device, result = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    pause = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    torch.manual_seed(7)
    torch.backends.cudnn.enabled = False
    model, given, wanted = {"mlp": mlp, "cnn": cnn, "transformer": transformer}[name]()
    where = "cpu" if device == "cpu" else "cuda"
    model, given, wanted = model.to(where), given.to(where), wanted.to(where)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    forward = model
    if device == "graph":
        forward = torch.cuda.make_graphed_callables(model, (given,))
    losses = []
    for _ in range(steps):
        began = time.monotonic()
        optimizer.zero_grad()
        loss = functional.cross_entropy(forward(given), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        left = pause - (time.monotonic() - began)
        if left > 0:
            time.sleep(left)
    weights = hashlib.sha256()
    for value in model.state_dict().values():
        weights.update(value.detach().cpu().contiguous().numpy().tobytes())
    # Written at the end alone: a file that grows after a save keeps a job from being restored.
    with open(result, "w") as file:
        file.write("".join(f"{loss.hex()}\n" for loss in losses) + weights.hexdigest() + "\n")


main()
