# SPDX-License-Identifier: Apache-2.0
"""A simulated machine with the stand-in CUDA runtime, and programs on it: bare, and as jobs of Partage."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

GIB = 1 << 30
# How long one program may take: the first launch out of a module parses all its PTX.
PATIENCE = 300


class Machine:
    """Two GPUs of `memory`; it ends when its keeper's input does, however this program ends."""

    def __init__(self, partage, work, name, memory="16GiB", gpus=2, profile="h200"):
        self.partage, self.name = partage, f"{name}-{os.getpid()}"[-32:]
        self.folder = pathlib.Path(work) / self.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.asked = ["--gpus", str(gpus), "--memory", memory, "--profile", profile]
        words = [partage, "sim", "--machine", self.name, *self.asked, "--cuda-runtime", "--", "/bin/sh", "-c",
                 "env -0; echo; exec cat >/dev/null"]
        self.keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = b""
        while not text.endswith(b"\0\n"):
            piece = self.keeper.stdout.read1(65536)
            if not piece:
                raise RuntimeError(f"partage sim made no machine: {self.keeper.stderr.read().decode()}")
            text += piece
        self.environment = dict(entry.split("=", 1) for entry in text.decode().split("\0") if "=" in entry)
        self.environment |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HOME": str(self.folder),
                             "TORCHINDUCTOR_CACHE_DIR": str(pathlib.Path(work) / "inductor"),
                             "TRITON_CACHE_DIR": str(pathlib.Path(work) / "triton")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        mark = f"PARTAGE_SIM_DIR={self.environment['PARTAGE_SIM_DIR']}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    # The broker is `partage sim`'s to end.
                    if b"partaged" not in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                        os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
        self.keeper.stdin.close()
        self.keeper.wait(30)

    def start(self, words, run=(), **environment):
        """Starts a program in a session of its own: as a job with the options of `partage run`, or bare."""
        prefix = [self.partage, "run", *run, "--"] if run else []
        output = open(self.folder / "output", "ab")
        with output:
            # CRIU saves no file that grew since: what is saved writes nowhere.
            to = subprocess.DEVNULL if environment.get("QUIET") else output
            return subprocess.Popen([*prefix, *map(str, words)], env=self.environment | environment, stdout=to,
                                    stderr=to, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.folder)

    def program(self, words, run=(), code=0, limit=PATIENCE, **environment):
        """Runs a program to its end, and gives what it wrote."""
        prefix = [self.partage, "run", *run, "--"] if run else []
        words = [*prefix, *map(str, words)]
        done = subprocess.run(words, env=self.environment | environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=limit, cwd=self.folder)
        if code is not None and done.returncode != code:
            raise AssertionError(f"exit {done.returncode} of {words}: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout, done.stderr

    def command(self, *words, limit=120):
        """A command of partage's, which must do it."""
        done = subprocess.run([self.partage, *words], env=self.environment, capture_output=True, text=True,
                              timeout=limit)
        if done.returncode:
            raise AssertionError(f"partage {' '.join(words)}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def job(self, name):
        jobs = json.loads(self.command("ps", "--json"))["jobs"]
        return next((job for job in jobs if job["name"] == name), None)

    def wait_for_job(self, name, process):
        """Until the job has a process on the GPU."""
        until = time.monotonic() + PATIENCE
        while not ((job := self.job(name)) and job["clients"]):
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{name} is not on the GPU: {self.output()[-2000:]}")
            time.sleep(0.1)

    def output(self):
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""
