"""The contract of an algorithm: a program at the coordinator whose state is data, so it can be saved and resumed.

An algorithm's fields are its parts: what it has a field for, a config may fill (`part`); anything else is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_type_hints

from tequio.errors import ConfigError
from tequio.federation.evaluation import EvaluateSettings, evaluate, tallies_in
from tequio.federation.topology import ClientServer, Topology
from tequio.learners.answers import One
from tequio.registry import contract, is_component

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.aggregation import Aggregator
    from tequio.federation.contributions import Contribution
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.selection import Selector
    from tequio.federation.stages import Stage
    from tequio.learners.answers import Answer
    from tequio.learners.learner import LocalTraining, Scorer, Tally

Attacked = Literal["rows", "updates", "cohort"]
"""What hostile parties can change: the rows that they train on, the updates that they send, or, knowing all updates of
the round, what they send together."""


def part(default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """A field of an algorithm that the config fills with a component rather than with a parameter."""
    if factory is not None:
        return field(default_factory=factory, metadata={"part": True})
    return field(metadata={"part": True}) if default is MISSING else field(default=default, metadata={"part": True})


@dataclass(frozen=True)
class State:
    """All that an algorithm carries from round to round: the model and whatever it remembers by name."""

    model: Payload
    memory: Mapping[str, Any] = field(default_factory=dict)

    def next(self, model: Payload | None = None, **memory: Any) -> State:
        """The state after a round: a new model, and what is remembered from now on."""
        return State(self.model if model is None else model, {**self.memory, **memory})


@dataclass(frozen=True)
class Disclosure:
    """What an algorithm lets out of the parties' rows in a round, for the accounting that has to bound it.

    `arrays` are the parts of a reply that hold arrays. They pass the stages, and they reach the model as a mean over
    the cohort and in no other way; parties weigh by their `rows` or all alike. `counts_answers` says that the model
    also depends on how many parties answered, `besides_training` that arrays follow from rows in another way than by
    local training, and `local` is that training where it is not the configured one. Nothing else that follows from rows
    leaves a party while it trains.

    Where the arrays are no updates but sums over rows, `moves` says how far one row can move each of them (Euclidean
    length), and `releases` how many replies a round asks of a party. `rounds` is in how many rounds anything is let out
    at all (0: in each).
    """

    arrays: tuple[str, ...] = ("update",)
    by_rows: bool = False
    counts_answers: bool = False
    besides_training: bool = False
    local: LocalTraining | None = None
    moves: Mapping[str, float] = field(default_factory=dict)
    releases: int = 1
    rounds: int = 0


@dataclass(frozen=True)
class Answering:
    """Who answers rows where no party is named: the common model, some parties' own in turn (`scored`), all parties of
    which each knows some labels (joint), or all of which each holds a part of one model (together). `parties` have
    models, or parts, of their own."""

    speaks: Literal["common", "own", "joint", "together"] = "common"
    parties: tuple[int, ...] = ()
    scored: tuple[int, ...] = ()


@dataclass(frozen=True)
class Components:
    """The parts of an algorithm, for code that serves them all; nothing where an algorithm has no such field."""

    learner: Scorer | None = None
    local: LocalTraining | None = None
    selector: Selector | None = None
    aggregator: Aggregator | None = None
    stages: tuple[Stage, ...] = ()
    attack: Stage | None = None
    contribution: Contribution | None = None


@contract("algorithm")
@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """A program that runs at the coordinator. Subclasses write `start` and `round`, and what else is their own."""

    topologies: ClassVar[tuple[type[Topology], ...]] = (ClientServer,)
    """Topologies along which it works."""

    attackable: ClassVar[frozenset[Attacked]] = frozenset()
    """What hostile parties can change in it; an algorithm with a field `attack` says so here."""

    sends: ClassVar[frozenset[Literal["updates", "sums"]]] = frozenset({"updates"})
    """What stages find in replies: updates of one model, round after round, or sums over rows that mean something else
    each time."""

    coordinator_trains: ClassVar[bool] = False
    """Whether the coordinator can make an update of its own rows, for aggregators that compare with it."""

    shows_replies: ClassVar[bool] = True
    """Whether a selector may learn from what parties sent."""

    sums_only: ClassVar[bool] = False
    """Whether it looks at updates through their weighted mean alone, so that a hidden sum is enough for it."""

    needs_clock: ClassVar[bool] = False
    """Whether it runs on the virtual clock."""

    across_columns: ClassVar[bool] = False
    """Whether parties may hold different columns."""

    adoptable: ClassVar[bool] = True
    """Whether it ends with one model that each party may compare with its own, adopt or fine-tune."""

    own_training: ClassVar[bool] = True
    """Whether a party may train in a way of its own (`overrides.NAME.local`); says nothing without a field `local`."""

    offers_learners: ClassVar[bool] = False
    """Whether a party may choose a learner of its own (`overrides.NAME.learner`)."""

    @classmethod
    def unused_parts(cls, parameters: Mapping[str, object]) -> frozenset[str]:
        """Parts that it has fields for, but does not look at under these parameters of its own."""
        return frozenset()

    @abstractmethod
    def start(self, federation: Federation) -> State:
        """The state before the first round."""

    @abstractmethod
    def round(self, federation: Federation, state: State) -> State:
        """One round: ask parties, bring their answers together, give the next state."""

    def result(self, state: State) -> Payload:
        """The model that the algorithm made."""
        return state.model

    def answer(self, federation: Federation, state: State) -> Answer | None:
        """How the federation's model answers rows; nothing where there is no such model."""
        return One(self.scorer, self.result(state)) if state.model else None

    def own_answer(self, party: Party, federation: Federation, state: State) -> Answer | None:
        """At a party: how the model that it keeps for itself answers; nothing where all answer with the same one."""
        return None

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:  # noqa: B027
        """Let real parties remember how they answer with models of their own; nothing where they have none."""

    def answering(self, federation: Federation, state: State) -> Answering:
        """Who has a model of their own, and whose stand for the rest where no party is named."""
        return Answering()

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally on its own `validation` or `test` rows (parties without such rows are left out)."""
        if not state.model:
            return {}
        replies = federation.ask(parties, evaluate, {"model": state.model},
                                 settings=EvaluateSettings(learner=self.scorer, part=part))
        return tallies_in(replies)

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The tally on rows that the coordinator itself holds; nothing where there is no one model to score."""
        return self.scorer.evaluate(state.model, rows) if state.model else None

    def score_at_parties(self, federation: Federation, state: State, rows: Dataset) -> dict[str, dict[int, Tally]]:
        """Where parties have models of their own: each one's tally on the coordinator's rows, by the name to report."""
        return {}

    def other_answers(self) -> dict[str, Algorithm]:
        """The same algorithm answering rows in other ways, by the name to report them under."""
        return {}

    def routing(self, federation: Federation, state: State, rows: Dataset,
                parties: NDArray[np.int64]) -> dict[int, Payload]:
        """Where parties choose row by row between their own model and the common one: for each of these parties, which
        of the coordinator's rows its own model would answer (`own`) and how novel they are to it (`novelty`)."""
        return {}

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """Where parties answer with models of their own: a SHA-256 of the model of each one that trained."""
        return []

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:  # noqa: B027
        """Let parties that never took part make what they need to answer; nothing where there is but one model."""

    def finished(self, state: State) -> str:
        """Why the algorithm itself has come to its end; empty while it goes on."""
        return ""

    def disclosure(self, schema: Schema) -> Disclosure | None:
        """What of the parties' rows a round lets out; nothing where that cannot be said in these terms."""
        return None

    @property
    def components(self) -> Components:
        """Its parts."""
        known = {known.name for known in fields(Components)}
        return Components(**{own.name: getattr(self, own.name) for own in fields(self)
                             if own.metadata.get("part") and own.name in known})

    @property
    def sent_components(self) -> tuple[object, ...]:
        """The components that its tasks come with, by which parties know what was announced to them."""
        parts = self.components
        held = (getattr(self, own.name) for own in fields(self) if own.name not in ("selector", "contribution"))
        return (*(one for one in held if is_component(one)), *parts.stages, *self.also_sent)

    @property
    def also_sent(self) -> tuple[object, ...]:
        """Components that its tasks come with besides its own fields, such as another way to train."""
        return ()

    @property
    def scorer(self) -> Scorer:
        """What evaluates the model: the learner."""
        learner = self.components.learner
        if learner is None:
            raise ConfigError("this algorithm has no learner to evaluate its model by",
                              remedy="add a [learner] table to the config")
        return learner


A = TypeVar("A", bound=Algorithm)


@lru_cache(maxsize=256)
def part_types(algorithm: Any) -> dict[str, Any]:
    """The parts that an algorithm has fields for, with the type that each must have."""
    hints = get_type_hints(algorithm)
    return {own.name: hints[own.name] for own in fields(algorithm) if own.metadata.get("part")}


def with_parts(algorithm: A, **parts: object) -> A:
    """The same algorithm with other parts, of which it has the fields."""
    return replace(algorithm, **parts)
