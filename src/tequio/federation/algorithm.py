"""The contract of an algorithm: a program at the coordinator whose state is data, so it can be saved and resumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from tequio.components import name_of
from tequio.errors import ConfigError
from tequio.federation import models
from tequio.federation.aggregation import SUMMED, Aggregator, Combined, Mean, Updates
from tequio.federation.contribution.scoring import score_round
from tequio.federation.evaluation import evaluate
from tequio.federation.screening import screened
from tequio.federation.selection import AllParties, Choice, Consequence, Observing, Selector, Turn
from tequio.federation.stages import Aggregated, as_of_now, summing_stage
from tequio.federation.summing import summed_updates
from tequio.learners.learner import Learner, LocalTraining

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.federation.contribution.game import Contribution
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.stages import Stage
    from tequio.learners.learner import Arrays, Tally
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
class Crossing:
    """What an algorithm lets cross from the parties' rows, for whoever has to bound what that tells.

    `arrays` are the parts of a reply that hold arrays. They pass the stages, and they reach the model as a mean over
    the cohort and in no other way; parties weigh by their `rows` or all alike. `counts_answers` says that the model
    also depends on how many parties answered, `besides_training` that arrays follow from rows in another way than by
    local training, and `local` is that training where it is not the configured one. Nothing else that follows from rows
    leaves a party while it trains.

    Where the arrays are no updates but sums over rows, `moves` says how far one row can move each of them (Euclidean
    length), and `releases` how many replies a round asks of a party.
    """

    arrays: tuple[str, ...] = ("update",)
    by_rows: bool = False
    counts_answers: bool = False
    besides_training: bool = False
    local: LocalTraining | None = None
    moves: Mapping[str, float] = field(default_factory=dict)
    releases: int = 1


@dataclass(frozen=True)
class Parts:
    """What an algorithm is composed of besides its own idea. The config fills it in."""

    learner: Learner | TreeLearner | None = None
    local: LocalTraining = field(default_factory=LocalTraining)
    selector: Selector = field(default_factory=AllParties)
    aggregator: Aggregator = field(default_factory=Mean)
    stages: tuple[Stage, ...] = ()
    contribution: Contribution | None = None


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """A program that runs at the coordinator. Subclasses write `round` (and `start`, `evaluate` where they differ)."""

    parts: Parts = field(default_factory=Parts, metadata={"part": True})

    sums_only: ClassVar[bool] = False
    """Whether it looks at updates through `aggregate` alone, so that their weighted sum is all it needs to be told."""

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

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:  # noqa: B027
        """Let parties that never took part make what they need to answer; nothing where there is but one model."""

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The tally on rows that the coordinator itself holds; nothing where there is no one model to score."""
        return self.learner.evaluate(state.model, rows) if state.model else None

    def score_at_parties(self, federation: Federation, state: State, rows: Dataset) -> dict[str, dict[int, Tally]]:
        """Where parties have models of their own: each one's tally on the coordinator's rows, by the name to report."""
        return {}

    def finished(self, state: State) -> str:
        """Why the algorithm itself has come to its end; empty while it goes on."""
        return ""

    def crossing(self, schema: Schema) -> Crossing | None:
        """What of the parties' rows crosses in a round; nothing where that cannot be said in these terms."""
        return None

    @property
    def learner(self) -> Learner:
        """The learner, which update-vector algorithms cannot do without; for trees, one that fits them."""
        if self.parts.learner is None:
            raise ConfigError("this algorithm needs a learner", remedy="add a [learner] table to the config")
        return cast("Learner", self.parts.learner)

    def select(self, federation: Federation, state: State, *, observed: bool = True) -> Choice:
        """The parties of this round. `conclude` lets the selector see what came of it.

        Algorithms whose replies say nothing about a party's work are not `observed`: they keep the choice's memory
        themselves, and selectors that would learn from replies are refused.
        """
        selector = self.parts.selector
        if not observed:
            self._refuse_observers()
        turn = self._turn(federation, state, state.memory.get("selector", {}), "select")
        choice = selector.choose(replace(turn, eligible=federation.reachable()))
        federation.record("selection", {"round": federation.round, "parties": choice.parties.tolist()})
        return choice

    def _refuse_observers(self) -> None:
        selector, name = self.parts.selector, name_of(type(self))
        if isinstance(selector, Observing):
            raise ConfigError(f"the selector '{name_of(type(selector))}' learns from what parties send, and the "
                              f"algorithm '{name}' has nothing to show it",
                              remedy="choose a selector that does not, such as 'random'")
        if self.parts.contribution is not None:
            raise ConfigError(f"contributions are those of updates to a common model, and the algorithm '{name}' has "
                              "none", remedy="use an algorithm that averages updates, such as 'fedavg'")

    def conclude(self, federation: Federation, state: State, chosen: Choice, replies: Replies,
                 model: Payload | None = None, combined: Combined | None = None, **memory: Any) -> State:
        """The state after a round, once the selector has seen what came of its choice and contributions are scored.

        Without a model the old one stays. The aggregator's memory is kept; `memory` is what else to remember.
        """
        outcome = Consequence(replies, state.model if model is None else model, combined)
        remembered = chosen.memory
        if isinstance(self.parts.selector, Observing):
            remembered = self.parts.selector.observe(self._turn(federation, state, chosen.memory, "observe"), outcome)
        if self.parts.contribution is not None:
            score_round(self._turn(federation, state, {}, "contribution"), outcome, self.parts.contribution)
        if combined is not None:
            memory["aggregator"] = combined.memory
        return state.next(model, selector=remembered, **memory)

    def _turn(self, federation: Federation, state: State, memory: Payload, purpose: str) -> Turn:
        return Turn(federation, federation.eligible(), memory, federation.rng(purpose), state.model, self.parts)

    def aggregate(self, federation: Federation, state: State, replies: Replies, *, name: str = "update",
                  weights: NDArray[Any] | None = None) -> Combined:
        """The aggregate of the replies' updates along the topology, with the aggregator's memory.

        Updates that cannot be used are refused with the name of their party; where none is left the model stays.
        """
        weights = np.ones(len(replies)) if weights is None else weights.astype(np.float64)
        memory = dict(state.memory.get("aggregator", {}))
        if summing_stage(self.parts.stages) is not None and not replies.of_nobody:
            return self._aggregate_blindly(federation, state, replies, name, weights)
        updates, seen = screened(federation, state.model, replies, name, weights, memory)
        if not len(updates):
            none = Aggregated(name, replies, updates.parties, updates.weights, 0.0)
            return Combined(self._completed(federation, models.zeros(state.model), none), {**memory, **seen})
        updates = replace(updates, root=self._root_update(federation, state))
        combined = federation.topology.combine(updates, self.parts.aggregator, memory)
        if combined.notes:
            names = [federation.name(party) for party in combined.notes.get("parties", [])]
            federation.record("aggregation", {"round": federation.round, **combined.notes,
                                              **({"names": names} if names else {})})
        weight = float(updates.weights.sum())
        aggregated = Aggregated(name, replies, updates.parties, updates.weights / weight, weight, updates.arrays)
        self._concluded(federation, aggregated)
        return replace(combined, update=self._completed(federation, combined.update, aggregated), updates=updates,
                       memory={**combined.memory, **seen})

    def _completed(self, federation: Federation, mean: Arrays, aggregated: Aggregated) -> Arrays:
        """What the algorithm is told instead of the mean, where stages complete it."""
        for stage in reversed(as_of_now(self.parts.stages)):
            mean = stage.complete(federation, mean, aggregated) if hasattr(stage, "complete") else mean
        return mean

    def _concluded(self, federation: Federation, aggregated: Aggregated) -> None:
        for stage in self.parts.stages:
            if hasattr(stage, "conclude"):
                stage.conclude(federation, aggregated)

    def _aggregate_blindly(self, federation: Federation, state: State, replies: Replies, name: str,
                           weights: NDArray[np.float64]) -> Combined:
        """The aggregate of updates that only their sum is known of, as if it were the one update of everybody."""
        mean, summed = summed_updates(federation, self.parts.stages, replies, name, weights)
        models.check_shapes(mean, state.model, f"the sum of {len(summed.parties)} parties")
        whole = models.unflatten(models.flatten(mean), state.model)
        one = Updates(np.array([SUMMED]), [whole], np.array([summed.weight]))
        combined = federation.topology.combine(one, self.parts.aggregator, dict(state.memory.get("aggregator", {})))
        federation.record("aggregation", {"round": federation.round, **summed.notes, **combined.notes})
        aggregated = Aggregated(name, replies, summed.parties, summed.shares, summed.weight, summed=summed)
        self._concluded(federation, aggregated)
        return replace(combined, update=self._completed(federation, combined.update, aggregated))

    def _root_update(self, federation: Federation, state: State) -> Arrays | None:
        """What the coordinator's own rows make of the model, for an aggregator that asks for it."""
        if not getattr(self.parts.aggregator, "root_rows", 0) or federation.root is None:
            return None
        local = replace(self.parts.local, optimizer_memory="fresh")
        trained = self.learner.train(state.model, federation.root, local, federation.rng("root"),
                                     learning_rate=local.rate(federation.round))
        return models.difference(trained.model, state.model)
