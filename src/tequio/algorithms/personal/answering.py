"""What personal algorithms share: parties answer with a model of their own, at home, and only tallies leave them.

A round is one of federated averaging with another task. The model that a party answers with, the private part of which
it alone has, is applied at the party: to its own rows, or to rows that the coordinator sends. A hash of it is all that
ever leaves the party, so that two runs can be compared.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable  # noqa: TC003 - the types of a named tuple
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, TypeVar

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from tequio.data.dataset import Dataset
from tequio.federation.aggregation import sha256_of
from tequio.federation.algorithm import Answering
from tequio.federation.averaging import Averaging, Weights, averaging_round
from tequio.federation.evaluation import (
    EvaluateSettings,
    Fingerprint,
    OwnModel,
    Part,
    check_any_tally,
    check_own_tally,
    keep_answer,
    tallies_in,
)
from tequio.federation.rng import stream
from tequio.federation.task import Done, Reveals, Task, TrainSettings, task
from tequio.learners.answers import Answer, One
from tequio.learners.learner import Arrays, Tally
from tequio.learners.metrics import check_tally, merge

if TYPE_CHECKING:
    from tequio.federation.algorithm import State
    from tequio.federation.averaging import Averaged
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import LocalTraining

E = TypeVar("E", bound=EvaluateSettings)
T = TypeVar("T", bound=TrainSettings)

Epochs = Annotated[int, Ge(0)]

_SCORED_PARTIES = 20


@dataclass(frozen=True, kw_only=True)
class Personal(Averaging):
    """An averaging algorithm whose parties answer with something of their own; each says by which tasks."""

    @property
    @abstractmethod
    def inference(self) -> Inference:
        """The tasks by which parties answer."""

    def start(self, federation: Federation) -> State:
        """A fresh model, which no party has trained."""
        return super().start(federation).next(trained=np.empty(0, dtype=np.int64))

    def evaluation_payload(self, state: State) -> Payload:
        """What parties need to be sent to answer."""
        return {"model": state.model}

    def evaluation_settings(self, part: Part = "test") -> EvaluateSettings:
        """Settings of the tasks by which parties answer."""
        return EvaluateSettings(learner=self.learner, part=part)

    def own_answer(self, party: Party, federation: Federation, state: State) -> Answer:
        """By the same function as at the party's own evaluation."""
        return self.inference.answer_of(party, self.evaluation_payload(state), self.evaluation_settings())

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """By the same function, at the parties."""
        federation.ask(parties, self.inference.keep, self.evaluation_payload(state),
                       settings=self.evaluation_settings())

    def answering(self, federation: Federation, state: State) -> Answering:
        """The parties that trained, and those whose models are scored."""
        drawn = self._drawn(federation)
        trained = np.union1d(state.memory.get("trained", drawn), drawn)
        return Answering("own", tuple(trained.tolist()), tuple(drawn.tolist()))

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of its personal model on its own rows."""
        replies = federation.ask(parties, self.inference.on_own, self.evaluation_payload(state),
                                 settings=self.evaluation_settings(part))
        return tallies_in(replies)

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The mean over some eligible parties, the same ones in every round; they tally the coordinator's rows."""
        drawn = self._drawn(federation)
        features = rows.features.toarray() if rows.is_sparse else rows.features
        sent = {**self.evaluation_payload(state), "features": np.ascontiguousarray(features), "target": rows.target}
        target, most = federation.schema.target, len(rows)
        replies = federation.ask(drawn, self.inference.on_sent, sent, settings=self.evaluation_settings(),
                                 check=lambda tally, whose: check_tally(target, tally, most, whose))
        tallies = tallies_in(replies)
        return merge(tallies.values()) if tallies else None

    def _drawn(self, federation: Federation) -> NDArray[np.int64]:
        return stream(federation.seed, "scored parties").permutation(federation.eligible())[:_SCORED_PARTIES]

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """A hash of the model that each party answers with, of those that ever trained."""
        replies = federation.ask(state.memory["trained"], self.inference.fingerprint, self.evaluation_payload(state),
                                 settings=self.evaluation_settings())
        return [reply.payload["sha256"] for reply in replies]


