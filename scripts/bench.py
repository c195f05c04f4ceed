# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark program with and without Partage, alternating, and prints ns and ratios side by side."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--bin", required=True, type=pathlib.Path)
parser.add_argument("--write", action="store_true", help="write docs/results/<date>-bench-sim.md")
parser.add_argument("--check", action="store_true", help="fewer rounds; exit code 1 when a figure passes its bound")
LAUNCHES = "only what a launch costs; --write then writes docs/results/<date>-launch-sim.md"
parser.add_argument("--launches", action="store_true", help=LAUNCHES)
RULES = "only what 200 rules cost; --write then writes docs/results/<date>-rules-sim.md"
parser.add_argument("--rules", action="store_true", help=RULES)
options = parser.parse_args()
# Which rows, when not all.
only = "launch" if options.launches else "rules" if options.rules else None

BIN = options.bin
PARTAGE, BENCH = BIN / "partage", BIN / "programs/bench"
ROUNDS = 3 if options.check else 5
# What --check demands, by how a row's name begins: a ratio with and without Partage, or what is added in the row's
# unit. A third to twice of room over what quiet machines show, because ratios of two medians of a busy one are some
# tenths off.
MOST_RATIO = {
    "launch, gate open, against forwarded": 1.8,
    "`pass` call": 1.25,
    "hooked call": 1.8,
    "cuMemAlloc + cuMemFree": 1.5,
    "cuMemAllocManaged": 1.5,
    "cuMemAllocPitch": 1.5,
    "cuArray3DCreate": 1.5,
    "cuMipmappedArrayCreate": 1.5,
    "cuMemCreate": 1.5,
    "cuGraphLaunch": 1.3,
    "cuMemAllocAsync, 4 KiB, p50": 1.6,
    "cuMemFreeAsync, 4 KiB, p50": 1.6,
    "cuMemGetInfo": 2.0,
    "cuInit": 6.0,
    "300 cuInit at once": 10.0,
    "200 rules against none, 300 starts": 1.3,
    # With the views in the loop no attach succeeds. The rest is processors, of which two have all of these programs.
    "an attach beside 1,000 clients": 3.0,
}
# Instructions of a launch; system calls of a thread that allocates: none, but what the broker's answers amount to over
# a thousand calls; microseconds of an exec under the library above one under an empty C library; milliseconds of a
# pause, of 300 starts under 200 rules, and of a container's hook.
MOST_ADDED = {"launch, gate open: instructions": 40, "system calls": 0.05, "exec of /bin/true, libpartage.so": 30,
              "pause of a suspend": 50, "pause of a resume": 50, "300 starts under 200 rules": 1000,
              "hook of a container": 50}
bounds = []
rows = []
busy_before = os.getloadavg()[0]


