# SPDX-License-Identifier: Apache-2.0
"""The module `partage`, as installed, on simulated machines. packaging/check runs this; it needs no GPU."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import partage

GIB = 1 << 30
# What a program sees as the size of its GPU.
TOTAL = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
for code in (
    cuda.cuInit(0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cuda.cuCtxSetCurrent(context),
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
):
    assert code == 0, code
print(total.value, flush=True)
"""


class OnASimulatedMachine(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.machine = stack.enter_context(partage.sim(gpus=1, memory="8GiB"))

    def test_a_program_sees_its_limit(self):
        done = self.machine.run([sys.executable, "-c", TOTAL], mem="25%", capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, f"{2 * GIB}\n"), done.stderr)

    def test_jobs_are_listed_with_their_numbers(self):
        self.assertEqual(self.machine.jobs(), [])
        script = TOTAL + "import sys; sys.stdin.read()"
        words = [partage.program(), "sim", "--machine", self.machine.machine, "--", partage.program(), "run"]
        words += ["-m", "1GiB", "--name", "here", "-q", "--", sys.executable, "-c", script]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            self.assertEqual(program.stdout.readline(), f"{GIB}\n")
            (job,) = self.machine.jobs()
            self.assertEqual((job.id, job.name, job.state), ("j1", "here", "running"))
            self.assertEqual(job.command[-2:], ["-c", script])
            (device,) = job.devices
            self.assertEqual((device.index, device.limit_bytes, device.request_bytes), (0, GIB, GIB))
            self.assertEqual(job.used_bytes, device.used_bytes)
            self.assertLessEqual(device.used_bytes, GIB)
            self.assertEqual(job.document["job"], "j1")
        (ended,) = self.listed(lambda jobs: jobs[0].state == "ended", all=True)
        self.assertEqual(ended.exit_code, 0)
        self.assertEqual(self.machine.jobs(), [])

    def listed(self, condition, **options):
        until = time.monotonic() + 20
        while not condition(jobs := self.machine.jobs(**options)):
            self.assertLess(time.monotonic(), until, jobs)
            time.sleep(0.05)
        return jobs

    def test_options_are_those_of_the_command_line(self):
        done = self.machine.run(
            "sh -c 'exit 3'",
            name="named",
            labels={"team": "vision"},
            priority="low",
            weight=50,
            strict=True,
            quiet=True,
        )
        self.assertEqual(done.returncode, 3)
        (job,) = self.listed(lambda jobs: jobs[0].state == "ended", all=True)
        self.assertEqual((job.name, job.exit_code, job.document["is_strict"]), ("named", 3, True))
        self.assertEqual(job.document["labels"], [["team", "vision"]])
        self.assertEqual(job.document["terms"]["priority"], "low")

    def test_refusals_are_said(self):
        done = self.machine.run("true", mem="8", capture_output=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn("did you mean 8% or 8GiB?", done.stderr)
        done = self.machine.run("true", mem="9GiB", capture_output=True)
        self.assertEqual(done.returncode, 125, done.stderr)
        with self.assertRaises(subprocess.CalledProcessError):
            self.machine.run("false", check=True)
        with self.assertRaisesRegex(TypeError, "no option memory"):
            self.machine.run("true", memory="1GiB")


class Failures(unittest.TestCase):
    def test_a_simulation_that_does_not_start_says_why(self):
        with self.assertRaisesRegex(partage.PartageError, "of what"), partage.sim(memory="25%"):
            self.fail("there is no such machine")

    def test_a_simulation_is_used_inside_with_alone(self):
        with self.assertRaisesRegex(partage.PartageError, "in a `with`"):
            partage.sim().jobs()

    def test_a_missing_program_is_said(self):
        with (
            mock.patch("os.access", return_value=False),
            mock.patch("shutil.which", return_value=None),
            self.assertRaisesRegex(partage.PartageError, "is not here") as caught,
        ):
            partage.program()
        self.assertEqual(caught.exception.code, "not-found")

    def test_an_error_has_its_code_and_hint(self):
        error = {"code": "no-answer", "message": "the broker does not answer", "hint": "wait", "holders": []}
        said = subprocess.CompletedProcess([], 5, json.dumps({"error": error}), "")
        with (
            mock.patch("subprocess.run", return_value=said),
            self.assertRaisesRegex(partage.PartageError, "the broker does not answer; wait") as caught,
        ):
            partage.jobs()
        self.assertEqual((caught.exception.code, caught.exception.status), ("no-answer", 5))

    def test_the_program_is_the_installed_one(self):
        self.assertEqual(pathlib.Path(partage.program()).parent, pathlib.Path(sys.prefix) / "bin")
        self.assertTrue(os.access(partage.program(), os.X_OK))


class Together(unittest.TestCase):
    def test_two_programs_run_at_once(self):
        done = {}
        with partage.sim(gpus=1, memory="8GiB") as machine:

            def work(limit):
                words = [sys.executable, "-c", TOTAL]
                done[limit] = machine.run(words, mem=f"{limit}GiB", capture_output=True).stdout

            threads = [threading.Thread(target=work, args=(limit,)) for limit in (1, 2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(done, {limit: f"{limit * GIB}\n" for limit in (1, 2)})


if __name__ == "__main__":
    unittest.main()
