# SPDX-License-Identifier: Apache-2.0
"""The roots that trials begin with, made once: `bare`, a minimal Debian with sudo, and `python`, the same with
Python, and the wheel of a CUDA program of somebody else's (tinygrad).

Both have the users alice, who may use sudo, and bob, who may not.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETWORK = "etc/apt/apt.conf.d/00network"
# sudo keeps the variables that stand for the host's GPUs and their driver (`gpus` in room.py).
SUDO = """\
alice ALL=(ALL) NOPASSWD: ALL
Defaults env_keep += "PARTAGE_SIM_DIR PARTAGE_SOCKET_DIR PARTAGE_PID_NAMESPACE LD_LIBRARY_PATH"
"""


class CannotMake(Exception):
    """This machine has no mirror, or does not reach it."""


def said_by(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


class Bases:
    """`bare` and `python` are the folders."""

    def __init__(self, cache):
        self.cache, self.log = cache, cache / "bases.log"
        self.bare, self.python = cache / "bare", cache / "python"

    def make(self):
        """Makes what is missing or was made otherwise."""
        pins = re.findall(r"^tinygrad==\S+", (ROOT / "scripts" / "requirements.txt").read_text(), re.M)
        release = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)
        if not release:
            raise CannotMake("this machine's release has no name")
        own = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
        wanted, stamp = f"{release.group(1)} {pins} {own}\n", self.cache / "bases.done"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        for folder in (self.bare, self.python):
            shutil.rmtree(folder, ignore_errors=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")
        self.bootstrap(release.group(1))
        self.add_python(pins)
        stamp.write_text(wanted)

    def must(self, *words):
        with self.log.open("a") as log:
            code = subprocess.run(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode
        if code:
            end = "\n".join(self.log.read_text().splitlines()[-5:])
            raise CannotMake(f"{words[0]} failed, {self.log}:\n{end}")

    def bootstrap(self, release):
        sites = said_by("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").splitlines()
        mirror = next((site for site in sites if re.search(r"/debian/*$", site)), None)
        if not mirror:
            raise CannotMake("apt here has no Debian mirror")
        self.must("debootstrap", "--variant=minbase", "--include=sudo", release, self.bare, mirror)
        for user in ("alice", "bob"):
            self.must("chroot", self.bare, "useradd", "--create-home", "--shell", "/bin/bash", user)
        (self.bare / "etc/sudoers.d/fresh").write_text(SUDO)
        (self.bare / "etc/hosts").write_text("127.0.0.1 localhost fresh\n")
        (self.bare / "etc/hostname").write_text("fresh\n")
        (self.bare / "outside").mkdir()
        shutil.rmtree(self.bare / "var/cache/apt/archives")
        (self.bare / "var/cache/apt/archives/partial").mkdir(parents=True)

    def add_python(self, pins):
        self.must("cp", "-a", self.bare, self.python)
        # How this machine reaches its network is not what is tried; none of it stays.
        shutil.copy("/etc/resolv.conf", self.python / "etc/resolv.conf")
        network = said_by("apt-config", "dump", "--no-empty", "Acquire").splitlines()
        kept = [line for line in network if re.match(r"Acquire::(http|https|Check-Valid-Until|Retries)", line)]
        (self.python / NETWORK).write_text("".join(line + "\n" for line in kept))
        proxies = [f"{name}={value}" for name, value in os.environ.items() if name.lower().endswith("_proxy")]
        script = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" env \"$@\""
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, self.python, *proxies]
        install = "apt-get update -q && apt-get install -qy --no-install-recommends python3-venv && apt-get clean"
        self.must(*enter, "DEBIAN_FRONTEND=noninteractive", "sh", "-c", install)
        for file in (NETWORK, "etc/resolv.conf"):
            (self.python / file).unlink()
        wheels = self.python / "opt/wheels"
        wheels.mkdir(parents=True)
        self.must(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", wheels, *pins)
