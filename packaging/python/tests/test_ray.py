# SPDX-License-Identifier: Apache-2.0
"""`partage.ray` without Ray: what it asks, what it refuses, and the worker's way to its job, with a stand-in for the
few names of Ray's that a worker meets. scripts/engines/ray/try has Ray itself. packaging/check runs this.
"""

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import partage
import partage.ray
from partage import _ray_worker

GIB = 1 << 30
# The names of Ray's: a task `train` with half a GPU.
RAY = {
    "__init__.py": """
import os

class Context:
    def get_actor_id(self): return None
    def get_task_id(self): return f"{os.getpid():06x}0f0a45af5c"
    def get_task_name(self): return "train"
    def get_assigned_resources(self): return {"CPU": 1.0, "GPU": 0.5}

def get_runtime_context(): return Context()
""",
    "_private/__init__.py": "",
    "_private/function_manager.py": """
import collections
Info = collections.namedtuple("Info", ["function", "function_name", "max_calls"])

class FunctionActorManager:
    def get_execution_info(self, job, descriptor): return Info(descriptor, "train", 1)
""",
}
# Ray's worker program: it notes how it was started, sets the variable and calls the task, which looks at its GPU.
WORKER = """
import ctypes, json, os, sys
from ray._private.function_manager import FunctionActorManager

def look():
    cuda, free, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t()
    context, count, uuid = ctypes.c_void_p(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    codes = [
        cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), cuda.cuDeviceGetUuid_v2(uuid, 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))]
    return {"codes": codes, "count": count.value, "uuid": bytes(uuid).hex(), "total": total.value}

said = {"argv": sys.argv[1:], "path": sys.path[0], "name": __name__}
said["visible"] = os.environ.get("CUDA_VISIBLE_DEVICES")
if sys.argv[1] != "none":
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
try:
    said.update(FunctionActorManager().get_execution_info(None, look).function())
    if sys.argv[1] == "1":
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        FunctionActorManager().get_execution_info(None, look).function()
except Exception as error:
    said["error"] = [type(error).__name__, str(error)]
said["environment"] = [name for name in os.environ if name.startswith("PARTAGE_")]
print(json.dumps(said), flush=True)
sys.stdin.read()
"""


