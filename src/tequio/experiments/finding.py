"""Finding runs: by path, by pattern, by the folder they lie in; and what each of them was told to do, as flat keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, RunError
from tequio.experiments.results import Result
from tequio.experiments.store import BASELINES, CONFIG, SUMMARY
from tequio.experiments.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Contender:
    """A finished run with its config as flat keys."""

    result: Result
    keys: dict[str, Any]

    @property
    def seed(self) -> int:
        """The seed, which decides how rows are dealt and how models begin."""
        return int(self.keys["seed"])


def find_runs(places: Iterable[str | Path], *, baselines: bool = False, parent: str | Path = "runs") -> list[Path]:
    """The run folders that some paths, patterns with * or names under `parent` stand for, each once.

    A folder that is no run stands for all runs below it. Baselines lie inside the folder of their run and are left out
    unless they are asked for.
    """
    found: dict[Path, None] = {}
    for place in places:
        runs = _below(str(place), Path(parent), baselines)
        if not runs:
            raise RunError(f"there is no run in '{place}'", remedy="give a run folder, a folder of runs, or a pattern; "
                                                                   f"a run folder holds {CONFIG}")
        found |= dict.fromkeys(runs)
    return list(found)


def contenders(folders: Sequence[Path]) -> tuple[list[Contender], list[str]]:
    """The runs that came to their end, and a line on each that did not."""
    finished, problems = [], []
    for folder in folders:
        if not (folder / SUMMARY).is_file():
            problems.append(f"{folder}: not finished; go on with it: tequio run --resume {folder}")
            continue
        try:
            finished.append(_contender(folder))
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as cause:
            problems.append(f"{folder}: damaged ({cause})")
    return finished, problems


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys with plain values; lists as text."""
    keys: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            keys |= flat(value, f"{prefix}{key}.")
        else:
            keys[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return keys


def _contender(folder: Path) -> Contender:
    """A baseline counts as its run with another algorithm: what else it was told follows from that."""
    result, keys = Result(folder), flat(read_toml(folder / CONFIG))
    for name in ("metrics", "seed", "data", "algorithm"):
        result.summary[name]  # read now, so that a damaged file is told here
    if folder.parent.name == BASELINES:
        run = flat(read_toml(folder.parent.parent / CONFIG))
        keys = {key: value for key, value in run.items() if not key.startswith("algorithm.")} | \
            {"algorithm.name": keys["algorithm.name"]}
    return Contender(result, keys)


def _below(place: str, parent: Path, baselines: bool) -> list[Path]:
    paths = [Path(path) for path in sorted(glob(place))] or ([parent / place] if (parent / place).is_dir() else [])
    found: list[Path] = []
    for path in paths:
        is_run = (path / CONFIG).is_file()
        below = sorted(config.parent for config in path.rglob(CONFIG) if config.parent != path)
        found += [path] if is_run else []
        found += [run for run in below if baselines or not (is_run or BASELINES in run.relative_to(path).parts)]
    return found
