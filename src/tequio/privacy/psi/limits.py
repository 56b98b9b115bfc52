"""What a party lets set intersections learn about its ids: how many there may be, between lists of which lengths.

Each intersection is written down before the first answer leaves, so that a coordinator that begins one after the other
comes to an end.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from tequio.errors import DataError, PermissionDenied

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.federation.population import Party

LIMITS = "psi"
"""The setting of a party's own that holds these limits."""

BEGINS, SETTLES = "intersection.offer", "intersection.settle"
"""The tasks with which an intersection begins and ends at a party."""

_STEP, _DAY = 100, 86_400
_USUAL_MINIMUM = 100


@dataclass(frozen=True)
class Limits:
    """How long the lists of others may be, how few ids may be common, and the secret that hardens ids, if it is given.

    `minimum` of nothing is 100, or a tenth of the party's rows where that is less. `tell_rows` is what the policy says
    about the number of rows, which the length of a list shows.
    """

    most_ids: int = 1 << 20
    times_own: float = 4.0
    minimum: int | None = None
    secret: bytes = b""
    tell_rows: str = "exact"

    def length(self, rows: int, *, linked: bool, mine: str) -> int:
        """How long the list of so many rows is."""
        if self.tell_rows == "no" or (linked and self.tell_rows != "exact"):
            raise PermissionDenied(f"{mine} does not say how many rows it has, and the length of a list of ids does",
                                   remedy="the party's owner decides: set tell_rows = " +
                                          ("'exact', or leave algorithm.hide_matches out" if linked else "'hundreds'"))
        return rows if linked else bucket(rows)

    def require_length(self, length: int, own: int, whose: str, mine: str) -> None:
        """Refuse a list in which another party could put too many guesses."""
        most = min(self.most_ids, int(self.times_own * own))
        if length > most and length != own:
            raise PermissionDenied(f"{mine} intersects its {own} ids with lists of {most} at most, and that of {whose} "
                                   f"has {length}",
                                   remedy="the party's owner decides: raise psi.times_own or psi.most_ids in its "
                                          "policy")

    def require_enough(self, common: int, rows: int, mine: str) -> None:
        """Refuse an intersection of too few rows; how few they are is not said."""
        least = min(_USUAL_MINIMUM, ceil(rows / 10)) if self.minimum is None else self.minimum
        if common < max(least, 1):
            raise DataError(f"the parties have no ids in common, or fewer than the {max(least, 1)} that {mine} wants",
                            remedy="check that ids mean the same and are written alike (algorithm.compare), or lower "
                                   "psi.minimum in the party's policy")


class IntersectionLog:
    """The intersections that a party has begun with some rows, in a file of all its intersections; in memory where
    there is none, as in a simulation."""

    def __init__(self, rows: str, path: Path | None = None) -> None:
        self._rows, self._path, self._lines = rows, path, list[dict[str, Any]]()

    def begin(self, run: str, by: str, per_day: int, per_dataset: int) -> None:
        """Write an intersection down, or refuse it: how many there were today with any rows, and ever with these."""
        now, before = time.time(), self._lines if self._path is None else _read(self._path)
        today = sum(each["at"] > now - _DAY for each in before)
        if today >= per_day:
            raise _too_many(f"{today} set intersections within 24 hours", "per_day", per_day)
        ever = sum(each["rows"] == self._rows for each in before)
        if ever >= per_dataset:
            raise _too_many(f"{ever} set intersections with these rows", "per_dataset", per_dataset)
        line = {"at": now, "rows": self._rows, "run": run, "by": by}
        if self._path is None:
            self._lines.append(line)
        else:
            _append(self._path, line)


def _too_many(what: str, key: str, most: int) -> PermissionDenied:
    return PermissionDenied(f"the party's policy refuses: it has taken part in {what}, and {most} are the most",
                            remedy=f"the party's owner decides: raise psi.{key} in its policy")


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of the file. One without an end was never finished, and no answer followed it."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError as cause:
        raise PermissionDenied(f"'{path.name}' is damaged, and how many intersections there were cannot be known",
                               remedy="restore it from a backup") from cause


def _append(path: Path, line: dict[str, Any]) -> None:
    whole = b"" if not path.exists() or path.read_bytes().endswith(b"\n") else b"\n"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
        file.write(whole + json.dumps(line, separators=(",", ":")).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def limits_of(party: Party) -> Limits:
    """The limits of the party's own policy."""
    return Limits(**party.settings.get(LIMITS, {}))


def bucket(rows: int) -> int:
    """The length that a list is padded to: full hundreds, and of lists beyond a thousand a quarter more at most."""
    length = _STEP
    while length < rows:
        length = ceil(length * 1.25 / _STEP) * _STEP
    return length
