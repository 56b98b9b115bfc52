"""The contract of an attack: what a hostile party does to its rows and to its update, and what several do together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tequio.federation.algorithm import Attacked  # noqa: TC001  (types of fields are looked up)
from tequio.registry import contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Arrays


@dataclass(frozen=True)
class Circumstances:
    """What an attacker knows besides its own update: the round, and how many parties are hostile among all."""

    round: int
    hostile: int
    parties: int

    @property
    def cancelling(self) -> float:
        """(N - m) / m: with it, m hostile updates weigh as much as all honest ones in a plain mean."""
        return (self.parties - self.hostile) / self.hostile


@contract("attack")
@dataclass(frozen=True)
class Attack:
    """Does nothing; each attack changes what it needs, and says by `acts_on` what that is."""

    acts_on: ClassVar[frozenset[Attacked]] = frozenset()

    def check(self, now: Circumstances) -> None:
        """Refuse settings under which the attack would do nothing, with a setting that works."""

    def most_rows(self, rows: int) -> int:
        """The most that `poison` makes of a number of rows; a hostile party reports no fewer when it joins."""
        return rows

    def poison(self, rows: Dataset, rng: np.random.Generator) -> Dataset:
        """The rows that a hostile party trains on instead of its own."""
        return rows

    def forge(self, update: Arrays, now: Circumstances, rng: np.random.Generator) -> Arrays:
        """The update that a hostile party sends instead of its own."""
        return update

    def conspire(self, hostile: Sequence[Arrays], honest: Sequence[Arrays], now: Circumstances,
                 rng: np.random.Generator) -> Sequence[Arrays]:
        """What the hostile parties send if they know of all updates."""
        return hostile

    def triggered(self, rows: Dataset, *, every_class: bool = False) -> Dataset | None:
        """Rows on which the attack has succeeded where the model says what their target says; none: no such rows."""
        return None
