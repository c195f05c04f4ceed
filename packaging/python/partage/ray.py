# SPDX-License-Identifier: Apache-2.0
"""Parts of a GPU for Ray's tasks and actors, which hold.

>>> import partage.ray, ray                                           # doctest: +SKIP
>>> partage.ray.init()                                                # doctest: +SKIP
>>> @ray.remote(**partage.ray.options(num_gpus=0.25))                 # doctest: +SKIP
... def train(): ...

Ray counts the quarter, and Partage limits the worker to it. `GpuShare` is the plugin by which a worker comes to that:
`runtime_env={"gpu_share": {"mem": "25%", "compute": "30%"}}`. docs/guides/engines/ray.md has the rest.
"""

from __future__ import annotations

import difflib
import json
import os
import pathlib
import shlex
import subprocess
from typing import Any, Mapping, Optional

from partage import _option, program

try:
    from ray._private.runtime_env.plugin import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        RuntimeEnvPlugin,
    )
except ImportError:
    # Whoever only asks for options needs no Ray.
    RuntimeEnvPlugin = object  # type: ignore[assignment,misc,unused-ignore]

__all__ = ["GpuShare", "init", "options"]

NAME = "gpu_share"
# Options of `partage run` and `partage register`, with `_` for `-`; `wait_timeout` is how long a task waits for room.
KEYS = (
    "class", "compute", "compute_max", "mem", "mem_request", "priority", "process_mem", "strict", "time_limit",
    "wait_timeout", "weight",
)  # fmt: skip
# A worker before this one may still be leaving.
WAIT_TIMEOUT = "30s"
PLUGINS = "RAY_RUNTIME_ENV_PLUGINS"
VISIBLE = "CUDA_VISIBLE_DEVICES"


def options(
    num_gpus: float, runtime_env: Optional[Mapping[str, Any]] = None, **share: object
) -> dict[str, Any]:
    """What a task or an actor is to have, for `@ray.remote(**…)` and `.options(**…)`.

    A part of a GPU, such as 0.25, is asked of Ray, and of Partage as limit, promise of time and weight. Whole GPUs have
    no limit. `share` changes what Partage is asked (`mem="8GiB"`, `compute=None`, `class_="batch"`), and `runtime_env`
    is what else the workers need.

    Raises ValueError with Partage's reason.
    """
    if num_gpus <= 0:
        raise ValueError(f"num_gpus={num_gpus} is no part of a GPU; leave out partage.ray.options")
    part: dict[str, object] = {}
    if num_gpus < 1:
        percent = f"{round(num_gpus * 100, 2):g}%"
        part = {"mem": percent, "compute": percent, "weight": max(1, round(num_gpus * 100))}
    part.update({key.rstrip("_"): value for key, value in share.items()})
    part = {key: value for key, value in part.items() if value is not None}
    _words(part)
    return {"num_gpus": num_gpus, "runtime_env": {**(runtime_env or {}), NAME: part}}


def init(*arguments: Any, **named: Any) -> Any:
    """`ray.init` of a cluster on this machine whose workers know `gpu_share`; a cluster that is there already has it
    from `ray start` (see the page)."""
    import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]

    plugins = json.loads(os.environ.get(PLUGINS) or "[]")
    if all(plugin.get("class") != "partage.ray.GpuShare" for plugin in plugins):
        os.environ[PLUGINS] = json.dumps([*plugins, {"class": "partage.ray.GpuShare"}])
    # Ray tries a refused environment three times, a second apart.
    os.environ.setdefault("RUNTIME_ENV_RETRY_TIMES", "1")
    return ray.init(*arguments, **named)


class GpuShare(RuntimeEnvPlugin):  # type: ignore[misc,unused-ignore]
    """The plugin `gpu_share` of Ray's runtime environments."""

    name = NAME
    # After those that choose the worker's Python.
    priority = 100

    @staticmethod
    def validate(runtime_env_dict: Mapping[str, Any]) -> None:
        """Raises ValueError, with Partage's reason, for what no worker could be started with."""
        _words(runtime_env_dict[NAME])
        for other in ("container", "image_uri"):
            if runtime_env_dict.get(other):
                raise ValueError(f"{NAME} and {other} do not go together; limit the container: docs/containers.md")

    def modify_context(
        self, uris: list[str], runtime_env: Mapping[str, Any], context: Any, logger: object = None
    ) -> None:
        """Has `partage run` start the worker, by way of `_ray_worker.py`."""
        words = _words(runtime_env[NAME])
        patience = str(runtime_env[NAME].get("wait_timeout", WAIT_TIMEOUT))
        given = {
            "program": program(),
            "words": [word for word in words if not _is_patience(word)],
            # `run` takes it away; the worker counts Ray's GPUs by it.
            "visible": context.env_vars.get(VISIBLE, os.environ.get(VISIBLE)),
        }
        run = [program(), "run", "--lazy", "--quiet", *words]
        if not any(map(_is_patience, words)):
            run.append(f"--wait-timeout={patience}")
        worker = str(pathlib.Path(__file__).with_name("_ray_worker.py"))
        told = json.dumps({**given, "patience": patience})
        context.py_executable = f"{shlex.join([*run, '--'])} {context.py_executable} {shlex.join([worker, told])}"


def _is_patience(word: str) -> bool:
    return word.startswith("--wait-timeout=")


def _words(share: object) -> list[str]:
    """What was asked as options of the command line, which judges them."""
    if not isinstance(share, Mapping):
        raise ValueError(f'{NAME} is a dict such as {{"mem": "25%"}}, not {share!r}')
    for key in share:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, 1, 0)
            raise ValueError(f"{NAME} has no {key!r}; did you mean {near[0]!r}? It takes {', '.join(KEYS)}")
    words = [word for key, value in share.items() for word in _option(key, value)]
    # What starts the worker, with nothing in its place: no broker is asked for that. Not by its code: Ray may have been
    # told to take the ends of its processes' children for itself.
    run = [program(), "run", "--lazy", "--quiet", *words, "--", "echo", "good"]
    said = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if said.stdout != "good\n":
        raise ValueError(f"{NAME}: {said.stderr.strip().removeprefix('partage: ')}")
    return words
