"""What all hidden sums share: whole numbers that add up exactly, and exchanges in phases.

Each party multiplies its update with its share of the weights first. Shares sum to one, so that the sum of all is no
longer than the largest entry allowed, and cannot overflow.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from math import floor, log2
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from tequio.errors import ConfigError, DataError, QuorumError
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies, Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload, R
    from tequio.federation.task import S, Task
    from tequio.privacy.aggregation.keys import Whole


@dataclass(frozen=True)
class Ring:
    """Whole numbers modulo 2^bits that stand for multiples of 1/scale."""

    bits: int
    scale: float
    largest: float

    @classmethod
    def of(cls, bits: int, largest: float, parties: int) -> Ring:
        """The finest scale with which the weighted mean of so many parties' entries fits, roundings included."""
        # A millionth less, because shares and products are themselves rounded to 53 bits.
        room = 2.0 ** (bits - 1) * (1.0 - 2.0 ** -20) - parties
        if room < largest:
            raise ConfigError(f"the sum of {parties} parties' entries of up to {largest:g} does not fit into {bits} "
                              "bits", remedy="lower `largest` of the stage or raise its `bits`")
        return cls(bits, 2.0 ** floor(log2(room / largest)), largest)

    @property
    def kind(self) -> type[np.uint32] | type[np.uint64]:
        """The type of the ring's numbers."""
        return np.uint32 if self.bits == 32 else np.uint64

    def encoded(self, values: NDArray[np.floating], share: float) -> Whole:
        """share * values as numbers of the ring; refuses entries that are too large or not finite."""
        if not 0 <= share <= 1:
            raise DataError(f"a share of {share} in a weighted mean is not between 0 and 1")
        size = float(np.abs(values).max()) if values.size else 0.0
        if not size <= self.largest:
            raise DataError(f"an entry of the update is {size:.3g}, and {self.largest:g} is the largest that the sum "
                            "has room for", remedy="clip updates, or raise `largest` of the stage")
        scaled: NDArray[np.float64] = np.rint(values.astype(np.float64) * (share * self.scale))
        return scaled.astype(np.int64).astype(self.kind)

    def signed(self, total: Whole) -> NDArray[np.int64]:
        """The numbers of the ring as whole numbers around nought; over scale and shares they are a weighted mean."""
        return total.view(np.int32 if self.bits == 32 else np.int64).astype(np.int64)


NO_TRAINING = LocalTraining(steps=1, batch=1)
"""On the virtual clock the exchanges of a sum take the time of their messages only."""


class InSum(TypedDict):
    """Which sum a message belongs to, and the name of the update."""

    session: bytes
    name: str


def in_sum(name: str) -> Payload:
    """What messages of a sum say that knows itself by a random number, and the name of the update."""
    return {"session": secrets.token_bytes(16), "name": name}


@dataclass(frozen=True)
class Phases:
    """One sum under way: `what` is what it is called in errors, `common` what every message of it says, `fewest` how
    many parties must be left."""

    what: str
    federation: Federation
    asked: NDArray[np.int64]
    fewest: int
    common: Payload = field(default_factory=dict)

    def ask(self, phase: str, parties: NDArray[np.int64], task: Task[S, R], payload: Mapping[str, object] | None = None,
            each: Mapping[int, Payload] | None = None, *, settings: S, fewest: int | None = None,
            fault: Callable[[Reply[R]], str] = lambda reply: "", lenient: bool = False) -> Replies[R]:
        """The sound answers of one phase; `fault` says what is wrong with an answer. Where that is `lenient`, a party
        that refuses has dropped out, and stops nothing."""
        present = self.federation.present(parties, f"dropout at {phase}")
        here = self._quiet if not lenient else replace(self._quiet, rules=replace(self._quiet.rules,
                                                                                  on_failure="continue"))
        replies = here.ask(present, task, {**self.common, **(payload or {})}, settings=settings, each=each)
        replies = self.without(replies, {reply.party: what for reply in replies if (what := fault(reply))})
        self.require(phase, len(replies), fewest)
        return replies

    def without(self, replies: Replies[R], faults: dict[int, str]) -> Replies[R]:
        """The answers without those of parties at fault, which have failed."""
        if faults:
            self._quiet.refuse(replies, faults)
        return replace(replies, answers=tuple(reply for reply in replies if reply.party not in faults))

    def require(self, phase: str, left: int, fewest: int | None = None) -> None:
        """Stop where too few are left."""
        needed = self.fewest if fewest is None else fewest
        if left < needed:
            raise QuorumError(f"only {left} of {len(self.asked)} parties are left at '{phase}' of the {self.what} in "
                              f"round {self.federation.round}, and {needed} are needed to read it and to hide one "
                              "update among others", remedy="ask more parties per round")

    @property
    def _quiet(self) -> Federation:
        """The federation without its own drop-outs and quorum, which are kept here."""
        return replace(self.federation, rules=replace(self.federation.rules, dropout=0.0, quorum=0.0))
