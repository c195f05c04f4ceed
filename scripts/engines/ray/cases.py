# SPDX-License-Identifier: Apache-2.0
"""What Ray divides holds: each case is a program of Ray's user, and says in a sentence what it saw.

usage: cases.py NAME      inside a simulated machine; `try.py` makes one for each case
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import partage
import partage.ray
import ray

from gpu import UNIT, Gpu, check

GIB = 1 << 30
CARD = 16 * GIB
QUARTER = CARD // 4
PATIENCE = 60
# A program that a task starts: what it sees of its GPU, and how much of that it gets.
CHILD = pathlib.Path(__file__).with_name("gpu.py").resolve()


@ray.remote
class Trainer:
    """An actor that holds its GPU."""

    def __init__(self):
        self.gpu = Gpu()

    def all(self):
        return self.gpu.all()

    def ids(self):
        context = ray.get_runtime_context()
        return {"actor": context.get_actor_id(), "gpus": ray.get_gpu_ids(), **self.gpu.seen}

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


def part(num_gpus=0.25, **share):
    return partage.ray.options(num_gpus=num_gpus, **share)


def live(count):
    """The machine's jobs, once there are so many."""
    def found():
        jobs = partage.jobs()
        return [jobs] if len(jobs) == count else None
    return wait(f"{count} jobs", found)[0]


def wait(what, condition):
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        check(time.monotonic() < until, f"{what}: not within {PATIENCE} s", partage.jobs())
        time.sleep(0.05)
    return found


