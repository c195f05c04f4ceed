# SPDX-License-Identifier: Apache-2.0
"""Builds the image, and has a container of it be a host's broker by the commands of docs/containers.md.

The host is this machine with its folders covered (packaging/image/check); its GPUs are simulated.
usage: on_a_host.py WORK BASE   WORK: the folders `programs` and `context`; BASE: the root of a Debian
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "packaging/fresh"))

from room import STATE, Client, eventually, same  # noqa: E402
from trial import grows, holds  # noqa: E402

PAGE = ROOT / "docs/containers.md"
SECTION = "## The broker as a container"
# What a machine without systemd has. A pod's first container is podman's own program elsewhere.
SETTINGS = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "none"
[engine]
runtime = "runc"
events_logger = "none"
cgroup_manager = "cgroupfs"
infra_image = "localhost/base"
"""
CONFIGURATION = """\
schema = 1
[class.small]
mem = "2GiB"
[[rule]]
name = "alice"
match = { user = "alice" }
max = { mem = "3GiB" }
"""
ALICE, ADMINISTRATORS = 60001, 60002
# The host's copies of what is built, and the same client in the image.
PROGRAMS, CLIENT = pathlib.Path("/tmp/programs"), "/usr/lib/partage/partage-demo-client"
PARTAGE = "/var/lib/partage/bin/partage"
# `PID_NS_INIT_INO` of <linux/nsfs.h>. Where this is tried in a container, a managed broker has to be told to start.
FIRST_PID_NAMESPACE = 0xEFFFFFFC
ANY_PID_NAMESPACE = "--env=PARTAGE_PID_NAMESPACE=any"
# The engine's own.
NOT_JUDGED = r"/run/(store|libpod|runc|netns|containers|lock)(/|$)"


