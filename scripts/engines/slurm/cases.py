# SPDX-License-Identifier: Apache-2.0
"""What Slurm divides holds: each case gets a node and says in a sentence what it saw."""
import os
import signal
import subprocess

from cluster import CPUS, PARTITIONS
from node import ALICE, CARD, GIB

NAMES = ("reading", "division", "forgery", "allocation", "steps", "limit", "suspend", "rule", "waits", "library",
         "prologue", "ends", "preemption", "interactive")
# Limits are whole units of the driver's.
UNIT = 2 << 20
# Two jobs of these shards on either GPU, in the order in which Slurm fills them.
PLACES = ((0, 5), (0, 3), (1, 5), (1, 3))
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


def all_gone(node):
    """The last job has ended."""
    node.wait("all are gone", lambda: not node.jobs())


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


def reading(node):
    """Texts of both cgroup versions and of the controller, those of other releases too."""
    code, said = node.reading()
    check(code == 0, code, said)
    return "paths of cgroup v1 and v2, and what a job has"


def times_are(node):
    """Five and three shards that both always want their GPU get device time as 5 to 3, within 2 points, on each GPU."""
    numbers, begun = {}, []
    for gpu, shards in PLACES:
        begun.append(wanting(node, f"--job-name=wants{gpu}{shards}", f"--gres=shard:{shards}"))
        numbers[gpu, shards] = number_of(node, f"wants{gpu}{shards}")
    node.wait("all are jobs", lambda: len(node.jobs()) == len(PLACES))
    for (gpu, shards), number in numbers.items():
        check(node.job(number)["devices"][0]["index"] == gpu, gpu, shards, node.job(number))

    def spent():
        return {place: used_ns(node, number) for place, number in numbers.items()}
    node.wait("all are at work", lambda: min(spent().values()) > 500_000_000)
    # A program that this machine does not let run for a while wants nothing meanwhile: then the next window is judged.
    seen = {0: [], 1: []}

    def is_right(gpu):
        return seen[gpu] and abs(seen[gpu][-1] - 0.625) <= 0.02
    while not (is_right(0) and is_right(1)):
        check(max(map(len, seen.values())) < WINDOWS, "no window of the device's time was 5 to 3", seen)
        before = spent()

        def window(gpu, now):
            return [now[gpu, shards] - before[gpu, shards] for shards in (5, 3)]

        def is_full():
            now = spent()
            return now if all(sum(window(gpu, now)) > 4_000_000_000 for gpu in seen) else None
        now = node.wait("four seconds of each device", is_full)
        for gpu in seen:
            if not is_right(gpu):
                five, three = window(gpu, now)
                seen[gpu].append(five / (five + three))
    node.cluster.run("scancel", "-f", *numbers.values())
    for one in begun:
        one.communicate(timeout=60)
    return seen[0][-1], seen[1][-1]


def division(node):
    """Five and three of ten shards on each GPU at once: memory by three counts, and time."""
    clients = []
    for gpu, shards in PLACES:
        clients.append(node.client(f"--job-name=has{gpu}{shards}", f"--gres=shard:{shards}"))
        has(node, clients[-1], f"has{gpu}{shards}", shards, gpu)
    for client in clients:
        client.end()
    all_gone(node)
    shares = times_are(node)
    all_gone(node)
    # A whole GPU has no limit.
    whole = node.client("--job-name=gpu", "--gres=gpu:1")
    job = node.job(number_of(node, "gpu"))
    check(job["devices"][0]["limit_bytes"] is None and job["engine"]["words"].startswith("gpu:"), job)
    whole.end()
    all_gone(node)
    return f"8 and 4.8 of 16 GiB, time {shares[0]:.3f} and {shares[1]:.3f} of 0.625"


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
    # Side by side, and so on both GPUs.
    clients = {name: node.client("--gres=shard:2", inside=inside) for name, inside in ways.items()}
    clients["forged"] = node.client("--gres=shard:2", environment=forged)
    clients["exported"] = node.client("--gres=shard:2", f"--export={export}", environment=forged)
    for name, client in clients.items():
        check(client.total() == part_of(2), name, client.total())
        taken = client.exhaust()
        check(taken <= part_of(2), name, taken)
    for client in clients.values():
        client.end()
    all_gone(node)
    # A job without a GPU that says that it has one, and a batch script, whose variables are others than a step's.
    code, said = node.srun("--job-name=none", "true", environment=forged)
    check(code == 0 and not node.jobs(), code, said, node.jobs())
    get = f"{node.programs}/partage get slurm:$SLURM_JOB_ID 2>&1"
    script = f"echo $(echo total | {node.programs}/partage-demo-client); {get}"
    for options, words in (([], "no job called"), (["--gres=shard:2"], f"total {part_of(2)}")):
        said = node.batch(script, *options, f"--export={export}")
        check(words in said and "GPU 1" not in said, options, said)
    return f"{', '.join(ways)}, forged variables and options, a job without GPUs"


