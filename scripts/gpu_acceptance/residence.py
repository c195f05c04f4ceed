# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/gpu-acceptance in which a job is suspended and comes back."""
import json
import os
import shutil
import subprocess
import sys
import time

from gpu_acceptance.residence_corners import corners
from gpu_acceptance.session import GIB, LESS, PARTAGE, ROOT, check, environment, measured, options, shell, skip
from gpu_acceptance.stages import back, stages, stood


def suspended(env, name, cycles, say):
    """Suspends and resumes a job so often; answers the seconds of each, or why not. `say` answers what is wrong."""
    seconds = {"suspend": [], "resume": []}
    for _ in range(cycles):
        for verb in ("suspend", "resume"):
            began = time.monotonic()
            done = shell([PARTAGE, verb, name], limit=240, env=env)
            if done.returncode:
                return None, done.stderr.strip()
            seconds[verb].append(time.monotonic() - began)
        answer = say()
        if answer:
            return None, answer
    return seconds, ""


def sizes(work):
    """1, 16 and 64 GiB: off the GPU and back, with GB/s, every byte compared."""
    env = environment(work)
    program = str(ROOT / "cuda-tests/programs/gpu_suspend.py")
    for gib in (1,) if options.rehearse else (1, 16, 64):
        name = f"suspend {gib} GiB"
        command = [PARTAGE, "run", "-q", "--name", "moved", "--", sys.executable, program, str(gib * GIB)]
        job = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if job.stdout.readline() != "up\n":
                skip(name, "the GPU has no room for it")
                continue

            def same():
                job.stdin.write("\n")
                job.stdin.flush()
                said = job.stdout.readline().strip()
                return "" if said == "same" else said or "the program ended"

            seconds, why = suspended(env, "moved", max(1, 3 // LESS), same)
            if seconds is None and "host memory" in why:
                skip(name, why)
                continue
            check(name, seconds is not None, why or "every byte is what it was")
            if seconds:
                rate = {verb: round(gib * GIB / min(took) / 1e9, 2) for verb, took in seconds.items()}
                measured[name] = {"seconds": seconds, "gigabytes_per_second": rate}
                print(f"rate   {name}: {rate}", flush=True)
        finally:
            job.kill()
            job.wait()


def saved(work):
    """A job is saved by a CRIU that was carried here, killed, and restored: every byte compared."""
    name = "checkpoint and restore with CRIU, 1 GiB"
    criu = os.environ.get("PARTAGE_CRIU") or shutil.which("criu")
    if not criu or os.geteuid():
        return skip(name, "needs root, and CRIU 4.2 or later in PATH or PARTAGE_CRIU")
    env = environment(work) | {"PARTAGE_CRIU": criu}
    folder = str(work / "snapshot")
    command = [sys.executable, str(ROOT / "cuda-tests/programs/gpu_suspend.py"), str(GIB)]
    pipes = {"env": env, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    # CRIU saves nothing of a session that began outside this pid namespace, as a container's entry leaves one.
    job = subprocess.Popen([PARTAGE, "run", "-q", "--name", "saved", "--", *command], start_new_session=True, **pipes)
    again = None
    try:
        job.stdout.readline()
        began = time.monotonic()
        done = shell([PARTAGE, "checkpoint", "saved", "--out", folder], limit=240, env=env)
        seconds = {"checkpoint": time.monotonic() - began}
        if done.returncode:
            return check(name, False, done.stderr.strip())
        seconds |= {"stood": stood(done.stdout), "its stages": stages(done.stdout)}
        job.kill()
        job.wait()
        began = time.monotonic()
        again = subprocess.Popen([PARTAGE, "restore", folder], **pipes)
        answer, _ = again.communicate(b"\n", timeout=240)
        seconds["restore"] = time.monotonic() - began
        seconds["the stages of its return"] = back(shell([PARTAGE, "events"], env=env).stdout)
        measured[name] = seconds
        are_said = bool(seconds["stood"] and seconds["its stages"] and seconds["the stages of its return"])
        check(f"{name}: the stages are said", are_said, json.dumps(seconds))
        is_same = answer == b"same\n" and again.returncode == 0
        check(name, is_same, answer.decode().strip() or f"exit {again.returncode}")
    finally:
        for process in (job, again):
            if process:
                process.kill()
                process.wait()


def interrupted(env, name, program, cycles):
    """A program that says when it has begun, and at its end what it came to: alone, and suspended so often."""
    alone = shell(program, limit=120, env=env).stdout
    command = [PARTAGE, "run", "-q", "--name", "moved", "--", *program]
    job = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        first = job.stdout.readline()
        seconds, why = suspended(env, "moved", cycles, lambda: "")
        rest = job.communicate(timeout=180)[0]
        check(f"{name}: {cycles} cycles", seconds is not None, why or json.dumps(seconds)[:200])
        check(f"{name}: the same to the last bit", first + rest == alone, (first + rest)[-120:])
    finally:
        job.kill()
        job.wait()


def torch(work):
    """PyTorch's training over ten cycles, with each allocator: the same loss to the last bit."""
    if shell([sys.executable, "-c", "import torch"]).returncode:
        return skip("suspend PyTorch", "not installed here")
    script = """
import sys, torch
torch.manual_seed(0); torch.use_deterministic_algorithms(True)
m = torch.nn.Sequential(torch.nn.Linear(512,2048), torch.nn.ReLU(), torch.nn.Linear(2048,8)).cuda()
o = torch.optim.Adam(m.parameters(), lr=.001); x = torch.randn(4096,512).cuda()
y = torch.randint(0,8,(4096,)).cuda(); kept = torch.arange(1 << 28, device="cuda")
print("up", flush=True)
for step in range(int(sys.argv[1])):
    o.zero_grad(); l = torch.nn.functional.cross_entropy(m(x), y); l.backward(); o.step()
print(l.item().hex(), int(kept.sum().item()), flush=True)
"""
    kinds = {"default": "", "expandable segments": "expandable_segments:True", "pools": "backend:cudaMallocAsync"}
    for kind, setting in kinds.items():
        env = environment(work) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if setting:
            env |= {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting}
        interrupted(env, f"suspend PyTorch, {kind}", [sys.executable, "-c", script, "20000"], 10)


def replayed(work):
    """A captured graph is replayed before, between and after suspends: the same to the last bit."""
    if shell([sys.executable, "-c", "import torch"]).returncode:
        return skip("suspend a graph that is replayed", "PyTorch is not installed here")
    script = """
import sys, torch
torch.manual_seed(0)
w = torch.randn(2048, 2048, device="cuda"); v = torch.randn(2048, 2048, device="cuda") / 64
def step():
    w.copy_(torch.tanh(w @ v))
side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
print("up", flush=True)
for _ in range(int(sys.argv[1])):
    graph.replay()
torch.cuda.synchronize()
print(w.double().sum().item().hex(), flush=True)
"""
    env = environment(work)
    interrupted(env, "suspend a graph that is replayed", [sys.executable, "-c", script, "40000"], 3)


def checkpoint(work):
    sizes(work)
    saved(work)
    corners(work)
    torch(work)
    replayed(work)
