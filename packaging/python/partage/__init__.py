# SPDX-License-Identifier: Apache-2.0
"""Share a GPU between programs: run one under a limit, and see who uses what.

>>> import partage
>>> partage.run(["python", "train.py"], mem="25%", name="train")      # doctest: +SKIP
>>> for job in partage.jobs():                                        # doctest: +SKIP
...     print(job.name, job.state, job.used_bytes)

Each function calls the program `partage` that was installed with this module, and reads its `--json`. The command line
has more: `partage --help`.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Device", "Job", "PartageError", "RunOptions", "Simulation", "jobs", "program", "run", "sim"]

Word = Union[str, "os.PathLike[str]"]
Command = Union[str, Sequence[Word]]


class PartageError(RuntimeError):
    """Partage could not do what was asked; the message says why."""

    def __init__(self, message: str, *, code: str = "failed", hint: Optional[str] = None, status: int = 1) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.code = code
        """A word for the kind of failure, such as `no-broker` or `not-allowed`."""
        self.hint = hint
        """What can be done about it."""
        self.status = status
        """The exit status of `partage`."""


class RunOptions(TypedDict, total=False):
    """What `run` takes: the options of `partage run`, with `_` for `-`. `partage run --help` explains them."""

    mem: str
    mem_request: str
    process_mem: str
    compute: str
    compute_max: str
    weight: int
    priority: str
    time_limit: str
    gpu: Union[str, int]
    on_full: str
    wait_timeout: str
    name: str
    labels: Mapping[str, str]
    strict: bool
    lazy: bool
    summary: bool
    quiet: bool


@dataclass(frozen=True)
class Device:
    """What a job has on one GPU."""

    index: Optional[int]
    """As `nvidia-smi` counts; none while the GPU is away."""
    uuid: str
    model: str
    limit_bytes: Optional[int]
    """None without a limit."""
    request_bytes: int
    """What is promised to the job."""
    used_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Job:
    """One job, as `partage ps` shows it."""

    id: str
    """Such as `j3`."""
    name: Optional[str]
    user: str
    state: str
    """Such as `running` or `suspended`."""
    pid: int
    """Its first process."""
    command: list[str]
    """Empty where the caller may not see it."""
    devices: list[Device]
    exit_code: Optional[int]
    """None while it lives."""
    document: Mapping[str, Any] = field(repr=False, compare=False)
    """Everything that `partage ps --json` says of it (docs/json/ps.schema.json)."""

    @property
    def used_bytes(self) -> int:
        """On all of its GPUs together."""
        return sum(device.used_bytes for device in self.devices)


def program() -> str:
    """The path of `partage`: the one that was installed with this module, else the first in `PATH`.

    Raises PartageError when there is none.
    """
    prefixes = [pathlib.Path(sysconfig.get_path("scripts"))]
    # Installed into another prefix: .../lib/python3.N/site-packages/partage/__init__.py
    prefixes += [folder / "bin" for folder in pathlib.Path(__file__).resolve().parents[3:5]]
    for folder in prefixes:
        if os.access(folder / "partage", os.X_OK):
            return str(folder / "partage")
    found = shutil.which("partage")
    if found is None:
        raise PartageError("the program partage is not here", code="not-found", hint="install Partage again")
    return found


def run(
    cmd: Command,
    *,
    check: bool = False,
    capture_output: bool = False,
    input: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[Word] = None,
    timeout: Optional[float] = None,
    **options: Unpack[RunOptions],
) -> subprocess.CompletedProcess[str]:
    """Run `cmd` and its children under a limit of GPU memory and time, and wait for it.

    `cmd` is a list of words, or one string that is split as a shell would (no shell runs). The arguments up to
    `timeout` are those of `subprocess.run`; the others are the options of `partage run`:

    >>> partage.run("python train.py", mem="25%", compute="30%")      # doctest: +SKIP

    The exit status is that of `cmd`; 124: there was no room, 125: Partage refused, 126 and 127: `cmd` cannot be run.
    Partage says why on standard error.
    """
    return _run([program()], cmd, options, check, capture_output, input, env, cwd, timeout)


def jobs(all: bool = False) -> list[Job]:
    """The jobs of this machine, oldest first; with `all` also those that ended in the last 24 hours.

    Raises PartageError when the broker does not answer. Where none runs there are no jobs.
    """
    return _jobs([program()], all)


def sim(
    gpus: int = 1, memory: Optional[str] = None, profile: Optional[str] = None, machine: Optional[str] = None
) -> Simulation:
    """A simulated machine, to try things without a GPU; `with` makes it and removes it:

    >>> with partage.sim(gpus=2, memory="16GiB") as machine:          # doctest: +SKIP
    ...     machine.run("python train.py", mem="25%")
    ...     machine.jobs()

    `profile` is the GPUs' model (`partage sim --help`), `machine` a name under which `partage sim --machine` joins it.
    """
    return Simulation(gpus, memory, profile, machine)


class Simulation:
    """A simulated machine; made by `sim`."""

    _count = itertools.count()

    def __init__(self, gpus: int, memory: Optional[str], profile: Optional[str], machine: Optional[str]) -> None:
        self.machine = machine or f"python-{os.getpid()}-{next(self._count)}"
        """Its name."""
        options = {"gpus": gpus, "memory": memory, "profile": profile}
        self._options = [word for key, value in options.items() for word in _option(key, value)]
        self._holder: Optional[subprocess.Popen[str]] = None

    def __enter__(self) -> Simulation:
        # A shell that waits for the end of its input: while it lives, so does the machine.
        command = [*self._words(), *self._options, "--", "/bin/sh", "-c", "echo ready; exec cat >/dev/null"]
        pipe = subprocess.PIPE
        self._holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self._holder.stdout and self._holder.stderr
        if self._holder.stdout.readline() != "ready\n":
            message = self._holder.stderr.read().strip()
            status = self._leave()
            raise PartageError(message.removeprefix("partage: ") or "partage sim did not start", status=status)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._leave()

    def run(
        self,
        cmd: Command,
        *,
        check: bool = False,
        capture_output: bool = False,
        input: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[Word] = None,
        timeout: Optional[float] = None,
        **options: Unpack[RunOptions],
    ) -> subprocess.CompletedProcess[str]:
        """As `partage.run`, on this machine."""
        return _run(self._inside(), cmd, options, check, capture_output, input, env, cwd, timeout)

    def jobs(self, all: bool = False) -> list[Job]:
        """As `partage.jobs`, on this machine."""
        return _jobs(self._inside(), all)

    def _words(self) -> list[str]:
        return [program(), "sim", "--machine", self.machine]

    def _inside(self) -> list[str]:
        if self._holder is None:
            raise PartageError("the simulated machine is not there", code="invalid", hint="use it in a `with`")
        return [*self._words(), "--", program()]

    def _leave(self) -> int:
        if self._holder is None:
            return 0
        with self._holder as holder:
            self._holder = None
            assert holder.stdin
            holder.stdin.close()
            return holder.wait()


def _run(
    words: list[str],
    cmd: Command,
    options: RunOptions,
    check: bool,
    capture_output: bool,
    input: Optional[str],
    env: Optional[Mapping[str, str]],
    cwd: Optional[Word],
    timeout: Optional[float],
) -> subprocess.CompletedProcess[str]:
    given: Mapping[str, object] = options
    unknown = sorted(given.keys() - RunOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"run() has no option {', '.join(unknown)}; partage run --help lists them")
    chosen = [word for key, value in given.items() for word in _option(key, value)]
    command = shlex.split(cmd) if isinstance(cmd, str) else [os.fspath(word) for word in cmd]
    return subprocess.run(
        [*words, "run", *chosen, "--", *command],
        check=check,
        capture_output=capture_output,
        input=input,
        env=env,
        cwd=cwd,
        timeout=timeout,
        text=True,
    )


def _option(key: str, value: object) -> list[str]:
    name = "--" + key.replace("_", "-")
    if key == "labels" and isinstance(value, Mapping):
        return [f"--label={label}={text}" for label, text in value.items()]
    if value is None or value is False:
        return []
    return [name] if value is True else [f"{name}={value}"]


def _jobs(words: list[str], all: bool) -> list[Job]:
    asked = subprocess.run([*words, "ps", "--json", *(["--all"] if all else [])], capture_output=True, text=True)
    try:
        document = json.loads(asked.stdout)
    except ValueError:
        said = asked.stderr.strip().removeprefix("partage: ")
        raise PartageError(said or "partage ps gave no answer", status=asked.returncode) from None
    error = document.get("error")
    if error is not None:
        raise PartageError(error["message"], code=error["code"], hint=error["hint"], status=asked.returncode)
    return [_job(job) for job in document["jobs"]]


def _job(document: Mapping[str, Any]) -> Job:
    devices = [
        Device(**{key: device[key] for key in Device.__dataclass_fields__}) for device in document["devices"]
    ]
    same = ("name", "user", "state", "pid", "command", "exit_code")
    return Job(id=document["job"], devices=devices, document=document, **{key: document[key] for key in same})
