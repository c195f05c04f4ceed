# SPDX-License-Identifier: Apache-2.0
"""What Slurm divides holds: each case gets a node and says in a sentence what it saw."""
import os
import shutil
import signal

from node import ALICE, CARD, GIB

NAMES = ("division", "forgery", "steps", "limit", "ends", "rule", "hang", "away", "optional", "library")
# Limits are whole units of the driver's.
UNIT = 2 << 20
# How many windows of the device's time are judged at most.
WINDOWS = 8


def part_of(shards):
    return CARD * shards // 10 // UNIT * UNIT


def number_of(node, name):
    """Slurm's number of a running job that was submitted under this name."""
    def found():
        said = node.cluster.said("squeue", "-h", "-t", "running", "-n", name, "-o", "%i").split()
        return said[0] if said else None
    return node.wait(f"a job {name}", found)


def check(condition, *facts):
    """An assertion that shows the facts."""
    assert condition, "; ".join(map(str, facts))


def has(node, client, name, shards, gpu):
    """The job has what its shards are worth, by Partage's word, its own, and the driver's count."""
    number = number_of(node, name)
    job = node.job(number)
    device = job["devices"][0]
    seen = (len(job["devices"]), device["index"], device["limit_bytes"], device["request_bytes"])
    check(seen == (1, gpu, part_of(shards), part_of(shards)), seen, job)
    check(job["engine"] == {"id": f"slurm:{number}", "words": f"shard:{shards} of 10"}, job["engine"])
    before = node.used(gpu)
    check(client.total() == part_of(shards), client.total())
    taken = client.exhaust()
    overhead = device["used_bytes"]
    node.wait(f"the driver counts what {name} took", lambda: node.used(gpu) - before == taken)
    # The last block that is tried is 1 MiB, and the driver gives whole units.
    check(part_of(shards) - UNIT <= taken + overhead <= part_of(shards), taken, overhead, part_of(shards))
    return number


def wanting(node, *options):
    """A program that always wants the GPU."""
    words = ["env", f"TIME_CLIENT_KERNELS={node.home}/kernels", node.home / "time_client", "0", "kernel", "500000"]
    return node.cluster.begin("srun", "--quiet", *options, *words, user=ALICE)


def used_ns(node, number):
    spent = node.job(number)["devices"][0]["time"]
    return spent["used_ns"] if spent else 0


def time_is(node, gpu):
    """Five and three shards that both always want the GPU get device time as 5 to 3, within 2 points."""
    both = [wanting(node, f"--job-name=wants{shards}", f"--gres=shard:{shards}") for shards in (5, 3)]
    numbers = [number_of(node, f"wants{shards}") for shards in (5, 3)]
    node.wait("both are jobs", lambda: len(node.jobs()) >= 2 + gpu)
    indices = [node.job(number)["devices"][0]["index"] for number in numbers]
    check(indices == [gpu, gpu], indices)
    node.wait("both are at work", lambda: all(used_ns(node, number) > 500_000_000 for number in numbers))
    # A program that this machine does not let run for a while wants nothing meanwhile: then the next window is judged.
    shares = []
    while not shares or abs(shares[-1] - 0.625) > 0.02:
        check(len(shares) < WINDOWS, "no window of the device's time was 5 to 3", shares)
        before = [used_ns(node, number) for number in numbers]

        def spent():
            return [used_ns(node, number) - was for number, was in zip(numbers, before)]
        node.wait("four seconds of the device", lambda: sum(spent()) > 4_000_000_000)
        now = spent()
        shares.append(now[0] / sum(now))
    for one in both:
        one.kill()
        one.wait()
    node.cluster.run("scancel", "-f", *numbers)
    return shares[-1]


def division(node):
    """Five and three of ten shards on each GPU: memory by three counts, and time."""
    shares = []
    for gpu in (0, 1):
        blocker = None
        if gpu == 1:
            # All of GPU 0, so that what comes is on GPU 1.
            blocker = node.client("--job-name=whole", "--gres=shard:10")
        both = [(shards, node.client(f"--job-name=has{shards}", f"--gres=shard:{shards}")) for shards in (5, 3)]
        for shards, client in both:
            has(node, client, f"has{shards}", shards, gpu)
        for _, client in both:
            client.end()
        node.wait("they are gone", lambda: len(node.jobs()) == (gpu == 1))
        shares.append(time_is(node, gpu))
        if blocker:
            blocker.end()
        node.wait("all are gone", lambda: not node.jobs())
    # A whole GPU has no limit.
    whole = node.client("--job-name=gpu", "--gres=gpu:1")
    job = node.job(number_of(node, "gpu"))
    check(job["devices"][0]["limit_bytes"] is None and job["engine"]["words"].startswith("gpu:"), job)
    whole.end()
    return f"8 and 4.8 of 16 GiB, time {shares[0]:.3f} and {shares[1]:.3f} of 0.625"


