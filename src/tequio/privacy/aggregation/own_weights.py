"""Sums in which each party weighs itself, by its rows or like all others, within bounds that are fixed beforehand.

A coordinator that chose the weights could choose one for a single party and none for the rest. So a party multiplies
its update by its own weight, between a sixteenth and one, and the weight goes along as one more number of the sum;
numbers of rows do not leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from tequio.errors import DataError, PayloadError
from tequio.federation.stages import NUMBERS, StageSpec, Summed
from tequio.federation.task import record
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, Ring
from tequio.privacy.aggregation.joint_randomness import Cohort, JointSettings, SignedSum
from tequio.privacy.updates import Held, OwnShares, extra_counts, forget_older, held, hold
from tequio.registry import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.averaging import Weights
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import SumCapacity
    from tequio.privacy.aggregation.keys import Whole

SMALLEST_WEIGHT = 1 / 16
_UNTOLD = ("rows", "steps")
"""What follows from a party's number of rows, and does not leave it."""


@record
class SumSettings(JointSettings):
    """How updates become whole numbers: for how many parties the sum has room, whether parties weigh by their rows, how
    many rows weigh in full, and how many parties have to be left. All of it is part of the sum's number."""

    room: int
    by_rows: bool
    cap: float
    fewest: int


@dataclass(frozen=True)
class WeighedSum(SignedSum):
    """What stages have in common in whose sums parties weigh themselves.

    Parameters:
        cap: rows of a party that weighs in full (0: as many as the largest party reports)
        largest: largest size of an entry that a party may send
    """

    cap: Annotated[int, Ge(0)] = 0
    largest: Annotated[float, Gt(0)] = 64.0

    weighed_by_parties: ClassVar[bool] = True

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=NUMBERS, gives="hidden", hides=True)

    def enter(self, party: Party) -> None:
        """Before the task: forget what earlier rounds left."""
        forget_older(party, OwnShares)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Hold the update back, and keep to itself how many rows are behind it."""
        shown = hold(party, payload, name_of(type(self)))
        if "rows" in shown:
            party.keep(Held, {"rows": shown["rows"]})
        return {**shown, **{name: 1 for name in _UNTOLD if name in shown}}

    def terms(self, federation: Federation, cohort: Cohort, parties: int, capacity: SumCapacity | None, by: Weights,
              fewest: int = 0) -> SumSettings:
        """The terms of one sum of so many parties: the same for all that take part in it."""
        if capacity is not None and parties > capacity.parties:
            raise DataError(f"the secure sum was sized for {capacity.parties} parties, but {parties} joined")
        return SumSettings(
            stage=self, local=NO_TRAINING, room=len(cohort.members) if capacity is None else capacity.parties,
            by_rows=by == "size", cap=self.rows_in_full(federation, capacity),
            fewest=max(cohort.fewest, fewest, 0 if capacity is None else capacity.fewest))

    def rows_in_full(self, federation: Federation, capacity: SumCapacity | None) -> float:
        """How many rows weigh in full: the same for all parties in all sums of a run."""
        if capacity is not None and capacity.weight > 1:
            return capacity.weight
        return float(self.cap or federation.sizes[federation.eligible()].max())


def encoded(party: Party, name: str, settings: SumSettings) -> NDArray[np.unsignedinteger]:
    """The update times its own weight, the weight, and what is summed with them, as numbers of the ring."""
    bits, largest = settings.stage.ring or (0, 0.0)
    ring, share = Ring.of(bits, largest, settings.room), own_share(party, settings)
    unit = np.array([round(share * settings.room * weight_unit(bits, settings.room))])
    party.keep(OwnShares, {"round": party.round, "shares": {
        **party.recall(OwnShares).get("shares", {}), name: share}})
    return np.concatenate([ring.encoded(held(party, name), share), unit.astype(ring.kind),
                           extra_counts(party, name, settings.room).astype(ring.kind)])


def own_share(party: Party, settings: SumSettings) -> float:
    """What a party multiplies its update with: its own weight, from a sixteenth to one, over the room of the sum."""
    rows = party.recall(Held).get("rows", len(party.data.train))
    weight = min(max(rows / settings.cap, SMALLEST_WEIGHT), 1.0) if settings.by_rows else 1.0
    return weight / settings.room


def weight_unit(bits: int, room: int) -> float:
    """In how fine steps weights are summed."""
    return 2.0 ** (bits - 2 - (room - 1).bit_length())


def mean_of(total: Whole, size: int, left: list[int], settings: SumSettings, capacity: SumCapacity | None,
            notes: Payload) -> Summed:
    """The weighted mean of the updates in a sum, the first `size` numbers of it; their weights come next."""
    bits, largest = settings.stage.ring or (0, 0.0)
    ring, room = Ring.of(bits, largest, settings.room), settings.room
    whole = ring.signed(total)
    weight = float(whole[size]) / weight_unit(bits, room)
    if not 0 < weight <= len(left) * (1 + 1e-6):
        raise PayloadError(f"the weights of {len(left)} parties sum to {weight:g}, which weights of up to 1 do not",
                           remedy="one of them does not keep to the protocol; leave parties out to find it")
    mean = whole[:size].astype(np.float64) * (room / (ring.scale * weight))
    heaviest = 1.0 if capacity is None else capacity.weight
    return Summed(mean, np.array(left), weight * heaviest, notes, whole[:size], (bits, largest, room),
                  np.full(len(left), weight / (room * len(left))), whole[size + 1:])
