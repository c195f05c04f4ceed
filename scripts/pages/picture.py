# SPDX-License-Identifier: Apache-2.0
"""Draws docs/picture.svg: a terminal with two trainings on one GPU, a limit changed live, an out-of-memory, a `why`."""
import io
import os
import pathlib
import re
import shutil
import tempfile

from rich.console import Console
from rich.text import Text

from terminal import COLUMNS, Terminal

SESSION = [
    "partage run -m 25% --name small -- python train.py 4000 >small.log &",
    "partage run -m 50% --name large -- python train.py 4000 >large.log &",
    None,
    "partage ps",
    "partage set small mem=6GiB compute=30%",
    "partage run -m 1GiB -- python over_limit.py",
    "partage why small",
]


def draw(binaries, environment, root):
    """Types the session on a simulated machine and writes what the terminal showed as docs/picture.svg."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory(prefix="partage-picture-") as folder:
        home = pathlib.Path(folder) / "home"
        home.mkdir()
        for client in ("train.py", "over_limit.py"):
            shutil.copy(root / "cuda-tests/programs" / client, home / client)
        machine, arguments = f"picture{os.getpid()}", ["--gpus", "1", "--memory", "16GiB"]
        terminal = Terminal(binaries, machine, arguments, home.parent, environment(home), colour=True)
        try:
            for command in SESSION:
                if command is None:
                    ready = "test $(partage ps --json | grep -o '\"attached\"' | wc -l) -ge 2"
                    if not terminal.until(ready):
                        raise SystemExit("the trainings did not begin")
                    continue
                console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
                for line in terminal.run(command):
                    console.print(Text.from_ansi(line))
        finally:
            terminal.close()
    drawing = console.export_svg(title="partage")
    # The fonts named by default are fetched from elsewhere; a reader's own will do.
    drawing = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)
    (root / "docs/picture.svg").write_text(drawing)
    print("written: docs/picture.svg")
