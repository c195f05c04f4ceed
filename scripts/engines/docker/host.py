# SPDX-License-Identifier: Apache-2.0
"""A Debian 13 with two simulated GPUs, Partage from its Debian package, docker's daemon and podman.

It is a room of packaging/fresh: its root is written to in memory alone, and all that runs in it ends with it. What the
vendor's toolkit would have put there is a description of the simulated GPUs as `nvidia.com/gpu`.
"""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "packaging/fresh"), str(ROOT / "scripts/recipes")]

from page import Page  # noqa: E402
from room import GPUS, MACHINE, Client, Room, eventually  # noqa: E402

PROGRAMS = ("partage", "partaged")
LIBRARIES = ("partage-demo-client", "libpartage.so", "libpartage_sim_cuda.so", "libpartage_sim_nvml.so",
             "libpartage_sim_nvrtc.so", "libpartage_sim_runtime.so", "libpartage_sim_blas.so")
IMAGE = "docker.io/library/image"
CLASSES = 'schema = 1\n[class.small]\nmem = "4GiB"\n[class.large]\nmem = "10GiB"\n'
# Where a machine has no systemd and no network. crun refuses hybrid control groups; where v2 stands beside v1, it has
# no controller that could count processes.
PODMAN = """\
[containers]
netns = "none"
pids_limit = 0
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "{runtime}"
events_logger = "none"
cgroup_manager = "cgroupfs"
"""
RUNTIMES = {"v1": "runc", "v2": "crun"}
# The image: a small part of the same Debian.
NOT_OF_IMAGE = ("./var", "./usr/share", "./usr/libexec", "./usr/lib/systemd", "./usr/sbin", "./usr/bin/docker*",
                "./usr/bin/containerd*", "./usr/bin/podman", "./usr/bin/ctr", "./boot", "./root")
GIB = 1 << 30


GROUPS = pathlib.Path("/sys/fs/cgroup")
V2_ALONE = f"umount -R {GROUPS} && mount -t cgroup2 cgroup2 {GROUPS}"


def versions():
    """How a host here can have its control groups: as this machine has them, and v2 alone. Why one is not tried."""
    if (GROUPS / "cgroup.procs").exists():
        return ["v2"], "this machine has no control groups of v1"
    may = subprocess.run(["unshare", "--mount", "sh", "-c", V2_ALONE], capture_output=True, text=True)
    return (["v1", "v2"], None) if may.returncode == 0 else (["v1"], f"no cgroup v2 alone: {may.stderr.strip()}")


