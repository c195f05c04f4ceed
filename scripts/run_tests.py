# SPDX-License-Identifier: Apache-2.0
"""Builds the test programs of the workspace, runs one more at a time than there are cores (many wait most of the time),
and fails a test that hangs by its name.

`cargo test` runs one program after the other, and one that hangs stops everything without a name. Here each program
runs its tests one by one in a process group of its own: the test that does not end within its limit is the one that was
begun last, its group is killed, and the program goes on with the tests after it. Other commands can run beside them.

usage: run_tests.py --logs DIR [--limit SECONDS] [--beside NAME=COMMAND]... [--without FOLDER] -- CARGO_ARGUMENT...
--without: the programs of the crate in this folder are built and not run. (Cargo's own `--exclude` would build every
other crate once more: without this crate some dependencies have other features.)
Prints a line for each program and each command (`counts: PASSED FAILED IGNORED SECONDS NAME`), the slowest tests, and
the tests that failed.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

parser = argparse.ArgumentParser()
parser.add_argument("--logs", required=True, type=pathlib.Path)
parser.add_argument("--limit", type=float, default=240)
parser.add_argument("--beside", action="append", default=[], metavar="NAME=COMMAND")
parser.add_argument("--without", metavar="FOLDER")
parser.add_argument("cargo", nargs="+")
options = parser.parse_args()

BEGUN = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ", re.M)
ENDED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.M)
# Begin first: each of them alone takes longer than most others together.
SLOW = ("pool_every_interleaving", "reservation_every_interleaving", "cli", "partaged", "shares", "schedules",
        "policy", "gangs", "execution", "foundation", "state", "opcodes", "whole_kernels")
# Signals that a shell's `&` or `nohup` sets to be ignored, which every child would inherit.
PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2,
)
lock = threading.Lock()
times = []
totals = [0, 0, 0]


def as_from_a_terminal():
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def say(text):
    with lock:
        print(text, flush=True)


def programs():
    """Builds, and gives name, file and folder of each test program."""
    words = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *options.cargo]
    build = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if build.returncode:
        print("error: the tests do not build")
        sys.exit(build.returncode)
    found = []
    for line in build.stdout.splitlines():
        said = json.loads(line)
        if said.get("reason") == "compiler-artifact" and said["profile"]["test"] and said.get("executable"):
            folder = pathlib.Path(said["manifest_path"]).parent
            package, target = folder.name, said["target"]
            if package == options.without:
                continue
            kind = "" if target["kind"] == ["test"] else " (in the source)"
            found.append((f"{package}/{target['name']}{kind}", said["executable"], folder))
    return found


def run(name, words, folder, log, names):
    """Runs a program on the tests `names` (None: all); gives those that began, and the one that hung."""
    # As cargo starts them.
    built = pathlib.Path(words[0]).parent
    libraries = ":".join([str(built), str(built.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(folder), "LD_LIBRARY_PATH": libraries}
    chosen = [] if names is None else ["--exact", *names]
    begun, since = [], time.monotonic()
    with open(log, "ab") as out:
        offset = out.tell()
        process = subprocess.Popen(
            [*words, "--test-threads=1", "--show-output", *chosen], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, preexec_fn=as_from_a_terminal,
        )
        try:
            while True:
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    pass
                now = time.monotonic()
                with open(log, "rb") as text:
                    text.seek(offset)
                    seen = [match for match in BEGUN.findall(text.read().decode(errors="replace"))]
                if len(seen) > len(begun):
                    if begun:
                        times.append((now - since, f"{name} {begun[-1]}"))
                    begun, since = seen, now
                if process.returncode is not None:
                    if begun:
                        times.append((now - since, f"{name} {begun[-1]}"))
                    return process.returncode, begun, None
                if now - since > options.limit:
                    return None, begun, begun[-1] if begun else "(before the first test)"
        finally:
            # What a test left behind ends with its program.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def verdicts(text):
    """How many tests of a program's log passed, which failed, how many were ignored.

    A verdict stands on a line of its own where a child of the test wrote amid it: the program's last words name that.
    """
    seen = dict(ENDED.findall(text))
    listed = re.findall(r"^failures:\n((?: {4}\S+\n)+)", text, re.M)
    unseen = [test for test in (listed[-1].split() if listed else []) if seen.get(test) != "FAILED"]
    words = list(seen.values())
    return words.count("ok"), [test for test in seen if seen[test] == "FAILED"] + unseen, words.count("ignored")


def check_verdicts():
    """Ends the run where a log whose counts are known is counted otherwise."""
    amid = "test a ... ok\ntest b ... \nthread 'x' panicked\nFAILED\n\nfailures:\n    b\n\ntest result: FAILED.\n"
    known = [
        ("test a ... ok\ntest b ... FAILED\ntest c ... ignored\n\nfailures:\n    b\n\n", (1, ["b"], 1)),
        (amid, (1, ["b"], 0)),
        ("test a ... ok\n\ntest result: ok. 1 passed;\n", (1, [], 0)),
    ]
    for text, counted in known:
        if verdicts(text) != counted:
            sys.exit(f"error: {verdicts(text)} counted, not {counted}, of:\n{text}")


def judge(name, program, folder):
    log = options.logs / f"{re.sub(r'[^a-z0-9_]+', '-', name.lower())}.log"
    log.unlink(missing_ok=True)
    start, hung, names, crashed = time.monotonic(), [], None, False
    while True:
        code, begun, stuck = run(name, [program], folder, log, names)
        text = log.read_text(errors="replace")
        if stuck is None:
            crashed = code not in (0, 101)
            break
        hung.append(stuck)
        asked = [program, "--list", "--format=terse"]
        listed = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=60).stdout
        done = set(BEGUN.findall(text))
        names = [name for name in re.findall(r"^(.*): test$", listed, re.M) if name not in done]
        if not names or stuck.startswith("("):
            break
    passed, bad, ignored = verdicts(text)
    failed = len(bad) + len(hung)
    failed += (crashed or code == 101) and not failed
    counts(name, passed, failed, ignored, time.monotonic() - start)
    for line in sorted(set(re.findall(r"^.*SKIPPED: .*$", text, re.M))):
        say(line)
    for test in hung:
        say(f"test {name} {test} ... FAILED\nhung: did not end within {options.limit:.0f} s and was killed")
    if failed:
        say("\n".join(f"test {name} {test} ... FAILED" for test in bad))
        if crashed:
            say(f"error: {name} ended with {code} in {begun[-1] if begun else 'its beginning'}")
        say_end(name, log, text)


def say_end(name, log, text):
    """Shows a log's last lines, set in so that nobody counts their results again."""
    say(f"---- {name}, the end of {log}:\n" + "\n".join(f"  {line}" for line in text.splitlines()[-60:]))


