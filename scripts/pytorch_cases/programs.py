# SPDX-License-Identifier: Apache-2.0
"""Cases of programs with several processes, and of PyTorch's own tests: bare and under Partage."""
import json
import re
import signal
import time

from machine import Machine

# PyTorch's tests that fail on a bare simulated machine, each with why. Any other passes, or skips itself.
FAIL_BARE = {
    "test_cpp_memory_snapshot_pickle": "wants ninja, to build an extension",
    "test_mempool_with_allocator": "wants ninja, to build an extension",
    "test_memory_snapshot": "fetches a program from the internet",
    "test_memory_plots_free_segment_stack": "compares stack frames",
    "test_memory_snapshot_script": "compares stack frames",
    "test_memory_snapshot_with_cpp": "compares stack frames",
}


def both(tools, name, words, run=("-m", "25%"), **environment):
    """What a program wrote bare, which must be what it writes under Partage."""
    with Machine(tools.partage, tools.work, name) as machine:
        bare, _ = machine.program(words, (), **environment)
        limited, _ = machine.program(words, run, **environment)
        assert bare == limited, f"bare:\n{bare}\nunder Partage:\n{limited}"
        return bare


def loaders(tools):
    """DataLoader's workers by fork, by spawn, pinned; CUDA in a forked child is refused."""
    said = both(tools, "loaders", [tools.python, tools.program("loaders")])
    return said.replace("ok: ", "").strip().replace("\n", "; ")


def sharing(tools):
    """A CUDA tensor goes to a spawned process, which writes into it."""
    return both(tools, "sharing", [tools.python, tools.program("sharing")]).strip().removeprefix("ok: ")


def ranks(tools):
    """Data-parallel training over gloo, on two GPUs."""
    return both(tools, "ranks", [tools.python, tools.program("ranks")], ("-g", "auto:2", "-m", "25%")).strip()


def loop(tools):
    """A framework's loop; ended by SIGTERM in the middle, it begins where it saved and ends with the same loss."""
    with Machine(tools.partage, tools.work, "loop") as machine:
        words = [tools.python, tools.program("loop")]
        bare, _ = machine.program([*words, machine.folder / "bare", "12"])
        run = ("-m", "25%", "--name", "loop")
        process = machine.start([*words, machine.folder / "ended", "12"], run, LOOP_PAUSE="0.3")
        until = time.monotonic() + 120
        log = machine.folder / "ended/log.csv"
        while not log.exists() or len(log.read_text()) < 40:
            assert process.poll() is None and time.monotonic() < until, machine.output()[-2000:]
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, machine.output()[-2000:]
        ended = int(re.search(r"ended early (\d+)", machine.output()).group(1))
        again, _ = machine.program([*words, machine.folder / "ended", "12"], ("-m", "25%"))
        assert f"began {ended}" in again and again.splitlines()[-1] == bare.splitlines()[-1], f"{bare}\n{again}"
    return f"ended by SIGTERM after epoch {ended} of 12, begun again there: the same last loss"


def names_of(path):
    rows = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [f"{row[0]}.{row[1]}" for row in rows]


def results_of(machine, tools, run):
    """The result of each test, by name."""
    names, found = names_of(tools.names), {}
    # A process for each class: what one does to the allocator's settings stays in it.
    for group in sorted({name.split(".")[0] for name in names}):
        chosen = [name for name in names if name.startswith(f"{group}.")]
        result = machine.folder / f"{group}-{len(run)}"
        words = [tools.python, tools.program("own_tests"), tools.tests, result, *chosen]
        _, said = machine.program(words, run, limit=900)
        result.with_suffix(".log").write_text(said)
        found |= json.loads(result.read_text())
    return {name: found.get(name, "no result") for name in names}


def own_tests(tools):
    """PyTorch's own test_cuda.py: the same results bare and under Partage."""
    with Machine(tools.partage, tools.work, "tests") as machine:
        bare = results_of(machine, tools, ())
        limited = results_of(machine, tools, ("-m", "90%", "-g", "auto:2"))
    differ = {name: (bare[name], limited[name]) for name in bare if bare[name] != limited[name]}
    assert not differ, f"bare and under Partage: {differ}"
    fine = ("ok", "skipped", "expected failure")
    failed = {name.split(".")[1] for name, result in bare.items() if result not in fine}
    assert failed == set(FAIL_BARE), f"fail bare: {sorted(failed)}; known: {sorted(FAIL_BARE)}"
    passed = sum(result == "ok" for result in bare.values())
    skipped = sum(result == "skipped" for result in bare.values())
    return f"{passed} of {len(bare)} pass, {skipped} skip themselves, {len(failed)} fail, bare and under Partage alike"
