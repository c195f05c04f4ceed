# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the pages on simulated machines, one a page, and compares what they print with the pages.

A number is compared as it stands unless a `varies` directive of the page, or ALWAYS below, covers it.
"""
import argparse
import concurrent.futures
import difflib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import page as pages
import picture
from terminal import Terminal

# `nohup` and a shell's `&` make this program ignore some signals, and every program started from here would ignore them
# too. A caught signal goes back to its default in such a program, so these are caught and nothing is done.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Made by other tools, with tests of their own, or records of one day.
NOT_JUDGED = {"docs/driver-api.md", "docs/cli.md"}
FOLDERS_NOT_JUDGED = {"results", "json"}
# What belongs to one run alone: process ids, times of day, identifiers of builds, folders of the session.
ALWAYS = [
    r"\b(pid|process|broker) +\d+",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    r"GPU-[0-9a-f]{8}[-0-9a-f]*",
    r"/tmp/partage-(sim-)?\d+/[\w./-]+",
    r"libpartage-[\w.-]+\.so",
    r"\(([0-9a-f]{7,12}(-modified)?|unknown)\)",
    r"user +\S+ \(\d+\)",
    r"\bby root\b",
    r"\bup [0-9.]+ ?(ms|s|min)",
]
# What a page shows in place of this machine's own names, whoever runs the check.
SHOWN_AS = [
    (r"\bpage\d+[a-z]+\b", "demo"),
    (r"(kernel +)\d\S*:", r"\g<1>6.1.0:"),
    (r"(version \S+) \(([0-9a-f]{7,12}(-modified)?|unknown)\)", r"\1"),
]
# Lines that come when they come: what the broker says on a terminal when a job has ended, and what depends on how busy
# this machine is. They are on no page.
SOMETIMES = re.compile(r"partage: j\d+ ended |- GPU \d+: switching and idle: ")
# Commands that only look: what they show follows the job within seconds, so they are asked again for as long (seconds).
LOOKS = re.compile(r"partage (ps|why|get|status)\b(?!.*--watch)")
LOOK_LIMIT = 15
CLIENTS = ["train.py", "over_limit.py", "busy.py"]


def plain(line, varying):
    """The line with what may vary replaced, and columns brought together: a number's width moves them."""
    for pattern in varying:
        line = re.sub(pattern, "<varies>", line)
    return re.sub(r"  +", " ", line).rstrip()


def without_sometimes(lines):
    """The lines without those of SOMETIMES and what they were wrapped into."""
    kept, is_dropped = [], False
    for line in lines:
        is_dropped = bool(SOMETIMES.match(line)) or (is_dropped and line.startswith("  "))
        if not is_dropped:
            kept.append(line)
    return kept


def text_of(lines, varying):
    """The lines that hold text; one that was wrapped (it goes on indented) is one again, wherever it was cut."""
    whole = []
    for line in lines:
        if line.startswith("  ") and whole:
            whole[-1] += " " + line.strip()
        elif line.strip():
            whole.append(line)
    return [plain(line, varying) for line in whole]