def beside(name, command):
    """A command of another kind: its own log, its counts by what its test programs say."""
    log, start = options.logs / f"{re.sub(r'[^a-z0-9_]+', '-', name.lower())}.log", time.monotonic()
    with open(log, "wb") as out:
        code = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=as_from_a_terminal,
        ).returncode
    text = log.read_text(errors="replace")
    sums = [0, 0, 0]
    for line in re.findall(r"^test result: .*; 0 filtered out", text, re.M):
        for place, word in enumerate(("passed", "failed", "ignored")):
            sums[place] += int(re.search(rf"(\d+) {word}", line)[1])
    if code and not sums[1]:
        sums[1] = 1
    counts(name, *sums, time.monotonic() - start, beside=True)
    for line in sorted(set(re.findall(r"^.*SKIPPED: .*$", text, re.M))):
        say(line)
    if code:
        say_end(f"{name} failed (exit {code})", log, text)


def counts(name, passed, failed, ignored, seconds, beside=False):
    if not beside:
        with lock:
            for place, count in enumerate((passed, failed, ignored)):
                totals[place] += count
    else:
        (options.logs / f"{name}.counts").write_text(f"{passed} {failed} {ignored} {seconds:.0f} {name}\n")
    if failed:
        (bad_beside if beside else bad).append(name)
    say(f"counts: {passed} {failed} {ignored} {seconds:.1f} {name}")


check_verdicts()
bad, bad_beside = [], []
# What cargo gives to the programs that it starts itself: seed and count of random tests.
for key, value in tomllib.loads(pathlib.Path(".cargo/config.toml").read_text()).get("env", {}).items():
    os.environ.setdefault(key, value)
options.logs.mkdir(parents=True, exist_ok=True)


def place(program):
    """Where a program stands in the order of work: the slow ones first."""
    target = program[0].split("/")[1].split(" ")[0]
    return SLOW.index(target) if target in SLOW else len(SLOW)


work = [(judge, program) for program in sorted(programs(), key=place)]
work = [(beside, tuple(pair.split("=", 1))) for pair in options.beside] + work


def worker():
    while True:
        with lock:
            if not work:
                return
            act, arguments = work.pop(0)
        try:
            act(*arguments)
        except Exception as error:  # a runner's own trouble is a failure with a name, never a hole in the counts
            counts(arguments[0], 0, 1, 0, 0)
            say(f"error: {arguments[0]}: {type(error).__name__}: {error}")


threads = [threading.Thread(target=worker) for _ in range(1 + max(2, min(os.cpu_count() or 2, 8)))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("the slowest tests:")
for seconds, test in sorted(times, reverse=True)[:25]:
    print(f"  {seconds:6.1f} s  {test}")
print(f"checks: {totals[0]} passed {totals[1]} failed {totals[2]} ignored")
# 3: the tests are well, and a command beside them is not.
sys.exit(1 if bad else 3 if bad_beside else 0)
