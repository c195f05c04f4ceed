# SPDX-License-Identifier: Apache-2.0
"""Runs tests of PyTorch's own test_cuda.py by name, and writes what became of each.

usage: own_tests.py FOLDER RESULT CLASS.TEST...   (FOLDER: PyTorch's tests)
"""
import json
import sys
import unittest

folder, to, *names = sys.argv[1:]
# PyTorch reads the command line at its import.
sys.argv[1:] = []
sys.path.insert(0, folder)

import test_cuda  # noqa: E402


class Kept(unittest.TextTestResult):
    found = {}

    def keep(self, test, word):
        Kept.found.setdefault(".".join(test.id().split(".")[-2:]), word)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.keep(test, "ok")

    def addError(self, test, error):
        super().addError(test, error)
        self.keep(test, "error")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.keep(test, "fail")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.keep(test, "skipped")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.keep(test, "expected failure")


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames(names, test_cuda)
    unittest.TextTestRunner(resultclass=Kept, verbosity=2).run(suite)
    with open(to, "w") as file:
        json.dump(Kept.found, file)