class Check:
    def __init__(self, options):
        self.options = options
        self.complaints = []
        self.passed = 0

    def complain(self, path, line, text):
        self.complaints.append(f"{path}:{line + 1}: {text}")

    def environment(self, home):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("PARTAGE_", "LD_", "CUDA")) and k != "TMUX"}
        # A page is run inside a pid namespace, where a managed broker starts only when it is told to.
        keep["PARTAGE_PID_NAMESPACE"] = "any"
        python = os.path.dirname(os.path.abspath(sys.executable))
        path = f"{self.options.bin}:{python}:{keep.get('PATH', '')}"
        # tinygrad's CUDA back end, PTX from its own compiler.
        tinygrad = {"DEV": "CUDA", "CUDA": "1", "PTX": "1"}
        login = {"PATH": path, "HOME": str(home), "USER": "root", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        return keep | login | tinygrad

    def page(self, path):
        lines = (ROOT / path).read_text().split("\n")
        acts = pages.read(lines, lambda line, text: self.complain(path, line, text))
        is_record = path.startswith("docs/decisions/")
        pages.without_text(lines, lambda line, text: self.complain(path, line, text), is_record)
        for number, command in pages.inline_commands(lines):
            self.inline(path, number, command)
        for number, text, is_taken in pages.configurations(lines):
            self.configuration(path, number, text, is_taken)
        # The rest is for packaging/fresh/check.
        acts, _ = pages.sections(acts)
        if not any(act.kind == "block" for act in acts):
            return
        with tempfile.TemporaryDirectory(prefix="partage-pages-") as folder:
            home = pathlib.Path(folder) / "home"
            # As in the repository, where the README begins, and as in a reader's own folder.
            for programs in (home, home / "cuda-tests/programs"):
                programs.mkdir(parents=True, exist_ok=True)
                for client in CLIENTS:
                    shutil.copy(ROOT / "cuda-tests/programs" / client, programs / client)
            machine = f"page{os.getpid()}{re.sub('[^a-z]', '', path.lower())}"
            own_host = os.geteuid() == 0 and any(act.kind == "root" for act in acts)
            wanted = (shlex.split(act.text) for act in acts if act.kind == "sim")
            arguments = next(wanted, ["--gpus", "2", "--memory", "16GiB"])
            environment = self.environment(home)
            terminal = Terminal(self.options.bin, machine, arguments, home.parent, environment, own_host=own_host)
            try:
                written = self.play(path, acts, terminal)
            finally:
                terminal.close()
        self.write(path, lines, written)

    def write(self, path, lines, written):
        """With --write, what was printed replaces what the page shows, but for an output that it shortens."""
        if self.options.write:
            for step, output in reversed(written):
                if "..." not in step.shown:
                    lines[step.line + 1 : step.line + 1 + len(step.shown)] = output
            (ROOT / path).write_text("\n".join(lines))

    def shown(self, line):
        line = line.replace(str(self.options.bin), "/usr/local/bin")
        for pattern, name in SHOWN_AS:
            line = re.sub(pattern, name, line)
        return line

    def play(self, path, acts, terminal):
        """Types what the page types, in its order. The outputs, for --write."""
        varying, written = list(ALWAYS), []
        for act in acts:
            if act.kind == "varies":
                varying.append(act.text)
            elif act.kind == "root" and os.geteuid():
                print(f"SKIPPED: {path} from line {act.line + 1} on: needs root ({act.text})")
                return written
            elif act.kind == "run":
                terminal.run(act.text)
            elif act.kind == "until" and not terminal.until(act.text):
                self.complain(path, act.line, f"never came true: {act.text}")
            for step in act.steps:
                output, end = self.typed(terminal, step), time.monotonic() + LOOK_LIMIT
                while LOOKS.match(step.command) and self.differs(step, output, varying) and time.monotonic() < end:
                    time.sleep(0.5)
                    output = self.typed(terminal, step)
                written.append((step, output))
                self.compare(path, step, output, varying)
        return written

    def typed(self, terminal, step):
        return [self.shown(line) for line in without_sometimes(terminal.run(step.command))]

    def differs(self, step, output, varying):
        return not (self.options.write or pages.is_shown(text_of(step.shown, varying), text_of(output, varying)))

    def compare(self, path, step, output, varying):
        shown, seen = text_of(step.shown, varying), text_of(output, varying)
        if pages.is_shown(shown, seen):
            self.passed += 1
        elif not self.options.write:
            difference = "\n    ".join(difflib.unified_diff(shown, seen, "on the page", "printed", lineterm="", n=1))
            self.complain(path, step.line, f"$ {step.command}\n    {difference}")

    def inline(self, path, line, command):
        """Within a sentence a command is not run; its subcommand and options must exist."""
        words = command.split(" -- ")[0].split()
        names = [word for word in words[1:] if re.fullmatch(r"[a-z]+", word)][:1]
        if words[1:2] and words[1].startswith("-"):
            names = []
        asked = subprocess.run([f"{self.options.bin}/partage", *names, "--help"], capture_output=True, text=True)
        if asked.returncode:
            return self.complain(path, line, f"no such command: {command}")
        options = re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", " ".join(words[1:]))
        known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", asked.stdout))
        missing = [option for option in options if option not in known]
        if missing:
            self.complain(path, line, f"`{command}`: no option {', '.join(missing)}")
        else:
            self.passed += 1


    def configuration(self, path, line, text, is_taken):
        """A configuration on a page is what `config check` says of it."""
        whole = text if re.search(r"^schema *=", text, re.M) else f"schema = 1\n{text}\n"
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(whole)
            file.flush()
            words = [f"{self.options.bin}/partage", "config", "check", file.name]
            asked = subprocess.run(words, capture_output=True, text=True)
        if (asked.returncode == 0) == is_taken:
            self.passed += 1
        else:
            said = asked.stderr.strip() or "it is taken"
            verdict = "refuses" if is_taken else "does not refuse"
            self.complain(path, line, f"`partage config check` {verdict} this: {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--picture", action="store_true")
    parser.add_argument("page", nargs="*")
    options = parser.parse_args()
    check = Check(options)
    if options.picture:
        picture.draw(options.bin, check.environment, ROOT)
        return 0
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [path.relative_to(ROOT).as_posix() for path in found if path.parent.name not in FOLDERS_NOT_JUDGED]
    # Each page has a machine of its own, and mostly waits.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(check.page, options.page or [path for path in found if path not in NOT_JUDGED]))
    for complaint in sorted(check.complaints):
        print(f"FAILED {complaint}")
    print(f"checks: {check.passed} passed {len(check.complaints)} failed")
    return 1 if check.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
