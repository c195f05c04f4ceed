# SPDX-License-Identifier: Apache-2.0
"""Tries docs/guides/engines/docker.md, on a host for each version of control groups that can be had here.
`scripts/engines/docker/try` calls this.

A case gives a sentence that says what it used, and fails by an exception.
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import cases
from host import Host, versions

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
    tally = collections.Counter()
    groups, why = versions()
    if why:
        print(f"SKIPPED: docker is untried on other control groups: {why}")
    for version in groups:
        on_a_host(options, version, tally)
    print(f"checks: {tally['passed']} passed {tally['failed']} failed")
    return 1 if tally["failed"] else 0


def on_a_host(options, version, tally):
    """The cases on a host with control groups of this version."""
    with tempfile.TemporaryDirectory(prefix="pd") as folder, Host(options, pathlib.Path(folder), version) as host:
        if host.page.recipes() != set(CASES):
            sys.exit(f"the page's blocks are of {sorted(host.page.recipes())}, those tried {sorted(CASES)}")
        for name in options.names or CASES:
            began = time.monotonic()
            try:
                said = CASES[name](host)
            except FAILURES:
                traceback.print_exc(file=sys.stdout)
                print(host.logs())
                print(f"FAILED: docker, cgroup {version}: {name}", flush=True)
                tally["failed"] += 1
                host.clear()
            else:
                took = time.monotonic() - began
                print(f"tried: docker, cgroup {version}: {name}: {said}, {took:.1f} s", flush=True)
                tally["passed"] += 1


sys.exit(main())
