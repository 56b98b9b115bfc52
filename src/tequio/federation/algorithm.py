"""The contract of an algorithm: a program at the coordinator whose state is data, so it can be saved and resumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tequio.errors import ConfigError
from tequio.federation import models
from tequio.federation.aggregation import Aggregator, Combined, Mean, Updates
from tequio.federation.evaluation import evaluate
from tequio.federation.selection import AllParties, Choice, Selector
from tequio.learners.learner import Learner, LocalTraining

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.stages import Stage
    from tequio.learners.learner import Tally
    from tequio.learners.trees.learner import TreeLearner


@dataclass(frozen=True)
class State:
    """All that an algorithm carries from round to round: the model and whatever it remembers by name."""

    model: Payload
    memory: Mapping[str, Any] = field(default_factory=dict)

    def next(self, model: Payload | None = None, **memory: Any) -> State:
        """The state after a round: a new model, and what is remembered from now on."""
        return State(self.model if model is None else model, {**self.memory, **memory})


@dataclass(frozen=True)
class Parts:
    """What an algorithm is composed of besides its own idea. The config fills it in."""

    learner: Learner | TreeLearner | None = None
    local: LocalTraining = field(default_factory=LocalTraining)
    selector: Selector = field(default_factory=AllParties)
    aggregator: Aggregator = field(default_factory=Mean)
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """A program that runs at the coordinator. Subclasses write `round` (and `start`, `evaluate` where they differ)."""

    parts: Parts = field(default_factory=Parts, metadata={"part": True})

    @abstractmethod
    def start(self, federation: Federation) -> State:
        """The state before the first round."""

    @abstractmethod
    def round(self, federation: Federation, state: State) -> State:
        """One round: ask parties, bring their answers together, give the next state."""

    def result(self, state: State) -> Payload:
        """The model that the algorithm made."""
        return state.model

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally on its own `validation` or `test` rows (parties without such rows are left out)."""
        if not state.model:
            return {}
        replies = federation.ask(parties, evaluate, {"model": state.model},
                                 settings={"learner": self.learner, "part": part})
        return {reply.party: reply.payload for reply in replies if reply.payload}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The tally on rows that the coordinator itself holds; nothing where there is no one model to score."""
        return self.learner.evaluate(state.model, rows) if state.model else None

    def score_at_parties(self, federation: Federation, state: State, rows: Dataset) -> dict[str, dict[int, Tally]]:
        """Where parties have models of their own: each one's tally on the coordinator's rows, by the name to report."""
        return {}

    def finished(self, state: State) -> str:
        """Why the algorithm itself has come to its end; empty while it goes on."""
        return ""

    @property
    def learner(self) -> Learner:
        """The learner, which update-vector algorithms cannot do without; for trees, one that fits them."""
        if self.parts.learner is None:
            raise ConfigError("this algorithm needs a learner", remedy="add a [learner] table to the config")
        return cast("Learner", self.parts.learner)

    def select(self, federation: Federation, state: State) -> Choice:
        """The parties of this round, with the selector's memory to keep in the next state."""
        choice = self.parts.selector.choose(federation, federation.eligible(), state.memory.get("selector", {}),
                                            federation.rng("select"))
        federation.record("selection", {"round": federation.round, "parties": choice.parties.tolist()})
        return choice

    def aggregate(self, federation: Federation, state: State, replies: Replies, *, name: str = "update",
                  weights: NDArray[Any] | None = None) -> Combined:
        """The aggregate of the replies' updates along the topology, with the aggregator's memory."""
        for reply in replies:
            models.check_shapes(reply.payload[name], state.model, f"party '{federation.name(reply.party)}'")
        weights = np.ones(len(replies)) if weights is None else weights.astype(np.float64)
        updates = Updates(replies.parties, [payload[name] for payload in replies.payloads], weights)
        combined = federation.topology.combine(updates, self.parts.aggregator, state.memory.get("aggregator", {}))
        if combined.notes:
            federation.record("aggregation", {"round": federation.round, **combined.notes})
        return combined
