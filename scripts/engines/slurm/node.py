# SPDX-License-Identifier: Apache-2.0
"""A node with two simulated GPUs, a managed broker and Slurm, for one case after the other.

/etc is this process's own (an overlay), so that ld.so.preload can name the library for every program that starts here,
as `partage install --system-preload` has it; Slurm's users and the machine's files stay what they are.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from cluster import PARTITIONS, PATIENCE, Cluster

ROOT = pathlib.Path(__file__).resolve().parents[3]
GIB = 1 << 30
CARD = 16 * GIB
ALICE = 60001
# What stands for the GPU and its driver: every environment gets it, however bare it is otherwise.
DRIVER = ("PARTAGE_SIM_DIR", "LD_LIBRARY_PATH")
# The usual place of a host's broker; a simulated machine has another one.
SOCKETS = "/run/partage"
PRELOAD = "/etc/ld.so.preload"
EMPTY = "schema = 1\n"
PROGRAMS = ("partage", "partaged", "partage-demo-client", "libpartage.so", "libpartage_sim_cuda.so",
            "libpartage_sim_nvml.so", "libpartage_sim_nvrtc.so", "libpartage_sim_runtime.so", "libpartage_sim_blas.so")


class Node:
    def __init__(self, built, slurm, partitions=PARTITIONS):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="ps"))
        self.home.chmod(0o755)
        self.keeper = self.broker = self.cluster = None
        try:
            self.begin(pathlib.Path(built), slurm, partitions)
        except BaseException:
            print(self.logs())
            self.close()
            raise

    def begin(self, built, slurm, partitions):
        self.programs = self.home / "bin"
        self.programs.mkdir()
        # The build folder may be shut to other users.
        for name in PROGRAMS:
            shutil.copy2(built / name, self.programs / name)
        shutil.copytree(ROOT / "cuda-tests/kernels", self.home / "kernels")
        (self.home / "slurm").mkdir()
        (self.home / "partage.toml").write_text(EMPTY)
        self.build(slurm)
        self.make_machine()
        self.environment = self.driver | {
            "PATH": f"{self.programs}:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", "HOME": "/tmp",
            "PARTAGE_PID_NAMESPACE": "any",
        }
        self.start_broker()
        self.cluster = Cluster(slurm, self.home / "slurm", self.environment, "v1", partitions)
        self.arrange()
        self.cluster.start()

    def arrange(self, arguments="", mode="required", configuration="", is_preloaded=True):
        """What one case wants otherwise than the others; all of it is read anew without a start of anything."""
        self.write_command()
        self.load(mode, arguments)
        with open(PRELOAD, "w") as file:
            file.write(f"{self.programs}/libpartage.so\n" if is_preloaded else "")
        path = self.home / "partage.toml"
        if path.read_text() != EMPTY + configuration:
            path.write_text(EMPTY + configuration)
            code, said = self.partage("config", "reload")
            assert code == 0, said

    def load(self, mode, arguments=""):
        """The line of plugstack.conf."""
        given = f"partage={self.home}/partage shards=10 {arguments.format(programs=self.programs)}"
        self.cluster.load(f"{mode} {self.home}/partage.so {given}")

    def reading(self):
        """Code and output of the small test of what the plugin reads."""
        plugin, program = self.home / "plugin", self.home / "texts"
        sources = [pathlib.Path(__file__).with_name("texts.c"), plugin / "reading.c"]
        subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{plugin}", "-o", program, *sources],
                       check=True)
        done = subprocess.run([program, self.home / "groups"], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def build(self, slurm):
        """The plugin by its own makefile, and the program that always wants the GPU."""
        shutil.copytree(ROOT / "engines/slurm", self.home / "plugin")
        words = ["make", "-s", f"CPPFLAGS=-I{slurm}/usr/include -Werror", "-C", self.home / "plugin"]
        subprocess.run([*words, "install", f"PLUGINS={self.home}"], check=True)
        source = ROOT / "cuda-tests/programs/time_client.c"
        subprocess.run(["cc", "-O1", "-o", self.home / "time_client", source, "-ldl", "-lpthread"], check=True)

    def make_machine(self):
        partage = self.programs / "partage"
        words = [partage, "sim", "--gpus", "2", "--memory", "16GiB", "--machine", self.home.name, "--",
                 "/bin/sh", "-c", "env -0; echo; exec cat >/dev/null"]
        self.keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        text = b""
        while not text.endswith(b"\0\n"):
            piece = self.keeper.stdout.read1(65536)
            assert piece, "partage sim made no machine"
            text += piece
        pairs = [entry.partition("=") for entry in text.decode().split("\0")]
        self.driver = {name: value for name, _, value in pairs if name in DRIVER} | {"PARTAGE_SOCKET_DIR": SOCKETS}
        subprocess.run(["chmod", "-R", "a+rwX", self.driver["PARTAGE_SIM_DIR"]], check=True)
        # Below a folder of the user's alone, in this process's own /tmp.
        parent = pathlib.Path(self.driver["PARTAGE_SIM_DIR"]).parent
        parent.chmod(0o755)

    def start_broker(self):
        with open(self.home / "broker.log", "ab") as log:
            words = [self.programs / "partaged", "--managed", "--config", self.home / "partage.toml", "--socket-dir",
                     SOCKETS]
            self.broker = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def knows():
            code, said = self.partage("status", "--json")
            return code == 0 and len(json.loads(said)["devices"]) == 2
        self.wait("the broker knows both GPUs", knows)

    def write_command(self, before=""):
        """What plugstack.conf names: `partage`, and a note of the environment that the plugin gave it."""
        path, note = self.home / "partage", self.home / "environments"
        note.touch()
        note.chmod(0o666)
        rest = f"export PARTAGE_SOCKET_DIR=${{PARTAGE_SOCKET_DIR:-{SOCKETS}}}\nexec {self.programs}/partage \"$@\"\n"
        path.write_text(f"#!/bin/sh\nenv >>{note}\n{before}{rest}")
        path.chmod(0o755)

    def partage(self, *words, user=None, environment=None):
        """Code and output of `partage`."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        done = subprocess.run([*as_user, self.programs / "partage", *words], env=environment or self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def jobs(self):
        code, said = self.partage("ps", "--json")
        assert code == 0, said
        return json.loads(said)["jobs"]

    def job(self, number):
        code, said = self.partage("get", f"slurm:{number}", "--json")
        assert code == 0, said
        return json.loads(said)["job"]

    def used(self, gpu):
        """What the driver has in use there, by its own count."""
        code, said = self.partage("status", "--json")
        assert code == 0, said
        return json.loads(said)["devices"][gpu]["used_bytes"]

    def srun(self, *words, **more):
        return self.cluster.run("srun", "--quiet", *words, user=more.pop("user", ALICE), **more)

    def sruns(self, *lines):
        """These commands side by side, each in a job: code and output of each."""
        begun = [self.cluster.begin("srun", "--quiet", *words, user=ALICE) for words in lines]
        said = [one.communicate(timeout=PATIENCE)[0] for one in begun]
        return [(one.returncode, text) for one, text in zip(begun, said)]

    def batch(self, script, *options):
        """What a batch script of Alice's came to, and what it printed, as one text."""
        output = self.home / "batch"
        output.unlink(missing_ok=True)
        output.touch()
        os.chown(output, ALICE, ALICE)
        return " ".join(map(str, self.cluster.batch(output, script, *options, user=ALICE)))

    def client(self, *options, inside=(), environment=None):
        """A steerable program of Alice's in a job, which holds what it takes until it is ended."""
        return self.clients(options, inside=inside, environment=environment)[0]

    def clients(self, *lines, inside=(), environment=None):
        """The same for each of these lines of options, started side by side."""
        program = self.programs / "partage-demo-client"
        begun = [self.cluster.begin("srun", "--quiet", "--unbuffered", *line, *inside, program, user=ALICE,
                                    environment=environment) for line in lines]
        return [Client(self, one) for one in begun]

    def wait(self, what, condition):
        until = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < until, f"{what}: not within {PATIENCE} s\n{self.logs()}"
            time.sleep(0.02)
        return found

    def logs(self):
        log = self.home / "broker.log"
        text = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return text + (self.cluster.logs() if self.cluster else "")

    def close(self):
        if self.cluster:
            self.cluster.close()
        if self.broker:
            self.broker.kill()
            self.broker.wait()
        # The next case's broker remembers nothing of this one.
        shutil.rmtree(SOCKETS, ignore_errors=True)
        if self.keeper:
            self.keeper.stdin.close()
            self.keeper.wait(timeout=PATIENCE)
        open(PRELOAD, "w").close()
        shutil.rmtree(self.home, ignore_errors=True)