def run(prefix, arguments, environment):
    command = [*prefix, str(BENCH), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{prefix} bench {arguments}: exit {done.returncode}: {done.stderr}")
    return [float(word) for word in done.stdout.split()]


def add(name, without, under, added, ratio=None, number=None):
    """A row, judged by its bound if it has one; `number` is what is added, without its unit."""
    rows.append((name, without, under, added, "" if ratio is None else f"{ratio:.2f}"))
    for of, value, most in (("ratio", ratio, MOST_RATIO), ("added", number, MOST_ADDED)):
        bound = next((bound for begin, bound in most.items() if name.startswith(begin)), None)
        if value is not None and bound is not None:
            bounds.append((name, of, value, bound))


def side_by_side(name, arguments, environment, under, unit="ns", scale=1.0, column=1, alone=None):
    """Alternates the two sides so that a noisy neighbour meets both; takes the median of the medians."""
    bare, with_partage = [], []
    for _ in range(ROUNDS):
        bare.append(run([], alone or arguments, environment)[column] * scale)
        with_partage.append(run(under, arguments, environment)[column] * scale)
    b, w = statistics.median(bare), statistics.median(with_partage)
    add(name, f"{b:.1f} {unit}", f"{w:.1f} {unit}", f"{w - b:+.1f} {unit}", w / b)


def gate_rows(threads):
    """A launch that the driver refuses at once, forwarded and through the open gate, in turns in one process."""
    rounds = [run(job, ["gate", "200000", str(threads)], machine) for _ in range(3 * ROUNDS)]
    name = f"launch, gate open, against forwarded, {threads} thread{'s' if threads > 1 else ''}"
    for column, figure in ((0, "p50 in runs"), (2, "p50 one by one"), (4, "p99 one by one")):
        forwarded, found = (statistics.median(one[column + side] for one in rounds) for side in (0, 1))
        # Both sides of a round met the same neighbours.
        added = statistics.median(one[column + 1] - one[column] for one in rounds)
        add(f"{name}, {figure}", f"{forwarded:.1f} ns", f"{found:.1f} ns", f"{added:+.1f} ns", found / forwarded)


# What each family's kind of the benchmark does, and how often it is done for a figure.
FAMILIES = {
    "alloc": ("cuMemAlloc + cuMemFree, 4 KiB", 20000),
    "managed": ("cuMemAllocManaged + cuMemFree, 4 KiB", 5000),
    "pitch": ("cuMemAllocPitch + cuMemFree, 4 rows", 20000),
    "array": ("cuArray3DCreate + cuArrayDestroy, 4 KiB", 5000),
    "mipmap": ("cuMipmappedArrayCreate + Destroy, 3 levels", 5000),
    "physical": ("cuMemCreate + cuMemRelease, 2 MiB", 5000),
    "graph": ("cuGraphLaunch of an allocation and its free, synchronised", 1000),
}


def system_calls(prefix, kind, count, environment):
    """System calls of the thread that allocates. Waits of threads for each other (futex) are left out, and so are
    other threads: how often they sleep is chance, and differences of it gave figures below zero."""
    with tempfile.TemporaryDirectory() as out:
        strace = ["strace", "-ff", "-e", "trace=!futex,sched_yield", "-o", f"{out}/trace"]
        command = [*prefix, *strace, str(BENCH), kind, str(count)]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
        first = min(pathlib.Path(out).iterdir(), key=lambda path: int(path.suffix[1:]))
        return sum(1 for line in first.read_text(errors="replace").splitlines() if "(" in line)


def other_rows():
    """Everything else that a program of the simulated machine sees."""
    side_by_side("`pass` call (cuDriverGetVersion)", ["pass", "2000000"], machine, job)
    side_by_side("hooked call (cuMemFree of NULL)", ["hooked", "2000000"], machine, job)
    for kind, (name, count) in FAMILIES.items():
        side_by_side(name, [kind, str(count)], machine, job)
    side_by_side("cuMemAllocAsync, 4 KiB, p50", ["async", "20000"], machine, job, column=0)
    side_by_side("cuMemAllocAsync, 4 KiB, p99", ["async", "20000"], machine, job)
    side_by_side("cuMemFreeAsync, 4 KiB, p50", ["async", "20000"], machine, job, column=2)
    side_by_side("cuCtxSynchronize, nothing in flight", ["sync", "200000"], machine, job)
    side_by_side("cuMemGetInfo", ["info", "20000"], machine, job)
    side_by_side("cuInit (attach included)", ["init", "1"], machine, job, "µs", 1e-3)
    side_by_side("300 cuInit at once", ["attach", "300"], machine, job, "ms", 1.0, 0)

    # What an exec costs when nothing else runs: the 10th percentile of some 1,800. A busy neighbour moves the medians
    # of both sides by more than their difference.
    # Both libraries are copies, as an installer writes them: what the linker wrote lies in the page cache in single
    # pages, and mapping it costs an exec 5 µs more.
    with tempfile.TemporaryDirectory(dir=BIN) as installed:
        empty = shutil.copy(BIN / "programs/empty.so", installed)
        ours = shutil.copy(library, installed)
        preloads = {"plain": {}, "empty": {"LD_PRELOAD": empty}, "ours": {"LD_PRELOAD": ours}}
        took = {name: [] for name in preloads}
        for _ in range(3 * ROUNDS):
            for name, preload in preloads.items():
                took[name].append(run([], ["spawn", "200", "/bin/true"], base | preload)[0] / 1e3)
    p, e, o = (statistics.median(took[name]) for name in preloads)
    name = "exec of /bin/true, empty C library preloaded, 10th percentile"
    rows.append((name, f"{p:.1f} µs", f"{e:.1f} µs", f"+{e - p:.1f} µs", f"{e / p:.2f}"))
    name = "exec of /bin/true, libpartage.so, against an empty C library, 10th percentile"
    add(name, f"{e:.1f} µs", f"{o:.1f} µs", f"{o - e:+.1f} µs", o / e, o - e)

    # A family's calls run in batches, the pairs in stream order once each.
    counted = [(kind, name, 15) for kind, (name, _) in FAMILIES.items() if kind != "graph"]
    for kind, name, batches in [*counted, ("async", "cuMemAllocAsync + cuMemFreeAsync", 1)]:
        per_call = []
        for prefix in ([], job):
            few, many = (system_calls(prefix, kind, count, machine) for count in (512, 1536))
            per_call.append((many - few) / (1024 * batches))
        bare, under = per_call
        what = f"system calls: {name.split(',')[0]}"
        add(what, f"{bare:.3f}", f"{under:.3f}", f"{under - bare:+.3f}", number=abs(under - bare))


def pauses():
    """What a suspend and a resume take as their own answers say: on a simulated driver that takes no time itself."""
    name = "paused"
    options = ["-q", "-m", "2GiB", "--name", name]
    client = subprocess.Popen(
        [str(PARTAGE), "run", *options, "--", str(BENCH), "hold", "4"],
        env=machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    took = {"suspend": [], "resume": []}
    try:
        client.stdout.readline()
        for _ in range(10 * ROUNDS):
            for command, all_of_it in took.items():
                words = [str(PARTAGE), command, name]
                said = subprocess.run(words, env=machine, check=True, stdout=subprocess.PIPE, text=True).stdout
                number, unit = re.search(r" after ([0-9.]+)(ms|s)\b", said).groups()
                all_of_it.append(float(number) * (1 if unit == "ms" else 1000))
    finally:
        client.communicate()
    for command, all_of_it in took.items():
        median = statistics.median(all_of_it)
        row = f"pause of a {command}, 4 MiB, the simulated driver's own time not modelled"
        add(row, "", f"{median:.0f} ms", f"+{median:.0f} ms", number=median)


def saves(work):
    """What a checkpoint takes and leaves on disk, and a restore until the program has done its first step, by bytes on
    the device, which the job has written to."""
    if "PARTAGE_CRIU" not in os.environ:
        rows.append(("checkpoint and restore were not measured: no CRIU", "", "", "", ""))
        return
    users = machine | {"PARTAGE_CRIU": os.environ["PARTAGE_CRIU"]}
    piped = {"env": users, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    for mebibytes in (4, 256, 1024):
        took = {"checkpoint": [], "restore": []}
        for number in range(1 if options.check else 3):
            folder = work / f"saved{mebibytes}-{number}"
            words = [str(PARTAGE), "run", "-q", "-m", "4GiB", "--name", "saved", "--"]
            client = subprocess.Popen([*words, str(BENCH), "hold", str(mebibytes)], **piped)
            client.stdout.readline()
            begun = time.monotonic()
            words = [str(PARTAGE), "checkpoint", "saved", "--out", str(folder), "--stop"]
            subprocess.run(words, env=users, check=True, stdout=subprocess.DEVNULL)
            took["checkpoint"].append(time.monotonic() - begun)
            client.communicate()
            on_disk = sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())
            begun = time.monotonic()
            again = subprocess.Popen([str(PARTAGE), "restore", str(folder)], **piped)
            again.stdin.write(b"\n")
            again.stdin.flush()
            if again.stdout.readline() != b"0\n":
                raise SystemExit(f"the restored program does not go on: exit {again.wait()}")
            took["restore"].append(time.monotonic() - begun)
            again.communicate()
        for what, all_of_it in took.items():
            what = {"checkpoint": "checkpoint --stop", "restore": "restore until its first step"}[what]
            more = f"{on_disk / 2**20:.0f} MiB on disk" if what.startswith("c") else ""
            add(f"{what}, {mebibytes} MiB", "", f"{statistics.median(all_of_it) * 1000:.0f} ms", more)


def host_with(rules, folder):
    """A host's broker under so many rules, each of which is asked about each job; and the environment of its users."""
    folder.mkdir()
    file = folder / "partage.toml"
    match = '{{ user = "*", program = ["{1}*", "/nowhere/{0}"] }}'
    rule = f'[[rule]]\nname = "r{{0}}"\nmatch = {match}\nmax = {{{{ mem = "8GiB" }}}}\n'
    # Every other one holds.
    file.write_text("schema = 1\n" + "".join(rule.format(n, "/" if n % 2 else "/none") for n in range(rules)))
    sockets = folder / "sockets"
    users = machine | {"PARTAGE_SOCKET_DIR": str(sockets)}
    # In a container's pid namespace, too: all that is measured is in it.
    command = [str(BIN / "partaged"), "--managed", "--pid-namespace", "any", "--config", str(file)]
    command += ["--socket-dir", str(sockets)]
    broker = subprocess.Popen(command, env=users, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        if subprocess.run([str(PARTAGE), "broker", "status"], env=users, capture_output=True).returncode == 0:
            return broker, users
        time.sleep(0.1)
    broker.kill()
    raise SystemExit(f"the broker under {rules} rules does not answer")


def starts_under_rules(work):
    """What 200 rules add to 300 starts without `run`, each of which they are asked about."""
    hosts = {count: host_with(count, work / f"rules{count}") for count in (0, 200)}
    took = {count: [] for count in hosts}
    try:
        for _ in range(ROUNDS):
            for count, (_, users) in hosts.items():
                took[count].append(run([], ["attach", "300"], users | {"LD_PRELOAD": library})[0])
    finally:
        for broker, _ in hosts.values():
            broker.terminate()
            broker.wait()
    none, all_of_them = (statistics.median(took[count]) for count in (0, 200))
    name = "200 rules against none, 300 starts"
    add(name, f"{none:.1f} ms", f"{all_of_them:.1f} ms", f"{all_of_them - none:+.1f} ms", all_of_them / none)
    add("300 starts under 200 rules", "", f"{all_of_them:.1f} ms", "", number=all_of_them)


def attach_beside_watchers():
    """What 300 commands that ask for `ps` once a second add to a client's attach on a broker with 1,000 clients."""
    attached = machine | {"LD_PRELOAD": library}
    piped = {"env": machine, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [str(PARTAGE), "run", "-q", "-m", "1GiB", "--", str(BIN / "programs/crowd"), "1000"]
    crowd = subprocess.Popen(command, **piped)
    took = {False: [], True: []}
    try:
        if crowd.stdout.readline() != "ready\n":
            raise SystemExit("1,000 clients do not attach")
        sockets = pathlib.Path(machine["PARTAGE_SOCKET_DIR"]) / "client/client.sock"
        watchers_program = pathlib.Path(__file__).with_name("bench_watchers.py")
        for _ in range(ROUNDS):
            for is_watched, all_of_it in took.items():
                command = [sys.executable, str(watchers_program), str(sockets), "300"]
                watchers = subprocess.Popen(command, **piped) if is_watched else None
                if watchers and watchers.stdout.readline() != "ready\n":
                    raise SystemExit("300 commands are not answered")
                all_of_it.append(statistics.median(run([], ["init", "1"], attached)[0] for _ in range(40)))
                if watchers:
                    watchers.communicate()
    finally:
        crowd.kill()
        crowd.wait()
    alone, beside = (statistics.median(took[is_watched]) / 1e6 for is_watched in (False, True))
    name = "an attach beside 1,000 clients, with 300 watchers and without"
    add(name, f"{alone:.2f} ms", f"{beside:.2f} ms", f"{beside - alone:+.2f} ms", beside / alone)


def hook(work):
    """What the hook of a container takes, which a container's start waits for: from its start to its end."""
    broker, users = host_with(0, work / "containers")
    bundle = work / "bundle"
    bundle.mkdir()
    process = {"env": ["NVIDIA_VISIBLE_DEVICES=0"], "args": ["sleep"]}
    (bundle / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", "process": process}))
    took = []
    try:
        for number in range(10 * ROUNDS):
            first = subprocess.Popen(["sleep", "60"])
            name = f"{number:064x}"
            state = {"ociVersion": "1.0.2", "id": name, "status": "creating", "pid": first.pid, "bundle": str(bundle)}
            begun = time.monotonic()
            command = [str(PARTAGE), "hook", "create-runtime", "-m", "64MiB"]
            done = subprocess.run(command, env=users, input=json.dumps(state).encode(), capture_output=True)
            took.append((time.monotonic() - begun) * 1000)
            first.kill()
            first.wait()
            if done.returncode:
                raise SystemExit(f"the hook: exit {done.returncode}: {done.stderr.decode()}")
    finally:
        broker.terminate()
        broker.wait()
    median = statistics.median(took)
    add("hook of a container", "", f"{median:.1f} ms", "", number=median)


with tempfile.TemporaryDirectory(prefix="ptb") as work:
    base = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
    sim = [str(PARTAGE), "sim", "--gpus", "1", "--memory", "16GiB", "--machine", f"bench{os.getpid()}", "--"]
    keeper = subprocess.Popen(sim + ["sh", "-c", "echo here; exec sleep 1800"], env=base, stdout=subprocess.PIPE)
    try:
        # The machine goes with the last one in it, so the keeper comes first.
        keeper.stdout.readline()
        # Everything below runs inside the simulated machine; its environment is taken from a process in it.
        inside = subprocess.run(sim + ["env", "-0"], env=base, capture_output=True, text=True, check=True).stdout
        machine = dict(line.split("=", 1) for line in inside.split("\0") if "=" in line)
        job = [str(PARTAGE), "run", "-q", "-m", "8GiB", "--"]
        inner = subprocess.run(job + ["env", "-0"], env=machine, capture_output=True, text=True, check=True).stdout
        library = dict(line.split("=", 1) for line in inner.split("\0") if "=" in line)["LD_PRELOAD"]

        if platform.machine() == "x86_64" and only != "rules":
            straight, forwarded, found = (int(count) for count in run(job, ["steps", "1"], machine))
            what, more = f"launch, gate open: instructions (straight: {straight})", found - forwarded
            add(what, str(forwarded), str(found), f"+{more}", number=more)
        for threads in () if only == "rules" else (1, 8):
            gate_rows(threads)
        if only is None:
            other_rows()
            pauses()
            saves(pathlib.Path(work))
            hook(pathlib.Path(work))
            attach_beside_watchers()
        if only != "launch":
            starts_under_rules(pathlib.Path(work))
    finally:
        keeper.terminate()
        keeper.wait()

# Hand-overs, shares and the broker's processor time: machines of its own, one after another. Shares in virtual time.
for program in () if only or options.check else ("time_bench", "fairness"):
    done = subprocess.run([str(BIN / "examples" / program)], env=base, stdout=subprocess.PIPE, text=True, timeout=900)
    rows += [tuple(line.split("\t")) for line in done.stdout.splitlines() if line.count("\t") == 4]
    if done.returncode:
        rows.append((f"what follows was not measured: {program} failed", f"exit {done.returncode}", "", "", ""))

widths = [max(len(row[i]) for row in rows + [("what", "without", "with Partage", "added", "ratio")]) for i in range(5)]
lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in
         [("what", "without", "with Partage", "added", "ratio"), tuple("-" * width for width in widths)] + rows]
table = "\n".join(f"| {line} |" for line in lines)
print(table)
if options.write:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    date = datetime.date.today().isoformat()
    models = (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    cpu = next(models, "unknown")
    path = pathlib.Path("docs/results") / f"{date}-{only or 'bench'}-sim.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"# Costs on the simulated driver, {date}\n\n"
        f"Commit {commit}, {os.cpu_count()} cores, {cpu}, load {busy_before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after. Medians of {ROUNDS} alternating rounds ({3 * ROUNDS} of launches; "
        f"one by one: the processor is drained around each call), from `scripts/bench --write`. "
        f"No figure here is of a GPU.\n\n"
        f"{table}\n"
    )
    document = json.dumps({"date": date, "commit": commit, "rows": rows}, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(document + "\n")
    print(f"written to {path}")
if options.check:
    seen = {begin for begin in [*MOST_RATIO, *MOST_ADDED] if any(name.startswith(begin) for name, *_ in bounds)}
    missing = ({*MOST_RATIO, *MOST_ADDED} - seen) if platform.machine() == "x86_64" and not only else set()
    bad = [f"FAILED: {name}: {of} {value:.3f}, at most {bound}" for name, of, value, bound in bounds if value > bound]
    bad += [f"FAILED: {begin}: was not measured" for begin in sorted(missing)]
    print("\n".join(bad))
    print(f"checks: {len(bounds) + len(missing) - len(bad)} passed {len(bad)} failed")
    sys.exit(1 if bad else 0)
