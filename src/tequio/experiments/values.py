"""Values of methods on the same rows: read from a table that somebody published, or gathered from runs."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
