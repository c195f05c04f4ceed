# SPDX-License-Identifier: Apache-2.0
"""Cases of PyTorch's allocators: what a limit of Partage's grants is what a GPU of that size grants."""
from machine import GIB, Machine

ALLOCATORS = {
    "native": "",
    "expandable": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}


def counted(text):
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def as_a_smaller_gpu(tools):
    """Blocks, refusals, retries and the capacity told: on a bare GPU of 2 GiB and under a limit of 2 GiB."""
    granted = []
    for name, setting in ALLOCATORS.items():
        found = {}
        for memory, run in (("2GiB", ()), ("16GiB", ("-m", "2GiB"))):
            with Machine(tools.partage, tools.work, "memory", memory, 1) as machine:
                out, _ = machine.program([tools.python, tools.program("memory")], run, PYTORCH_CUDA_ALLOC_CONF=setting)
                found[memory] = counted(out)
        bare, limited = found.values()
        free = int(limited["free"])
        assert int(limited["total"]) == 2 * GIB, limited
        # An expandable segment grows in pieces of 20 MiB: a block of 100 MiB is five of them. Otherwise a block is a
        # piece of its own.
        wanted = free // (100 << 20)
        assert int(limited["blocks"]) == wanted, f"{name}: {wanted} blocks fit: {limited}"
        # The message of the driver's pools has no numbers in 2.6.0.
        capacity = "Allocation on device " if name == "cudaMallocAsync" else "2.00 GiB"
        assert limited["capacity"] == capacity, f"{name}: {limited['capacity']}"
        # A context costs a share of its device's memory, at most 300 MiB: a small device has room for more blocks.
        fits = int(bare["free"]) // (100 << 20)
        assert int(bare["blocks"]) == fits, f"{name}, bare: {bare}"
        for key in ("num_ooms", "num_alloc_retries", "recovered", "capacity"):
            assert bare[key] == limited[key], f"{name}: {key} {bare[key]} bare, {limited[key]} limited"
        granted.append(f"{name} {limited['blocks']}")
    return f"blocks of 100 MiB under -m 2GiB: {', '.join(granted)}; refusals and retries as on a GPU of 2 GiB"
