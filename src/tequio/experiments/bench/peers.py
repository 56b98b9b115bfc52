"""Peers doing the same work, each in an environment of its own under benchmarks/peers (from a checkout)."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def installed_peers(checkout: Path) -> dict[str, Path]:
    """The peers whose environment has been made, by `python benchmarks/peers/setup.py`."""
    environments = checkout / "benchmarks" / "peers" / ".envs"
    return {folder.name: folder / "bin" / "python" for folder in sorted(environments.glob("*"))
            if (folder / "bin" / "python").exists()}


def run_peers(checkout: Path, case: str, rounds: int, workers: int) -> dict[str, Any]:
    """Seconds a round of each installed peer; a peer that fails says why."""
    return {name: _run(checkout, name, python, case, rounds, workers)
            for name, python in installed_peers(checkout).items()}


def _run(checkout: Path, name: str, python: Path, case: str, rounds: int, workers: int) -> dict[str, Any]:
    script = checkout / "benchmarks" / "peers" / f"run_{name}.py"
    command = [str(python), str(script), "--case", case, "--rounds", str(rounds), "--workers", str(workers), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (json.JSONDecodeError, IndexError):
        return {"error": (done.stderr.strip().splitlines() or ["printed nothing"])[-1]}
    return report
