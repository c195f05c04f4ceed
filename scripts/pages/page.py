# SPDX-License-Identifier: Apache-2.0
"""What a page says about commands: its console blocks, its directives, and the commands within its sentences.

A block that is run:      ```console          lines that begin with "$ " are typed, the lines below each are its output
Directives, in comments:  <!-- pages: run COMMAND -->      typed before the next block, its output is not shown
                          <!-- pages: until COMMAND -->    repeated until it succeeds
                          <!-- pages: varies REGEX -->     what may differ between two runs, for the rest of the page
                          <!-- pages: sim ARGUMENTS -->    the machine of this page (default: --gpus 2 --memory 16GiB)
                          <!-- pages: root WHAT -->        from here on root is needed; the page has an /etc, a
                                                           /run, a /usr/local and processes of its own
A block that is not run names its kind (text, toml, json, c ...) or its recipe; a nameless block is a complaint.
"""
import dataclasses
import re

FENCE = re.compile(r"^```(.*)$")
DIRECTIVE = re.compile(r"^<!-- pages: (run|until|varies|sim|root) (.*) -->$")
# Kinds that hold no command, and the recipes' own fences (scripts/recipes/try runs those).
NO_COMMANDS = {"text", "toml", "json", "ini", "c", "rust"}
RECIPE_KINDS = {"sh", "python", "crontab"}


@dataclasses.dataclass
class Step:
    """One command: the line it stands on (0-based, of its "$ "), what is typed, and the output the page shows."""

    line: int
    command: str
    shown: list[str]


@dataclasses.dataclass
class Act:
    """One directive or one console block, in the order of the page."""

    kind: str
    line: int
    text: str = ""
    steps: list[Step] = dataclasses.field(default_factory=list)


def read(lines, complain):
    """The acts of a page. `complain(line, text)` is called for what no rule allows."""
    acts, inside, kind = [], False, ""
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence and not inside:
            inside, kind = True, fence.group(1).strip()
            if kind == "console":
                acts.append(Act("block", number))
            elif not kind:
                complain(number, "a block without a kind: write console, text, or the kind of file it shows")
            elif kind.split()[0] not in NO_COMMANDS and not (kind.split()[0] in RECIPE_KINDS and " " in kind):
                complain(number, f"a {kind} block that nothing runs: write console")
        elif fence:
            inside = False
        elif inside and kind == "console":
            if line.startswith("$ "):
                acts[-1].steps.append(Step(number, line[2:], []))
            elif acts[-1].steps:
                acts[-1].steps[-1].shown.append(line)
            else:
                complain(number, "output without a command above it")
        elif directive := DIRECTIVE.match(line):
            acts.append(Act(directive.group(1), number, directive.group(2)))
    return acts


def inline_commands(lines):
    """(line, command) of each `partage …` within a sentence or a table."""
    inside = False
    for number, line in enumerate(lines):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            for command in re.findall(r"`(partage [^`]+)`", line):
                yield number, command
