# SPDX-License-Identifier: Apache-2.0
"""Tries recipes of docs/recipes.md and docs/guides/engines/others.md, each on a simulated machine of its own.
`scripts/recipes/try` calls this.

A check returns a sentence that says what it used, or (None, why not); it fails by an exception.
"""
import argparse
import os
import pathlib
import signal
import sys
import time
import traceback

import check_engines
import check_python
import check_services
import check_shell
import check_snapshot
from machine import CARD, GIB, Machine, sees
from page import Page

# `nohup` and a shell's `&` make this program ignore some signals, and every program started from here would ignore them
# too. A caught signal goes back to its default in such a program, so these are caught and nothing is done.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)
CHECKS = {
    "wrapper": check_shell.wrapper,
    "jupyter": check_python.jupyter,
    "cron": check_services.cron,
    "tmux": check_shell.tmux,
    "systemd": check_services.systemd,
    "torchrun": check_python.torchrun,
    "ray": check_python.ray,
    "spot": check_snapshot.spot,
    "hub": check_engines.hub,
    "airflow": check_engines.airflow,
    "flyte": check_engines.flyte,
}
PAGES = ("recipes.md", "guides/engines/others.md")
# Where the packages of a recipe are, if not with the small ones.
FOLDERS = {"torchrun": "large", "ray": "large", "hub": "engines", "airflow": "engines", "flyte": "engines"}


def attempt(name, page, tools):
    """One recipe: whether it was tried, and what to say of it."""
    path = [getattr(tools, FOLDERS.get(name, "small"))]
    machine = Machine(tools.partage, path)
    try:
        # Without the recipe the program sees two whole cards: what the checks find is the recipe's doing.
        machine.let_go()
        code, _, errors = machine.shell("python train.py" if os.path.exists(path[0]) else "python3 train.py")
        assert code == 0, errors
        sees(machine.seen(1)[0], CARD // GIB, devices=2)
        machine.forget()
        said = CHECKS[name](machine, page, tools)
    except BaseException:
        print(machine.output()[-4000:])
        raise
    finally:
        machine.close()
    return (True, said) if isinstance(said, str) else (False, said[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partage", required=True)
    parser.add_argument("--large", default="")
    parser.add_argument("--engines", default="")
    parser.add_argument("--cron", default="")
    parser.add_argument("names", nargs="*", metavar="NAME")
    tools = parser.parse_args()
    tools.python = sys.executable
    tools.small = str(pathlib.Path(tools.python).parent)
    page = Page({"/usr/bin/partage": tools.partage, "/usr/bin/python3": sys.executable}, *PAGES)
    if page.recipes() != set(CHECKS):
        sys.exit(f"the pages recipes are {sorted(page.recipes())}, those tried {sorted(CHECKS)}")
    unknown = set(tools.names) - set(CHECKS)
    if unknown:
        sys.exit(f"no recipe {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    passed = failed = 0
    for name in tools.names or CHECKS:
        began = time.monotonic()
        try:
            was_tried, said = attempt(name, page, tools)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED: recipe {name}", flush=True)
            failed += 1
            continue
        if was_tried:
            print(f"tried: {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        else:
            print(f"SKIPPED: recipe {name} untried: {said}", flush=True)
        passed += was_tried
    print(f"checks: {passed} passed {failed} failed")
    return 1 if failed else 0


sys.exit(main())