def tell(*words, **options):
    """Exit code, and both streams' text."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    done = subprocess.run(words, text=True, timeout=180, **(streams | options))
    return done.returncode, done.stdout


def run(*words, **options):
    code, said = tell(*words, **options)
    assert code == 0, f"{shlex.join(map(str, words))}: {code}\n{said}"
    return said


def jobs():
    return json.loads(run(PARTAGE, "ps", "--json"))["jobs"]


def as_alice(*words):
    return ["setpriv", "--reuid", str(ALICE), "--regid", str(ALICE), "--clear-groups", "env", "HOME=/tmp", *words]


def state():
    folders = [folder for folder in ("/run", "/var/lib/partage") if os.path.exists(folder)]
    return dict(line.split("\t", 1) for line in run("sh", "-c", STATE, "-", *folders).splitlines())


def without(words, option, instead=()):
    """The words, less this option and its value."""
    places = [at for at in range(len(words)) if words[at : at + 2] == list(option)]
    assert len(places) == 1, f"{PAGE}: not one {' '.join(option)}"
    return [*words[: places[0]], *instead, *words[places[0] + 2 :]]


def fills(client):
    """It sees its limit, and has half of it."""
    client.expect("total", f"total {2 << 30}")
    client.expect("take 1024", "taken")
    client.expect("fill 7", "filled")
    holds(client)


class OnAHost:
    """`checks` are its methods, in order."""

    def __init__(self, work, base):
        self.work, self.base, self.storage, self.sim = work, base, "overlay", None
        (work / "containers.conf").write_text(SETTINGS)
        os.environ["CONTAINERS_CONF"] = str(work / "containers.conf")
        is_first = os.stat("/proc/self/ns/pid").st_ino == FIRST_PID_NAMESPACE
        self.told = [] if is_first else [ANY_PID_NAMESPACE]
        self.section = PAGE.read_text().split(f"\n{SECTION}\n")[1].split("\n## ")[0]
        blocks = re.findall(r"^```text\n(.*?)^```", self.section, re.M | re.S)
        self.page = [shlex.split(line) for line in "".join(blocks).replace("\\\n", " ").splitlines()]

    def podman(self, *words):
        return ["podman", "--root", self.work / "store", "--runroot", "/run/store", "--storage-driver", self.storage,
                *words]

    def line(self, *start):
        """The command of the page that begins so, with podman's store here."""
        found = [words[1:] for words in self.page if words[: len(start) + 1] == ["sudo", *start]]
        assert len(found) == 1, f"{PAGE}: not one line begins with sudo {' '.join(start)}"
        return self.podman(*found[0][1:]) if start[0] == "podman" else found[0]

    def broker(self):
        """The page's command, with the simulated GPUs for the vendor's."""
        own = [*self.machine, "--env=PARTAGE_SOCKET_DIR=/run/partage"]
        return without(self.line("podman", "run", "--detach"), ("--device", "nvidia.com/gpu=all"), own)

    def start(self):
        words = self.broker()
        run(*words[:-1], *self.told, words[-1])
        ready = self.podman("exec", "partaged", "partage", "status")
        eventually("it is ready", lambda: tell(*ready)[0] == 0)

    def is_built(self):
        # Its layers need another kind of store on a disk that is one of layers itself.
        if tell(*self.podman("info"))[0] != 0:
            self.storage = "vfs"
        with subprocess.Popen(["tar", "-C", self.base, "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
            first = '--change=CMD ["/bin/sleep","infinity"]'
            run(*self.podman("import", "--quiet", first, "-", "localhost/base"), stdin=tar.stdout)
        words = self.line("podman", "build")
        run(*words[:-1], "--build-arg", "BASE=localhost/base", words[-1], cwd=self.work / "context")
        labels = json.loads(run(*self.podman("image", "inspect", "--format", "{{json .Labels}}", "partage")))
        version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
        assert labels["org.opencontainers.image.version"] == version, labels
        code, said = tell(*self.podman("run", "--rm", "partage", "getent", "group", "partage"))
        assert code == 2, f"a group of the image's own: {said}"

    def refuses_half_a_host(self):
        run("sh", "-c", f"echo alice:x:{ALICE}:{ALICE}::/tmp:/bin/sh >>/etc/passwd")
        run("sh", "-c", f"echo partage:x:{ADMINISTRATORS}:alice >>/etc/group")
        self.before = state()
        run(*self.line("mkdir"))
        pathlib.Path("/etc/partage/partage.toml").write_text(CONFIGURATION)
        run("cp", "-r", self.work / "programs", PROGRAMS)
        sim = [PROGRAMS / "partage", "sim", "--machine", "host"]
        options = ["--shared", "--overcommit", "--gpus", "2", "--memory", "16GiB", "--", "sleep", "infinity"]
        self.sim = subprocess.Popen([*sim, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        eventually("the host has its GPUs", lambda: tell(*sim, "--mounts")[0] == 0)
        self.machine = run(*sim, "--mounts").split()
        variables = [word.removeprefix("--env=") for word in self.machine if word.startswith("--env=")]
        os.environ.update(variable.split("=", 1) for variable in variables)
        os.environ["PARTAGE_SOCKET_DIR"] = "/run/partage"
        for option, instead, named in [
            (("--volume", "/run/partage:/run/partage"), (), "/run/partage is not the host's"),
            (("--volume", "/etc/cdi:/etc/cdi"), (), "/etc/cdi is not the host's"),
            (("--cap-add", "SYS_PTRACE"), (), "--cap-add SYS_PTRACE"),
            (("--cgroupns", "host"), ("--cgroupns", "private"), "--cgroupns host"),
            (("--pid", "host"), (), "a container with --pid host"),
        ]:
            words = without(without(self.broker(), ("--name", "partaged")), ("--restart", "always"), ["--rm"])
            words.remove("--detach")
            code, said = tell(*without(words, option, instead))
            assert code != 0 and named in said, f"without {option}: {code}\n{said}"

    def serves(self):
        self.start()
        eventually("it describes its classes", pathlib.Path("/etc/cdi/partage.json").exists)
        # A class more, as the page's table says.
        with open("/etc/partage/partage.toml", "a") as file:
            file.write('[class.large]\nmem = "8GiB"\n')
        again = re.search(r"`podman (exec partaged sh -c '.*?')`", self.section).group(1)
        assert "share=large" in run(*self.podman(*shlex.split(again))), again
        assert os.stat("/run/partage/admin.sock").st_gid == ADMINISTRATORS, "administrators are the host's"

    def limits_a_program_of_the_host(self):
        code, said = tell(*as_alice(PARTAGE, "run", "-m", "8GiB", "--on-full", "fail", "--", "true"))
        assert code != 0 and "the rule alice, max.mem = 3GiB" in said, f"{code}: {said}"
        client = PROGRAMS / "partage-demo-client"
        self.program = Client(as_alice(PARTAGE, "run", "-q", "--name", "hers", "-m", "2GiB", "--", client))
        fills(self.program)

    def limits_another_container(self):
        words = ["run", "--rm", "--interactive", "--device", "partage.dev/share=small", *self.machine]
        words += ["--env=NVIDIA_VISIBLE_DEVICES=1", "--entrypoint", CLIENT, "partage"]
        self.container = Client(self.podman(*words))
        fills(self.container)
        are_containers = sorted(bool(job.get("container")) for job in jobs())
        assert are_containers == [False, True], jobs()

    def suspends_a_job_of_another_user(self):
        for word in ("suspend", "resume"):
            run(PARTAGE, word, "hers")
        holds(self.program)

    def is_replaced_under_jobs(self):
        before = [job["job"] for job in jobs()]
        run(*self.line("podman", "rm"))
        code, said = tell(PARTAGE, "status")
        assert code == 5, f"{code}: {said}"
        holds(self.program)
        holds(self.container)
        # The next image has another command line.
        pathlib.Path(PARTAGE).write_bytes(b"older")
        self.start()
        grows(self.program)
        grows(self.container)
        assert [job["job"] for job in jobs()] == before, jobs()

    def leaves_the_host_as_it_was(self):
        remove = self.line("podman", "run", "--rm")
        code, said = tell(*remove)
        assert code == 1 and "a broker still serves the host" in said, f"{code}: {said}"
        run(*self.line("podman", "rm"))
        said = run(*remove)
        assert "rm -r /etc/partage" in said, said
        # Jobs keep their limits until they end.
        for client in (self.program, self.container):
            holds(client)
            client.end()
        run("rm", "-r", "/etc/partage")
        same(self.before, state(), NOT_JUDGED)

    def is_a_pod_by_the_manifest(self):
        """As podman 4.3 knows one: by another kind with the same template, and with processes of its own."""
        manifest = (ROOT / "packaging/daemonset.yaml").read_text()
        words = self.broker()
        volumes = [words[at + 1].split(":")[1] for at, word in enumerate(words) if word == "--volume"]
        assert re.findall(r"mountPath: ([^ ,}]+)", manifest) == volumes, "not the page's folders"
        variable = ANY_PID_NAMESPACE.removeprefix("--env=").replace("=", ", value: ")
        for old, new in [
            ("kind: DaemonSet", "kind: Deployment"),
            ("image: partage", "image: localhost/partage"),
            ("securityContext:", f"env: [{{name: {variable}}}]\n        securityContext:"),
        ]:
            assert manifest.count(old) == 1, old
            manifest = manifest.replace(old, new)
        file, pod = pathlib.Path("/tmp/pod.yaml"), "partaged-pod-0-partaged"
        file.write_text(manifest)
        run(*self.line("mkdir"))
        said = run(*self.podman("play", "kube", file))
        probe = re.search(r"exec: {command: \[(.*?)\]}", manifest).group(1).split(", ")
        eventually("its probe succeeds", lambda: tell(*self.podman("exec", pod, *probe))[0] == 0)
        run(*self.podman("play", "kube", "--down", file))
        # podman 4.3 leaves a pod's control groups.
        for group in pathlib.Path("/sys/fs/cgroup").glob(f"*/libpod_parent/{said.split()[1]}"):
            group.rmdir()

    checks = (is_built, refuses_half_a_host, serves, limits_a_program_of_the_host, limits_another_container,
              suspends_a_job_of_another_user, is_replaced_under_jobs, leaves_the_host_as_it_was,
              is_a_pod_by_the_manifest)

    def end(self):
        tell(*self.podman("rm", "--force", "--all", "--time", "0"))
        if self.sim:
            self.sim.kill()


def main():
    host = OnAHost(*map(pathlib.Path, sys.argv[1:]))
    passed = 0
    try:
        for check in host.checks:
            check(host)
            passed += 1
            print(check.__name__.replace("_", " "), flush=True)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as why:
        print(f"FAILED: {check.__name__.replace('_', ' ')}: {why}")
        print(tell(*host.podman("logs", "--tail", "20", "partaged"))[1], end="")
    finally:
        host.end()
    failed, left = min(1, len(host.checks) - passed), max(0, len(host.checks) - passed - 1)
    print(f"checks: {passed} passed {failed} failed {left} ignored")
    return failed


if __name__ == "__main__":
    sys.exit(main())
