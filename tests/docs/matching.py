"""Whether a transcript is what the page shows."""

from __future__ import annotations

import re
from difflib import ndiff

_MASKS = (
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?"), "<run>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"(\d+ h )?(\d+ min )?\d+(\.\d+)? s\b"), "<time>"),
    (re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?"), "<number>"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"\s+"), " "),
)


def difference(shown: str, got: str, *, varies: bool) -> str:
    """Empty if they match, else what differs. A line `...` in `shown` stands for any lines."""
    expected, actual = _lines(shown, varies), _lines(got, varies)
    if _match(expected, actual):
        return ""
    return "\n".join(ndiff(expected, actual))


def _lines(text: str, varies: bool) -> list[str]:
    lines = [line.rstrip() for line in text.strip("\n").split("\n")]
    return [_masked(line) for line in lines] if varies else lines


def _masked(line: str) -> str:
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return line.strip()


def _match(expected: list[str], actual: list[str]) -> bool:
    if "..." not in expected:
        return expected == actual
    place = expected.index("...")
    head, rest = expected[:place], expected[place + 1:]
    if actual[:place] != head:
        return False
    return any(_match(rest, actual[start:]) for start in range(place, len(actual) + 1)) or not rest
