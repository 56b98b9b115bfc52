"""How fast others are, for the page on peers: read from what `benchmarks/compare.py` wrote."""

from __future__ import annotations

import re
from pathlib import Path

from reference_pages.markup import table

RESULTS = Path(__file__).parents[2] / "benchmarks" / "RESULTS.md"
PLACE = re.compile(r"<!-- races: [^\n]*-->")
_CASE = re.compile(r"^## `(\w+)`\n\n(.+?)\n\n(.+?)\n\n", re.MULTILINE | re.DOTALL)


def races(results: str) -> str:
    """One table: a line a contestant, a column a case, each as a multiple of tequio's time."""
    cases = {name: _ratios(listing) for name, _, listing in _CASE.findall(results)}
    contestants = dict.fromkeys(name for ratios in cases.values() for name in ratios)
    rows = [[name, *(ratios.get(name, "") for ratios in cases.values())] for name in contestants]
    told = [f"`{name}`: {what}" for name, what, _ in _CASE.findall(results)]
    measured = re.search(r"^\d{4}-\d\d-\d\d, .*$", results, re.MULTILINE)
    return "\n\n".join([f"Seconds a round as multiples of tequio's; {measured[0] if measured else ''}",
                        table(["", *(f"`{name}`" for name in cases)], rows), "\n".join(f"- {line}" for line in told)])


def _ratios(listing: str) -> dict[str, str]:
    """The column 'times ours' of one case."""
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in listing.split("\n")]
    return {line[0]: line[head.index("times ours")] for line in lines}