def allocated(node, name, shards, *options):
    """Slurm's number of an allocation without a step."""
    code, said = node.cluster.run("salloc", "--no-shell", f"--job-name={name}", f"--gres=shard:{shards}", *options,
                                 user=ALICE)
    check(code == 0, said)
    return number_of(node, name)


def allocation(node):
    """An allocation has its room before, between and after its steps, and a step with fewer shards takes none of it."""
    number = allocated(node, "kept", 10)
    node.wait("the allocation is a job", node.jobs)
    job = node.job(number)
    device = job["devices"][0]
    check((device["limit_bytes"], device["request_bytes"]) == (CARD, CARD), job)
    check(job["user"] == "alice" and job["engine"]["words"] == "shard:10 of 10" and not job["clients"], job)
    outside = ["run", "-m", "1GiB", "--gpu", "0", "--on-full", "fail", "--", "true"]
    for shards in (10, 3):
        check(node.partage(*outside)[0] == 124, "another had its room")
        client = node.client(f"--jobid={number}", f"--gres=shard:{shards}")
        check(client.total() == CARD, client.total())
        client.end()
        node.wait("no step is left", lambda: not node.job(number)["clients"])
        check(node.job(number)["state"] == "running", node.jobs())
    node.cluster.run("scancel", number)
    all_gone(node)
    code, said = node.partage(*outside)
    check(code == 0, code, said)
    return "its room is nobody else's before and between its steps"


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
    return "three steps are one job, which nobody raises"


def is_held_by_nobody(node):
    """What lowers a limit as the job's user, outside of the job's group, is no process that the user can trace."""
    note = node.home / "setter"
    note.touch()
    note.chmod(0o666)
    node.write_command(f'case "$1" in set) echo $$ >{note}; sleep 3 ;; esac\n')
    step = node.cluster.begin("srun", "--quiet", "--gres=shard:5", "--gpu-mem=2GiB", "true", user=ALICE)
    pid = node.wait("the limit is lowered", lambda: note.read_text().strip())
    owner = os.stat(f"/proc/{pid}").st_uid
    words = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", "cat", f"/proc/{pid}/environ"]
    # The kernel asks here what it asks before a trace.
    done = subprocess.run(words, capture_output=True, text=True)
    said = step.communicate(timeout=60)[0]
    node.write_command()
    check(owner == ALICE and done.returncode and "Permission denied" in done.stderr, owner, done)
    check(step.returncode == 0, said)
    all_gone(node)


def limit(node):
    """--gpu-mem lowers and never raises."""
    code, said = node.srun("--help")
    check("--gpu-mem=SIZE" in said, said[-2000:])
    client = node.client("--job-name=low", "--gres=shard:5", "--gpu-mem=2GiB")
    check(client.total() == 2 * GIB, client.total())
    client.end()
    said = node.batch(f"echo $(echo total | {node.programs}/partage-demo-client)", "--gres=shard:5", "--gpu-mem=10%")
    check(f"total {part_of(1)}" in said, said)
    said = node.batch("echo it runs", "--gres=shard:5", "--gpu-mem=9GiB")
    check("it runs" not in said and not said.startswith("0 ") and "shard:5 of 10" in said, said)
    wrong = {"9GiB": "", "51%": "", "16GiB": "", "8": "has no unit", "x": "--gpu-mem=x",
             "8GiB; rm": "--gpu-mem=8GiB; rm"}
    ends = node.sruns(*(["--gres=shard:5", f"--gpu-mem={asked}", "true"] for asked in wrong))
    for (asked, words), (code, said) in zip(wrong.items(), ends):
        words = words or "registration by root for slurm:"
        check(code != 0 and "partage: " in said and words in said, asked, code, said)
    all_gone(node)
    is_held_by_nobody(node)
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