class Host:
    """`groups` is the version of its control groups, v1 or v2."""

    def __init__(self, options, folder, groups):
        self.folder, self.groups, self.left = folder, groups, contextlib.ExitStack()
        self.slice = f"partage-try-{os.getpid()}.slice"
        self.page = Page({"IMAGE python train.py": f"{IMAGE} client", "python train.py": "sleep 600", "IMAGE": IMAGE},
                         "guides/engines/docker.md")
        self.daemon = None
        self.pack(options.built)
        self.room = self.left.enter_context(Room(options.base, folder / "room", size="4g"))
        try:
            if groups == "v2":
                self.sh(V2_ALONE)
            self.install()
            self.describe_gpus()
            self.make_image(options.base)
        except BaseException:
            print(self.logs())
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # While the daemons are there, they take their control groups away.
        if self.daemon:
            self.clear()
            self.daemon.terminate()
            self.daemon.wait(timeout=60)
        self.remove_groups()
        self.left.close()

    def hierarchies(self):
        """The roots of its control groups: each of v1, or the one of v2."""
        if self.groups == "v2":
            return [GROUPS]
        return [path for path in GROUPS.iterdir() if path.is_dir() and not path.is_symlink()]

    def remove_groups(self):
        """This try's, and docker's own where it is empty: with another daemon's containers it is not."""
        tops = self.hierarchies()
        ours, shared = (shlex.join(str(top / name) for top in tops) for name in (self.slice, "docker"))
        # What was just killed there may still be ending.
        script = f"rmdir {shared}; for _ in $(seq 50); do find {ours} -depth -type d -exec rmdir {{}} +; " \
                 f"ls -d {ours} || break; sleep 0.1; done"
        self.sh(script, may_fail=True)

    def clear(self):
        """No container of a case that failed is left."""
        self.sh("docker ps -aq | xargs -r docker rm -f; podman rm -fat 0", may_fail=True)

    # ---- the host ----------------------------------------------------------------------------------------------

    def pack(self, built):
        """The build stripped, as a Debian package and as the programs that stand for the driver."""
        flat = self.folder / "flat"
        flat.mkdir()
        for name in PROGRAMS + LIBRARIES:
            subprocess.run(["strip", "--strip-unneeded", "-o", flat / name, built / name], check=True)
        subprocess.run([ROOT / "packaging/deb/pack", flat, self.folder / "dist"], check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"DEB_LEVEL": "0"})
        for names, below in ((PROGRAMS, "bin"), (LIBRARIES, "lib/partage")):
            (self.folder / below).mkdir(parents=True)
            for name in names:
                shutil.copy2(flat / name, self.folder / below)

    def install(self):
        (package,) = (self.folder / "dist").glob("*.deb")
        self.room.run("dpkg", "-i", self.room.put(package, "/root"))
        self.write("/etc/partage/partage.toml", CLASSES)
        self.room.gpus(self.folder)
        self.room.run("partage", "install", PARTAGE_SOCKET_DIR="/run/partage")
        # From here on only the containers have GPUs, as on a host whose driver needs no variable.
        self.room.has_gpus = False
        self.sh("ip link set lo up; for folder in docker containerd containers; do "
                "mkdir -p /var/lib/$folder; mount -t tmpfs $folder /var/lib/$folder; done")
        self.write("/etc/containers/containers.conf", PODMAN.format(runtime=RUNTIMES[self.groups]))
        self.sh("partage cdi generate")

    def describe_gpus(self):
        """The vendor's file: a device for each GPU, with its node."""
        def mount(path, *options, destination=None):
            return {"hostPath": path, "containerPath": destination or path, "options": ["bind", *options]}

        driver = [mount(MACHINE, "rw", "rbind"), mount(f"{GPUS}/client", "ro", destination="/usr/bin/client")]
        driver += [mount(f"{GPUS}/libpartage_sim_{name}.so", "ro") for name in ("cuda", "nvml")]
        nodes = {"hostPath": "tmpfs", "containerPath": f"{MACHINE}/dev", "type": "tmpfs", "options": ["mode=755"]}
        devices = [{"name": str(gpu), "containerEdits": {"mounts": [nodes, mount(f"{MACHINE}/dev/nvidia{gpu}", "rw")]}}
                   for gpu in range(2)]
        common = {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": driver}
        described = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "containerEdits": common, "devices": devices}
        self.write("/etc/cdi/nvidia.json", json.dumps(described))

    def make_image(self, base):
        """docker's daemon, with the page's settings, and an image for it and for podman."""
        self.file("docker")
        with open(self.folder / "dockerd.log", "wb") as log:
            self.daemon = subprocess.Popen(
                self.command("dockerd"), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

        def answers():
            assert self.daemon.poll() is None, "dockerd has ended"
            return self.room.tell("docker", "info")[0] == 0

        eventually("docker's daemon answers", answers)
        # The driver's place: what enters a container has the image's variables, not a description's.
        variables = f"ENV PARTAGE_SIM_DIR={MACHINE} LD_LIBRARY_PATH={MACHINE}/lib"
        without = [f"--exclude={path}" for path in NOT_OF_IMAGE]
        with subprocess.Popen(["tar", "-C", base, *without, "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
            words = self.command("docker", "import", "--change", variables, "-", IMAGE)
            subprocess.run(words, stdin=tar.stdout, stdout=subprocess.DEVNULL, check=True)
        self.sh(f"docker save {IMAGE} | podman load -q")

    # ---- what is done on it ------------------------------------------------------------------------------------

    def command(self, *words):
        return self.room.command(words, variables={"PODMAN_IGNORE_CGROUPSV1_WARNING": "1"})

    def sh(self, script, may_fail=False):
        """What a script of root's says; with `may_fail` its code, too."""
        done = subprocess.run(self.command("sh", "-c", script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        if may_fail:
            return done.returncode, done.stdout
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def write(self, path, text):
        file = self.folder / pathlib.Path(path).name
        file.write_text(text)
        self.room.put(file, os.path.dirname(path))

    def file(self, recipe):
        """The page's file of this recipe, where the page says. Its path."""
        path = next(block.path for block in self.page.all if block.recipe == recipe and block.path)
        written = self.page.file(recipe, self.folder / "page")
        self.write(path.replace("~", "/root"), written.read_text())
        return path.replace("~", "/root")

    def client(self, words):
        """A steerable program in a container; `words` start it there, with a standard input."""
        return Client(self.command(*words))

    def jobs(self):
        return json.loads(self.sh("partage ps --json"))["jobs"]

    def job(self, gpu, gib):
        """The one job, of a container on this GPU with this limit."""
        jobs = self.jobs()
        assert len(jobs) == 1, jobs
        (device,) = jobs[0]["devices"]
        assert (device["index"], device["limit_bytes"]) == (gpu, gib * GIB) and jobs[0]["container"]["id"], jobs
        return jobs[0]

    def is_free(self):
        eventually("no job is left", lambda: not self.jobs(), limit=60)

    def logs(self):
        log = self.folder / "dockerd.log"
        return "".join(log.read_text(errors="replace").splitlines(True)[-15:]) if log.exists() else ""