def is_quarter(seen):
    """It saw a quarter as its card, and got that and no more; the rest of it is its context's."""
    (device,) = next(job for job in partage.jobs() if seen["pid"] in pids(job)).devices
    check((seen["count"], seen["total"], device.limit_bytes) == (1, QUARTER, QUARTER), seen, device)
    overhead = device.used_bytes - seen["taken"]
    check(0 <= overhead < QUARTER // 2, seen, device)
    check(QUARTER - UNIT <= seen["taken"] + overhead <= QUARTER, seen, device)


def pids(job):
    return [client["pid"] for client in job.document["clients"]]


def division():
    """Four actors of a quarter each, at once."""
    actors = [Trainer.options(**part()).remote() for _ in range(4)]
    ids = ray.get([actor.ids.remote() for actor in actors])
    jobs = live(4)
    seen = ray.get([actor.all.remote() for actor in actors])
    for one in seen:
        is_quarter(one)
    names = sorted(f"ray:{one['actor']}" for one in ids)
    check(sorted(job.document["engine"]["id"] for job in jobs) == names, names, jobs)
    check({job.name for job in jobs} == {f"Trainer-{one['actor'][:6]}" for one in ids}, jobs)
    check({job.document["engine"]["words"] for job in jobs} == {"Trainer, 0.25 GPU"}, jobs)
    check([job.document["terms"]["promise"] for job in jobs] == [0.25] * 4, jobs)
    said = subprocess.run([partage.program(), "why", names[0]], capture_output=True, text=True)
    check(said.returncode == 0 and "4 GiB" in said.stdout, said)
    # A fifth is Ray's to keep waiting.
    fifth = Trainer.options(**part()).remote()
    ready, _ = ray.wait([fifth.ids.remote()], timeout=1)
    check(not ready and len(partage.jobs()) == 4, partage.jobs())
    ray.kill(actors[0])
    check(ray.get(fifth.all.remote())["total"] == QUARTER)
    return f"four actors took {min(one['taken'] for one in seen) / GIB:.2f} GiB each, and no more"


def killed():
    """A task and an actor whose workers are killed, and begin again."""
    marker = pathlib.Path("died").absolute()

    @ray.remote(max_retries=2, **part())
    def train():
        seen = Gpu().all()
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return seen

    # The others leave it no other room than its own.
    others = [Trainer.options(**part()).remote() for _ in range(3)]
    ray.get([other.ids.remote() for other in others])
    seen = ray.get(train.remote())
    check(marker.exists() and seen["total"] == QUARTER and seen["taken"] > QUARTER // 2, seen)
    actor = Trainer.options(max_restarts=1, max_task_retries=1, **part()).remote()
    before = ray.get(actor.ids.remote())
    actor.die.options(max_task_retries=0).remote()
    wait("another process", lambda: ray.get(actor.ids.remote())["pid"] != before["pid"])
    after = ray.get(actor.all.remote())
    is_quarter(after)
    check([job.document["engine"]["id"] for job in live(4)].count(f"ray:{before['actor']}") == 1, partage.jobs())
    for one in [*others, actor]:
        ray.kill(one)
    live(0)
    return "a task was tried again and an actor restarted, each in its quarter"


def refused():
    """What cannot be, said at once in Partage's words."""
    took = []
    for share, said in (
        ({"mem": "8"}, "did you mean 8% or 8GiB"),
        ({"compute": "200%"}, "--compute"),
        ({"memory": "8GiB"}, "has no 'memory'; did you mean 'mem"),
    ):
        began = time.monotonic()
        try:
            ray.get(Trainer.options(num_gpus=0.25, runtime_env={"gpu_share": share}).remote().ids.remote())
        except ray.exceptions.RuntimeEnvSetupError as error:
            check(said in str(error), error)
        else:
            raise AssertionError(f"{share} was taken")
        took.append(time.monotonic() - began)
    # The machine is busy with other things at times.
    check(min(took) < 2, took)
    return f"three wrong values, refused in {min(took):.1f} s"


class Holder:
    """A job of the same user outside of Ray."""

    def __init__(self, mem, gpu):
        words = [partage.program(), "run", "-q", "-m", mem, "-g", str(gpu), "--", "cat"]
        before = len(partage.jobs())
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE)
        live(before + 1)

    def end(self):
        self.process.communicate()


def full():
    """No room, because others have it: the task fails with the sentence, or waits."""
    holder = Holder("14GiB", 0)

    @ray.remote
    def train():
        return Gpu().all()

    try:
        ray.get(train.options(**part(wait_timeout="1s")).remote())
    except partage.PartageError as error:
        check("GPU 0 has" in str(error) and "held by j1 14 GiB" in str(error), error)
        said = str(error.cause)
    else:
        raise AssertionError("there was room")
    check(len(partage.jobs()) == 1, partage.jobs())
    try:
        ray.get(Trainer.options(**part(wait_timeout="1s")).remote().ids.remote())
    except ray.exceptions.ActorDiedError as error:
        check("held by j1 14 GiB" in str(error), error)
    else:
        raise AssertionError("there was room")
    # Ray tries again what it is told to.
    again = train.options(max_retries=20, retry_exceptions=[partage.PartageError], **part(wait_timeout="1s")).remote()
    check(not ray.wait([again], timeout=4)[0], "it is tried again")
    ray.cancel(again)
    waiting = train.options(**part()).remote()
    check(not ray.wait([waiting], timeout=2)[0], "it waits")
    holder.end()
    check(ray.get(waiting)["total"] == QUARTER)
    return f"`{said}`"


def choice():
    """Two GPUs: Ray chooses, and Partage has the job there."""
    # Partage alone would choose GPU 1 now.
    holder = Holder("4GiB", 0)
    actors = [Trainer.options(**part(0.5, mem="25%")).remote() for _ in range(3)]
    all_ids = ray.get([actor.ids.remote() for actor in actors])
    places = []
    for ids in all_ids:
        (job,) = [job for job in partage.jobs() if ids["pid"] in pids(job)]
        (device,) = job.devices
        check([device.index] == ids["gpus"], ids, job)
        check(device.uuid.removeprefix("GPU-").replace("-", "") == ids["uuid"], ids, job)
        places.append(device.index)
    check(sorted(places) == [0, 0, 1] or sorted(places) == [0, 1, 1], places)
    check(0 in places, places)
    for actor in actors:
        ray.kill(actor)
    holder.end()
    live(0)
    # Whole GPUs: a job without a limit on each that Ray chose.
    both = Trainer.options(**part(2)).remote()
    ids = ray.get(both.ids.remote())
    (job,) = live(1)
    check((ids["count"], ids["total"]) == (2, CARD) and len(job.devices) == 2, ids, job)
    check([device.limit_bytes for device in job.devices] == [None, None], job)
    return f"three halves on GPUs {places}, as Ray chose, and two whole ones"


choice.gpus = 2


def visible():
    """A cluster that has one GPU of two, by its variable."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    begin()
    actors = [Trainer.options(**part(0.5)).remote() for _ in range(2)]
    for ids in ray.get([actor.ids.remote() for actor in actors]):
        (job,) = [job for job in partage.jobs() if ids["pid"] in pids(job)]
        check([device.index for device in job.devices] == [1] and ids["total"] == CARD // 2, ids, job)
        check(job.devices[0].uuid.removeprefix("GPU-").replace("-", "") == ids["uuid"], ids, job)
    return "two halves on GPU 1 of CUDA_VISIBLE_DEVICES=1 ray start"


visible.gpus = 2


def inside():
    """A cluster that runs inside a job: that one's limit is for all of it."""
    words = [partage.program(), "run", "-q", "-m", "50%", "--", sys.executable, __file__, "within"]
    done = subprocess.run(words, capture_output=True, text=True)
    check(done.returncode == 0, done.stdout, done.stderr)
    return done.stdout.splitlines()[-1]


def within():
    """The cluster of `inside`."""
    begin()
    actors = [Trainer.options(**part()).remote() for _ in range(2)]
    totals = [ids["total"] for ids in ray.get([actor.ids.remote() for actor in actors])]
    jobs = live(1)
    check(totals == [CARD // 2] * 2, totals, jobs)
    return "two actors in the half of a card that `partage run` gave the cluster"


def forgery():
    """A task's programs that set, unset and leave what they can."""
    @ray.remote
    def train():
        gpu = ["PARTAGE_SIM_DIR", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME"]
        plain = [f"{name}={os.environ[name]}" for name in gpu]
        library = f"LD_PRELOAD={os.environ['LD_PRELOAD']}"
        child = [sys.executable, str(CHILD)]
        ways = {
            "as it is": [],
            "forged": ["env", f"PARTAGE_MEM_BYTES={CARD}", "PARTAGE_MEM=16GiB", "CUDA_DEVICE_MEMORY_LIMIT=16g"],
            "another token": ["env", "-u", "PARTAGE_DEVICES", f"PARTAGE_TOKEN={'f' * 64}"],
            "its own run": [partage.program(), "run", "-q", "-m", "16GiB", "--"],
            "setsid": ["setsid", "--wait", "env", "-i", *plain, library],
            "no parents": ["env", "-i", *plain, library],
        }
        seen = {}
        for name, way in ways.items():
            note = pathlib.Path(f"note-{name}").absolute()
            script = '"$@" >"$0.part" 2>&1; mv "$0.part" "$0"'
            words = ["sh", "-c", f"({script}) &" if name == "no parents" else script, str(note), *way, *child]
            subprocess.run(words, check=True, timeout=PATIENCE)
            until = time.monotonic() + PATIENCE
            while not note.exists() and time.monotonic() < until:
                time.sleep(0.05)
            seen[name] = note.read_text()
        return seen

    seen = ray.get(train.options(**part()).remote())
    for name, text in seen.items():
        try:
            one = json.loads(text.splitlines()[-1])
        except (ValueError, IndexError):
            raise AssertionError(f"{name}: {text}") from None
        check(one["total"] == QUARTER and QUARTER // 2 < one["taken"] <= QUARTER, name, one)
    return f"{len(seen)} ways out led nowhere: {', '.join(seen)}"


def started():
    """A cluster that `ray start` started, as the page has it."""
    page = (pathlib.Path(__file__).parents[3] / "docs/guides/engines/ray.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("RAY_RUNTIME_ENV_PLUGINS="))
    words = f"{line.partition(' ray start ')[0]} exec ray start --head --port=0 --block"
    with open("cluster", "wb") as log:
        cluster = subprocess.Popen(["bash", "-c", words], stdout=log, stderr=log, start_new_session=True)
    try:
        def address():
            said = pathlib.Path("cluster").read_text(errors="replace")
            check(cluster.poll() is None, said)
            found = [word for text in said.splitlines() for word in text.split() if word.startswith("--address=")]
            return found and found[0].partition("=")[2].strip("'")
        ray.init(address=wait("the cluster", address), logging_level="error")
        seen = ray.get(Trainer.options(**part()).remote().all.remote())
        check(seen["total"] == QUARTER, seen)
        ray.shutdown()
    finally:
        cluster.terminate()
        cluster.wait(timeout=PATIENCE)
    return f"`{line}`"


def ruled():
    """The node's rules come first: what they forbid, Ray's user does not get by `gpu_share`."""
    rules = pathlib.Path("rules.toml").absolute()
    rules.write_text('schema = 1\n\n[[rule]]\nname = "small"\nmax = { mem = "2GiB" }\n')
    program = pathlib.Path(partage.program()).resolve().with_name("partaged")
    words = [program, "--managed", "--config", rules, "--socket-dir", os.environ["PARTAGE_SOCKET_DIR"]]
    with open("broker", "wb") as log:
        environment = os.environ | {"PARTAGE_PID_NAMESPACE": "any"}
        broker = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
    try:
        status = [partage.program(), "status"]
        wait("the broker", lambda: subprocess.run(status, capture_output=True).returncode == 0)
        begin()

        @ray.remote
        def train():
            return Gpu().all()

        try:
            ray.get(train.options(**part()).remote())
        except partage.PartageError as error:
            said = str(error.cause)
            check("the rule small, max.mem = 2GiB" in said, error)
        else:
            raise AssertionError("the rule did not hold")
        seen = ray.get(train.options(**part(mem="2GiB")).remote())
        check(seen["total"] == 2 * GIB and seen["taken"] < 2 * GIB, seen)
    finally:
        broker.kill()
        broker.wait()
    return f"`{said}`"


def begin():
    """A cluster of this program's own."""
    partage.ray.init(num_cpus=8, include_dashboard=False, logging_level="error")


for one in (visible, inside, within, started, ruled):
    one.begins = True
ALL = (division, killed, refused, full, choice, visible, inside, forgery, started, ruled)
CASES = {case.__name__: case for case in ALL}


def main():
    case = {**CASES, "within": within}[sys.argv[1]]
    if not getattr(case, "begins", False):
        begin()
    said = case()
    ray.shutdown()
    print(said)


if __name__ == "__main__":
    main()
