# SPDX-License-Identifier: Apache-2.0
"""The recipes of what starts programs unattended: cron and systemd."""
import os
import re
import shlex
import shutil
import signal
import subprocess

from machine import check, limits, sees

# cron in a mount namespace of its own, where there is one crontab, and where the machine has just been started.
CRON = """
mount -t tmpfs none /run
mount -t tmpfs none /var/spool
mkdir -p /var/spool/cron/crontabs
chmod 1730 /var/spool/cron/crontabs
install -m 600 "$1" /var/spool/cron/crontabs/root
if [ -d /etc/cron.d ]; then mount -t tmpfs none /etc/cron.d; fi
if [ -f /etc/crontab ]; then mount --bind "$2" /etc/crontab; fi
exec "$3" -f
"""
SCHEDULE = re.compile(r"^(\S+\s+){5}")


def cron(machine, page, tools):
    line = page.typed("cron").strip()
    check(SCHEDULE.match(line), "the crontab line has five times", line)
    may_mount = os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    if tools.cron and may_mount:
        how = "Debian's cron"
        daemon = real_cron(machine, line, tools.cron)
    else:
        how = "cron's environment and rule for %; no cron daemon could be run"
        daemon = imitated_cron(machine, line)
    try:
        sees(machine.seen(1)[0], 4)
        job = machine.working(1)[0]
        check(job["name"] == "nightly" and limits(job) == [4], job)
        # Last night's still lives.
        code, _, errors = machine.shell("partage run --name nightly -- true")
        check(code == 125 and "nightly" in errors, code, errors)
        machine.let_go()
        log = machine.home / "train.log"
        machine.wait("its output in train.log", lambda: log.exists() and "4.0 GiB" in log.read_text())
    finally:
        daemon.terminate()
        daemon.wait()
    return how


def real_cron(machine, line, program):
    table, nothing = machine.home / "crontab", machine.home / "nothing"
    nothing.touch()
    variables = machine.driver | {"HOME": str(machine.home), "MAILTO": ""}
    # Only the time is another: @reboot is at once.
    lines = [f"{name}='{value}'" for name, value in variables.items()] + [SCHEDULE.sub("@reboot ", line)]
    table.write_text("\n".join(lines) + "\n")
    words = ["unshare", "-m", "/bin/sh", "-euc", CRON, "sh", str(table), str(nothing), program]
    return machine.start(words, environment=dict(os.environ))


def imitated_cron(machine, line):
    # crontab(5): an unescaped % ends the command, what follows is its input; the environment is these four.
    command = re.split(r"(?<!\\)%", SCHEDULE.sub("", line))[0].replace("\\%", "%")
    environment = machine.driver | {
        "HOME": str(machine.home), "LOGNAME": "user", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    return machine.start(["/bin/sh", "-c", command], environment=environment)


def settings_of(machine, unit):
    """The settings of a unit that systemd takes, where it is there to be asked."""
    if shutil.which("systemd-analyze"):
        code, _, errors = machine.shell(f"systemd-analyze verify --user {unit}")
        check((code, errors) == (0, ""), errors)
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] != "#")
    check(settings["WorkingDirectory"] == "%h", settings)
    return settings


def started_as(machine, settings, instance=""):
    """The words of a unit's ExecStart, and the environment that they are given."""
    specified = settings["ExecStart"].replace("%%", "\0").replace("%h", str(machine.home)).replace("%i", instance)
    check("%" not in specified, "every % is a specifier or doubled", settings["ExecStart"])
    # systemd.exec(5), "Environment variables in spawned processes", for a unit of the user's manager.
    return shlex.split(specified.replace("\0", "%")), machine.driver | {
        "HOME": str(machine.home), "LANG": "C.UTF-8", "LOGNAME": "user", "USER": "user", "SHELL": "/bin/sh",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "XDG_RUNTIME_DIR": str(machine.home), "INVOCATION_ID": "0" * 32, "SYSTEMD_EXEC_PID": "1"}


def systemd(machine, page, tools):
    settings = settings_of(machine, page.file("systemd", machine.home))
    words, environment = started_as(machine, settings)
    main = machine.start(words, environment=environment, start_new_session=True)
    note = machine.seen(1)[0]
    sees(note, 4)
    check(note["pid"] == main.pid, "the program is systemd's main process", note, main.pid)
    job = machine.working(1)[0]
    check(job["name"] == "train" and limits(job) == [4] and job["pid"] == main.pid, job)
    main.send_signal(signal.SIGTERM)
    check(main.wait(timeout=60) == -signal.SIGTERM, "systemctl stop ends it by its signal", main.returncode)
    # What a restart does not mend ends with the codes that the unit names.
    mended = {int(code) for code in settings["RestartPreventExitStatus"].split()}
    missing = ["/nowhere/python3" if word == tools.python else word for word in words]
    wrong = [word.replace("25%", "25") for word in words]
    for faulty in (missing, wrong):
        code = machine.start(faulty, environment=environment).wait(timeout=60)
        check(code in mended, faulty, code)
    template(machine, page)
    how = "the ExecStart lines of a unit and of two instances of a template in a unit's environment"
    return f"systemd-analyze verify; {how}" if shutil.which("systemd-analyze") else how


def template(machine, page):
    """Two instances are two jobs, each by its name."""
    settings = settings_of(machine, page.file("systemd-template", machine.home))
    machine.forget()
    mains = {}
    for instance in ("cats", "dogs"):
        words, environment = started_as(machine, settings, instance)
        check(f"{instance}.toml" in words, words)
        mains[f"train-{instance}"] = machine.start(words, environment=environment, start_new_session=True).pid
    for note in machine.seen(2):
        sees(note, 4)
    jobs = machine.working(2)
    check({job["name"]: job["pid"] for job in jobs} == mains and [limits(job) for job in jobs] == [[4], [4]], jobs)
    machine.let_go()
    machine.wait("they end", lambda: not any(job["clients"] for job in machine.jobs()))