class Client:
    def __init__(self, node, process):
        self.node, self.process = node, process
        first = process.stdout.readline()
        assert first.startswith("ready"), first + process.stdout.read() + node.logs()

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def total(self):
        return int(self.say("total").split()[1])

    def exhaust(self):
        """Takes blocks until none is given any more: how many bytes it has by its own count."""
        taken = 0
        for mib in (256, 16, 1):
            while (answer := self.say(f"take {mib}")) == "taken":
                taken += mib << 20
            assert answer == "error 2", answer
        return taken

    def end(self):
        """Its input ends, and it does."""
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


def own_folders():
    """An /etc, a /run and a /tmp of this process and those that it starts; gives what to call at the end."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="pe"))
    for name in ("upper", "work", "tmp"):
        (work / name).mkdir()
    (work / "tmp").chmod(0o1777)
    options = f"lowerdir=/etc,upperdir={work}/upper,workdir={work}/work"
    mounts = (["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], ["-t", "overlay", "overlay", "-o", options, "/etc"],
              ["--bind", work / "tmp", "/tmp"])
    for words in mounts:
        subprocess.run(["mount", *words], check=True)
    with open("/etc/passwd", "a") as passwd:
        passwd.write(f"alice:x:{ALICE}:{ALICE}::/tmp:/bin/sh\n")
    with open("/etc/group", "a") as group:
        group.write(f"alice:x:{ALICE}:\n")

    def give_back():
        subprocess.run(["umount", "--lazy", "/tmp", "/etc", "/run"], check=False)
        shutil.rmtree(work, ignore_errors=True)
    return give_back
