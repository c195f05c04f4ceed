# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on a fixed task and prints the loss of every step, in full precision.

Runs tinygrad's CUDA back end, which generates PTX, launches through the driver API and replays its JIT as CUDA graphs.
The printed curve is a function of the seed alone, so two runs on one driver can be compared bit by bit.

With STOPS=FOLDER it stands after SETTLED steps, once all kernels are built and the graph is captured, and at its
end: it makes the file `settled`, or `done`, there, and goes on once `settled.go`, or `done.go`, is there too.

usage: train.py [STEPS]      environment: DEV=CUDA CUDA=1 PTX=1
"""
import os
import pathlib
import sys
import time

from tinygrad import Context, Tensor, TinyJit, nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SETTLED = 8


def stand(name):
    folder = os.environ.get("STOPS")
    if folder is None:
        return
    (pathlib.Path(folder) / name).touch()
    while not (pathlib.Path(folder) / f"{name}.go").exists():
        time.sleep(0.01)


class Network:
    def __init__(self):
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 4)

    def __call__(self, x):
        return self.second(self.first(x).relu())


Tensor.manual_seed(7)
network = Network()
optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=0.02)
inputs = Tensor.randn(64, 16).realize()
# The class is a linear function of the input, so the loss must fall if every kernel is right.
labels = (inputs @ Tensor.randn(16, 4)).argmax(axis=1).realize()


@TinyJit
def step():
    optimizer.zero_grad()
    loss = network(inputs).sparse_categorical_crossentropy(labels)
    loss.backward()
    return loss.realize(*optimizer.schedule_step())


start = time.monotonic()
losses = []
with Context(TRAINING=1):
    for index in range(STEPS):
        if index == SETTLED:
            stand("settled")
        losses.append(step().item())
stand("done")
for index, loss in enumerate(losses):
    print(f"step {index} loss {loss.hex()} {loss:.6f}")
print(f"{STEPS} steps in {time.monotonic() - start:.1f} s", file=sys.stderr)
if not losses[-1] < losses[0] * 0.7:
    sys.exit(f"the loss did not fall: {losses[0]:.4f} -> {losses[-1]:.4f}")
