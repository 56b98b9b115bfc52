"""What is compared: values of methods from a published table, or finished runs found by path and pattern."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, DataError, RunError
from tequio.experiments.config.toml import Given, read_toml
from tequio.experiments.running.results import Result
from tequio.experiments.running.store import BASELINES, CONFIG, SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


SEED = "seed"


@dataclass(frozen=True, eq=False)
class Values:
    """One row a block (a problem and a seed), one column a method.

    `problems` says which data a row comes from: rows of one problem share data and are not independent. `settings`
    names the keys of configs that tell the methods apart, and `left_out` what could not be used.
    """

    methods: tuple[str, ...]
    problems: tuple[str, ...]
    seeds: tuple[str, ...]
    matrix: NDArray[np.float64]
    metric: str
    higher_is_better: bool = True
    settings: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def several_problems(self) -> bool:
        """Whether the rows come from more than one problem."""
        return len(set(self.problems)) > 1

    @property
    def repeated(self) -> bool:
        """Whether a problem has several rows."""
        return len(set(self.problems)) < len(self.problems)


def means_of_problems(values: Values) -> Values:
    """One row a problem: the means over its rows."""
    names = list(dict.fromkeys(values.problems))
    places = np.array([names.index(problem) for problem in values.problems])
    matrix = np.array([values.matrix[places == place].mean(axis=0) for place in range(len(names))])
    return replace(values, problems=tuple(names), seeds=("",) * len(names), matrix=matrix)


def read_values(path: Path, *, metric: str = "", higher_is_better: bool = True) -> Values:
    """A CSV file with a column a method. Columns of words name the problem, and one called `seed` the seed."""
    head, *lines = _lines(path)
    rows = [line for line in lines if any(cell.strip() for cell in line)]
    if not rows or any(len(row) != len(head) for row in rows):
        raise DataError(f"'{path}' is not a table of values", remedy="give a CSV file with a line of names, then one "
                        "line a block with as many cells")
    columns = {name.strip(): [row[place].strip() for row in rows] for place, name in enumerate(head)}
    methods = [name for name, cells in columns.items() if name.lower() != SEED and all(map(_is_number, cells))]
    words = [name for name in columns if name not in methods and name.lower() != SEED]
    broken = [name for name in words if any(map(_is_number, columns[name]))]
    if len(methods) < 2 or broken:
        raise DataError(f"'{path}' has {_broken(columns, broken) if broken else 'fewer than two columns of numbers'}",
                        remedy="every method needs a number in every line; leave out lines that lack one")
    problems = tuple(" ".join(parts) for parts in zip(*(columns[name] for name in words), strict=True)) if words \
        else _numbered(columns, len(rows))
    matrix = np.array([[float(cell) for cell in columns[name]] for name in methods]).T
    return Values(tuple(methods), problems, tuple(_seeds(columns, len(rows))), matrix, metric or path.stem,
                  higher_is_better)


def common_rope(values: Values) -> float:
    """A difference too small to matter: one point of a hundred of a share, else a hundredth of the mean size."""
    size = fmean(np.abs(values.matrix).ravel().tolist())
    return 0.01 if np.abs(values.matrix).max() <= 1 else 0.01 * size


def fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern with * and ?, or holds it where it has neither; case does not matter."""
    name, pattern = name.lower(), pattern.lower()
    return fnmatchcase(name, pattern) if any(mark in pattern for mark in "*?") else pattern in name


def _lines(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"'{path}' cannot be read: {cause}", remedy="give a CSV file in UTF-8") from cause
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    return list(csv.reader(io.StringIO(text), delimiter=delimiter)) or [[]]


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _broken(columns: dict[str, list[str]], names: Sequence[str]) -> str:
    line = next(place for place, cell in enumerate(columns[names[0]]) if not _is_number(cell))
    return f"'{columns[names[0]][line]}' in line {line + 2} of column '{names[0]}'"


def _seeds(columns: dict[str, list[str]], count: int) -> list[str]:
    return next((cells for name, cells in columns.items() if name.lower() == SEED), [""] * count)


def _numbered(columns: dict[str, list[str]], count: int) -> tuple[str, ...]:
    """Without names of problems: rows of different seeds are of one problem, other rows are each one of their own."""
    if any(name.lower() == SEED for name in columns):
        return ("",) * count
    return tuple(str(number) for number in range(1, count + 1))


@dataclass(frozen=True)
class Contender:
    """A finished run with its config as flat keys."""

    result: Result
    keys: Given

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


def flat(table: Mapping[str, object], prefix: str = "") -> Given:
    """Dotted keys with plain values; lists as text."""
    keys: Given = {}
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
