# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch on the simulated driver, bare and under Partage. `scripts/pytorch` calls this.

--list: only prints the names of the cases.
A case returns a sentence that says what it saw; it fails by an exception.
"""
import argparse
import os
import pathlib
import random
import sys
import time
import traceback

import memory
import programs
import training

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SEED = int(os.environ.get("PARTAGE_SEED", "20261128"))


class Tools:
    """Where everything is."""

    def __init__(self, asked):
        self.partage = asked.partage
        self.work = pathlib.Path(asked.work)
        debian = pathlib.Path(asked.debian)
        self.python = str(debian / "root/usr/bin/python3-here")
        self.tests = debian / "test"
        self.compiled_python = str(pathlib.Path(asked.pypi) / "bin/python")
        self.names = pathlib.Path(__file__).with_name("test_cuda-names.txt")

    def program(self, name):
        return str(ROOT / "cuda-tests/pytorch" / f"{name}.py")


def cases(draw, times):
    return {
        "cpu": training.as_on_the_cpu,
        "beside": training.beside_another,
        "moved": lambda tools: training.moved(tools, draw, times),
        "graph": training.graph_suspended,
        "memory": memory.as_a_smaller_gpu,
        "loaders": programs.loaders,
        "sharing": programs.sharing,
        "ranks": programs.ranks,
        "loop": programs.loop,
        "tests": programs.own_tests,
        "compiled": lambda tools: training.compiled(tools, draw, max(1, times // 5)),
    }


def main():
    if sys.argv[1:] == ["--list"]:
        print(*cases(random.Random(SEED), 1))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("partage", "debian", "pypi", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    tools = Tools(asked)
    known = cases(random.Random(SEED), 10 if asked.soak else 1)
    passed = failed = 0
    for name in asked.names or known:
        began = time.monotonic()
        try:
            said = known[name](tools)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED: pytorch {name}", flush=True)
            failed += 1
            continue
        print(f"ok: pytorch {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        passed += 1
    print(f"checks: {passed} passed {failed} failed")
    return 1 if failed else 0


sys.exit(main())
