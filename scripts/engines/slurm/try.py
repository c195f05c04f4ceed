# SPDX-License-Identifier: Apache-2.0
"""Tries engines/slurm, a case after the other on one node; the next of one that fails has a new node.
`scripts/engines/slurm/try` calls this, in a mount namespace. A case fails by an exception.
"""
import argparse
import signal
import sys
import time
import traceback

import cases
from node import Node, own_folders

# A case that hangs, such as for a job that never starts, fails after this.
LIMIT_S = 300
CASES = {name: getattr(cases, name) for name in cases.NAMES}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--built", required=True)
    parser.add_argument("--slurm", required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    unknown = set(options.names) - set(CASES)
    if unknown:
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    give_back = own_folders()
    trials = Trials(options.built, options.slurm)
    # What ends this at its time limit lets it take everything away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    signal.signal(signal.SIGALRM, out_of_time)
    try:
        for name in options.names or CASES:
            trials.try_one(name)
    finally:
        trials.end_node()
        give_back()
    print(f"checks: {trials.passed} passed {trials.failed} failed")
    return 1 if trials.failed else 0


def out_of_time(*_):
    raise TimeoutError(f"not over after {LIMIT_S} s")


class Trials:
    """The node that the next case gets, if one is there, and how many cases passed."""

    def __init__(self, built, slurm):
        self.built, self.slurm, self.node = built, slurm, None
        self.passed = self.failed = 0

    def try_one(self, name):
        began = time.monotonic()
        case = CASES[name]
        try:
            if hasattr(case, "cluster"):
                self.end_node()
            self.node = self.node or Node(self.built, self.slurm, **getattr(case, "cluster", {}))
            self.node.arrange(**getattr(case, "node", {}))
            signal.alarm(LIMIT_S)
            said = case(self.node)
            signal.alarm(0)
        except (Exception, SystemExit) as error:
            signal.alarm(0)
            traceback.print_exc(file=sys.stdout)
            print(self.node.logs() if self.node else "no node")
            print(f"FAILED: Slurm: {name}", flush=True)
            self.failed += 1
            self.end_node()
            if isinstance(error, SystemExit):
                raise
            return
        print(f"tried: Slurm: {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        self.passed += 1
        if hasattr(case, "cluster") or getattr(case, "uses_up_node", False):
            self.end_node()

    def end_node(self):
        node, self.node = self.node, None
        if node:
            node.close()


sys.exit(main())
