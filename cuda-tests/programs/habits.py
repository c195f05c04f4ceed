# SPDX-License-Identifier: Apache-2.0
"""A loop on the GPU with one habit of a training, told line by line how far to go.

usage: habits.py HABIT FOLDER

    log               standard output is a log
    csv               a table by `open(..., "w")`, a row a step
    tensorboard       tensorboardX's event file
    sqlite            a database with a write-ahead log
    memmap, memmaprw  an array that is read from a file, mapped to read; that is changed in its file
    random            a file that is written at changing places, by descriptor
    renamed           a checkpoint of its own every five steps, written beside the one before and renamed
    flock, deleted    a file that is locked all the time; a file without a name
    threads           six threads with queues
    fork, spawn       a pool of two processes (pipes, semaphores)
    segment, fresh    a child that fills POSIX shared memory: the same one, a new one each step
    pipe, fifo, pty   a child behind two pipes, a fifo, a child at a terminal
    zombie            a child that has ended and is never waited for
    ring, tcp, unix, udp, listen    linked.py's: four ranks by TCP, a child by TCP or unix socket, datagrams, a server
    inotify, asyncio, eventfd, memfd, itimer    what the kernel has of these names
    nvml              asks NVML in the process that uses CUDA
    wandb             an offline run, with the processes that it starts

Told `steps N` on standard input it makes N steps and answers `at COUNT HASH`, where the hash is of what the device
holds and of what the habit reads back; told `go` it makes steps until it is told something else; told `end` it closes
what it has and ends. It answers on standard output, and where that is a log on standard error.
"""
import asyncio
import ctypes
import fcntl
import glob
import hashlib
import mmap
import multiprocessing
import os
import pty as terminal
import queue
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from multiprocessing import resource_tracker, shared_memory

import linked
from ring import Counter

# Between the steps of `go`: a log of it stays short.
PACE = 0.002
PATIENCE = 60
MASK = 0xFFFFFFFF
FOLDER = sys.argv[2] if len(sys.argv) > 2 else ""


def at(name):
    return os.path.join(FOLDER, name)


def only_now(pattern):
    """The files of a pattern, without what a restore kept."""
    return [path for path in glob.glob(at(pattern)) if ".after-gen-" not in path]


def log():
    def step(count, word):
        print(f"step {count} {word}", flush=True)
        return 0

    return step


def csv():
    table = open(at("table.csv"), "w")

    def step(count, word):
        table.write(f"{count},{word}\n")
        table.flush()
        return 0

    return step


class Tensorboard:
    def __init__(self):
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(at("runs"))

    def __call__(self, count, word):
        # Its numbers have 24 bits.
        self.writer.add_scalar("word", word & 0xFFFFFF, count)
        # A thread of its own writes.
        self.writer.flush()
        return 0

    def close(self):
        """Writes what is in its file without the times, for a comparison."""
        from tensorboardX.proto.event_pb2 import Event

        self.writer.close()
        (path,) = only_now("runs/*.tfevents.*")
        with open(path, "rb") as file, open(at("scalars.csv"), "w") as out:
            while header := file.read(12):
                event = Event.FromString(file.read(struct.unpack_from("<Q", header)[0]))
                file.read(4)
                for value in event.summary.value:
                    out.write(f"{event.step},{value.tag},{value.simple_value}\n")


def sqlite():
    database = sqlite3.connect(at("runs.db"))
    database.execute("pragma journal_mode=wal")
    database.execute("create table steps(count int, word int)")
    database.commit()

    def step(count, word):
        database.execute("insert into steps values(?,?)", (count, word))
        database.commit()
        # What was written is what is read: rows that a restore lost would change all that follows.
        return database.execute("select sum(word) from steps").fetchone()[0]

    return step


def mapped(may_write):
    path = at("array.dat")
    with open(path, "wb") as file:
        file.write(b"".join(struct.pack("<I", word) for word in range(4096)))
    file = open(path, "r+b" if may_write else "rb")
    array = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if may_write else mmap.ACCESS_READ)
    file.close()

    def step(count, word):
        place = 4 * (count * 7 % 4096)
        if may_write:
            # Every place again and again, so that it counts how often each step was done.
            place %= 16
            array[place : place + 4] = struct.pack("<I", struct.unpack("<I", array[place : place + 4])[0] + 1)
        return struct.unpack("<I", array[place : place + 4])[0]

    return step


