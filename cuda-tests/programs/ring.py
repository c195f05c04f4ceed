# SPDX-License-Identifier: Apache-2.0
"""Three processes in a ring: a message goes round by pipes, and each counts it on its device and in shared memory.

They share a named POSIX semaphore and a block of POSIX shared memory, as `multiprocessing` makes them. Told `round N`
on standard input, N messages go round; it answers with the counts in shared memory, and `wrong` where those on a device
differ.
"""
import ctypes
import multiprocessing
import sys
from multiprocessing import shared_memory

MEMBERS = 3
WORDS = 1 << 20


class Counter:
    """A device buffer all of whose words hold one count."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.address = ctypes.c_uint64()
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
        self.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(4 * WORDS))
        self.set(0)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            sys.exit(f"{name}: {code}")

    def set(self, value):
        self.call("cuMemsetD32_v2", self.address, ctypes.c_uint(value), ctypes.c_size_t(WORDS))

    def word(self, index):
        value = ctypes.c_uint()
        address = ctypes.c_uint64(self.address.value + 4 * index)
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(4))
        return value.value

    def count(self):
        self.set(self.word(0) + 1)
        return self.word(WORDS - 1)


def turn(index, counter, semaphore, block):
    with semaphore:
        block.buf[index] = (block.buf[index] + 1) % 256
    return counter.count()


def member(index, comes, goes, semaphore, name):
    counter, block = Counter(), shared_memory.SharedMemory(name)
    while True:
        counts = comes.recv()
        goes.send([*counts, turn(index, counter, semaphore, block)])


def main():
    # Those that are not forked find the semaphore by its name.
    context = multiprocessing.get_context("spawn")
    semaphore = context.Semaphore(1)
    block = shared_memory.SharedMemory(create=True, size=4096)
    pipes = [context.Pipe(duplex=False) for _ in range(MEMBERS)]
    for index in range(1, MEMBERS):
        comes, goes = pipes[index - 1][0], pipes[index][1]
        context.Process(target=member, args=(index, comes, goes, semaphore, block.name), daemon=True).start()
    counter = Counter()
    comes, goes = pipes[MEMBERS - 1][0], pipes[0][1]
    for line in sys.stdin:
        for _ in range(int(line.split()[1])):
            goes.send([turn(0, counter, semaphore, block)])
            counts = comes.recv()
        shared = list(block.buf[:MEMBERS])
        print("round", *shared, "good" if shared == counts else f"wrong {counts}", flush=True)
    block.unlink()


if __name__ == "__main__":
    main()
