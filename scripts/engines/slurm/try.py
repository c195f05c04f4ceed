# SPDX-License-Identifier: Apache-2.0
"""Tries engines/slurm, a case after the other on one node; the next of one that fails has a new node.
`scripts/engines/slurm/try` calls this, in a mount namespace. A case fails by an exception.
"""
import argparse
import sys
import time
import traceback

import cases
from node import Node, own_folders

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
    try:
        for name in options.names or CASES:
            trials.try_one(name)
    finally:
        trials.end_node()
        give_back()
    print(f"checks: {trials.passed} passed {trials.failed} failed")
    return 1 if trials.failed else 0


class Trials:
    """The node that the next case gets, if one is there, and how many cases passed."""

    def __init__(self, built, slurm):
        self.built, self.slurm, self.node = built, slurm, None
        self.passed = self.failed = 0

    def try_one(self, name):
        began = time.monotonic()
        case = CASES[name]
        try:
            self.node = self.node or Node(self.built, self.slurm)
            self.node.arrange(**getattr(case, "node", {}))
            said = case(self.node)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print(self.node.logs() if self.node else "no node")
            print(f"FAILED: Slurm: {name}", flush=True)
            self.failed += 1
            self.end_node()
            return
        print(f"tried: Slurm: {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        self.passed += 1
        if getattr(case, "uses_up_node", False):
            self.end_node()

    def end_node(self):
        node, self.node = self.node, None
        if node:
            node.close()


sys.exit(main())
