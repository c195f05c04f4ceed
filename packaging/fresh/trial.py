# SPDX-License-Identifier: Apache-2.0
"""What all trials of an installation have: a room, and a job whose limit is watched while things are replaced."""

import time

from room import GPU_MEMORY, Client, Room, eventually

LIMIT = 2048
# MiB: one of them fits below the limit, not two with what a context takes; a small one fits beside it.
LARGE, SMALL = 1024, 256
QUARTER = f"total {GPU_MEMORY // 4}"
DEMO_LIMIT = 15


class Trial:
    """`checks` are its methods, in order."""

    name, checks = "", ()
    # A private broker leaves soon after its last job, so that a trial sees it go.
    variables = {"PARTAGE_IDLE_EXIT": "1"}

    def __init__(self, base, at, packages):
        self.base, self.at, self.packages = base, at, packages

    def __enter__(self):
        self.room = Room(self.base, self.at)
        return self

    def __exit__(self, *_):
        self.room.__exit__()

    def shows_demo(self, partage, user):
        start = time.monotonic()
        said = self.room.run(partage, "demo", user=user)
        took = time.monotonic() - start
        assert "checked numbers are right" in said and took < DEMO_LIMIT, f"{took:.1f} s\n{said}"

    def limits(self, partage, user):
        """A job of a quarter of a GPU sees as much, and gets no more."""
        job = self.room.client(partage, "run", "-q", "-m", "25%", "--", user=user, **self.variables)
        job.expect("total", QUARTER)
        job.expect("take 4096", "error 2")
        job.end()

    def job(self, partage, user):
        """One that holds half of its limit, and gets no second half."""
        job = self.room.client(partage, "run", "-q", "-m", f"{LIMIT}MiB", "--", user=user, **self.variables)
        job.expect(f"take {LARGE}", "taken")
        job.expect("fill 7", "filled")
        holds(job)
        return job

    def kill_broker(self):
        """As the kernel does where memory lacks. The programs of those that are there now."""
        brokers = self.room.brokers()
        assert brokers, "no broker runs"
        self.room.run("sh", "-c", 'kill -9 "$@"', "-", *brokers)
        eventually("the broker is gone", lambda: not brokers.keys() & self.room.brokers().keys())
        return brokers


def holds(job: Client):
    """The limit of such a job, and what it has."""
    job.expect(f"take {LARGE}", "error 2")
    job.expect("check 7", "same")


def grows(job: Client):
    """A broker serves the job: it gets what its limit leaves, and gives it back."""
    eventually("the job gets what its limit leaves", lambda: job.ask(f"take {SMALL}") == "taken")
    holds(job)
    job.expect("drop", "dropped")
