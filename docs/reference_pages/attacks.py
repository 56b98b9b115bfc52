"""How many attacks the tests try, by adversary, for the page on trust: as pytest counts them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from reference_pages.markup import table

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"<!-- attacks: [^\n]*-->")
_FOLDER = "tests/adversaries"
_SIZE = re.compile(r"test_(\d{1,3}(?:_\d{3})+)_([a-z]+(?:_[a-z]+)?)")


def collected() -> list[str]:
    """Every test of an adversary, one for each set of parameters, without running it."""
    listing = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "-p",
                              "no:cacheprovider", _FOLDER], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if line.startswith(f"{_FOLDER}/")]


def attacks(tests: list[str]) -> str:
    """One table: a line an adversary, with the number of tests and of the messages that are made up at random."""
    counts = Counter(test.partition("::")[0] for test in tests)
    rows = [[Path(file).stem.removeprefix("test_").replace("_", " "), str(count), _forged(file, tests), f"`{file}`"]
            for file, count in sorted(counts.items())]
    total = ["**together**", f"**{sum(counts.values())}**", "", ""]
    return table(["adversary", "tests", "messages made up at random", "where"], [*rows, total])


def _forged(file: str, tests: list[str]) -> str:
    """From names such as test_100_000_forged_replies_never_...: what is tried so often says so."""
    sizes = dict.fromkeys(found.groups() for test in tests if test.startswith(f"{file}::")
                          if (found := _SIZE.search(test.partition("::")[2])))
    return ", ".join(f"{size.replace('_', ',')} {what.replace('_', ' ')}" for size, what in sizes)
