# SPDX-License-Identifier: Apache-2.0
"""A shell on a simulated machine, in a terminal of its own, as a reader would have it."""
import os
import re
import signal
import time

import pexpect

COLUMNS = 110
# No program prints this; typed, bash turns the octal numbers into it.
PROMPT, TYPED_PROMPT = "\x1fpages\x1f", "\\037pages\\037"
# What bash says of background jobs, and what a terminal does with a line that the program has ended.
JOB_CONTROL = re.compile(r"^\[\d+\][+-]?\s.*$")
# An /etc and a /run of the page's own: what an administrator does there changes nothing on this machine. sudo keeps the
# variables that make the simulated machine.
OWN_HOST = """
set -e
mkdir "$0/etc" && cp -a /etc/. "$0/etc" && mount --bind "$0/etc" /etc && mount -t tmpfs -o mode=755 tmpfs /run
sed -i '/^partage:/d' /etc/group
mkdir "$0/local" "$0/work"
mount -t overlay -o "lowerdir=/usr/local,upperdir=$0/local,workdir=$0/work" overlay /usr/local 2>/dev/null || {
  cp -a /usr/local/. "$0/local" && mount --bind "$0/local" /usr/local
}
mkdir -p /etc/sudoers.d && rm -rf /etc/partage
echo 'Defaults env_keep += "PARTAGE_SIM_DIR PARTAGE_PID_NAMESPACE LD_LIBRARY_PATH"' >/etc/sudoers.d/pages
exec "$@"
"""


# With its processes: a broker that a page installs ends with the page.
OWN_NAMESPACES = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Shell:
    """`run` types one command and answers what the terminal showed until the next prompt, line by line."""

    def __init__(self, command, folder, environment):
        child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=folder,
            env=environment,
            encoding="utf-8",
            echo=False,
            dimensions=(50, COLUMNS),
            timeout=60,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.shell = child
        child.expect(r"[$#] $")
        quiet = "set +m; bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo; PS2="
        child.sendline(f"{quiet}; PS1='{TYPED_PROMPT}'")
        child.expect_exact(PROMPT)

    def run(self, command, limit=60):
        self.shell.sendline(command)
        self.shell.expect_exact(PROMPT, timeout=limit)
        lines = [line.rstrip() for line in self.shell.before.replace("\r", "").split("\n")]
        lines = [line for line in lines if not JOB_CONTROL.match(line)]
        return lines if lines and lines[-1] else lines[:-1]

    def until(self, command, limit=60):
        """Repeats the command until its exit code is 0; False when that takes longer than `limit` seconds."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.run(f"( {command} ) >/dev/null 2>&1; echo code $?")[-1:] == ["code 0"]:
                return True
            time.sleep(0.1)
        return False

    def leave(self):
        """Ends the shell."""
        try:
            self.shell.sendline("exit")
            self.shell.expect(pexpect.EOF, timeout=10)
        except pexpect.ExceptionPexpect:
            pass
        self.shell.close(force=True)


class Terminal(Shell):
    """A shell on a simulated machine of its own."""

    def __init__(self, binaries, machine, arguments, folder, environment, colour=False, own_host=False):
        partage = os.path.join(binaries, "partage")
        command = [partage, "sim", *arguments, "--machine", machine, "--", "bash", "--norc", "--noprofile"]
        if own_host:
            command = ["unshare", *OWN_NAMESPACES, "sh", "-c", OWN_HOST, str(folder), *command]
        super().__init__(command, folder / "home", environment | ({} if colour else {"NO_COLOR": "1"}))

    def close(self):
        """Ends every job of the machine, its broker and the shell."""
        try:
            self.run("partage stop @$USER --grace 1s >/dev/null 2>&1; kill $(jobs -p) 2>/dev/null")
            self.run("partage broker stop >/dev/null 2>&1")
        except pexpect.ExceptionPexpect:
            pass
        self.leave()