ends.uses_up_node = True


def suspend(node):
    """A job that Slurm suspends has left its GPU when its steps freeze, and goes on where it was."""
    idle = node.used(0)
    number = allocated(node, "away", 5, "--ntasks=2")
    client = node.client(f"--jobid={number}", "--ntasks=1")
    # A step of two tasks beside it, and of a script whose programs Slurm does not signal.
    kernels = f"TIME_CLIENT_KERNELS={node.home}/kernels {node.home}/time_client 0 kernel 500000"
    tasks = node.cluster.begin("srun", "--quiet", f"--jobid={number}", "--overlap", "--ntasks=2", "sh", "-c",
                               f"{kernels}; true", user=ALICE)
    node.wait("all use the GPU", lambda: len(node.job(number)["clients"]) == 3)
    check([client.say("take 4096"), client.say("fill 7")] == ["taken", "filled"], "the client did not work")
    node.wait("the driver counts it", lambda: node.used(0) - idle > 4 * GIB)
    before = node.used(0)
    code, said = node.cluster.run("scontrol", "suspend", number)
    check(code == 0, said)
    groups = [node.cluster.groups / f"uid_{ALICE}" / f"job_{number}" / f"step_{step}" for step in (0, 1)]
    node.wait("the steps freeze", lambda: all("FROZEN" in (group / "freezer.state").read_text() for group in groups))
    check(node.used(0) == idle and node.job(number)["state"] == "suspended", node.used(0), idle, node.job(number))
    other = node.client("--gres=shard:3")
    check(other.total() == part_of(3) and other.exhaust() > 0, "another job did not run meanwhile")
    other.end()
    code, said = node.cluster.run("scontrol", "resume", number)
    check(code == 0, said)
    check(client.say("check 7") == "same", "the memory is another one")
    node.wait("all of it is back", lambda: node.used(0) >= before)
    # One that is cancelled while it is away leaves nothing.
    code, said = node.cluster.run("scontrol", "suspend", number)
    check(code == 0, said)
    node.wait("it is away", lambda: node.job(number)["state"] == "suspended")
    node.cluster.run("scancel", number)
    all_gone(node)
    check(node.used(0) == idle, node.used(0), idle)
    for process in (client.process, tasks):
        process.communicate(timeout=60)
    return "its memory was off the GPU when its two steps froze, and was there again after the resume"


def preemption(node):
    """A job that another one preempts has left its GPU meanwhile, and goes on where it was after that."""
    client = node.client("--job-name=low", f"--cpus-per-task={CPUS}", "--gres=shard:5")
    number = number_of(node, "low")
    check([client.say("take 4096"), client.say("fill 7")] == ["taken", "filled"], "the client did not work")
    # All of the node's processors for who goes first.
    urgent = node.client("--partition=urgent", f"--cpus-per-task={CPUS}", "--gres=shard:3")
    node.wait("it is away", lambda: node.job(number)["state"] == "suspended")
    check(urgent.total() == part_of(3) and urgent.exhaust() > 0, "the urgent job did not run")
    urgent.end()
    check(client.say("check 7") == "same", "the memory is another one")
    client.end()
    all_gone(node)
    return "its memory was off the GPU for the urgent job, and there again after that"


preemption.cluster = {"partitions": """PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:1 PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=FORCE:1 PriorityTier=2 PreemptMode=OFF"""}


def interactive(node):
    """Without Contain the shell of a `salloc` begins the job, with what Slurm gave and not what its user set."""
    for forged in ({}, {"SLURM_STEP_GPUS": "1", "SLURM_JOB_GPUS": "1", "SLURM_SHARDS_ON_NODE": "20"}):
        number = allocated(node, "shell", 2)
        check(not node.jobs(), node.jobs())
        client = node.client(f"--jobid={number}", "--interactive", environment=forged)
        check([device["index"] for device in node.job(number)["devices"]] == [0], node.job(number))
        check(client.total() == part_of(2), client.total())
        client.end()
        node.cluster.run("scancel", number)
        all_gone(node)
    return "its limit and GPU are the allocation's"


interactive.cluster = {"partitions": f"PrologFlags=Alloc\n{PARTITIONS}"}


