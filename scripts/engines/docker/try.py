# SPDX-License-Identifier: Apache-2.0
"""Tries docs/guides/engines/docker.md, all on one host. `scripts/engines/docker/try` calls this.

A case gives a sentence that says what it used, and fails by an exception.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import cases
from host import Host

CASES = {case.__name__: case for case in (cases.docker, cases.compose, cases.quadlet, cases.build, cases.spawner)}
FAILURES = (AssertionError, LookupError, OSError, ValueError, subprocess.SubprocessError)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--built", required=True, type=pathlib.Path)
    parser.add_argument("--base", required=True, type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    unknown = set(options.names) - set(CASES)
    if unknown:
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="pd") as folder, Host(options, pathlib.Path(folder)) as host:
        if host.page.recipes() != set(CASES):
            sys.exit(f"the page's blocks are of {sorted(host.page.recipes())}, those tried {sorted(CASES)}")
        for name in options.names or CASES:
            began = time.monotonic()
            try:
                said = CASES[name](host)
            except FAILURES:
                traceback.print_exc(file=sys.stdout)
                print(host.logs())
                print(f"FAILED: docker: {name}", flush=True)
                failed += 1
            else:
                print(f"tried: docker: {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
                passed += 1
    print(f"checks: {passed} passed {failed} failed")
    return 1 if failed else 0


sys.exit(main())
