# SPDX-License-Identifier: Apache-2.0
"""Tries engines/slurm, a case after the other on a node of its own. `scripts/engines/slurm/try` calls this, in a mount
namespace. A case fails by an exception.
"""
import argparse
import os
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
    passed = failed = 0
    for name in options.names or CASES:
        began = time.monotonic()
        node = None
        try:
            case = CASES[name]
            node = Node(options.built, options.slurm, **getattr(case, "node", {}))
            preload(node, case)
            said = case(node)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print(node.logs() if node else "no node")
            print(f"FAILED: Slurm: {name}", flush=True)
            failed += 1
        else:
            print(f"tried: Slurm: {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
            passed += 1
        finally:
            for path in ("/etc/ld.so.preload", "/etc/libpartage.so"):
                if os.path.lexists(path):
                    os.unlink(path)
            if node:
                node.close()
    give_back()
    print(f"checks: {passed} passed {failed} failed")
    return 1 if failed else 0


def preload(node, case):
    """Every program that starts on the node from now on loads the library, or the plugin has it loaded."""
    if getattr(case, "is_preloaded", True):
        with open("/etc/ld.so.preload", "w") as file:
            file.write(f"{node.programs}/libpartage.so\n")
    else:
        os.symlink(node.programs / "libpartage.so", "/etc/libpartage.so")


sys.exit(main())
