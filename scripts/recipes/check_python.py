# SPDX-License-Identifier: Apache-2.0
"""The recipes of what starts Python programs: Jupyter, torchrun and Ray."""
import json
import pathlib
import subprocess

from machine import check, limits, sees

NOTEBOOK = pathlib.Path(__file__).with_name("notebook.py")


def jupyter(machine, page, tools):
    page.file("jupyter", machine.home)
    machine.let_go()
    done = subprocess.run(
        [tools.python, NOTEBOOK, "quarter", page.typed("jupyter")],
        cwd=machine.home, env=machine.environment, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, done.stdout[-2000:], done.stderr[-2000:])
    said = json.loads(done.stdout.splitlines()[-1])
    first, again = machine.seen(2)
    for note, pid in zip((first, again), said["pids"], strict=True):
        sees(note, 4)
        check(note["pid"] == pid, "run becomes the kernel", note, pid)
    check("4 GiB" in said["first"] and "running" in said["first"], "partage ps in the cell", said)
    check(said["interrupted"] == "KeyboardInterrupt", said)
    jobs = machine.jobs("--all")
    check([limits(job) for job in jobs] == [[4]] * 2, "a job for each start of the kernel", jobs)
    return f"ipykernel {said['ipykernel']}, jupyter_client {said['jupyter_client']}: start, cell, restart, interrupt"


def has(tools, module):
    """Is the package among the large ones that an earlier --large installed?"""
    python = pathlib.Path(tools.large, "python")
    test = [python, "-c", f"import importlib.metadata as m; print(m.version({module!r}))"]
    return subprocess.run(test, capture_output=True, text=True).stdout.strip() if python.exists() else None


def torchrun(machine, page, tools):
    version = has(tools, "torch")
    if not version:
        return None, "PyTorch is not installed; scripts/recipes/try --large installs it (3 GB)"
    for recipe, devices in (("torchrun", [2, 2]), ("torchrun-each", [1, 1])):
        machine.forget()
        launcher = machine.start(["/bin/bash", "-euc", page.typed(recipe)])
        for note in machine.seen(2):
            sees(note, 4, devices=devices[0])
        jobs = machine.working(1 if recipe == "torchrun" else 2)
        check(sorted(sum(map(limits, jobs), [])) == [4, 4], "4 GiB on each of two GPUs", jobs)
        machine.let_go()
        check(launcher.wait(timeout=60) == 0, machine.output()[-2000:])
    return f"torchrun of PyTorch {version}, workers of the driver API"


def ray(machine, page, tools):
    version = has(tools, "ray")
    if not version:
        return None, "Ray is not installed; scripts/recipes/try --large installs it"
    program = page.file("ray", machine.home)
    cluster = machine.start(["python", str(program)])
    for note in machine.seen(2):
        sees(note, 4)
    jobs = machine.working(2)
    check([limits(job) for job in jobs] == [[4], [4]], jobs)
    machine.let_go()
    check(cluster.wait(timeout=60) == 0, machine.output()[-2000:])
    # The same program without an environment for its workers, the cluster inside a job.
    text = program.read_text()
    check(text.count(", runtime_env=limited") == 1, "the page's program", text)
    (machine.home / "train_plain.py").write_text(text.replace(", runtime_env=limited", ""))
    machine.forget()
    cluster = machine.start(["/bin/bash", "-euc", page.typed("ray-shared")])
    for note in machine.seen(2):
        sees(note, 8)
    jobs = machine.working(1)
    check(limits(jobs[0]) == [8, 8], jobs)
    machine.let_go()
    check(cluster.wait(timeout=60) == 0, machine.output()[-2000:])
    return f"Ray {version}: a local cluster, a job for each worker and one for all"
