# SPDX-License-Identifier: Apache-2.0
"""Runs the trials of packaging/fresh/check and ends with the line that scripts/test counts."""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import pexpect

from bases import Bases, CannotMake
from environment import Wheel
from full_disk import FullDisk
from hosts import Archive, Package
from packages import Packages
from page_trial import TypedPage


FAILURES = (AssertionError, OSError, subprocess.SubprocessError, pexpect.ExceptionPexpect)


class Tally:
    """What was checked."""

    def __init__(self):
        self.passed, self.failed, self.lock = 0, 0, threading.Lock()

    def of(self, trial):
        try:
            with trial:
                for check in trial.checks:
                    self.one(f"{trial.name} {check.__name__.replace('_', ' ')}", check)
        except FAILURES as error:
            self.note(f"{trial.name}", error)

    def one(self, name, check):
        start, failure = time.monotonic(), None
        try:
            check()
        except FAILURES as error:
            failure = error
        self.note(f"{name}: {time.monotonic() - start:.1f} s", failure)

    def note(self, line, failure):
        with self.lock:
            if failure:
                self.failed += 1
                print(f"FAILED: {line}: {failure}", flush=True)
            else:
                self.passed += 1
                print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(prog="packaging/fresh/check")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="where the bases are kept")
    parser.add_argument("--build", type=pathlib.Path, help="the build, unless one is named")
    parser.add_argument("--dist", type=pathlib.Path, help="the files that are tried")
    names = ["package", "wheel", "archive", "disk", "page"]
    parser.add_argument("--only", action="append", choices=names, help="this trial alone; may be repeated")
    parser.add_argument("--bases", action="store_true", help="only make what trials begin with")
    parser.add_argument("--write", action="store_true", help="put what is printed on the page")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="a build")
    asked = parser.parse_args()
    bases, tally, start = Bases(asked.cache.resolve()), Tally(), time.monotonic()
    try:
        bases.make()
    except CannotMake as why:
        print(f"SKIPPED: no fresh root: {why}")
        print("checks: 0 passed 0 failed 1 ignored")
        return 0
    print(f"the roots to begin with: {time.monotonic() - start:.1f} s", flush=True)
    if asked.bases:
        return 0
    at, folder = bases.cache / "room", pathlib.Path(tempfile.mkdtemp(prefix="partage-fresh-"))
    try:
        start = time.monotonic()
        if asked.dist:
            packages = Packages(asked.dist.resolve(), folder)
        else:
            packages = Packages.built((asked.folder or asked.build).resolve(), folder)
        print(f"the files to try: {time.monotonic() - start:.1f} s", flush=True)
        start = time.monotonic()
        trials = {
            "wheel": Wheel(bases.python, at, packages),
            "disk": FullDisk(bases.bare, at, packages),
            "package": Package(bases.bare, at, packages),
            "page": TypedPage(bases, at, packages, asked.write),
            "archive": Archive(bases.bare, at, packages),
        }
        wanted = [trial for name, trial in trials.items() if not asked.only or name in asked.only]
        # Each has a room of its own, and often waits.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(tally.of, wanted))
        print(f"the trials: {time.monotonic() - start:.1f} s")
    except AssertionError as why:
        tally.note("no files to try", why)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"checks: {tally.passed} passed {tally.failed} failed 0 ignored")
    return tally.failed > 0


if __name__ == "__main__":
    sys.exit(main())
