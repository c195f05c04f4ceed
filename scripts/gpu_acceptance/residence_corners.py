# SPDX-License-Identifier: Apache-2.0
"""The corners of suspending: maps of masked processes, host memory, handles, NVML, stopped processes, helpers that are
killed, and memory that others took. What the driver alone does is measured; what Partage makes of it is checked."""
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import time

from gpu_acceptance.session import GIB, LESS, PARTAGE, ROOT, check, environment, measured, options, shell, skip

PROGRAM = str(ROOT / "cuda-tests/programs/gpu_checkpoint.py")
PATIENCE_S = 60


class Target:
    """A process with device memory; under Partage where it has a name."""

    def __init__(self, env, mode, name=None, total=GIB, before=()):
        command = [*before, sys.executable, PROGRAM, "target", mode, str(total)]
        if name:
            command = [PARTAGE, "run", "-q", "--name", name, "--", *command]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "up\n":
            self.end()
            raise RuntimeError(f"{mode}: it did not begin")

    def tell(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self, limit=PATIENCE_S):
        """What it says within so many seconds; empty for nothing."""
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        return self.process.stdout.readline().strip() if ready else ""

    def wrong(self):
        """What is wrong with its memory; empty for nothing."""
        self.tell()
        said = self.answer()
        return "" if said == "same" else said or f"no answer, exit {self.process.poll()}"

    def end(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def driver(env, pid, *operations, caller=()):
    """The driver's code of each operation, up to the first that is not 0."""
    said = {}
    for operation in operations:
        done = shell([sys.executable, PROGRAM, "call", str(pid), operation, *caller], limit=120, env=env)
        said[operation] = done.stdout.strip() or done.stderr.strip()
        if said[operation].split(" ")[0] != "0":
            break
    return said


def brought_back(env, pid, said):
    """A target that a refused call left locked or checkpointed goes on."""
    if said.get("checkpoint") == "0":
        return driver(env, pid, "restore", "unlock")
    return driver(env, pid, "unlock") if said.get("lock") == "0" else {}


def maps(env):
    """A map of every device to itself: unmasked, masked, and with the mask changed after cuInit."""
    kinds = {"unmasked": ("plain", {}), "masked": ("plain", {"CUDA_VISIBLE_DEVICES": "0"}), "changed": ("changes", {})}
    for kind, (mode, variables) in kinds.items():
        with Target(env | variables, mode) as target:
            pid = target.process.pid
            said = driver(env, pid, "lock", "checkpoint", "identity", "unlock")
            if said.get("identity") == "1":
                said |= driver(env, pid, "restore", "unlock")
            wrong = target.wrong()
            measured[f"identity map, {kind}"] = said
            check(f"identity map, {kind}: taken, or refused and restored without", not wrong, wrong or json.dumps(said))


def suspend(env, name, *more):
    return shell([PARTAGE, "suspend", name, *more], limit=120, env=env)


def resume(env, name, *more):
    return shell([PARTAGE, "resume", name, *more], limit=120, env=env)


def modes(env):
    """Host memory that is registered, a handle that is mapped nowhere, NVML in the process: off the GPU and back."""
    for mode in ("registered", "unmapped", "nvml"):
        with Target(env, mode, name="corner") as target:
            said = [suspend(env, "corner"), resume(env, "corner")]
            why = " ".join(done.stderr.strip() for done in said).strip()
            wrong = target.wrong()
            measured[f"suspend, {mode}"] = why or "suspended and resumed"
            # What the driver refuses is undone, and the reason said.
            codes = [done.returncode for done in said]
            is_fine = not wrong and (codes == [0, 0] or (codes[0] == 1 and why))
            check(f"suspend, {mode}: back as it was", is_fine, wrong or why or "every byte is what it was")


def exported(env):
    """A handle that others may hold: the driver alone, and refused by Partage before the process is touched."""
    with Target(env, "exported") as target:
        said = driver(env, target.process.pid, "lock", "checkpoint", "restore", "unlock")
        measured["exported handle, the driver alone"] = said
    with Target(env, "exported", name="corner") as target:
        done = suspend(env, "corner")
        is_refused = done.returncode == 1 and "an exported memory handle" in done.stderr
        wrong = target.wrong()
        detail = wrong or done.stderr.strip()
        check("suspend, exported handle: refused, and it goes on", is_refused and not wrong, detail)


def first_call(env):
    """A synchronise while the memory is away: the driver alone, and held by Partage."""
    with Target(env, "plain") as target:
        said = driver(env, target.process.pid, "lock", "checkpoint")
        target.tell()
        before, ended = target.answer(2), None
        try:
            # One that died of it says nothing, at once.
            ended = target.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        after = brought_back(env, target.process.pid, said) if ended is None else {}
        said |= {"answer while away": before, "exit": ended, "afterwards": after}
        measured["a synchronise while checkpointed, the driver alone"] = said
    with Target(env, "plain", name="corner") as target:
        done = suspend(env, "corner")
        target.tell()
        early = target.answer(2)
        back = resume(env, "corner")
        said = target.answer()
        detail = done.stderr.strip() or back.stderr.strip() or f"{early!r} while it was away, {said!r} afterwards"
        is_held = done.returncode == back.returncode == 0 and not early and said == "same"
        check("a synchronise while suspended waits", is_held, detail)


def stopped(env):
    """SIGSTOP before a suspend, and while suspended."""
    with Target(env, "plain", name="corner") as target:
        os.kill(target.process.pid, signal.SIGSTOP)
        time.sleep(1)
        done = suspend(env, "corner")
        os.kill(target.process.pid, signal.SIGCONT)
        is_refused = done.returncode == 1 and "is stopped" in done.stderr
        wrong = target.wrong()
        check("suspend of a stopped process: refused", is_refused and not wrong, wrong or done.stderr.strip())
        first = suspend(env, "corner")
        os.kill(target.process.pid, signal.SIGSTOP)
        time.sleep(1)
        refused = resume(env, "corner", "--on-full", "fail")
        os.kill(target.process.pid, signal.SIGCONT)
        back = resume(env, "corner")
        wrong = target.wrong()
        codes = (first.returncode, refused.returncode, back.returncode)
        check("resume of a stopped process: once it goes on", codes == (0, 1, 0) and not wrong, wrong or str(codes))


def helpers(env):
    """The broker's helpers for the checkpoint API."""
    status = json.loads(shell([PARTAGE, "broker", "status", "--json"], env=env).stdout)
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = (entry / "stat").read_text().rsplit(") ", 1)[1].split(" ")[1]
        except (OSError, IndexError):
            continue
        if b"--checkpoint-helper" in words and int(parent) == status["broker"]["pid"]:
            found.append(int(entry.name))
    return found


def killed_helpers(env):
    """A helper is killed at random moments of suspends and resumes; in the end every byte is there."""
    rounds, killed = max(2, 40 // LESS), 0
    draw = random.Random(17)
    with Target(env, "plain", name="corner", total=GIB if options.rehearse else 4 * GIB) as target:
        began = time.monotonic()
        suspend(env, "corner"), resume(env, "corner")
        took = time.monotonic() - began
        for number in range(rounds):
            verb = ("suspend", "resume")[number % 2]
            command = subprocess.Popen([PARTAGE, verb, "corner"], env=env, stderr=subprocess.DEVNULL)
            time.sleep(draw.uniform(0, took / 2))
            for pid in helpers(env):
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
            command.wait(timeout=PATIENCE_S * 4)
        until, state = time.monotonic() + PATIENCE_S, ""
        while time.monotonic() < until:
            jobs = json.loads(shell([PARTAGE, "ps", "--json"], env=env).stdout)["jobs"]
            state = next((job["state"] for job in jobs if job["name"] == "corner"), "gone")
            if state in ("running", "suspended"):
                break
            time.sleep(0.5)
        back = resume(env, "corner")
        wrong = target.wrong()
        measured["helpers killed"] = {"rounds": rounds, "killed": killed}
        check(f"{killed} helpers killed in {rounds} commands", not wrong, wrong or f"{state}, {back.stderr.strip()}")


def room(env):
    """A process of no job took the room: the driver is not asked for the restore."""
    size = GIB if options.rehearse else 8 * GIB
    with Target(env, "plain", name="corner", total=size) as target:
        first = suspend(env, "corner")
        # It leaves half of what the job needs.
        with Target(env, "holds", total=size // 2):
            refused = resume(env, "corner", "--on-full", "fail")
            why = shell([PARTAGE, "why", "corner"], env=env).stdout
        codes = (first.returncode, refused.returncode, resume(env, "corner", "--wait-timeout", "30s").returncode)
        wrong = target.wrong()
        is_fine = codes == (0, 1, 0) and "poisoned" not in why and not wrong
        check("resume without room: refused, and later back", is_fine, wrong or f"{codes}: {refused.stderr.strip()}")


def closed_caller(env):
    """A caller that its user can neither trace nor read, as a managed broker's helper of another user is: first one
    that its user cannot signal either, and where the driver refuses that one, one that is wholly its user's."""
    name = "a caller that its user cannot trace"
    if os.geteuid() or options.rehearse:
        return skip(name, "needs root and a GPU; the case a_managed_broker_acts_for_each_job_as_its_user is like it")
    uid = 65534
    served = {}
    for kind, caller in {"effectively the user's": [str(uid)], "wholly the user's": [str(uid), "wholly"]}.items():
        with Target(env, "plain", before=("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")) as target:
            said = driver(env, target.process.pid, "lock", "checkpoint", "restore", "unlock", caller=caller)
            wrong = target.wrong()
            measured[f"{name}, {kind}"] = said
            served[kind] = wrong or said
    is_served = any(isinstance(said, dict) and said.get("unlock") == "0" for said in served.values())
    check(f"{name} is served, one way or the other", is_served, json.dumps(served))


def corners(work):
    env = environment(work)
    for part in (maps, modes, exported, first_call, stopped, killed_helpers, room, closed_caller):
        try:
            part(env)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            # One surprise must not take the other corners' answers with it.
            check(f"corner {part.__name__}", False, f"{type(error).__name__}: {error}")