def flock():
    lock = open(at("lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)

    def step(count, word):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return 0

    return step


def deleted():
    file = tempfile.TemporaryFile(dir=FOLDER)

    def step(count, word):
        file.seek(0, 2)
        file.write(struct.pack("<I", word))
        file.flush()
        file.seek(0)
        return zlib.crc32(file.read())

    return step


def random():
    file = open(at("blocks.bin"), "w+b", buffering=0)

    def step(count, word):
        place = 8 * (word % 64)
        before = os.pread(file.fileno(), 8, place)
        os.pwrite(file.fileno(), struct.pack("<II", count, zlib.crc32(before)), place)
        return zlib.crc32(os.pread(file.fileno(), 512, 0))

    return step


def renamed():
    def step(count, word):
        if count % 5 == 0:
            with open(at("weights.new"), "wb") as file:
                file.write(struct.pack("<II", count, word) * 512)
            os.rename(at("weights.new"), at("weights"))
        return 0

    return step


def threads():
    asked, answered = queue.Queue(), queue.Queue()

    def work():
        while True:
            answered.put(triple(asked.get()))

    for _ in range(6):
        threading.Thread(target=work, daemon=True).start()

    def step(count, word):
        for part in range(6):
            asked.put(word + part)
        return sum(answered.get() for _ in range(6))

    return step


def triple(value):
    return 3 * value


def pool(method):
    workers = multiprocessing.get_context(method).Pool(2)
    return lambda count, word: sum(workers.map(triple, [word, count, 1]))


def block_name(number):
    """Of this run alone: one that was killed leaves its names to the machine."""
    return "-".join([*FOLDER.split(os.sep)[-2:], str(number)])


def shared(is_fresh):
    """A child fills the block of the name that it is told."""
    context = multiprocessing.get_context("fork")
    # One for both.
    resource_tracker.ensure_running()
    asked, answered = context.Queue(), context.Queue()

    def fill():
        while True:
            name, word = asked.get()
            block = shared_memory.SharedMemory(name)
            struct.pack_into("<II", block.buf, 0, word, triple(word) & MASK)
            block.close()
            answered.put(name)

    context.Process(target=fill, daemon=True).start()
    kept = None if is_fresh else shared_memory.SharedMemory(block_name(0), create=True, size=1 << 20)

    def step(count, word):
        block = kept or shared_memory.SharedMemory(block_name(count), create=True, size=1 << 16)
        asked.put((block.name, word))
        answered.get()
        value = sum(struct.unpack_from("<II", block.buf))
        if block is not kept:
            block.close()
            block.unlink()
        return value

    step.close = lambda: kept and kept.unlink()
    return step


def pipe():
    script = "while read x; do echo $((x * 3)); done"
    child = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def step(count, word):
        child.stdin.write(f"{word}\n")
        child.stdin.flush()
        return int(child.stdout.readline())

    return step


def fifo():
    os.mkfifo(at("fifo"))
    both = os.open(at("fifo"), os.O_RDWR)
    # One word is always in it.
    os.write(both, bytes(4))

    def step(count, word):
        os.write(both, struct.pack("<I", word))
        return struct.unpack("<I", os.read(both, 4))[0]

    return step


def pty():
    child, master = terminal.fork()
    if child == 0:
        os.execvp("cat", ["cat"])
    # As a program that asks for lines: they come back twice, by the terminal's echo and by cat.
    def step(count, word):
        os.write(master, f"{word}\n".encode())
        seen = b""
        while seen.count(b"\n") < 2:
            seen += os.read(master, 64)
        return zlib.crc32(seen)

    return step


def zombie():
    child = os.fork()
    if child == 0:
        os._exit(3)
    return lambda count, word: os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT).si_status


def through(exchange):
    return lambda count, word: exchange(word)


def inotify():
    library = ctypes.CDLL(None)
    os.mkdir(at("watched"))
    watch = library.inotify_init1(0)
    library.inotify_add_watch(watch, at("watched").encode(), 0x100)

    def step(count, word):
        path = at(f"watched/{word}")
        open(path, "w").close()
        os.remove(path)
        # Which file it was, by its name.
        return zlib.crc32(os.read(watch, 4096)[16:])

    return step


def loop():
    made = asyncio.new_event_loop()

    async def both(word):
        await asyncio.sleep(0.001)
        return await made.run_in_executor(None, triple, word)

    return lambda count, word: made.run_until_complete(both(word))


def eventfd():
    event, poll = os.eventfd(3), select.epoll()
    poll.register(event, select.EPOLLIN)

    def step(count, word):
        os.eventfd_write(event, word | 1)
        return len(poll.poll()) + os.eventfd_read(event)

    return step


def memfd():
    file = os.memfd_create("habit")
    os.ftruncate(file, 1 << 16)
    array = mmap.mmap(file, 1 << 16)

    def step(count, word):
        struct.pack_into("<I", array, 4 * (word % 4096), word)
        return zlib.crc32(os.pread(file, 1 << 14, 0))

    return step


def itimer():
    hits = [0]
    signal.signal(signal.SIGALRM, lambda *_: hits.__setitem__(0, hits[0] + 1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    def step(count, word):
        seen, until = hits[0], time.monotonic() + PATIENCE
        while hits[0] == seen:
            if time.monotonic() > until:
                return 1
            time.sleep(0.001)
        return 0

    # Its end takes the handler away first.
    step.close = lambda: signal.setitimer(signal.ITIMER_REAL, 0)
    return step


def nvml():
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    return lambda count, word: pynvml.nvmlDeviceGetMemoryInfo(device).total


class Wandb:
    def __init__(self):
        import wandb

        self.teardown = wandb.teardown
        # It looks at the GPU so often that it is met in the middle of it.
        often = wandb.Settings(x_stats_sampling_interval=0.1)
        self.run = wandb.init(mode="offline", dir=FOLDER, project="habits", settings=often)

    def __call__(self, count, word):
        # So many that its file grows while the job is looked at: it is written in blocks.
        self.run.log({"word": word, **{f"layer{layer}": word ^ layer for layer in range(64)}})
        return 0

    def close(self):
        """Writes what is in its file without the times, for a comparison."""
        from wandb.proto.wandb_internal_pb2 import Record
        from wandb.sdk.internal.datastore import DataStore

        self.run.finish()
        # Its process writes until it has ended.
        self.teardown()
        (path,) = only_now("wandb/offline-run-*/*.wandb")
        store = DataStore()
        store.open_for_scan(path)
        with open(at("history.csv"), "w") as out:
            while data := store.scan_data():
                for item in Record.FromString(data).history.item:
                    if "word" in (item.key, *item.nested_key):
                        out.write(f"{item.value_json}\n")


HABITS = {
    "log": log,
    "csv": csv,
    "tensorboard": Tensorboard,
    "sqlite": sqlite,
    "memmap": lambda: mapped(False),
    "memmaprw": lambda: mapped(True),
    "random": random,
    "renamed": renamed,
    "flock": flock,
    "deleted": deleted,
    "threads": threads,
    "fork": lambda: pool("fork"),
    "spawn": lambda: pool("spawn"),
    "segment": lambda: shared(False),
    "fresh": lambda: shared(True),
    "pipe": pipe,
    "fifo": fifo,
    "pty": pty,
    "zombie": zombie,
    "ring": lambda: through(linked.ring()),
    "tcp": lambda: through(linked.tcp()),
    "unix": lambda: through(linked.KINDS["unix"]()),
    "udp": lambda: through(linked.udp()),
    "listen": lambda: through(linked.listen()),
    "inotify": inotify,
    "asyncio": loop,
    "eventfd": eventfd,
    "memfd": memfd,
    "itimer": itimer,
    "nvml": nvml,
    "wandb": Wandb,
}


class Training:
    """The device's part of each step, and what all of it came to."""

    def __init__(self, habit):
        # Before the device: children have none of it.
        self.habit = habit()
        self.device, self.digest, self.count, self.extra = Counter(), hashlib.sha1(), 0, 0

    def step(self):
        word = linked.step(self.device, self.extra)
        self.extra = self.habit(self.count, word) & MASK
        self.digest.update(struct.pack("<II", word, self.extra))
        self.count += 1

    def said(self):
        return f"at {self.count} {self.digest.hexdigest()[:16]}"


def main():
    habit = sys.argv[1]
    answers = sys.stderr if habit == "log" else sys.stdout
    training = Training(HABITS[habit])
    # Without a buffer, in which the next line could be while one waits for it.
    orders = open(0, "rb", buffering=0, closefd=False)
    for line in iter(orders.readline, b""):
        verb, *number = line.decode().split()
        if verb == "end":
            break
        if verb == "go":
            while not select.select([orders], [], [], PACE)[0]:
                training.step()
            continue
        for _ in range(int(number[0])):
            training.step()
        print(training.said(), file=answers, flush=True)
    getattr(training.habit, "close", lambda: None)()


if __name__ == "__main__":
    main()
