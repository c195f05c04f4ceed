# SPDX-License-Identifier: Apache-2.0
"""What the parts of scripts/gpu-acceptance share: options, how programs are started, what was checked and measured."""
import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIB = 1 << 30
# The help is the text of the program that was started.
parser = argparse.ArgumentParser(
    description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--rehearse", action="store_true")
parser.add_argument("--bin", type=pathlib.Path)
parser.add_argument("--only", default="")
parser.add_argument("--results", type=pathlib.Path)
options = parser.parse_args()
BIN = (options.bin or ROOT / ("dist/rehearsal" if options.rehearse else "dist/gpu")).resolve()
RESULTS = options.results or (BIN if options.rehearse else ROOT / "docs/results")
PARTAGE = str(BIN / "partage")
# A rehearsal repeats so many times less of everything that is only repeated.
LESS = 10 if options.rehearse else 1
# Of a rehearsal: the variables that make every program meet the simulated driver.
machine = {}
checks = []
measured = {}


def shell(command, limit=60, **extra):
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, **extra)


def check(name, ok, detail):
    checks.append({"name": name, "result": "passed" if ok else "failed", "detail": detail})
    print(f"{'ok    ' if ok else 'FAILED'} {name}: {detail}", flush=True)


def skip(name, why):
    checks.append({"name": name, "result": "skipped", "detail": why})
    print(f"skip   {name}: {why}", flush=True)


def environment(work):
    keep = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "PYTHONPATH", "PARTAGE_TEST_PYTHON")
    return {k: v for k, v in os.environ.items() if k in keep} | machine | {"PARTAGE_SOCKET_DIR": str(work / "sock")}
