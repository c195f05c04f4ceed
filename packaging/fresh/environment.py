# SPDX-License-Identifier: Apache-2.0
"""The trial of the wheel: alice's own environment, upgraded, downgraded, uninstalled and deleted under jobs."""

import os
import time

from packages import NEWER, OLDER
from room import eventually, same
from trial import Trial, grows, holds

HOME = "/home/alice"
VENV = f"{HOME}/an environment"
# What alice owns: what her programs keep, and copies of the library that they have loaded.
OF_USERS = r"/tmp/partage-1000(/|$)|/home/alice/\.cache(/|$)"
# A minute, with the compiler of the framework.
TRAINING_LIMIT = 60


class Wheel(Trial):
    name = "the wheel"

    @property
    def checks(self):
        yield self.installs
        yield self.shows_the_demo
        yield self.trains_on_a_simulated_gpu
        yield self.is_upgraded_and_downgraded_under_a_job
        yield self.is_uninstalled_under_a_job
        yield self.meets_a_full_disk_and_is_deleted_under_a_job
        yield self.goes_without_a_trace

    def alice(self, *words, **options):
        return self.room.run(*words, user="alice", **options)

    def pip(self, *words):
        return self.alice(f"{VENV}/bin/pip", "--no-cache-dir", *words, PYTHONDONTWRITEBYTECODE="1")

    def files(self):
        """Of the environment: pip removes no folder of `share` that is empty then."""
        state = self.room.state(VENV).items()
        return {path: what for path, what in state if path.startswith(VENV) and not what.startswith("d ")}

    def installs(self):
        wheels = [self.packages.wheel, *map(self.packages.other_wheel, (NEWER, OLDER))]
        self.file, *self.others = [self.room.put(wheel, "/opt") for wheel in wheels]
        self.room.disk(HOME)
        self.before = self.room.state("/", HOME, "/run", "/dev/shm")
        self.alice("python3", "-m", "venv", VENV)
        self.pip("install", "-q", "--no-index", "--find-links", "/opt/wheels", "--no-compile", "tinygrad")
        self.before_wheel = self.files()
        self.pip("install", "-q", "--no-index", "--no-compile", self.file)
        self.partage = f"{VENV}/bin/partage"

    def shows_the_demo(self):
        self.shows_demo(self.partage, "alice")

    def trains_on_a_simulated_gpu(self):
        self.train = self.room.put(self.packages.root / "cuda-tests/programs/train.py", "/opt")
        words = [self.partage, "sim", "--", self.partage, "run", "-m", "25%", "--", f"{VENV}/bin/python", self.train]
        start = time.monotonic()
        said = self.alice(*words, DEV="CUDA", CUDA="1", PTX="1", PYTHONDONTWRITEBYTECODE="1")
        took = time.monotonic() - start
        assert "\nstep 19 loss " in said and took < TRAINING_LIMIT, f"{took:.1f} s\n{said}"

    def is_upgraded_and_downgraded_under_a_job(self):
        self.room.gpus(self.packages.programs)
        job = self.job(self.partage, "alice")
        for file in self.others:
            self.pip("install", "-q", "--no-index", "--no-compile", "--force-reinstall", file)
            holds(job)
            self.kill_broker()
            holds(job)
            grows(job)
            self.room.run(self.partage, "ps", user="alice")
        job.end()

    def fails_on_a_full_disk(self, room, *words):
        """pip, with room for so much."""
        self.room.resize(HOME, self.room.used(HOME) + room)
        words = ["--no-cache-dir", "install", "--no-index", "--no-compile", *words]
        code, said = self.room.tell(f"{VENV}/bin/pip", *words, user="alice", PYTHONDONTWRITEBYTECODE="1")
        assert code != 0 and "No space left on device" in said, f"{code}: {said}"
        self.room.resize(HOME, 1 << 30)

    def rooms(self):
        """For a part of the files."""
        sizes = [file.stat().st_size for file in sorted(self.packages.programs.glob("bin/*"))]
        return [sizes[0] // 2, sizes[0] + sizes[1] // 2]

    def is_uninstalled_under_a_job(self):
        job = self.job(self.partage, "alice")
        self.pip("uninstall", "-q", "--yes", "partage")
        same(self.before_wheel, self.files())
        self.kill_broker()
        holds(job)
        grows(job)
        job.end()

    def meets_a_full_disk_and_is_deleted_under_a_job(self):
        """An upgrade that fails so may leave an environment of parts, by pip 23: the job is none of them."""
        self.pip("install", "-q", "--no-index", self.file)
        job = self.job(self.partage, "alice")
        for room in self.rooms():
            self.fails_on_a_full_disk(room, "--force-reinstall", self.others[0])
            holds(job)
            grows(job)
        self.alice("rm", "-r", VENV)
        self.kill_broker()
        holds(job)
        grows(job)
        job.end()

    def goes_without_a_trace(self):
        # One that a job started leaves a minute after its last job; who cannot wait ends it.
        if "PARTAGE_SOAK" not in os.environ:
            self.alice("sh", "-c", 'kill "$@"', "-", *self.room.brokers())
        eventually("the private broker is gone", lambda: not self.room.processes(), 90)
        self.room.run("rm", self.train)
        same(self.before, self.room.state("/", HOME, "/run", "/dev/shm"), OF_USERS)
