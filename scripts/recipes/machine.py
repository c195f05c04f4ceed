# SPDX-License-Identifier: Apache-2.0
"""A simulated machine with a home folder of its own, for one recipe at a time.

`partage sim` keeps the machine while our end of a pipe is open, so it ends with us however we end. Every program on it
carries the machine's folder in its environment, and is found and ended by that.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

GIB = 1 << 30
CARD = 16 * GIB
PATIENCE = 60
# What stands for the GPU and its driver: every environment gets it, however bare it is otherwise.
DRIVER = ("PARTAGE_SIM_DIR", "PARTAGE_SOCKET_DIR", "LD_LIBRARY_PATH")
SEE_LIMIT = pathlib.Path(__file__).with_name("see_limit.py")


class Machine:
    def __init__(self, partage, path, gpus=2):
        # Short: tmux and Ray make sockets below it.
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="pr"))
        programs = self.home / ".bin"
        programs.mkdir()
        (programs / "partage").symlink_to(partage)
        (self.home / "train.py").write_text(SEE_LIMIT.read_text())
        words = [partage, "sim", "--gpus", str(gpus), "--memory", "16GiB", "--machine", self.home.name, "--"]
        words += ["/bin/sh", "-c", "env -0; echo; exec cat >/dev/null"]
        self.keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        text = b""
        while not text.endswith(b"\0\n"):
            piece = self.keeper.stdout.read1(65536)
            assert piece, "partage sim made no machine"
            text += piece
        pairs = [entry.partition("=") for entry in text.decode().split("\0")]
        self.driver = {name: value for name, _, value in pairs if name in DRIVER}
        self.environment = self.driver | {
            "HOME": str(self.home),
            "PATH": ":".join([str(programs), *path, os.environ.get("PATH", "/usr/bin:/bin")]),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/sh",
            "TMUX_TMPDIR": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home),
            "RAY_TMPDIR": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
        } | {name: os.environ[name] for name in ("PARTAGE_CRIU",) if name in os.environ}

    def start(self, words, environment=None, **more):
        """Starts a program in the home folder, its output in `output` there."""
        with open(self.home / "output", "ab") as output:
            return subprocess.Popen(
                words, cwd=self.home, env=environment or self.environment, stdout=output, stderr=output,
                stdin=more.pop("stdin", subprocess.DEVNULL), **more)

    def shell(self, script, environment=None, timeout=PATIENCE):
        """Runs a script as a user types it, and gives code, output and errors."""
        done = subprocess.run(
            ["/bin/bash", "-euc", script], cwd=self.home, env=environment or self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stdout, done.stderr

    def wait(self, what, condition):
        """Waits until `condition` gives something, and gives that."""
        until = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < until, f"{what}: not within {PATIENCE} s; output: {self.output()[-2000:]}"
            time.sleep(0.02)
        return found

    def output(self):
        path = self.home / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def seen(self, count):
        """Waits for `count` notes of the program since `forget`."""
        path = self.home / "seen"

        def notes():
            lines = path.read_text().splitlines() if path.exists() else []
            return lines if len(lines) >= count else None

        return [json.loads(line) for line in self.wait(f"{count} programs on the GPU", notes)]

    def let_go(self):
        """Programs of now and later end as soon as they have looked."""
        (self.home / "go").touch()

    def forget(self):
        """Programs of later hold their memory again; earlier notes are gone."""
        for name in ("go", "seen"):
            (self.home / name).unlink(missing_ok=True)

    def jobs(self, *more):
        """The jobs that `partage ps` shows, those first that are still alive."""
        done = subprocess.run(["partage", "ps", "--json", *more], env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["jobs"]

    def working(self, count):
        """Waits for exactly `count` jobs with a process on the GPU."""
        def found():
            at_work = [job for job in self.jobs() if job["clients"]]
            return at_work if len(at_work) == count else None

        return self.wait(f"{count} jobs at work", found)

    def close(self):
        """Ends what runs on the machine, and the machine."""
        mark = f"PARTAGE_SIM_DIR={self.driver['PARTAGE_SIM_DIR']}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                is_ours = entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0")
                # The broker is `partage sim`'s to end.
                if is_ours and b"partaged" not in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass
        self.keeper.stdin.close()
        self.keeper.wait(timeout=PATIENCE)
        shutil.rmtree(self.home, ignore_errors=True)


def check(condition, *facts):
    """An assertion that shows the facts."""
    assert condition, "; ".join(map(str, facts))


def sees(note, gib, devices=1):
    """The program saw `devices` devices of `gib`, and met that as its limit."""
    expected = {"total": gib * GIB, "devices": devices, "results": [0, 2]}
    check({name: note[name] for name in expected} == expected, f"expected {expected}", f"the program saw {note}")


def limits(job):
    """The job's limits in GiB, by device."""
    return [device["limit_bytes"] / GIB for device in job["devices"]]
