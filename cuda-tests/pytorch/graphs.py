# SPDX-License-Identifier: Apache-2.0
"""A captured graph is replayed for some seconds; the result is that of as many steps without a graph.

usage: graphs.py REPLAYS RESULT [SECONDS]
"""
import sys
import time

import torch

replays, result = int(sys.argv[1]), sys.argv[2]
pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
start = torch.linspace(0, 1, 4096)
held = start.cuda()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(2):
        torch.sin(held * 1.5 + 0.25)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    held.copy_(torch.sin(held * 1.5 + 0.25))
for _ in range(replays):
    graph.replay()
    time.sleep(pause)
plain = start.cuda()
for _ in range(replays):
    plain = torch.sin(plain * 1.5 + 0.25)
assert torch.equal(held, plain), "replays and steps differ"
with open(result, "w") as file:
    file.write(" ".join(value.hex() for value in held.cpu()[:64].tolist()) + "\n")