def personal_round(algorithm: Personal, federation: Federation, state: State, task: Task[T, Any], settings: T, *,
                   weights: Weights, rate: float = 1.0, private: tuple[str, ...] = ()) -> State:
    """A round of averaging that follows the mean at a rate, and remembers who has trained."""

    def step(averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        return averaged.following(rate), {"trained": trained_so_far(averaged)}

    return averaging_round(algorithm, federation, state, task, settings, weights=weights, step=step, private=private)


def trained_so_far(averaged: Averaged) -> NDArray[np.int64]:
    """All parties whose answers to a training have arrived by now; noise in nobody's name is no answer."""
    answered = averaged.replies.parties
    return np.union1d(averaged.state.memory["trained"], answered[answered >= 0])


class Inference(NamedTuple):
    """Four tasks: tally a part of the party's own rows, tally rows that the coordinator sends, hash the model, and keep
    it for rows that come later; and how the party answers in all of them.

    A module that makes them gives each a name of its own, because that is where a party's policy looks for the tasks of
    an algorithm.
    """

    on_own: Task[Any, Tally]
    on_sent: Task[Any, Tally]
    fingerprint: Task[Any, Fingerprint]
    keep: Task[Any, Done]
    answer_of: Callable[[Party, Any, Any], Answer]


class SentRows(TypedDict):
    """Rows that the coordinator sends, beside what the party needs to answer them."""

    features: NDArray[Any]
    target: NDArray[Any]


def inference(name: str, settings: type[E], answer_of: Callable[[Party, Any, E], Answer],
              model_of: Callable[[Party, Any, E], Arrays]) -> Inference:
    """The tasks of an algorithm whose parties answer by `answer_of`, mainly with the model that `model_of` gives."""

    @task(f"{name}: evaluate", settings=settings, reply=Tally, reveals=Reveals.METRICS, check=check_own_tally)
    def on_own(party: Party, payload: Payload, settings: E) -> Tally:
        rows = party.data.part(settings.part)
        return dict(answer_of(party, payload, settings).tally(rows)) if len(rows) else {}

    @task(f"{name}: score", settings=settings, reply=Tally, reveals=Reveals.STRUCTURE, check=check_any_tally)
    def on_sent(party: Party, payload: SentRows, settings: E) -> Tally:
        rows = Dataset.of(party.data.train.schema, payload["features"], payload["target"], name="sent rows")
        return dict(answer_of(party, payload, settings).tally(rows))

    @task(f"{name}: fingerprint own model", settings=settings, reply=Fingerprint, reveals=Reveals.NOTHING)
    def fingerprint(party: Party, payload: Payload, settings: E) -> Fingerprint:
        return {"sha256": sha256_of(model_of(party, payload, settings))}

    @task(f"{name}: keep own model to answer with", settings=settings, reply=Done, reveals=Reveals.NOTHING)
    def keep(party: Party, payload: Payload, settings: E) -> Done:
        return keep_answer(party, answer_of(party, payload, settings))

    return Inference(on_own, on_sent, fingerprint, keep, answer_of)


def by_model(name: str, settings: type[E], model_of: Callable[[Party, Any, E], Arrays]) -> Inference:
    """The tasks of an algorithm whose parties each answer with one model."""

    def answer_of(party: Party, payload: Payload, settings: E) -> One:
        return One(settings.learner, model_of(party, payload, settings))

    return inference(name, settings, answer_of, model_of)


def own_or_received(party: Party, payload: Payload, settings: object) -> Arrays:
    """The party's own model; the received one for a party that has none yet."""
    model: Arrays = party.recall(OwnModel).get("model", payload["model"])
    return model


def with_epochs(local: LocalTraining, epochs: int) -> LocalTraining:
    """The same training for other epochs (0: the same)."""
    return replace(local, epochs=epochs, steps=0) if epochs else local