class Options(unittest.TestCase):
    def test_a_part_is_asked_of_both(self):
        asked = partage.ray.options(num_gpus=0.25, runtime_env={"env_vars": {"A": "1"}})
        share = {"mem": "25%", "compute": "25%", "weight": 25}
        self.assertEqual(asked, {"num_gpus": 0.25, "runtime_env": {"env_vars": {"A": "1"}, "gpu_share": share}})
        third = partage.ray.options(num_gpus=1 / 3)["runtime_env"]["gpu_share"]
        self.assertEqual((third["mem"], third["weight"]), ("33.33%", 33))

    def test_whole_gpus_have_no_limit(self):
        self.assertEqual(partage.ray.options(num_gpus=2), {"num_gpus": 2, "runtime_env": {"gpu_share": {}}})

    def test_what_is_given_counts(self):
        share = partage.ray.options(num_gpus=0.5, mem="8GiB", compute=None, class_="x", priority="low")
        expected = {"mem": "8GiB", "weight": 50, "class": "x", "priority": "low"}
        self.assertEqual(share["runtime_env"]["gpu_share"], expected)

    def test_refusals_are_partages(self):
        for share, said in (
            ({"mem": "8"}, "did you mean 8% or 8GiB"),
            ({"compute": "200%"}, "--compute"),
            ({"weight": 0}, "--weight"),
            ({"priority": "urgent"}, "urgent"),
            ({"wait_timeout": "soon"}, "soon"),
            ({"memory": "8GiB"}, "no 'memory'; did you mean 'mem"),
        ):
            with self.subTest(share), self.assertRaisesRegex(ValueError, said):
                partage.ray.options(num_gpus=0.25, **share)
            with self.subTest(share), self.assertRaisesRegex(ValueError, said):
                partage.ray.GpuShare.validate({"gpu_share": share})
        with self.assertRaisesRegex(ValueError, "no part of a GPU"):
            partage.ray.options(num_gpus=0)
        for runtime_env, said in (
            ({"gpu_share": "25%"}, "is a dict"),
            ({"gpu_share": {}, "image_uri": "image"}, "do not go together"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                partage.ray.GpuShare.validate(runtime_env)

    def test_durations_are_read(self):
        for text, expected in (("90s", 90), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400), ("1.5m", 90)):
            self.assertAlmostEqual(_ray_worker.seconds(text), expected)


class Worker(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.machine = stack.enter_context(partage.sim(gpus=2, memory="8GiB"))
        self.home = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a worker ")))
        for name, text in RAY.items():
            path = self.home / "site" / "ray" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.home / "worker.py").write_text(WORKER)

    def worker(self, gpu, **share):
        """A worker as Ray starts one whose task is to use that GPU, and what it said."""
        context = types.SimpleNamespace(py_executable=shlex.quote(sys.executable), env_vars={})
        runtime_env = {"gpu_share": share}
        partage.ray.GpuShare.validate(runtime_env)
        partage.ray.GpuShare().modify_context([], runtime_env, context)
        script = f'exec {context.py_executable} "$0" "$@"'
        sim = [partage.program(), "sim", "--machine", self.machine.machine, "--"]
        pipe = subprocess.PIPE
        path = os.pathsep.join([str(self.home / "site"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        process = subprocess.Popen(
            [*sim, "bash", "-c", script, str(self.home / "worker.py"), gpu, "two words"],
            stdin=pipe, stdout=pipe, text=True, env=environment,
        )  # fmt: skip
        self.addCleanup(process.communicate)
        return json.loads(process.stdout.readline())

    def test_it_is_a_job_on_the_gpu_that_ray_chose(self):
        # What Partage alone would have chosen is GPU 0.
        said = self.worker("1", mem="25%", compute="30%")
        self.assertEqual((said["argv"], said["name"]), (["1", "two words"], "__main__"))
        self.assertEqual(said["path"], str(self.home))
        self.assertEqual((said["codes"], said["count"], said["total"]), ([0] * 6, 1, 2 * GIB), said)
        (job,) = self.machine.jobs()
        (device,) = job.devices
        self.assertEqual((job.name, device.index, device.limit_bytes), (f"train-{job.pid:06x}", 1, 2 * GIB))
        self.assertEqual(said["uuid"], device.uuid.removeprefix("GPU-").replace("-", ""))
        self.assertEqual(job.document["engine"], {"id": f"ray:{job.pid:06x}0f0a45af5c", "words": "train, 0.5 GPU"})
        self.assertAlmostEqual(job.document["terms"]["promise"], 0.3)
        # The second task was given GPU 0, where the worker is nobody.
        self.assertIn("a job on GPU 1, and Ray gave its next task GPU 0", said["error"][1])
        self.assertIn("PARTAGE_TOKEN", said["environment"])
        self.assertNotIn("PARTAGE_LAZY_REQUEST", said["environment"])

    def test_the_gpus_of_the_cluster_are_counted_by_its_own_variable(self):
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "1,0"}):
            said = self.worker("1", mem="25%")
        self.assertEqual((said["visible"], said["codes"]), ("1,0", [0] * 6), said)
        self.assertEqual([device.index for job in self.machine.jobs() for device in job.devices], [1])

    def test_without_room_the_task_fails_with_the_sentence(self):
        self.worker("0", mem="6GiB")
        said = self.worker("0", mem="4GiB", wait_timeout="1s")
        self.assertEqual(said["error"][0], "PartageError", said)
        self.assertRegex(said["error"][1], "GPU 0 has .* left.*held by j1")
        self.assertEqual([job.id for job in self.machine.jobs()], ["j1"])

    def test_a_task_without_a_gpu_of_rays_is_no_job_before_it_uses_one(self):
        said = self.worker("", mem="25%")
        self.assertEqual(said["codes"][0], 100, said)
        self.assertEqual(self.machine.jobs(), [])
        said = self.worker("none", mem="25%")
        self.assertEqual((said["codes"], said["total"]), ([0] * 6, 2 * GIB), said)
        (job,) = self.machine.jobs()
        self.assertIsNone(job.document.get("engine"), job)

    def test_where_ray_is_another_the_limit_holds_all_the_same(self):
        path = self.home / "site" / "ray" / "_private" / "function_manager.py"
        path.write_text(path.read_text().replace("FunctionActorManager", "Renamed"))
        worker = self.home / "worker.py"
        worker.write_text(worker.read_text().replace("FunctionActorManager", "Renamed"))
        said = self.worker("0", mem="25%")
        self.assertEqual((said["codes"], said["total"]), ([0] * 6, 2 * GIB), said)


if __name__ == "__main__":
    unittest.main()
