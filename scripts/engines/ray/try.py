# SPDX-License-Identifier: Apache-2.0
"""Tries `partage.ray`, a case after the other on a simulated machine of its own. `scripts/engines/ray/try` calls this
with Ray's Python. A case is a program that Ray's user might have written (cases.py); it fails by an exception.
"""
import argparse
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# Where the module is in the source.
MODULE = ROOT / "packaging/python"
PATIENCE = 300
sys.path += [str(ROOT / "scripts/recipes"), str(MODULE)]

import cases  # noqa: E402
from machine import Machine  # noqa: E402


def attempt(name, partage):
    """What the case saw."""
    gpus = getattr(cases.CASES[name], "gpus", 1)
    machine = Machine(partage, [os.path.dirname(sys.executable)], gpus=gpus)
    try:
        done = subprocess.run(
            [sys.executable, HERE / "cases.py", name], cwd=machine.home, capture_output=True, text=True,
            env=machine.environment | {"PYTHONPATH": str(MODULE), "RAY_DEDUP_LOGS": "0"}, timeout=PATIENCE,
            stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise AssertionError(f"code {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}")
        return done.stdout.strip().splitlines()[-1]
    finally:
        machine.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partage", required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    unknown = set(options.names) - set(cases.CASES)
    if unknown:
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(cases.CASES)}")
    version = importlib.metadata.version("ray")
    passed = failed = 0
    for name in options.names or cases.CASES:
        began = time.monotonic()
        try:
            said = attempt(name, options.partage)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            print(f"{error}\nFAILED: Ray {version}: {name}", flush=True)
            failed += 1
        else:
            print(f"tried: Ray {version}: {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
            passed += 1
    print(f"checks: {passed} passed {failed} failed")
    return 1 if failed else 0


sys.exit(main())