def batch(node, script, *options):
    """What a batch script of Alice's printed."""
    output = node.home / "batch"
    output.unlink(missing_ok=True)
    output.touch()
    os.chown(output, ALICE, ALICE)
    words = ["sbatch", "--wait", "--quiet", f"--output={output}", *options, f"--wrap={script}"]
    code, said = node.cluster.run(*words, user=ALICE)
    return f"{code} {said} {output.read_text()}"


def forgery(node):
    """Nothing that a user sets, unsets or starts gains anything."""
    forged = {name: "20" for name in ("SLURM_SHARDS_ON_NODE",)}
    forged |= {name: "1" for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")}
    forged |= {"SPANK_PARTAGE_GPU_MEM": "16GiB", "_SLURM_SPANK_OPTION_partage_gpu-mem": "16GiB", "PARTAGE_MEM": "16GiB",
               "PARTAGE_MEM_BYTES": str(CARD)}
    export = ",".join(["ALL", *(f"{name}={value}" for name, value in forged.items() if not name.startswith("_"))])
    driver = [f"{name}={value}" for name, value in node.driver.items()]
    ways = {
        "unset": ["env", "-i", *driver],
        "setsid": ["setsid", "--wait"],
        "setsid and nothing": ["setsid", "--wait", "env", "-i", *driver],
        "limit by variable": ["env", f"PARTAGE_MEM_BYTES={CARD}", f"CUDA_DEVICE_MEMORY_LIMIT={16}g"],
    }
    for name, inside in ways.items():
        client = node.client("--job-name=two", "--gres=shard:2", inside=inside)
        check(client.total() == part_of(2), name, client.total())
        taken = client.exhaust()
        check(taken <= part_of(2), name, taken)
        client.end()
        node.wait("it is gone", lambda: not node.jobs())
    for options in ([], [f"--export={export}"]):
        client = node.client("--job-name=two", "--gres=shard:2", *options, environment=forged)
        check(client.total() == part_of(2), options, client.total())
        client.end()
        node.wait("it is gone", lambda: not node.jobs())
    # A job without a GPU that says that it has one, and a batch script, whose variables are others than a step's.
    code, said = node.srun("--job-name=none", "true", environment=forged)
    check(code == 0 and not node.jobs(), code, said, node.jobs())
    get = f"{node.programs}/partage get slurm:$SLURM_JOB_ID 2>&1"
    script = f"echo $(echo total | {node.programs}/partage-demo-client); {get}"
    for options, words in (([], "no job called"), (["--gres=shard:2"], f"total {part_of(2)}")):
        said = batch(node, script, *options, f"--export={export}")
        check(words in said and "GPU 1" not in said, options, said)
    return f"{', '.join(ways)}, forged variables and options, a job without GPUs"


def allocated(node, name, shards):
    """Slurm's number of an allocation without a step."""
    code, said = node.cluster.run("salloc", "--no-shell", f"--job-name={name}", f"--gres=shard:{shards}", user=ALICE)
    check(code == 0, said)
    return number_of(node, name)


def steps(node):
    """Steps and tasks are one job, which nobody raises, from inside or outside."""
    # An srun that makes its own allocation ends that, and other steps, with its own.
    number = allocated(node, "many", 5)
    first = node.client(f"--jobid={number}")
    second = node.client(f"--jobid={number}", "--overlap", "--gres=shard:2")
    third = node.client(f"--jobid={number}", "--overlap", inside=["setsid", "--wait"])
    check(len(node.jobs()) == 1 and len(node.job(number)["clients"]) == 3, node.jobs())
    taken = sum(client.exhaust() for client in (first, second, third))
    check(taken < part_of(5), taken)
    inside = [node.programs / "partage", "set", f"slurm:{number}", "mem=16GiB"]
    outside = node.partage("set", f"slurm:{number}", "mem=16GiB", user=ALICE)
    for code, said in (node.srun(f"--jobid={number}", "--overlap", *inside), outside):
        check(code == 3, code, said)
    check("registration by root for slurm:" in outside[1] and "(shard:5 of 10)" in outside[1], outside)
    code, said = node.partage("why", f"slurm:{number}")
    check("root registered it for slurm:" in said and "shard:5 of 10" in said, said)
    # The first step ends; the job is the others'.
    first.end()
    node.wait("two are left", lambda: len(node.job(number)["clients"]) == 2)
    check(node.job(number)["devices"][0]["limit_bytes"] == part_of(5), node.job(number))
    for client in (second, third):
        client.end()
    node.cluster.run("scancel", number)
    node.wait("the job is over", lambda: not node.jobs())
    # An allocation keeps its room between its steps.
    number = allocated(node, "kept", 10)
    for _ in range(2):
        client = node.client(f"--jobid={number}")
        check(client.total() == CARD, client.total())
        client.end()
        check(node.job(number)["state"] == "running", node.jobs())
    node.cluster.run("scancel", number)
    node.wait("the allocation is over", lambda: not node.jobs())
    return "three steps of one job and an allocation between its steps"


def limit(node):
    """--gpu-mem lowers and never raises."""
    code, said = node.srun("--help")
    check("--gpu-mem=SIZE" in said, said[-2000:])
    client = node.client("--job-name=low", "--gres=shard:5", "--gpu-mem=2GiB")
    check(client.total() == 2 * GIB, client.total())
    client.end()
    node.wait("it is gone", lambda: not node.jobs())
    said = batch(node, f"echo $(echo total | {node.programs}/partage-demo-client)", "--gres=shard:5", "--gpu-mem=10%")
    check(f"total {part_of(1)}" in said, said)
    node.wait("it is gone", lambda: not node.jobs())
    said = batch(node, "echo it runs", "--gres=shard:5", "--gpu-mem=9GiB")
    check("it runs" not in said and not said.startswith("0 ") and "shard:5 of 10" in said, said)
    for asked in ("9GiB", "51%", "16GiB"):
        code, said = node.srun("--gres=shard:5", f"--gpu-mem={asked}", "true")
        check(code != 0 and "partage: " in said and "registration by root for slurm:" in said, asked, code, said)
    for asked, words in (("8", "has no unit"), ("x", "--gpu-mem=x"), ("8GiB; rm", "--gpu-mem=8GiB; rm")):
        code, said = node.srun("--gres=shard:5", f"--gpu-mem={asked}", "true")
        check(code != 0 and words in said, asked, code, said)
    return "2 GiB of 8; more, or what is no size, ends the step with Partage's sentence"


def ends(node):
    """However a job ends, its room is there again; broker and daemons may be gone meanwhile."""
    def over(what):
        node.wait(f"{what}: the room is there again", lambda: not node.jobs() and node.used(0) == idle)

    idle = node.used(0)
    for what in ("scancel", "kill", "broker killed", "daemons killed"):
        client = node.client("--job-name=ends", "--gres=shard:10")
        number = number_of(node, "ends")
        client.exhaust()
        pids = [process["pid"] for process in node.job(number)["clients"]]
        if what == "scancel":
            node.cluster.run("scancel", number)
        elif what == "broker killed":
            node.broker.kill()
            node.broker.wait()
            node.cluster.run("scancel", number)
            node.start_broker()
        else:
            if what == "daemons killed":
                node.cluster.kill(0, 1)
                # Nobody is left whom slurmstepd could tell that the step ended: it waits on, and with it the job.
                group = node.cluster.groups / f"uid_{ALICE}" / f"job_{number}"
                pids = [int(pid) for file in group.glob("**/cgroup.procs") for pid in file.read_text().split()]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        over(what)
        client.process.kill()
        client.process.wait()
    return "scancel, kill, broker and daemons killed"


def rule(node):
    """No engine raises what a rule of the node forbids."""
    code, said = node.srun("--gres=shard:5", "true")
    check(code != 0 and "rule quarter, max.mem = 4GiB" in said, code, said)
    client = node.client("--job-name=less", "--gres=shard:2")
    check(client.total() == part_of(2), client.total())
    client.end()
    return "the step ends with the rule's name"


rule.node = {"configuration": '[[rule]]\nname = "quarter"\nmatch = { cgroup = ["/slurm*"] }\nmax = { mem = "4GiB" }\n'}


def hang(node):
    """A command that hangs costs ten seconds and one step, and the node goes on."""
    node.write_command("sleep 600\n")
    code, said = node.srun("--gres=shard:5", "true")
    check(code != 0 and "partage did not answer within 10 s" in said, code, said)
    node.write_command()
    client = node.client("--job-name=next", "--gres=shard:5")
    check(client.total() == part_of(5), client.total())
    client.end()
    # What the plugin gave the command: nothing but what the shell of this case's script adds.
    names = {line.partition("=")[0] for line in (node.home / "environments").read_text().splitlines()}
    check(names <= {"PWD", "SHLVL", "_", "OLDPWD"}, names)
    return "the step ends with that sentence, the next one runs; the command's environment was empty"


def without_broker(node):
    node.broker.kill()
    node.broker.wait()
    shutil.rmtree("/run/partage")
    return node.srun("--gres=shard:5", "true")


def away(node):
    """Without a broker, `required` starts nothing."""
    code, said = without_broker(node)
    check(code != 0 and "no broker" in said, code, said)
    return "the step ends with that sentence"


def optional(node):
    """Without a broker, `optional` starts the step without a limit, and says so."""
    code, said = without_broker(node)
    check(code == 0 and "no broker" in said, code, said)
    return "the step runs, and its user reads the sentence"


optional.node = {"mode": "optional"}


def library(node):
    """On a node that does not preload it, the plugin puts the library into the task's environment."""
    client = node.client("--job-name=five", "--gres=shard:5")
    check(client.total() == part_of(5), client.total())
    client.end()
    code, said = node.srun("--gres=shard:5", "printenv", "LD_PRELOAD", environment={"LD_PRELOAD": "libm.so.6"})
    check(code == 0 and said.strip() == "/etc/libpartage.so:libm.so.6", said)
    return "LD_PRELOAD names it, before what the user preloads"


# A path that is there when plugstack.conf is written: a link to this case's own.
library.node = {"plugin": "library=/etc/libpartage.so"}
library.is_preloaded = False
