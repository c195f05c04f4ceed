# SPDX-License-Identifier: Apache-2.0
"""How long a job stands while it is saved, and what a restore takes, side by side with `dd` of the same bytes.

usage: bench_saves.py --bin DIR --out FOLDER [--write]     (scripts/bench --saves calls it)

1 and 4 GiB on the device, on the file system of FOLDER and on /dev/shm. The driver's own time is taken off: that of
the simulated one says nothing about a GPU's. A restore with the page cache dropped needs root; without, the row says
*warm*.
"""
import argparse
import datetime
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from gpu_acceptance.stages import DRIVERS, back, stages, stood

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--bin", required=True, type=pathlib.Path)
parser.add_argument("--out", required=True, type=pathlib.Path)
parser.add_argument("--write", action="store_true", help="write docs/results/<date>-saves.md")
options = parser.parse_args()
PARTAGE, BENCH = options.bin / "partage", options.bin / "programs/bench"
HEAD = ("bytes, where", "dd writes", "stood", "of it the driver", "CRIU", "the rest", "made whole behind", "dd reads",
        "restored", "of it the driver", "dd reads / beyond the driver")


def timed(words, **more):
    begun = time.monotonic()
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr}")
    return time.monotonic() - begun, done.stdout


def drop_caches():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def row(place, gibibytes):
    env = {**os.environ, "PARTAGE_CRIU": os.environ["PARTAGE_CRIU"]}
    folder = place / "saved"
    words = [PARTAGE, "run", "-q", "-m", "8GiB", "--name", "saved", "--", BENCH, "hold", gibibytes * 1024]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True, "env": env}
    client = subprocess.Popen([str(word) for word in words], **piped)
    client.stdout.readline()
    drop_caches()
    is_shm = str(place).startswith("/dev/shm")
    copy = ["bs=1M", f"count={gibibytes * 1024}", *([] if is_shm else ["conv=fsync"])]
    writes, _ = timed(["dd", "if=/dev/zero", f"of={place / 'dd'}", *copy])
    (place / "dd").unlink()
    _, said = timed([PARTAGE, "checkpoint", "saved", "--out", folder], env=env)
    took, stands = stages(said), stood(said)
    driver = sum(took.get(what, 0) for what in DRIVERS)
    dump = took["dump the processes"]
    client.kill()
    client.wait()
    pages = max(folder.glob("gen-0001/criu/pages-*.img"), key=lambda path: path.stat().st_size)
    is_cold = drop_caches()
    reads, _ = timed(["dd", f"if={pages}", "of=/dev/null", "bs=1M"])
    drop_caches()
    restored, _ = timed([PARTAGE, "restore", folder, "--detach"], env=env, stdin=subprocess.DEVNULL)
    came = back(timed([PARTAGE, "events"], env=env)[1])
    again = sum(came.get(what, 0) for what in DRIVERS)
    timed([PARTAGE, "stop", "saved"], env=env)
    shutil.rmtree(folder)
    name = f"{gibibytes} GiB, {'tmpfs' if is_shm else 'disk'}{'' if is_cold or is_shm else ', warm'}"
    beyond = stands - driver
    cells = [f"{value:.2f} s" for value in (writes, stands, driver, dump, beyond - dump, took["commit the snapshot"],
                                            reads, restored, again)]
    return [name, *cells, f"{reads / (restored - again):.2f}"]


def measure():
    rows = []
    for place in (options.out, pathlib.Path("/dev/shm")):
        for gibibytes in (1, 4):
            with tempfile.TemporaryDirectory(prefix="saves", dir=place) as work:
                rows.append(row(pathlib.Path(work), gibibytes))
    return rows


def main():
    if not os.environ.get("PARTAGE_CRIU"):
        sys.exit("CRIU is missing: scripts/criu says how to get it")
    if "BENCH_SAVES_INSIDE" not in os.environ:
        # Everything happens in one simulated machine, which goes with its last process.
        sim = [PARTAGE, "sim", "--gpus", "1", "--memory", "16GiB", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run([str(word) for word in sim], env={**os.environ, "BENCH_SAVES_INSIDE": "1"}).returncode)
    options.out.mkdir(parents=True, exist_ok=True)
    table = [HEAD, ["-"] * len(HEAD), *measure()]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    print(table)
    if options.write:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        date = datetime.date.today().isoformat()
        path = pathlib.Path(f"docs/results/{date}-saves.md")
        path.write_text(
            f"# How long a job stands while it is saved, {date}\n\nSimulated driver, commit {commit}, {os.cpu_count()} "
            f"cores, load {os.getloadavg()[0]:.1f}; `scripts/bench --saves --write`. The driver's own time is that of "
            f"the simulated one. `dd` writes with fsync on disk. No figure here is of a GPU.\n\n{table}\n")
        print(f"written to {path}")


main()
