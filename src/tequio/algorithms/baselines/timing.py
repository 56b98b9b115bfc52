"""Rounds that only take time: who would be chosen, when they would answer, and what it would cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from tequio.errors import ConfigError
from tequio.federation import payload as payloads
from tequio.federation.algorithm import Algorithm, State, part
from tequio.federation.averaging import finish_round, select
from tequio.federation.exchange import Replies, Reply
from tequio.federation.selection import AllParties, Selector
from tequio.learners.learner import Learner, LocalTraining
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Tally


@register("algorithm", "timing")
@dataclass(frozen=True, kw_only=True)
class TimingOnly(Algorithm):
    """No party learns: rounds take the virtual time, energy and bytes that federated averaging would.

    Selectors that look at losses learn nothing here; those that look at times do. Needs [devices].

    Parameters:
        parameters: 32-bit numbers in the model that would travel (0: as many as the learner's model has)
    """

    learner: Learner | None = part(None)
    local: LocalTraining = part(factory=LocalTraining)
    selector: Selector = part(factory=AllParties)
    parameters: Annotated[int, Ge(0)] = 0

    needs_clock: ClassVar[bool] = True
    adoptable: ClassVar[bool] = False  # there is no model
    own_training: ClassVar[bool] = False

    def start(self, federation: Federation) -> State:
        """A model of zeros, as large as the one that would travel."""
        if federation.clock is None:
            raise ConfigError("the algorithm 'timing' runs on the virtual clock, and this run has none",
                              remedy="add a [devices] table, such as: devices = \"mobile\"")
        if self.parameters:
            return State({"zeros": np.zeros(self.parameters, dtype=np.float32)})
        if self.learner is None:
            raise ConfigError("the algorithm 'timing' does not know how large the model is",
                              remedy="set algorithm.parameters, or add a [learner] table")
        fresh = self.learner.initial(federation.schema, federation.rng("initial model"))
        return State({name: np.zeros_like(values) for name, values in fresh.items()})

    def round(self, federation: Federation, state: State) -> State:
        """Choose parties and let the time of their exchange pass."""
        chosen = select(self, federation, state)
        answered = self._pass_time(federation, chosen.parties, float(payloads.size({"model": state.model})))
        # Millions of empty replies would cost more than the time they stand for.
        watched = answered if self.selector.observes else answered[:0]
        replies: Replies[Payload] = Replies(tuple(Reply(int(party), {}) for party in watched))
        return finish_round(self, federation, state, chosen, replies)

    def _pass_time(self, federation: Federation, parties: NDArray[np.int64], size: float) -> NDArray[np.int64]:
        """What `federation.ask` does to the clock, without asking; who would have answered in time."""
        clock = federation.clock
        if clock is None or not len(parties):
            return parties
        present = federation.present(np.sort(parties))
        departure = clock.depart(parties, federation.round, size, clock.rows(parties, self.local))
        answering = np.isin(departure.parties, clock.hopeful(departure, present)) | clock.too_slow(departure, present)
        arrival = clock.arrive(departure, np.full(len(parties), size), answering)
        answered = np.sort(arrival.parties[arrival.answered])
        federation.traffic.bytes_down += int(size) * len(parties)
        federation.traffic.bytes_up += int(size) * len(answered)
        return answered

    def result(self, state: State) -> Payload:
        """Nothing was learnt."""
        return {}

    def answer(self, federation: Federation, state: State) -> None:
        """Nothing was learnt."""

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """There is nothing to evaluate."""
        return {}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """There is nothing to score."""
        return None
