# SPDX-License-Identifier: Apache-2.0
"""Slurm's daemons for one node with two GPUs of ten shards each, with a configuration, ports and folders of their own.

The programs are those of the distribution's packages, unpacked below the build folder. No munge: auth/none. The GPUs'
nodes are made where only this cluster looks.
"""
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import time

PATIENCE = 120
SHARDS = 10
# What the node says it has, for many small jobs.
CPUS = 32
# The end of slurm.conf.
PARTITIONS = "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO"
# The major number of the driver's nodes.
MAJOR = 195


def free_ports(count):
    """Ports that nobody has, all at once."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """`slurm` is the root of the unpacked packages, `home` an empty folder."""

    def __init__(self, slurm, home, environment, cgroup, partitions):
        self.home, self.cgroup, self.partitions = pathlib.Path(home), cgroup, partitions
        # Its control groups are called by it, and others may try the same beside us.
        self.name = f"n{secrets.token_hex(4)}"
        self.groups = pathlib.Path(f"/sys/fs/cgroup/freezer/slurm_{self.name}")
        self.programs = pathlib.Path(slurm) / "usr"
        libraries = self.programs / "lib/x86_64-linux-gnu"
        path = f"{libraries}:{libraries}/slurm-wlm"
        self.environment = environment | {
            "SLURM_CONF": str(self.home / "slurm.conf"),
            "PATH": f"{self.programs}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LD_LIBRARY_PATH": ":".join([path, *filter(None, [environment.get("LD_LIBRARY_PATH")])]),
        }
        self.daemons = []
        self.write()

    def write(self):
        """The files of the configuration that the daemons read."""
        controller, node = free_ports(2)
        host = socket.gethostname().partition(".")[0]
        plugins = self.programs / "lib/x86_64-linux-gnu/slurm-wlm"
        for folder in ("state", "spool", "gpus"):
            (self.home / folder).mkdir(exist_ok=True)
        nodes = [self.home / "gpus" / f"nvidia{number}" for number in range(2)]
        for number, path in enumerate(nodes):
            if not path.exists():
                os.mknod(path, 0o666 | 0o020000, os.makedev(MAJOR, number))
        (self.home / "slurm.conf").write_text(f"""\
ClusterName=partage
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
PluginDir={plugins}
PlugStackConfig={self.home}/plugstack.conf
StateSaveLocation={self.home}/state
SlurmdSpoolDir={self.home}/spool
SlurmctldPidFile={self.home}/slurmctld.pid
SlurmdPidFile={self.home}/slurmd.pid
SlurmctldLogFile={self.home}/slurmctld.log
SlurmdLogFile={self.home}/slurmd.log
ProctrackType=proctrack/cgroup
PrologFlags=Contain
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
MessageTimeout=30
UnkillableStepTimeout=120
InactiveLimit=0
GresTypes=gpu,shard
NodeName={self.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs={CPUS} Gres=gpu:2,shard:{2 * SHARDS}
{self.partitions}
""")
        lines = [f"Name=gpu File={path}\n" for path in nodes]
        lines += [f"Name=shard Count={SHARDS} File={path}\n" for path in nodes]
        (self.home / "gres.conf").write_text("AutoDetect=off\n" + "".join(lines))
        (self.home / "cgroup.conf").write_text(
            f"CgroupPlugin=cgroup/{self.cgroup}\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
            "ConstrainDevices=no\nConstrainRAMSpace=no\nConstrainCores=no\n")

    def load(self, line):
        """What plugstack.conf says: steps and commands that start from now on read it."""
        (self.home / "plugstack.conf").write_text(line + "\n")

    def start(self):
        """Both daemons, and waits until the node takes jobs."""
        sbin = self.programs / "sbin"
        controller = [sbin / "slurmctld", "-D", "-c", "-f", self.home / "slurm.conf"]
        node = [sbin / "slurmd", "-D", "-c", "-N", self.name, "-d", sbin / "slurmstepd", "-f",
                self.home / "slurm.conf"]
        for words in (controller, node):
            with open(self.home / "output", "ab") as output:
                self.daemons.append(subprocess.Popen(
                    words, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        def takes_jobs():
            assert all(daemon.poll() is None for daemon in self.daemons), self.logs()
            return self.said("sinfo", "-h", "-o", "%t").strip() == "idle"
        self.wait("the node takes jobs", takes_jobs)

    def kill(self, *which):
        """Ends daemons at once, 0 the controller's and 1 the node's; as a crash does."""
        for index in which:
            self.daemons[index].kill()
            self.daemons[index].wait()

    def run(self, *words, user=None, **more):
        """A command of Slurm, of this user: code and output."""
        environment = self.environment | more.pop("environment", {})
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        done = subprocess.run(
            [*as_user, *map(str, words)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, cwd="/tmp", **more)
        return done.returncode, done.stdout

    def begin(self, *words, user=None, environment=None):
        """The same, running."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return subprocess.Popen(
            [*as_user, *map(str, words)], env=self.environment | (environment or {}), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/tmp")

    def said(self, *words):
        return self.run(*words)[1]

    def batch(self, output, script, *options, user):
        """Runs a batch script to its end: exit code and state of the job, and what it printed."""
        code, said = self.run("sbatch", "--parsable", f"--output={output}", *options, f"--wrap={script}", user=user)
        assert code == 0, said
        number = said.split()[-1]

        def over():
            # sbatch --wait looks every two seconds, and ever less often.
            told = self.said("scontrol", "show", "job", "-o", number)
            state = re.search(r"JobState=(\w+)", told)
            is_over = state and state[1] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
            return is_over and (int(re.search(r" ExitCode=(\d+):", told)[1]), state[1])
        return *self.wait(f"batch job {number} is over", over), output.read_text()

    def wait(self, what, condition):
        """Waits until `condition` gives something, and gives that."""
        until = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < until, f"{what}: not within {PATIENCE} s\n{self.logs()}"
            time.sleep(0.02)
        return found

    def logs(self):
        texts = []
        for name in ("output", "slurmctld.log", "slurmd.log"):
            path = self.home / name
            if path.exists():
                texts += [f"--- {name}", path.read_text(errors="replace")[-4000:]]
        return "\n".join(texts)

    def close(self):
        """Ends jobs, steps and daemons, by their ids, and takes the control groups away."""
        if self.daemons and all(daemon.poll() is None for daemon in self.daemons):
            self.run("scancel", "--state=RUNNING", "--user=root", "--full")
            self.run("scontrol", "shutdown")
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # What is frozen cannot die.
        for state in [*self.groups.glob("**/freezer.state")]:
            try:
                state.write_text("THAWED")
            except OSError:
                pass
        # What a killed daemon left carries the configuration in its environment.
        mark = f"SLURM_CONF={self.home / 'slurm.conf'}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass
        until = time.monotonic() + 10
        while self.groups.exists() and time.monotonic() < until:
            for folder in sorted(self.groups.glob("**/"), reverse=True):
                try:
                    folder.rmdir()
                except OSError:
                    # A process there is still ending.
                    time.sleep(0.02)
