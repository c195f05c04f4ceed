# SPDX-License-Identifier: Apache-2.0
"""cuda.core's graph builder: linear, forked and embedded graphs with host callbacks, completed, launched often."""
import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch
from cuda.core.graph import GraphBuilder

SOURCE = """
extern "C" __global__ void add_one(int *x) { *x += 1; }
extern "C" __global__ void twice(int *x) { *x *= 2; }
"""
device = Device()
device.set_current()
stream = device.create_stream()
architecture = "".join(map(str, device.compute_capability))
module = Program(SOURCE, "c++", options=ProgramOptions(arch=f"compute_{architecture}")).compile("ptx")
add_one, twice = (module.get_kernel(name) for name in ("add_one", "twice"))
one = LaunchConfig(grid=1, block=1)
pinned = LegacyPinnedMemoryResource()
buffer = pinned.allocate(16)
values = np.from_dlpack(buffer).view(np.int32)
first = int(buffer.handle)


def linear():
    values[:] = 0
    builder = device.create_graph_builder().begin_building()
    for _ in range(3):
        launch(builder, one, add_one, first)
    launch(builder, one, twice, first)
    graph = builder.end_building().complete()
    builder.close()
    graph.upload(stream)
    for _ in range(4):
        graph.launch(stream)
    stream.sync()
    graph.close()
    return int(values[0])


def forked():
    values[:] = 0
    builder = device.create_graph_builder().begin_building()
    launch(builder, one, add_one, first)
    branches = list(builder.split(3))
    for place, branch in enumerate(branches):
        for _ in range(place + 1):
            launch(branch, one, add_one, first + 4 * (place + 1))
    builder = GraphBuilder.join(*branches)
    launch(builder, one, twice, first)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    graph.close()
    return values.tolist()


def with_callbacks():
    values[:] = 0
    seen = []
    builder = device.create_graph_builder().begin_building()
    launch(builder, one, add_one, first)
    # The graph alone keeps the function: a user object that must live until the last launch has ended.
    builder.callback(lambda: seen.append(int(values[0])))
    launch(builder, one, add_one, first)
    graph = builder.end_building().complete()
    builder.close()
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    graph.close()
    return seen, int(values[0])


def embedded():
    values[:] = 0
    child = device.create_graph_builder().begin_building()
    launch(child, one, add_one, first)
    launch(child, one, twice, first)
    child.end_building()
    parent = device.create_graph_builder().begin_building()
    launch(parent, one, add_one, first)
    parent.embed(child)
    graph = parent.end_building().complete()
    graph.launch(stream)
    stream.sync()
    return int(values[0])


for test in (linear, forked, with_callbacks, embedded):
    print(test.__name__, test())
