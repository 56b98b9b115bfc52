"""What the sources conclude, checked by the statistics of `tequio.studies.verdicts`.

A claim `holds` if all of its statements do. A statement compares cells with cells or with a number:

    FLProtector, backdoor: success < 0.1
    ICDTA4FL, *, 50 parties: accuracy > local trees, *, 50 parties: accuracy
    federated: test accuracy ~ centralised: test accuracy within 0.02
    GreedyFed: seconds > random: seconds times 5
    FLProtector: local > APFL: local by half

With a `*`, cells pair up by what it stands for, and the statement is about the mean over these pairs. `A > B by 0.03`
asks for a difference above 0.03, `A > B by -0.02` that A is worse by no more than 0.02, and `by half` for half of the
published difference, so that a claim is not confirmed by a lead that is next to nothing, nor open for ever where there
is none. `~` is 'as much as' and needs its `within`.

The difference is that of the same seeds where numbers are known by seed (a seed that never reached a target then
counts as twice the largest number), else that of independent means. A statement is confirmed if its 90 % interval
keeps what it says, refuted if none of the interval does, and open otherwise or where a run or a second seed is missing.
A claim is confirmed if all its statements are. It is refuted if one of them is at 5 % divided by their number, so that
more statements do not make it easier to refute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import inf, isfinite
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from tequio.errors import ConfigError, nearest
from tequio.studies.verdicts import ALPHA, Interval, half_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.studies.answers import Row
    from tequio.studies.description import Claim

Fate = Literal["confirmed", "refuted", "open"]

_STATEMENT = re.compile(r"(?P<left>.+?) (?P<sign>[<>~]) (?P<right>.+?)(?: times (?P<times>\S+))?"
                        r"(?: (?P<word>by|within) (?P<border>\S+))?")


@dataclass(frozen=True)
class Statement:
    """A statement taken apart: the mean over pairs of left minus `times` right lies between `low` and `high`.

    Compared with a number, right is empty, and the number is in the bounds.
    """

    text: str
    pairs: tuple[tuple[str, str], ...]
    times: float
    low: float
    high: float
    half: bool = False

    def bounds(self, table: Mapping[str, Row]) -> tuple[float, float]:
        """Between what the difference has to lie; half of what is published where the statement says so."""
        if not self.half:
            return self.low, self.high
        lead = fmean((table[left].published or 0.0) - (table[right].published or 0.0) for left, right in self.pairs)
        return (max(0.0, lead / 2), inf) if self.low == 0 else (-inf, min(0.0, lead / 2))


@dataclass(frozen=True)
class Checked:
    """A statement beside what the runs say: the mean difference over its pairs (the mean, where it is compared with a
    number), and the ends of its interval."""

    text: str
    fate: Fate
    difference: float | None
    low: float | None
    high: float | None
    why: str = ""


@dataclass(frozen=True)
class Fared:
    """A claim and how it fared; on `other_data` than its source's, it says less."""

    says: str
    where: str
    fate: Fate
    statements: tuple[Checked, ...]
    other_data: bool
    note: str = ""


def check_claims(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Fared]:
    """All claims of a study by the rows of its table."""
    table = {row.cell: row for row in rows}
    return [_fared(claim, table) for claim in claims]


def parse_statement(text: str, cells: Sequence[str]) -> Statement:
    """A statement about some cells."""
    found = _STATEMENT.fullmatch(text)
    if found is None or (found["sign"] == "~") != (found["word"] == "within"):
        raise ConfigError(f"'{text}' is no statement about cells",
                          remedy="write 'A > B', 'A < 0.1', 'A > B by 0.03' or 'A ~ B within 0.02'")
    try:
        half = found["word"] == "by" and found["border"] == "half"
        times, border = float(found["times"] or 1), 0.0 if half else float(found["border"] or 0)
    except ValueError:
        raise ConfigError(f"'{text}': there has to be a number after 'times', 'by' and 'within'",
                          remedy="write, for instance, 'A > B by 0.03'") from None
    low, high = {">": (border, inf), "<": (-inf, -border), "~": (-border, border)}[found["sign"]]
    left = _cells_like(found["left"], cells)
    try:
        number = float(found["right"])
        return Statement(text, tuple((cell, "") for cell in left.values()), times, number + low, number + high)
    except ValueError:
        right = _cells_like(found["right"], cells)
    if len(right) > 1 or "*" in found["right"]:
        if left.keys() != right.keys():
            odd = sorted(" / ".join(key) for key in left.keys() ^ right.keys())
            raise ConfigError(f"'{text}': the sides do not pair up: {odd[0]}", remedy="give both sides the same cells")
        pairs = tuple((left[key], right[key]) for key in left)
    else:
        pairs = tuple(product(left.values(), right.values()))
    return Statement(text, pairs, times, low, high, half)


