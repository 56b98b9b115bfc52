"""What is found in a table, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tequio.data.inspecting.columns import FEWEST_SHOWN, ColumnFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.dataset import TargetKind
    from tequio.data.inspecting.columns import Role


FEWEST_ROWS = 20
"""A table with fewer rows than this cannot be dealt, split and learned from."""

SMALL_PARTY = 10
UNBALANCED = 0.8
"""Where the most frequent class has a larger share of the rows than this, accuracy says little."""


@dataclass(frozen=True)
class Finding:
    """A sentence about the table. A `problem` keeps a run from working; `acts` says what the config does about it;
    `check` is for its owner to decide."""

    level: Literal["problem", "acts", "check"]
    text: str


@dataclass(frozen=True)
class TargetFacts:
    """What is to be predicted: its kind, the rows of each class, and how many rows lack it."""

    names: tuple[str, ...]
    kind: TargetKind
    classes: Mapping[str, int]
    missing: int
    is_named: bool = False

    def share(self, label: str) -> float:
        """The share of a class among the rows."""
        return self.classes[label] / sum(self.classes.values())

    @property
    def is_unbalanced(self) -> bool:
        """Whether one class has nearly all rows."""
        return len(self.classes) > 1 and max(map(self.share, self.classes)) > UNBALANCED


@dataclass(frozen=True)
class PartyFacts:
    """One party: its rows, and how many of each class."""

    name: str
    rows: int
    classes: Mapping[str, int]

    @property
    def may_lack_a_class(self) -> bool:
        """Whether its rows are of one class, or could be when some are held out."""
        second = sorted(self.classes.values(), reverse=True)[1:2]
        return bool(self.classes) and (not second or second[0] < FEWEST_SHOWN)


@dataclass(frozen=True)
class TableFacts:
    """All that was found. `seen` of `rows` rows were looked at.

    `targets` and `groups` are likely ones where nothing was asked for. `said` are keys of `[data]` that the table takes
    none of, because it says by itself what they would.
    """

    name: str
    rows: int
    seen: int
    columns: tuple[ColumnFacts, ...]
    metric: str
    target: TargetFacts | None
    party: str
    parties: tuple[PartyFacts, ...]
    party_missing: int
    findings: tuple[Finding, ...]
    targets: tuple[str, ...]
    groups: tuple[str, ...]
    said: tuple[str, ...] = ()

    def of(self, role: Role) -> list[ColumnFacts]:
        """The columns that have a role."""
        return [column for column in self.columns if column.role == role]

    @property
    def is_sample(self) -> bool:
        """Whether not all rows were looked at."""
        return self.seen < self.rows

    @property
    def problems(self) -> list[Finding]:
        """What keeps a run from working."""
        return [finding for finding in self.findings if finding.level == "problem"]


def count_text(count: int) -> str:
    """'1,116'; a small count is not shown."""
    return f"{count:,}" if count >= FEWEST_SHOWN else f"fewer than {FEWEST_SHOWN}"
