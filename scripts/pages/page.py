# SPDX-License-Identifier: Apache-2.0
"""What a page says about commands: its console blocks, its directives, and the commands within its sentences.

A block that is run:      ```console          lines that begin with "$ " are typed, the lines below each are its output
Directives, in comments:  <!-- pages: run COMMAND -->      typed before the next block, its output is not shown
                          <!-- pages: until COMMAND -->    repeated until it succeeds
                          <!-- pages: varies REGEX -->     what may differ between two runs, for the rest of the page
                          <!-- pages: sim ARGUMENTS -->    the machine of this page (default: --gpus 2 --memory 16GiB)
                          <!-- pages: root WHAT -->        from here on root is needed; the page has an /etc, a
                                                           /run, a /usr/local and processes of its own
                          <!-- pages: refuses TOML -->     `partage config check` refuses this (one line of TOML);
                                                           stands above the line of the page that says so
                          <!-- pages: fresh BASE WHAT -->  from here to the next such line packaging/fresh/check types
                                                           the blocks, in a fresh root (`bare` or `python`), as alice
A line `...` of an output stands for any lines.
What a reader needs is shown: `run` may neither export nor change the folder. A heading has text below it.
A toml block is a configuration, and `partage config check` takes it.
A block that is not run names its kind (text, toml, json, c ...) or its recipe; a nameless block is a complaint.
"""
import dataclasses
import re

# What changes the reader's shell must be on the page, or the commands below it do something else for the reader.
FOR_READERS = re.compile(r"\s*(export|unset|cd|alias|source|\.) ")
# A page that says so is held against the program.
SAYS_NOT_BUILT = re.compile(r"\b(not built|not yet built|not implemented)\b", re.I)
HEADING = re.compile(r"^(#+) ")
FENCE = re.compile(r"^```(.*)$")
DIRECTIVE = re.compile(r"^<!-- pages: (run|until|varies|sim|root|refuses|fresh) (.*) -->$")
# Kinds that hold no command, and the recipes' own fences (scripts/recipes/try and scripts/engines run those).
NO_COMMANDS = {"text", "toml", "json", "ini", "c", "rust"}
RECIPE_KINDS = {"sh", "python", "crontab", "yaml"}


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
            if directive.group(1) == "run" and FOR_READERS.match(directive.group(2)):
                complain(number, f"hidden, and a reader needs it: {directive.group(2)}")
            acts.append(Act(directive.group(1), number, directive.group(2)))
    return acts


def sections(acts):
    """The acts before the first `fresh`, then (that act, those after it) for each one."""
    here, fresh = [], []
    for act in acts:
        if act.kind == "fresh":
            fresh.append((act, []))
        else:
            (fresh[-1][1] if fresh else here).append(act)
    return here, fresh


def is_shown(shown, seen):
    """Is what was seen what a page shows? There a line `...` stands for any lines."""
    if not shown:
        return not seen
    if shown[0] == "...":
        return any(is_shown(shown[1:], seen[start:]) for start in range(len(seen) + 1))
    return shown[:1] == seen[:1] and is_shown(shown[1:], seen[1:])


def configurations(lines):
    """(line, text, is_taken) of each configuration: the toml blocks, and those that a directive says are refused."""
    inside, kind, start = False, "", 0
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence and not inside:
            inside, kind, start = True, fence.group(1).strip(), number
        elif fence:
            inside = False
            if kind.split()[:1] == ["toml"]:
                yield start, "\n".join(lines[start + 1 : number]), True
        elif not inside and (directive := DIRECTIVE.match(line)) and directive.group(1) == "refuses":
            yield number, directive.group(2), False


def without_text(lines, complain, is_record):
    """Complains of headings without text, and of sentences about what is not built that nothing is held against.

    A record (a decision) tells of its day.
    """
    inside, empty = False, None
    for number, line in enumerate(lines):
        if FENCE.match(line):
            inside = not inside
        heading = None if inside else HEADING.match(line)
        depth = len(heading.group(1)) if heading else 0
        if empty and depth and depth <= empty[1]:
            complain(empty[0], "a heading without text")
        if depth:
            empty = (number, depth)
        elif line.strip() and not DIRECTIVE.match(line):
            empty = None
        above = DIRECTIVE.match(lines[number - 1]) if number else None
        if not inside and not is_record and SAYS_NOT_BUILT.search(line) and not (above and above.group(1) == "refuses"):
            complain(number, "says that something is not built, and no `refuses` directive stands above it")
    if empty:
        complain(empty[0], "a heading without text")


def inline_commands(lines):
    """(line, command) of each `partage …` within a sentence or a table."""
    inside = False
    for number, line in enumerate(lines):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            for command in re.findall(r"`(partage [^`]+)`", line):
                yield number, command