def _cells_like(pattern: str, cells: Sequence[str]) -> dict[tuple[str, ...], str]:
    """The cells that fit, by what each * of the pattern stands for."""
    shape = re.compile("(.+)".join(map(re.escape, pattern.split("*"))))
    found = {match.groups(): cell for cell in cells if (match := shape.fullmatch(cell))}
    if not found:
        raise ConfigError(f"there is no cell '{pattern}'", remedy=nearest(pattern, cells))
    return found


def _fared(claim: Claim, table: Mapping[str, Row]) -> Fared:
    statements = [parse_statement(text, list(table)) for text in claim.holds]
    checked = tuple(_checked(statement, table, ALPHA) for statement in statements)
    strict = [_checked(statement, table, ALPHA / len(statements)) for statement in statements]
    fate: Fate = "open"
    if all(one.fate == "confirmed" for one in checked):
        fate = "confirmed"
    elif any(one.fate == "refuted" for one in strict):
        fate = "refuted"
    return Fared(claim.says, claim.where, fate, checked, claim.other_data, claim.note)


def _checked(statement: Statement, table: Mapping[str, Row], alpha: float) -> Checked:
    rows = [table[cell] for pair in statement.pairs for cell in pair if cell]
    if not all(row.seeds for row in rows):
        return Checked(statement.text, "open", None, None, None, "not run")
    found = _by_seed(statement, table, alpha) or _by_means(statement, table, alpha)
    if found is None:
        never = any(row.never for row in rows)
        return Checked(statement.text, "open", None, None, None, "a seed never got there" if never else "one seed")
    difference, ends = found
    fate: Fate = "open"
    low, high = statement.bounds(table)
    if low < ends.low and ends.high < high:
        fate = "confirmed"
    elif ends.high <= low or ends.low >= high:  # a difference of exactly nothing is none
        fate = "refuted"
    return Checked(statement.text, fate, difference, ends.low, ends.high)


def _by_seed(statement: Statement, table: Mapping[str, Row], alpha: float) -> tuple[float, Interval] | None:
    """The mean difference over the pairs, from the seeds that all of their cells have."""
    numbers = [tuple(table[cell].values if cell else None for cell in pair) for pair in statement.pairs]
    known = [values for pair in numbers for values in pair if values is not None]
    seeds = set.intersection(*(set(values) for values in known))
    if len(seeds) < 2:
        return None
    last = 2 * max((abs(value) for values in known for value in values.values() if isfinite(value)), default=1.0)

    def of(values: Mapping[int, float] | None, seed: int) -> float:
        return 0.0 if values is None else min(values[seed], last)

    each = [fmean(of(left, seed) - statement.times * of(right, seed) for left, right in numbers) for seed in seeds]
    half = half_width([(stdev(each) ** 2 / len(each), len(each) - 1)], alpha)
    return fmean(each), Interval(fmean(each) - half, fmean(each) + half)


def _by_means(statement: Statement, table: Mapping[str, Row], alpha: float) -> tuple[float, Interval] | None:
    """The same from means and spreads, as if all cells were independent of each other."""
    parts: list[tuple[float, float]] = []
    differences, count = [], len(statement.pairs)
    for pair in statement.pairs:
        means = [0.0, 0.0]
        for side, cell in enumerate(pair):
            if not cell:
                continue
            sample, fixed = table[cell].sample, table[cell].deterministic
            if sample.mean is None or sample.never or (sample.sd is None and not fixed):
                return None
            means[side] = sample.mean
            weight = statement.times if side else 1.0
            if not fixed:
                parts.append(((weight * (sample.sd or 0.0) / count) ** 2 / sample.seeds, sample.seeds - 1))
        differences.append(means[0] - statement.times * means[1])
    half = half_width(parts, alpha)
    return fmean(differences), Interval(fmean(differences) - half, fmean(differences) + half)
