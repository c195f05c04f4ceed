# SPDX-License-Identifier: Apache-2.0
"""Types what docs/install.md prints, in order, each part of the page in a fresh root, and compares what is printed."""

import argparse
import os
import sys

from packages import ROOT
from room import Room

sys.path.insert(0, str(ROOT / "scripts" / "pages"))

import check as pages_check  # noqa: E402
import page as pages  # noqa: E402
from terminal import Shell  # noqa: E402

PAGES = ["docs/install.md"]
# apt draws over what it printed.
NO_BARS = 'Binary::apt { DPkg::Progress-Fancy "false"; APT::Color "false"; };'
# Of a shell that is not the page's matter. On a simulated host commands ask a broker of their own unless they are told
# the host's; a real one needs no such word.
VARIABLES = {"VIRTUAL_ENV_DISABLE_PROMPT": "1", "NO_COLOR": "1", "PARTAGE_SOCKET_DIR": "/run/partage"}


class TypedPage(pages_check.Check):
    """One page; its parts are the trial's checks."""

    name = "the page"

    def __init__(self, bases, at, packages, write):
        super().__init__(argparse.Namespace(bin="/nowhere", write=write))
        self.bases, self.at, self.packages = bases, at, packages

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @property
    def checks(self):
        for path in PAGES:
            lines = (ROOT / path).read_text().split("\n")
            acts = pages.read(lines, lambda line, text: None)
            _, sections = pages.sections(acts)
            assert sections, f"{path} has no part for a fresh root"
            written = []
            for begin, part in sections:
                yield self.typing(path, begin, part, written)
            self.write(path, lines, written)

    def typing(self, path, begin, acts, written):
        base, _, what = begin.text.partition(" ")

        def typed():
            with Room(getattr(self.bases, base), self.at) as room:
                for file in (self.packages.wheel, self.packages.deb, self.packages.archive):
                    room.put(file, "/home/alice/dist", owner="alice")
                if base == "bare":
                    room.gpus(self.packages.programs)
                room.run("sh", "-c", f"echo '{NO_BARS}' >/etc/apt/apt.conf.d/99bars")
                variables = {k: v for k, v in VARIABLES.items() if base == "bare" or "PARTAGE" not in k}
                command = room.command(["bash", "--norc", "--noprofile"], "alice", variables)
                shell = Shell(command, None, dict(os.environ))
                written.extend(self.play(path, acts, shell))
                shell.leave()
            complaints, self.complaints = self.complaints, []
            assert not complaints, "\n".join(complaints)

        typed.__name__ = f"{path.removeprefix('docs/')} types {what}"
        return typed
