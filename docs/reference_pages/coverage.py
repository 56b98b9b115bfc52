"""How much of the code the tests execute: `make coverage` measures it and keeps the sums in docs/coverage.json."""

from __future__ import annotations

import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tequio
from reference_pages.markup import page, table

KEPT = Path(__file__).parents[1] / "coverage.json"
_COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def coverage_page(kept: dict[str, Any]) -> str:
    """Lines and branches that were executed, by package."""
    packages = kept["packages"]
    total = {count: sum(package[count] for package in packages.values()) for count in _COUNTS}
    rows = [[f"`{name}`", *_shares(counts)] for name, counts in packages.items()]
    return page("Coverage",
                "How much of the code the tests execute, measured by [coverage.py](https://coverage.readthedocs.io/). "
                "A branch is one of the ways that an `if` or a loop can go. An executed line is not yet a checked one.",
                table(["package", "lines", "executed", "branches", "taken"], [*rows, ["**all**", *_shares(total)]]),
                f"Measured {kept['date']} on tequio {kept['tequio']} with Python {kept['python']} by `make coverage`, "
                "which runs the contract battery and these packages' own tests. Packages that run mostly in other "
                "processes and browsers (`cli`, `views`, `engines`) have tests of their own and are not counted here.")


def _shares(counts: dict[str, int]) -> list[str]:
    lines, covered, branches, taken = (counts[count] for count in _COUNTS)
    return [f"{lines:,}", f"{covered / lines:.1%}", f"{branches:,}", f"{taken / branches:.1%}" if branches else ""]


def summarised(report: dict[str, Any]) -> dict[str, Any]:
    """The sums by package of what `coverage json` wrote."""
    packages: dict[str, dict[str, int]] = {}
    for name, found in sorted(report["files"].items()):
        package = "tequio." + Path(name).parts[Path(name).parts.index("tequio") + 1]
        counts = packages.setdefault(package, dict.fromkeys(_COUNTS, 0))
        for count in _COUNTS:
            counts[count] += found["summary"][count]
    return {"date": datetime.now(UTC).date().isoformat(), "tequio": tequio.__version__,
            "python": platform.python_version(), "packages": packages}


def main() -> None:
    """Keep the sums of the report that is named, and print the page."""
    kept = summarised(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(coverage_page(kept))


if __name__ == "__main__":
    main()
