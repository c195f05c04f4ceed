# SPDX-License-Identifier: Apache-2.0
"""What is tried of docs/guides/engines/docker.md: docker, compose, a unit of podman's quadlet, a build, and
JupyterHub's DockerSpawner."""
import re
import shlex
import subprocess
import sys

from host import GIB, HERE, IMAGE, MACHINE, RUNTIMES

SMALL = 4
WAITS = ("sleep", "600")


def is_held(client, gib=SMALL):
    """It sees the limit as the card's size, and gets no more. It goes on."""
    client.expect("total", f"total {gib * GIB}")
    client.expect(f"take {gib * 512}", "taken")
    client.expect(f"take {gib * 512}", "error 2")


def tried(host, *words):
    """A program of a container is held, and ends."""
    client = host.client(words)
    is_held(client)
    client.end()


def varied(words, *options, program=("client",)):
    """The page's `docker run … client` with further options and another program."""
    assert words[:2] == ["docker", "run"] and words[-1] == "client", words
    return ["docker", "run", *options, *words[2:-1], *program]


def docker(host):
    words = shlex.split(host.page.typed("docker"))
    tried(host, *varied(words, "-i"))
    host.is_free()
    # One that stays: whatever enters it is of its job.
    words.remove("--rm")
    identity = host.sh(shlex.join(varied(words, "-d", "--name", "kept", program=WAITS))).strip()
    assert host.job(0, SMALL)["container"]["id"] == identity, (identity, host.jobs())
    bare = ("env", "-i", f"PARTAGE_SIM_DIR={MACHINE}", f"LD_LIBRARY_PATH={MACHINE}/lib", "client")
    tried(host, "docker", "exec", "-i", "-u", "1234", "kept", *bare)
    first = host.client(("docker", "exec", "-i", "kept", "client"))
    is_held(first)
    second = host.client(("docker", "exec", "-i", "-u", "1234", "kept", *bare))
    second.expect(f"take {SMALL * 512}", "error 2")
    first.end()
    second.end()
    before = host.job(0, SMALL)["job"]
    host.sh("docker restart -t 0 kept")
    assert host.job(0, SMALL)["job"] != before, "a container that is started again is another job"
    tried(host, "docker", "exec", "-i", "kept", "client")
    is_refused(host, words)
    host.sh("docker kill kept")
    host.is_free()
    host.sh("docker rm kept")
    lowers(host)
    read_only(host)
    host.is_free()
    version = host.sh("docker version --format '{{.Server.Version}}'").strip()
    done = "run, exec, exec of another user with a bare environment, restart, kill, read-only, no room, annotations"
    return f"{done}; docker {version}"


def is_refused(host, words):
    """Where there is no room, no GPU or no such class, the container does not start, and its user reads why."""
    large = [word.replace("share=small", "share=large") for word in words]
    host.sh(shlex.join(varied(large, "-d", "--name", "large", program=WAITS)))
    no_class = [word.replace("share=small", "share=other") for word in words]
    at = words.index("nvidia.com/gpu=0")
    no_gpu = words[: at - 1] + words[at + 1 :]
    for asked, why in ((large, "the container does not start: needs 10 GiB"),
                       (no_gpu, "the container does not start: the container is given no GPU"),
                       (no_class, "unresolvable CDI devices partage.dev/share=other")):
        code, said = host.sh(shlex.join(varied(asked, "--rm")), may_fail=True)
        assert code == 125 and why in said, (code, said)
    host.sh("docker rm -f large")


def lowers(host):
    """The annotation of the page's second command lowers, and does not raise."""
    for asked, gib in (("1GiB", 1), ("8GiB", SMALL)):
        words = shlex.split(host.page.typed("docker-lower").replace("1GiB", asked))
        client = host.client(varied(words, "-i"))
        is_held(client, gib)
        client.end()


def read_only(host):
    """docker makes a description's mounts read-only there, which the simulated GPUs do not bear: they are volumes."""
    mounts = host.sh(f"PARTAGE_SIM_DIR={MACHINE} partage sim --machine host --mounts").split()
    hard = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--user", "1234"]
    tried(host, "docker", "run", "-i", "--rm", *hard, *mounts, "-e", "NVIDIA_VISIBLE_DEVICES=1",
          "-v", "/opt/gpus/client:/usr/bin/client:ro", "--device", "partage.dev/share=small", IMAGE, "client")


