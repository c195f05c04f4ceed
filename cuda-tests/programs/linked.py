# SPDX-License-Identifier: Apache-2.0
"""A job whose processes are linked: each step of the first one is made of what the others answer.

linked.py KIND [ARGUMENT]: ring (four ranks with a context each, by TCP), tcp, unix (a child), nvml (a child that polls
NVML and never uses CUDA), outside ADDRESS, unixoutside PATH, named PATH, listen, udp, shared (System V), queue (POSIX),
bound (one processor, a fast timer). Told `round N` it makes N steps and answers with what is on its device then; told
`notice`, with what a process may notice of a restore; told `send`, whether its connection to outside stands.
"""
import ctypes
import mmap
import os
import socket
import struct
import sys
import threading
import time

from ring import WORDS, Counter

RANKS = 4
WORD = struct.Struct("<I")


def step(counter, value):
    counter.set((counter.word(0) * 1664525 + value + 1013904223) & 0xFFFFFFFF)
    return counter.word(WORDS - 1)


def receive_all(connection, size):
    """So many bytes; the end of the other one is the end of this process."""
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        os._exit(0)
    return data


def receive(connection):
    return WORD.unpack(receive_all(connection, WORD.size))[0]


def send(connection, value):
    connection.sendall(WORD.pack(value & 0xFFFFFFFF))


def listener():
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made


def neighbours():
    """Makes the ranks: this one's number, the connection to the following one, that from the one before."""
    listeners = [listener() for _ in range(RANKS)]
    rank = next((rank for rank in range(1, RANKS) if os.fork() == 0), 0)
    following = socket.create_connection(listeners[(rank + 1) % RANKS].getsockname())
    before, _ = listeners[rank].accept()
    for made in listeners:
        made.close()
    return rank, following, before


def ring():
    rank, following, before = neighbours()
    if rank > 0:
        counter = Counter()
        while True:
            value = receive(before)
            send(following, value + step(counter, value))

    def exchange(value):
        send(following, value)
        return receive(before)

    return exchange


def pair(ours, theirs):
    if os.fork() == 0:
        ours.close()
        while True:
            send(theirs, receive(theirs) * 2)
    theirs.close()

    def exchange(value):
        send(ours, value)
        return receive(ours)

    return exchange


def tcp():
    made = listener()
    ours = socket.create_connection(made.getsockname())
    theirs, _ = made.accept()
    # The listening socket stays open.
    made.set_inheritable(True)
    exchange = pair(ours, theirs)
    exchange.keeps = made
    return exchange


class Nvml:
    """A child that looks at NVML all the time, and counts where both see it."""

    def __init__(self):
        self.count = mmap.mmap(-1, mmap.PAGESIZE)
        if os.fork() == 0:
            self.look()

    def look(self):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        device, figures = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
        if library.nvmlInit_v2() != 0 or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
            os._exit(1)
        # The parent's end is the end of both.
        parent = os.getppid()
        while os.getppid() == parent:
            if library.nvmlDeviceGetMemoryInfo(device, figures) != 0 or figures[0] == 0:
                os._exit(1)
            self.set(self.get() + 1)
            time.sleep(0.05)
        os._exit(0)

    def get(self):
        return WORD.unpack_from(self.count)[0]

    def set(self, value):
        WORD.pack_into(self.count, 0, value)

    def __call__(self, value):
        # It has polled once more.
        wanted, until = self.get() + 1, time.monotonic() + 60
        while self.get() < wanted:
            if time.monotonic() > until:
                return 0xDEAD
            time.sleep(0.01)
        return value


def udp():
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for made in (one, other):
        made.bind(("127.0.0.1", 0))
    one.connect(other.getsockname())

    def exchange(value):
        one.send(WORD.pack(value))
        return WORD.unpack(other.recv(WORD.size))[0]

    return exchange


def listen():
    made = listener()

    def exchange(value):
        ours = socket.create_connection(made.getsockname())
        theirs, _ = made.accept()
        with ours, theirs:
            send(ours, value)
            return receive(theirs)

    return exchange


def shared():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    block = libc.shmget(0, 4096, 0o600)
    address = libc.shmat(block, None, 0)
    # It goes with the last that has it.
    libc.shmctl(block, 0, None)
    word = ctypes.c_uint.from_address(address)

    def exchange(value):
        word.value = value
        return word.value

    return exchange


def queue():
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    name = f"/linked-{os.getpid()}".encode()
    opened = library.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None)
    library.mq_unlink(name)
    if opened < 0:
        sys.exit("mq_open")
    return lambda value: value


class Bound:
    """One processor for one thread, and a timer that goes off a thousand times a second."""

    def __init__(self):
        self.last = max(os.sched_getaffinity(0))
        libc, every = ctypes.CDLL(None), (ctypes.c_long * 4)(0, 1_000_000, 0, 1_000_000)
        self.timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        libc.timerfd_settime(self.timer, 0, every, None)
        self.thread = threading.Thread(target=self.stay, daemon=True)
        self.wakes, self.sleeps = threading.Semaphore(0), threading.Semaphore(0)
        self.thread.start()

    def stay(self):
        os.sched_setaffinity(0, {self.last})
        while True:
            self.wakes.acquire()
            self.seen = sorted(os.sched_getaffinity(0))
            self.sleeps.release()

    def __call__(self, value):
        return value

    def notice(self):
        self.wakes.release()
        self.sleeps.acquire()
        until, goes_off = time.monotonic() + 10, False
        while not goes_off and time.monotonic() < until:
            time.sleep(0.005)
            try:
                goes_off = len(os.read(self.timer, 8)) == 8
            except BlockingIOError:
                pass
        return f"parent {os.getppid()} thread {self.seen} all {sorted(os.sched_getaffinity(0))} timer {goes_off}"


class Outside:
    """A connection to outside, which the steps do not need."""

    def __init__(self, family, address):
        self.connection = socket.socket(family)
        self.connection.connect(address)

    def __call__(self, value):
        return value

    def send(self):
        try:
            self.connection.sendall(b"x")
            return "stands" if self.connection.recv(1) else "closed"
        except OSError:
            return "closed"


def named(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.connect(path)

    def exchange(value):
        made.send(b"x")
        return value

    return exchange


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


KINDS = {
    "ring": ring,
    "tcp": tcp,
    "unix": lambda: pair(*socket.socketpair()),
    "nvml": Nvml,
    "listen": listen,
    "udp": udp,
    "shared": shared,
    "queue": queue,
    "bound": Bound,
    "outside": lambda text: Outside(socket.AF_INET, address(text)),
    "unixoutside": lambda path: Outside(socket.AF_UNIX, path),
    "named": named,
}


def main():
    exchange = KINDS[sys.argv[1]](*sys.argv[2:])
    counter, value = Counter(), 0
    for line in sys.stdin:
        words = line.split()
        if words[0] == "notice":
            print(exchange.notice(), flush=True)
            continue
        if words[0] == "send":
            print(exchange.send(), flush=True)
            continue
        for _ in range(int(words[1])):
            value = step(counter, exchange(value))
        print(f"{value:08x}", flush=True)
    # Children end with what they read from.


if __name__ == "__main__":
    main()
