# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with tinygrad in four processes, each on a GPU of its own, which add up their gradients over a
ring of TCP connections.

Prints the loss of every step in full precision: a function of the seed alone, so that two runs can be compared bit by
bit. Before it prints it makes the file `done` in FOLDER and waits until `go` is there.

usage: ranks.py STEPS FOLDER      environment: DEV=CUDA CUDA=1 PTX=1
"""
import os
import pathlib
import sys
import time

import numpy
from tinygrad import Context, Tensor, TinyJit, nn

import linked

# Few: a simulated device computes on processors.
ROWS, HIDDEN = 16, 16
RATE = 0.5


class Network:
    def __init__(self):
        self.first = nn.Linear(16, HIDDEN)
        self.second = nn.Linear(HIDDEN, 4)

    def __call__(self, x):
        return self.second(self.first(x).relu())


class Rank:
    """One process: its part of the data, the network that all have alike, its neighbours."""

    def __init__(self, number, following, before):
        self.number, self.following, self.before = number, following, before
        Tensor.manual_seed(7)
        self.network = Network()
        self.parameters = nn.state.get_parameters(self.network)
        # The class is a linear function of the input, so the loss must fall if every kernel is right.
        inputs = Tensor.randn(ROWS * linked.RANKS, 16).realize()
        labels = (inputs @ Tensor.randn(16, 4)).argmax(axis=1).realize()
        part = slice(ROWS * number, ROWS * (number + 1))
        self.inputs, self.labels = inputs[part].contiguous().realize(), labels[part].contiguous().realize()
        self.gradients, self.update = TinyJit(self.find_gradients), TinyJit(self.take_step)

    def find_gradients(self):
        for parameter in self.parameters:
            parameter.grad = None
        loss = self.network(self.inputs).sparse_categorical_crossentropy(self.labels)
        loss.backward()
        return loss.reshape(1).cat(*[parameter.grad.flatten() for parameter in self.parameters]).realize()

    def take_step(self, total):
        at = 1
        for parameter in self.parameters:
            part = total[at : at + parameter.numel()].reshape(parameter.shape)
            parameter.assign(parameter - part * (RATE / linked.RANKS))
            at += parameter.numel()
        Tensor.realize(*self.parameters)

    def sum(self, mine):
        """Of all ranks' numbers, in the same order everywhere."""
        parts = {self.number: mine}
        for away in range(linked.RANKS - 1):
            self.following.sendall(parts[(self.number - away) % linked.RANKS].tobytes())
            came = linked.receive_all(self.before, mine.nbytes)
            parts[(self.number - away - 1) % linked.RANKS] = numpy.frombuffer(came, dtype=mine.dtype)
        return numpy.sum([parts[number] for number in range(linked.RANKS)], axis=0, dtype=mine.dtype)

    def step(self):
        """The loss of all."""
        total = self.sum(self.gradients().numpy())
        self.update(Tensor(total).realize())
        return float(total[0])


def stand(folder):
    (folder / "done").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def main():
    steps, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    number, following, before = linked.neighbours()
    # Read when the driver begins.
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)
    with Context(TRAINING=1):
        rank = Rank(number, following, before)
        losses = [rank.step() for _ in range(steps)]
    if rank.number > 0:
        # The first one's end is the end of all: it closes its connection, and each the next one's.
        rank.before.recv(1)
        return
    stand(folder)
    for index, loss in enumerate(losses):
        print(f"step {index} loss {loss.hex()} {loss:.6f}")
    if not losses[-1] < losses[0] * 0.8:
        sys.exit(f"the loss did not fall: {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