def compose(host):
    host.file("compose")
    up = host.page.typed("compose").strip()
    host.sh(f"cd ~/train && {up}")
    before = host.job(0, SMALL)["job"]
    tried(host, "docker", "compose", "--project-directory", "/root/train", "exec", "-T", "train", "client")
    host.sh("cd ~/train && docker compose restart -t 0")
    assert host.job(0, SMALL)["job"] != before, host.jobs()
    tried(host, "docker", "compose", "--project-directory", "/root/train", "exec", "-T", "train", "client")
    host.sh("cd ~/train && docker compose down -t 0")
    host.is_free()
    return f"up, exec, restart, down; compose {host.sh('docker compose version --short').strip()}"


def settings(unit):
    """The service's settings in a generated unit, with the specifiers as a unit of the system has them."""
    pairs = [line.split("=", 1) for line in unit.split("[Service]")[1].splitlines() if "=" in line]
    specifiers = {"%N": "train", "%n": "train.service", "%t": "/run"}
    return {name: re.sub("%[Nnt]", lambda found: specifiers[found[0]], value) for name, value in pairs}


# Control groups as systemd makes them for a service; a cpuset of v1 begins empty.
IN_A_UNIT = """
for top in {tops}; do
  group=$top
  for name in {slice} train.service; do
    mkdir -p $group/$name
    for file in cpuset.cpus cpuset.mems; do
      if [ -e $group/$file ] && [ -e $group/$name/$file ]; then cat $group/$file >$group/$name/$file; fi
    done
    group=$group/$name
  done
  echo $$ >$group/cgroup.procs
done
exec {command}
"""


def in_a_unit(host, command):
    tops = shlex.join(map(str, host.hierarchies()))
    return host.sh(IN_A_UNIT.format(tops=tops, slice=host.slice, command=command))


def quadlet(host):
    host.file("quadlet")
    said = host.sh("/usr/lib/systemd/system-generators/podman-system-generator --dryrun 2>/dev/null")
    unit = said.split("---train.service---\n")[1]
    host.write("/run/systemd/system/train.service", unit)
    assert host.sh("systemd-analyze verify /run/systemd/system/train.service") == ""
    service = settings(unit)
    in_a_unit(host, service["ExecStart"])
    job = host.job(0, SMALL)
    assert "train.service" in job["container"]["cgroup"], job
    tried(host, "podman", "exec", "-i", "systemd-train", "client")
    host.sh(service["ExecStop"].replace("podman rm", "podman rm -t 0"))
    host.is_free()
    version = host.sh("podman version --format '{{.Client.Version}}'").strip()
    runtime = RUNTIMES[host.groups]
    return f"generated, verified, its ExecStart and ExecStop by hand; podman {version} with {runtime}"


def build(host):
    """A step of a build is a container of its own."""
    step = f'RUN printf "total\\ntake {SMALL * 512}\\ntake {SMALL * 512}\\n" | client\n'
    host.write("/root/image/Containerfile", f"FROM {IMAGE}\n{step}")
    typed = host.page.typed("build").replace("podman build", "podman build --network none")
    said = host.sh(f"cd ~/image && {typed}")
    assert f"total {SMALL * GIB}\ntaken\nerror 2\n" in said, said
    host.is_free()
    version = host.sh("podman info --format '{{.Host.BuildahVersion}}'").strip()
    return f"podman build, buildah {version}"


def spawner(host):
    """Of JupyterHub: a user's server in a container."""
    file = host.page.file("spawner", host.folder / "page")
    socket = f"/proc/{host.room.first}/root/run/docker.sock"
    words = [sys.executable, HERE / "spawner.py", file, socket, IMAGE, *WAITS]

    def spawned():
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    ids = [spawned().stdout.strip()]
    assert host.job(0, SMALL)["container"]["id"] == ids[0], (ids, host.jobs())
    tried(host, "docker", "exec", "-i", ids[0], "client")
    # As many as there is room for.
    while (done := spawned()).returncode == 0 and len(ids) < 5:
        ids.append(done.stdout.strip())
    assert len(ids) == 4 and "the container does not start: needs 4 GiB" in done.stderr, (ids, done)
    host.sh("docker ps -aq | xargs docker rm -f")
    host.is_free()
    version = subprocess.run([sys.executable, "-c", "import docker; print(docker.__version__)"],
                             capture_output=True, text=True).stdout.strip()
    return f"DockerSpawner's settings, by docker's Python client {version}"
