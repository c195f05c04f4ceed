# SPDX-License-Identifier: Apache-2.0
"""A loop on the GPU that writes files as trainings do, told line by line how far to go.

usage: files.py HABIT FOLDER

    log       standard output is a log
    csv       a table by `open(..., "w")`, a row a step
    events    records of changing length behind one another in a binary file, as TensorBoard's
    sqlite    a database with a write-ahead log
    memmap    an array that is read from a file, mapped to read
    memmaprw  an array that is changed in its file, mapped to write
    flock     a file that is locked all the time
    deleted   a file without a name
    random    a file that is written at changing places, by descriptor

Told `steps N` on standard input it makes N steps and answers `at COUNT HASH`, where the hash is of what the device
holds and of what the habit reads back; told `end` it closes what it has and ends. It answers on standard output, and
where that is a log on standard error.
"""
import ctypes
import fcntl
import hashlib
import mmap
import os
import sqlite3
import struct
import sys
import tempfile
import zlib

WORDS = 1 << 16
habit, folder = sys.argv[1], sys.argv[2]


def at(name):
    return os.path.join(folder, name)


class Device:
    """A buffer on the device, all of whose words are set to a function of what they were."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.address = ctypes.c_uint64()
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
        self.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(4 * WORDS))
        self.set(1)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            sys.exit(f"{name}: {code}")

    def set(self, value):
        self.call("cuMemsetD32_v2", self.address, ctypes.c_uint(value), ctypes.c_size_t(WORDS))

    def word(self):
        value = ctypes.c_uint()
        address = ctypes.c_uint64(self.address.value + 4 * (WORDS - 1))
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(4))
        return value.value

    def step(self, extra):
        self.set((self.word() * 1664525 + 1013904223 + extra) % (1 << 32))
        return self.word()


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


def events():
    records = open(at("events.tfevents"), "wb")

    def step(count, word):
        body = struct.pack("<QI", count, word) + bytes(count % 5)
        records.write(struct.pack("<QI", len(body), zlib.crc32(body)) + body)
        records.flush()
        return 0

    return step


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
    file = tempfile.TemporaryFile(dir=folder)

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


habits = {
    "log": log,
    "csv": csv,
    "events": events,
    "sqlite": sqlite,
    "memmap": lambda: mapped(False),
    "memmaprw": lambda: mapped(True),
    "flock": flock,
    "deleted": deleted,
    "random": random,
}
answers = sys.stderr if habit == "log" else sys.stdout
device, step = Device(), habits[habit]()
digest, count, extra = hashlib.sha1(), 0, 0
for line in sys.stdin:
    verb, *number = line.split()
    if verb == "end":
        break
    for _ in range(int(number[0])):
        word = device.step(extra)
        extra = step(count, word) % (1 << 32)
        digest.update(struct.pack("<II", word, extra))
        count += 1
    print(f"at {count} {digest.hexdigest()[:16]}", file=answers, flush=True)
