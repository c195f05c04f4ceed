# SPDX-License-Identifier: Apache-2.0
"""A fresh root of a trial: a base below, what the trial writes above it in memory, and processes, mounts, a host name
and a network (of nothing) of its own. All of it is gone with the object.

A room is a pid namespace, where a managed broker starts only when it is told to (PARTAGE_PID_NAMESPACE).
"""

import json
import re
import select
import shutil
import subprocess
import time

SPACES = ["--mount", "--uts", "--ipc", "--net", "--pid"]
# Waits as the first process of the room, which collects what nobody else does. A pivot, because in a chroot no user
# could make a user namespace.
FIRST = """
set -e
at=$0
mount -t tmpfs -o "mode=755,size=$2" room "$at"
mkdir "$at/upper" "$at/work" "$at/root"
mount -t overlay -o "lowerdir=$1,upperdir=$at/upper,workdir=$at/work" overlay "$at/root"
cd "$at/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=755 run run
hostname fresh
pivot_root . outside
umount -l /outside
echo ready
while read -r line; do :; done
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The host's driver and its GPUs stand here: the simulated ones, and a program of a user's that uses them. They are of
# the host, not of what is installed.
GPUS, MACHINE = "/opt/gpus", "/tmp/partage-sim-0/host"
PAGE = 4096
GPU_COUNT, GPU_MEMORY = 2, 16 << 30
# What dpkg, apt, the loader and the account tools keep for themselves, and the simulated GPUs.
NOT_JUDGED = re.compile(
    r"/var/lib/(dpkg|apt)(/|$)|/var/log(/|$)|/var/cache/(apt|ldconfig|debconf)(/|$)"
    r"|/etc/(group|gshadow|passwd|shadow|subgid|subuid)-$|/etc/\.pwd\.lock$|/tmp/partage-sim-0(/|$)|/opt/gpus(/|$)"
)
# Each path with what would show a change: below /etc its content, elsewhere size and time.
STATE = r"""
find "$@" -xdev ! -path '/etc/*' \( -type d -printf '%p\t%y %m %U:%G\n' -o -printf '%p\t%y %m %U:%G %l %s %T@\n' \)
find /etc -xdev \( -type f -printf '%p\t%y %m %U:%G ' -exec sh -c 'md5sum <"$1"' - {} \; \
  -o -printf '%p\t%y %m %U:%G %l\n' \)