def rule(node):
    """No engine raises what a rule of the node forbids."""
    code, said = node.srun("--gres=shard:5", "true")
    check(code != 0 and "rule quarter, max.mem = 4GiB" in said, code, said)
    client = node.client("--job-name=less", "--gres=shard:2")
    check(client.total() == part_of(2), client.total())
    client.end()
    return "the step ends with the rule's name"


rule.node = {"configuration": '[[rule]]\nname = "quarter"\nmatch = { cgroup = ["/slurm*"] }\nmax = { mem = "4GiB" }\n'}


def waits(node):
    """A command that hangs, or finds no broker, costs its step ten seconds, and the node goes on meanwhile."""
    # By what the job has: hangs with one shard, has no broker with two.
    node.write_command('case "$*" in *shard:1?of*) sleep 600 ;; *shard:2?of*) PARTAGE_SOCKET_DIR=/run/nobody ;; esac\n')
    (node.home / "environments").write_text("")
    begun = {name: node.cluster.begin("srun", "--quiet", f"--gres=shard:{shards}", "echo", "it runs", user=ALICE)
             for name, shards in (("hang", 1), ("away", 2))}
    # Each is called for the allocation, which it keeps for two seconds at most, and for the step.
    node.wait("both steps wait", lambda: (node.home / "environments").read_text().count("PWD=") == 4)
    client = node.client("--job-name=next", "--gres=shard:5")
    check(all(one.poll() is None for one in begun.values()), "a step did not wait")
    check(client.total() == part_of(5), client.total())
    client.end()
    # Their plugins have read the line. With `optional` a step runs without a limit, and its user reads why.
    node.load("optional")
    begun["optional"] = node.cluster.begin("srun", "--quiet", "--gres=shard:2", "echo", "it runs", user=ALICE)
    said = {name: one.communicate(timeout=60)[0] for name, one in begun.items()}
    codes = {name: one.returncode for name, one in begun.items()}
    check(codes["hang"] and "partage did not answer within 10 s" in said["hang"], codes, said)
    check(codes["away"] and "no broker" in said["away"], codes, said)
    check(not codes["optional"] and "no broker" in said["optional"], codes, said)
    check([name for name in said if "it runs" in said[name]] == ["optional"], said)
    # What the plugin gave the command: nothing but what the shell of this case's script adds.
    names = {line.partition("=")[0] for line in (node.home / "environments").read_text().splitlines()}
    check(names and names <= {"PWD", "SHLVL", "_", "OLDPWD"}, names)
    return "the steps end with the sentence, others run meanwhile; the command's environment was empty"


def library(node):
    """On a node that does not preload it, the plugin puts the library into the task's environment."""
    client = node.client("--job-name=five", "--gres=shard:5")
    check(client.total() == part_of(5), client.total())
    client.end()
    code, said = node.srun("--gres=shard:5", "printenv", "LD_PRELOAD", environment={"LD_PRELOAD": "libm.so.6"})
    check(code == 0 and said.strip() == f"{node.programs}/libpartage.so:libm.so.6", said)
    return "LD_PRELOAD names it, before what the user preloads"


library.node = {"arguments": "library={programs}/libpartage.so", "is_preloaded": False}


def prologue(node):
    """Without the plugin: a TaskProlog lowers what a task has, for who leaves it be."""
    path = node.home / "taskprolog"
    text = (node.home / "plugin/taskprolog").read_text()
    path.write_text(text.replace("/usr/lib/partage/libpartage.so", f"{node.programs}/libpartage.so"))
    path.chmod(0o755)
    node.cluster.load("")
    # Two jobs of one user with as many shards have one limit.
    clients = node.clients(*[["--gres=shard:5", f"--task-prolog={path}"]] * 2)
    check([client.total() for client in clients] == [part_of(5)] * 2, "not the shards' part")
    taken = sum(client.exhaust() for client in clients)
    check(GIB < taken <= part_of(5), taken)
    for client in clients:
        client.end()
    # It is no boundary, and the page says so.
    code, said = node.srun("--gres=shard:5", f"--task-prolog={path}", "env", "-i", "/usr/bin/env")
    check(code == 0 and "PARTAGE" not in said, code, said)
    return "a task with 5 of 10 shards has 8 of 16 GiB"


prologue.node = {"is_preloaded": False}
