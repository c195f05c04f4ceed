# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of a page, such as docs/recipes.md, that name a recipe.

A fence reads LANGUAGE NAME [PATH]: the block is the file PATH of recipe NAME (`~` is the home folder), or, without
PATH, the commands that a user types there. NAME is a recipe, or a recipe, a dash and a variant of it. Fences with a
language alone are text.
"""
import collections
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
Block = collections.namedtuple("Block", "language recipe path text")


def blocks(text):
    """All named blocks of a page, in order."""
    found = []
    for fence in re.finditer(r"^```(\w+) ([\w-]+)(?: (\S+))?\n(.*?)^```$", text, re.M | re.S):
        language, recipe, path, body = fence.groups()
        found.append(Block(language, recipe, path, body))
    return found


class Page:
    """The blocks of these pages, with the paths that a reader adapts adapted to this machine."""

    def __init__(self, paths, *pages):
        self.all = sum((blocks((DOCS / page).read_text()) for page in pages), [])
        self.paths = paths

    def recipes(self):
        """The recipes that the page has blocks of, variants counted as theirs."""
        return {block.recipe.split("-")[0] for block in self.all}

    def typed(self, recipe):
        """What is typed for a recipe: its one block without a path."""
        return self._only([b for b in self.all if b.recipe == recipe and b.path is None], recipe)

    def file(self, recipe, home):
        """Writes the recipe's one file below `home` and gives its path."""
        block = next((b for b in self.all if b.recipe == recipe and b.path), None)
        assert block, f"the page has no file of {recipe}"
        path = home / block.path.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._adapted(block.text))
        return path

    def _only(self, found, recipe):
        assert len(found) == 1, f"the page has {len(found)} typed blocks of {recipe}, not one"
        return self._adapted(found[0].text)

    def _adapted(self, text):
        for written, here in self.paths.items():
            text = text.replace(written, here)
        return text
