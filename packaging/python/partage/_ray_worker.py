# SPDX-License-Identifier: Apache-2.0
"""Stands before Ray's worker program, and has the worker registered before its first task runs.

usage: _ray_worker.py TOLD PROGRAM [ARGUMENT...]      (`partage.ray.GpuShare` writes that)
Ray starts a worker, gives it a task, sets `CUDA_VISIBLE_DEVICES` in it, looks up the task's function and calls that.
Here the worker becomes a job as soon as the function is looked up: on the GPU that Ray chose, under Ray's id of the
actor or task. A refusal is an exception of the task. Should the look-up be another one some day, `partage run --lazy`,
which started the worker, makes it a job at its first use of a GPU.
"""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Mapping, Optional

LAZY = "PARTAGE_LAZY_REQUEST"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Between two looks for room.
PAUSE_S = 0.2
# A worker that leaves has left by then, and nobody needs to hear of it.
QUIET_S = 3
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Admission:
    """This process on its way to being a job."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._program: str = told["program"]
        self._words: list[str] = told["words"]
        self._patience_s = seconds(told["patience"])
        self._turn = threading.Lock()
        self._gpus: Optional[str] = None
        """Those of the job, as Ray calls them; none before there is one."""
        self._refusal: Optional[Exception] = None

    def ask(self) -> None:
        """Asks for the job, once there is one to ask for; what speaks against it is kept for `demand`."""
        gpus = os.environ.get(VISIBLE, "")
        with self._turn:
            # For a task without a GPU of Ray's nothing is promised; should it use one, it is a job from then on.
            if self._gpus is not None or not re.match(r"\d|GPU-|MIG-", gpus):
                return
            self._refusal = None
            try:
                environment = self._register([*called(), f"--gpu={gpus}"])
            except Exception as error:
                self._refusal = error
                return
            self._gpus = gpus
            enter(environment)

    def demand(self) -> None:
        """Raises what keeps this process from a GPU."""
        if self._refusal is None:
            self.ask()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def demand_task(self) -> None:
        """`demand`, where Ray may have chosen a GPU anew: a worker has one job, on the GPUs of its first task."""
        self.demand()
        gpus = os.environ.get(VISIBLE)
        if self._gpus and gpus and gpus != self._gpus:
            text = f"this worker is a job on GPU {self._gpus}, and Ray gave its next task GPU {gpus}"
            raise failure(f"{text}; give partage.ray.options to @ray.remote: a worker then runs one task", "invalid")

    def _register(self, what: list[str]) -> Mapping[str, str]:
        words = [self._program, "register", f"--pid={os.getpid()}", "--timeout=10s", *self._words, *what]
        began, has_told = time.monotonic(), False
        while True:
            document = json.loads(run([*words, "--json"]).stdout)
            error = document.get("error")
            if error is None:
                return document.get("environment", {})  # type: ignore[no-any-return]
            waited = time.monotonic() - began
            if error["code"] == "no-room" and waited < self._patience_s:
                if waited > QUIET_S and not has_told:
                    print(f"partage: waiting: {error['message']}", file=sys.stderr, flush=True)
                    has_told = True
                time.sleep(PAUSE_S)
                continue
            # In one sentence, which the document has in parts.
            said = run(words).stderr.strip().removeprefix("partage: ")
            raise failure(said or error["message"], error["code"])


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs `partage` outside of what it prepared for this process."""
    ours = ("LD_PRELOAD", "PARTAGE_TOKEN", LAZY)
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    null = subprocess.DEVNULL
    return subprocess.run(words, env=environment, stdin=null, capture_output=True, text=True, errors="replace")


def failure(text: str, code: str) -> Exception:
    """Such as the rest of the module raises; where the worker's Python has no `partage`, a RuntimeError."""
    try:
        from partage import PartageError
    except ImportError:
        return RuntimeError(text)
    return PartageError(text, code=code)


def called() -> list[str]:
    """How Ray calls what runs here: its id of the actor or task, a name that is unique by that, and its words."""
    import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]

    context: Any = ray.get_runtime_context()
    actor = context.get_actor_id()
    id = actor or context.get_task_id()
    task = str(context.get_task_name() or "task")
    name = str((actor and context.get_actor_name()) or task.rpartition(".__init__")[0] or task)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace("()", "")).strip("-")[:50]
    name = name if name[:1].isalpha() else f"ray-{name}"
    part = context.get_assigned_resources().get("GPU", 0)
    return [f"--engine=ray:{id}", f"--name={name}-{id[:6]}", f"--engine-words={name}, {part:g} GPU"]


def enter(environment: Mapping[str, str]) -> None:
    """The variables of the job, in place of those of a job to come: for the library here, and for children."""
    for name in (LAZY, "PARTAGE_TOKEN"):
        os.environ.pop(name, None)
    for name, value in environment.items():
        if name == "LD_PRELOAD":
            others = re.split("[ :]+", os.environ.get(name, ""))
            others = [entry for entry in others if entry and "libpartage" not in os.path.basename(entry)]
            value = ":".join([value, *others])
        os.environ[name] = value
    # Where Ray reads what the library says of a denial.
    stderr = os.fstat(2)
    os.environ["PARTAGE_STDERR"] = f"{stderr.st_dev}:{stderr.st_ino}"


def seconds(duration: str) -> float:
    """`90s`, `1h30m`; the command line has judged it."""
    return sum(float(number) * SECONDS[unit] for number, unit in re.findall(r"([\d.]+)\s*(ms|[smhd])", duration))


def watch(admission: Admission) -> None:
    """Lets the admission see every look-up of a function, and each call."""
    try:
        from ray._private.function_manager import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            FunctionActorManager,
        )

        look_up: Callable[..., Any] = FunctionActorManager.get_execution_info
    except (ImportError, AttributeError) as error:
        print(f"partage: unknown to this Ray: {error}; jobs have no names of Ray's", file=sys.stderr)
        return

    def get_execution_info(*arguments: Any, **named: Any) -> Any:
        info = look_up(*arguments, **named)
        # Before the task's arguments are read, which may be on the GPU.
        admission.ask()
        function = info.function
        # An actor's GPUs are Ray's choice once; its methods may choose among them.
        demand = admission.demand if hasattr(function, "method") else admission.demand_task

        @functools.wraps(function)
        def admitted(*arguments: Any, **named: Any) -> Any:
            demand()
            return function(*arguments, **named)

        return info._replace(function=admitted)

    setattr(FunctionActorManager, "get_execution_info", get_execution_info)


def main() -> None:
    """Becomes Ray's worker."""
    told, program = json.loads(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    # As if Python had started the program itself: beside this file `ray` is another module.
    sys.path[0] = os.path.dirname(program)
    # Not set inside a job, whose limit holds: a cluster that `partage run` started.
    if os.environ.get(LAZY):
        if told["visible"] is not None:
            os.environ[VISIBLE] = told["visible"]
        watch(Admission(told))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