"""


class Room:
    """`first` is the outer number of its first process."""

    def __init__(self, base, at, size="16g"):
        at.mkdir(parents=True, exist_ok=True)
        words = ["unshare", *SPACES, "--fork", "--kill-child", "--propagation", "private", "bash", "-c", FIRST]
        self.process = subprocess.Popen(
            [*words, at, base, size], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdout.readline() == "ready\n", "this machine lets root make no such root"
        number = self.process.pid
        with open(f"/proc/{number}/task/{number}/children") as children:
            self.first = children.read().strip()
        self.has_gpus = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    # ---- what is done in it ------------------------------------------------------------------------------------

    def command(self, words, user="root", variables=None):
        """The words of this machine that run `words` there, in the home of `user`."""
        home = "/root" if user == "root" else f"/home/{user}"
        own = {"PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8", "TERM": "dumb"}
        own |= {"PARTAGE_PID_NAMESPACE": "any"} | (variables or {})
        if self.has_gpus:
            own = {"PARTAGE_SIM_DIR": MACHINE, "LD_LIBRARY_PATH": f"{MACHINE}/lib"} | own
        become = ["/usr/bin/setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"]
        environment = [f"{name}={value}" for name, value in own.items()]
        enter = ["nsenter", "--target", self.first, *SPACES, "--", *become]
        return [*enter, "/usr/bin/env", "-i", "-C", home, *environment, *words]

    def tell(self, *words, user="root", limit=120, **variables):
        """Runs `words`; exit code, and both streams' text."""
        words = self.command(words, user, variables)
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        done = subprocess.run(words, timeout=limit, text=True, errors="replace", **streams)
        return done.returncode, done.stdout

    def run(self, *words, **options):
        """As `tell`; it has to succeed."""
        code, said = self.tell(*words, **options)
        assert code == 0, f"{' '.join(map(str, words))}: {code}\n{said}"
        return said

    def json(self, *words, **options):
        return json.loads(self.run(*words, **options))

    def put(self, file, folder, owner="root"):
        """Copies a file of this machine into a folder of the room. Its path there."""
        self.run("install", "-d", "-o", owner, "-g", owner, folder)
        place = f"/proc/{self.first}/root{folder}/{file.name}"
        shutil.copy(file, place)
        return f"{folder}/{file.name}"

    # ---- disks -------------------------------------------------------------------------------------------------

    def disk(self, folder):
        """A disk of its own for a folder, with what is there."""
        script = 'cp -a "$0" /dev/shm/kept && mount -t tmpfs disk "$0" && cp -a /dev/shm/kept/. "$0"'
        self.run("sh", "-c", f"{script} && rm -r /dev/shm/kept", folder)

    def layer(self, folder):
        """The same for a large folder, whose files stay where they are: only what changes is on /run/disk."""
        script = """
          mkdir /run/disk && mount -t tmpfs disk /run/disk && mkdir /run/disk/up /run/disk/work
          mount -t overlay -o "lowerdir=$0,upperdir=/run/disk/up,workdir=/run/disk/work" disk "$0"
        """
        self.run("sh", "-ec", script, folder)

    def used(self, disk):
        return int(self.run("df", "--output=used", "--block-size=1", disk).split()[-1])

    def resize(self, disk, size):
        # Of no pages at all means without a limit.
        self.run("mount", "-o", f"remount,size={max(size, PAGE)}", disk)

    # ---- GPUs --------------------------------------------------------------------------------------------------

    def gpus(self, programs):
        """Gives the host GPUs: simulated ones, by the programs of a folder `bin` and `lib/partage`."""
        for file in [programs / "bin/partage", *(programs / "lib/partage").iterdir()]:
            self.put(file, GPUS)
        self.run("mv", f"{GPUS}/partage-demo-client", f"{GPUS}/client")
        words = [f"{GPUS}/partage", "sim", "--shared", "--overcommit", "--machine", "host"]
        words += ["--gpus", str(GPU_COUNT), "--memory", f"{GPU_MEMORY >> 30}GiB", "--", "sleep", "infinity"]
        subprocess.Popen(self.command(words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        eventually("the host has its GPUs", lambda: self.tell("test", "-e", f"{MACHINE}/lib/libcuda.so.1")[0] == 0)
        self.has_gpus = True

    def client(self, *words, user="root", **variables):
        return Client(self.command([*words, f"{GPUS}/client"], user, variables))

    # ---- what is there -----------------------------------------------------------------------------------------

    def state(self, *places):
        lines = self.run("sh", "-c", STATE, "-", *(places or ("/", "/run", "/dev/shm"))).splitlines()
        state = dict(line.split("\t", 1) for line in lines)
        return {path: what for path, what in state.items() if not NOT_JUDGED.match(path)}

    def processes(self):
        """(pid, program) of each process that runs a program of ours, the simulated GPUs' aside."""
        # A process that ends meanwhile is a complaint of find's.
        look = "find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -printf '%p %l\\n' 2>/dev/null"
        found = self.tell("sh", "-c", look)[1]
        pairs = [line.split(" ", 1) for line in found.splitlines() if " " in line]
        ours = [(path.split("/")[2], program) for path, program in pairs if re.search(r"partage|/broker-", program)]
        return [(pid, program) for pid, program in ours if not program.startswith(GPUS)]

    def brokers(self):
        """pid: program, without the brokers' helpers."""
        found = {pid: program for pid, program in self.processes() if re.search(r"/(partaged|broker-)[^/]*$", program)}
        return {pid: program for pid, program in found.items() if "-helper" not in self.words_of(pid)}

    def words_of(self, pid):
        try:
            with open(f"/proc/{self.first}/root/proc/{pid}/cmdline") as file:
                return file.read()
        except OSError:
            return ""


class Client:
    """A user's program on the host's GPU, which does what it is told (demo-client/src/main.rs)."""

    def __init__(self, words):
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(words, bufsize=0, **streams)
        said = self.answer()
        assert said.startswith("ready "), f"{said}\n{self.process.stderr.read().decode()}"

    def answer(self, limit=60):
        assert select.select([self.process.stdout], [], [], limit)[0], f"the client says nothing for {limit} s"
        return self.process.stdout.readline().decode().strip()

    def ask(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        return self.answer()

    def expect(self, line, answer):
        said = self.ask(line)
        assert said == answer, f"{line}: {said!r}, not {answer!r}"

    def end(self):
        self.process.stdin.close()
        said = self.process.stderr.read().decode()
        assert self.process.wait(60) == 0, said


def eventually(what, holds, limit=30):
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.1)


def changed(before, after, allowed=None):
    """What differs, without what `allowed` matches: `+ path`, `- path`, `~ path`."""
    found = []
    for path in sorted(before.keys() | after.keys()):
        sign = "+" if path not in before else "-" if path not in after else "~"
        if before.get(path) != after.get(path) and not (allowed and re.match(allowed, path)):
            found.append(f"{sign} {path}")
    return found


def same(before, after, allowed=None):
    found = changed(before, after, allowed)
    assert not found, "the host is not as it was:\n" + "\n".join(found[:20])
