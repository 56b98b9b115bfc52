"""How many files and functions of tequio one round crosses: ``python benchmarks/files_crossed.py [--list]``.

A reader who follows a round from top to bottom opens these files. Counted are the functions that are called while the
algorithm plays its first round: FedAvg with logistic regression on a CSV file, in one process, plain and with secure
sums. Reading the file, evaluation and checkpoints are not part of a round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import tequio
from tequio import registry

SOURCE = Path(tequio.__file__).parent
CASES: dict[str, dict[str, Any]] = {"fedavg": {}, "fedavg with secure-sum": {"stages": ["secure-sum"]}}


def crossed(case: str) -> dict[str, list[str]]:
    """The functions that a round calls, by file."""
    found: dict[str, set[str]] = {}

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{SOURCE}/") and code.co_name != "<module>":
            found.setdefault(code.co_filename[len(str(SOURCE)) + 1:], set()).add(code.co_qualname)

    with tempfile.TemporaryDirectory() as folder:
        _play(_write_rows(Path(folder)), folder, CASES[case], note)
    return {file: sorted(functions) for file, functions in sorted(found.items())}


def _play(rows: Path, folder: str, parts: dict[str, Any], note: Any) -> None:
    """One round, traced."""
    algorithm = registry.find("algorithm", "fedavg").component
    plain = algorithm.round

    def traced(self: Any, federation: Any, state: Any) -> Any:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            return plain(self, federation, state)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    with patch.object(algorithm, "round", traced):
        tequio.run(data={"name": "csv", "path": str(rows), "target": "y", "partition": {"name": "iid", "parties": 4}},
                   algorithm="fedavg", learner="logistic", rounds=1, engine={"name": "local", "workers": 1},
                   output={"folder": folder}, **parts)


def _write_rows(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(200, 3))
    lines = [",".join([*(f"{value:.4f}" for value in row), "yes" if row[0] > 0 else "no"]) for row in values]
    path = folder / "rows.csv"
    path.write_text("\n".join(["a,b,c,y", *lines]) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Print the counts and, with --list, the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="also name the files and how many functions of each")
    listed = parser.parse_args().list
    for case in CASES:
        files = crossed(case)
        print(f"{case}: {len(files)} files, {sum(map(len, files.values()))} functions")
        for file, functions in files.items() if listed else ():
            print(f"  {file}: {len(functions)}")


if __name__ == "__main__":
    main()
