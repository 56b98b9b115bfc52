"""The fenced blocks of a Markdown page, and the marks that say how each is tested.

A mark is an HTML comment right above the fence:

    <!-- file: name.toml -->               the block is written to that file of the page's working folder
    <!-- test: skip, why it is not run --> the block is not run
    <!-- test: output varies -->           numbers, times and names of run folders may differ from those shown
    <!-- test: any output -->              the output is not compared at all: it is the machine's
    <!-- test: exit 2 -->                  the command ends with that exit code and says so on stderr
    <!-- test: slow -->                    run only together with the slow tests
    <!-- test: printed -->                 a text block that holds what the Python block above it prints

Several words of one mark are separated by commas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "docs" / "reference"
RUN_LANGUAGES = ("python", "console", "bash", "toml")
FREE_LANGUAGES = ("text", "json", "csv", "html")

_FENCE = re.compile(r"^```(\w*)[^\n]*$")
_MARK = re.compile(r"^<!-- (test|file): (.+?) -->$")
_WORDS = {"output varies": "varies", "any output": "free", "slow": "slow", "printed": "printed"}


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is where its content starts, counted from 1."""

    page: Path
    line: int
    language: str
    content: str
    file: str = ""
    skip: str = ""
    varies: bool = False
    free: bool = False
    slow: bool = False
    printed: bool = False
    exit_code: int = 0

    @property
    def place(self) -> str:
        """Where to look for it."""
        return f"{self.page.name}:{self.line}"


def pages() -> list[Path]:
    """README and all pages of the docs that are written by hand."""
    found = [path for path in (ROOT / "docs").rglob("*.md") if not path.is_relative_to(GENERATED)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(found)]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order; anything that would escape the tests is an error."""
    return parse(page.read_text(encoding="utf-8"), page)


def parse(text: str, page: Path = Path("page.md")) -> list[Block]:
    """The blocks of a text."""
    found: list[Block] = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        if lines[number].lstrip().startswith("```") and not _FENCE.match(lines[number]):
            raise ValueError(f"{page.name}:{number + 1}: a fence that is indented or not plain escapes the tests")
        opening = _FENCE.match(lines[number])
        if opening:
            end = lines.index("```", number + 1)
            content = "".join(f"{line}\n" for line in lines[number + 1:end])
            found.append(_block(page, number + 2, opening[1], content, _marks_above(lines, number)))
            number = end
        number += 1
    return found


def _marks_above(lines: list[str], number: int) -> dict[str, str]:
    marks = {}
    while number and (mark := _MARK.match(lines[number - 1])):
        marks[mark[1]] = mark[2]
        number -= 1
    return marks


def _block(page: Path, line: int, language: str, content: str, marks: dict[str, str]) -> Block:
    block = Block(page, line, language, content, file=marks.get("file", ""), **_read_mark(marks.get("test", "")))
    if language not in (*RUN_LANGUAGES, *FREE_LANGUAGES):
        raise ValueError(f"{block.place}: a block of language '{language}'; known are {RUN_LANGUAGES + FREE_LANGUAGES}")
    if language == "console" and not content.startswith("$ ") and not block.skip:
        raise ValueError(f"{block.place}: a console block starts with '$ ' and a command")
    return block


def _read_mark(text: str) -> dict[str, object]:
    if text.startswith("skip"):
        reason = text.removeprefix("skip").strip(" ,")
        if not reason:
            raise ValueError("a skipped block needs a reason: <!-- test: skip, why -->")
        return {"skip": reason}
    told: dict[str, object] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word.startswith("exit "):
            told["exit_code"] = int(word.removeprefix("exit "))
        elif word in _WORDS:
            told[_WORDS[word]] = True
        else:
            raise ValueError(f"'{word}' is no mark; there is: skip, exit N, {', '.join(_WORDS)}")
    return told
