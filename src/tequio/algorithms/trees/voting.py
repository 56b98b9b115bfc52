"""A voting ensemble of whatever models the parties have.

Each party trains a model of the kind that suits it; the global model is the list of them all, and predicts by the mean
of their class probabilities (Kittler, Hatef, Duin, Matas: On combining classifiers, IEEE TPAMI 20, 1998). The classes
are those of the agreed schema, so the probabilities of a party that lacks a class line up with the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

import numpy as np

from tequio.algorithms.training import local_training
from tequio.algorithms.trees.fitting import AgreedSettings, TreeAlgorithm, agreed, agreed_rows, check_usable
from tequio.errors import ConfigError, DataError, PayloadError, nearest
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import finish_round, select
from tequio.federation.evaluation import Part, check_own_tally, tallies_in
from tequio.federation.payload import Payload
from tequio.federation.task import Count, Reveals, TimedSettings, record, task
from tequio.learners.answers import Answer, learner_of
from tequio.learners.learner import Learner, LocalTraining, Tally
from tequio.learners.metrics import higher_is_better, summarise, tally
from tequio.learners.trees.learner import TreeLearner
from tequio.registry import build, name_of, register, to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party


@register("algorithm", "voting", paper="Kittler et al., 1998", example=(
    '[algorithm]\nname = "voting"\nlearners = ["cart", "logistic"]\n\n[overrides.3]\nlearner = "logistic"\n'))
@dataclass(frozen=True, kw_only=True)
class Voting(TreeAlgorithm):
    """Parties train models of different kinds on their own rows, which then vote; all in one round.

    A party takes the learner that its own setting `learner` names. Only learners that the coordinator offers can be
    named, so that nobody builds a model from what a party sent. Whole models leave the parties. Further rounds change
    nothing.

    Parameters:
        learners: what is offered, each a name or a table of name and parameters, and dealt in turn to parties that do
            not choose (none: that of the config)
        weights: all models alike (uniform), or by their score on the validation rows of the party that made them
        metric: the score, a metric of which more is better
    """

    learner: TreeLearner | Learner | None = part(None)
    local: LocalTraining = part(factory=LocalTraining)
    learners: tuple[str | dict[str, object], ...] = ()
    weights: Literal["uniform", "score"] = "uniform"
    metric: str = "accuracy"

    adoptable: ClassVar[bool] = False  # no learner evaluates a list of models
    offers_learners: ClassVar[bool] = True

    @classmethod
    def unused_parts(cls, parameters: Mapping[str, object]) -> frozenset[str]:
        """The learner, where several are offered instead."""
        return frozenset({"learner"}) if parameters.get("learners") else frozenset()

    @property
    def offered(self) -> list[TreeLearner | Learner]:
        """The learners to choose from."""
        tables = [{"name": table} if isinstance(table, str) else table for table in self.learners]
        if tables:
            return [build("learner", str(table.get("name", "")), {key: table[key] for key in table if key != "name"},
                          where="algorithm.learners") for table in tables]
        if self.learner is None:
            raise ConfigError("'voting' has no learner to offer", remedy="set algorithm.learners = [\"cart\"]")
        return [self.learner]

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The learners to choose from."""
        return tuple(self.offered)

    def start(self, federation: Federation) -> State:
        """No model yet."""
        if self.weights == "score" and not higher_is_better(self.metric):
            raise ConfigError(f"models cannot be weighed by '{self.metric}', of which less is better",
                              remedy="set algorithm.metric to one of which more is better, such as 'accuracy'")
        return State({"learners": [to_plain(learner) for learner in self.offered], "members": []})

    def round(self, federation: Federation, state: State) -> State:
        """Every chosen party trains; the list of all models is the model."""
        if state.model["members"]:
            return state
        chosen, offered = select(self, federation, state), self.offered
        settings = MemberSettings(learners=offered, local=self.local, agreed=agreed(federation),
                                  metric=self.metric if self.weights == "score" else "")
        replies = federation.ask(chosen.parties, train_member, settings=settings, stages=self.poisoning,
                                 check=partial(_check_member, offered, federation.schema))
        members = [{"party": federation.name(reply.party), "learner": reply.payload["learner"],
                    "model": reply.payload["model"]} for reply in replies]
        model = {**state.model, "members": members, "weights": _weights(replies)}
        return finish_round(self, federation, state, chosen, replies, model if members else None)

    def answer(self, federation: Federation, state: State) -> Vote | None:
        """The members' vote."""
        return Vote(tuple(self.offered), state.model) if state.model["members"] else None

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of the vote on its own rows."""
        if not state.model["members"]:
            return {}
        replies = federation.ask(parties, evaluate_vote, {"model": state.model},
                                 settings=VoteSettings(learners=self.offered, part=part))
        return tallies_in(replies)

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The tally of the vote on rows that the coordinator holds."""
        if not state.model["members"]:
            return None
        return tally(rows.schema.target, vote(self.offered, state.model, rows), rows.target)


@dataclass(frozen=True)
class Vote(Answer):
    """The vote of parties' models."""

    kind: ClassVar[str] = "vote"
    learners: tuple[TreeLearner | Learner, ...]
    model: Payload

    def scores(self, rows: Dataset) -> NDArray[np.float64]:
        """The members' scores in the mean."""
        return vote(self.learners, self.model, rows)

    def to_payload(self) -> Payload:
        """The learners by name, and the members."""
        return {"learners": [to_plain(learner) for learner in self.learners], "model": self.model}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> Vote:
        """The learners are built again by name."""
        return cls(tuple(learner_of(plain) for plain in payload["learners"]), payload["model"])


def vote(learners: Sequence[TreeLearner | Learner], model: Payload, rows: Dataset) -> NDArray[np.float64]:
    """The members' scores of each row, in the mean by their weights."""
    scores = [weight * learners[member["learner"]].predict(member["model"], rows)
              for member, weight in zip(model["members"], model["weights"], strict=True)]
    mean: NDArray[np.float64] = np.sum(scores, axis=0)
    return mean


@record
class MemberSettings(AgreedSettings, TimedSettings):
    """What is offered, how gradient learners train, and what models are scored by (empty: they are not)."""

    learners: Sequence[TreeLearner | Learner]
    metric: str


class MemberReply(TypedDict):
    """The number of the learner in what was offered, its model, and the model's score where there is one."""

    learner: Count
    model: Payload
    score: float | None


@task("voting: train", settings=MemberSettings, reply=MemberReply, reveals=Reveals.STRUCTURE)
def train_member(party: Party, payload: Payload, settings: MemberSettings) -> MemberReply:
    """A model of the party's own kind, and its score where one is asked for."""
    rows, index = agreed_rows(party, settings), _choice(party, settings.learners)
    learner = settings.learners[index]
    model: Payload
    if isinstance(learner, TreeLearner):
        model = learner.fit(rows, party.rng("fit")).to_payload()
    else:
        local = local_training(party, settings.local)
        initial = learner.initial(rows.schema, party.rng("initial model"))
        rate = local.rate(party.round)
        model = dict(learner.train(initial, rows, local, party.rng("train"), learning_rate=rate).model)
    score = _score(learner, model, party.data.validation, settings.metric) if settings.metric else 1.0
    return {"learner": index, "model": model, "score": score}


@record
class VoteSettings:
    """The learners whose models vote, and on which part of the rows."""

    learners: Sequence[TreeLearner | Learner]
    part: Part


class VotePayload(TypedDict):
    """The models and their weights."""

    model: Payload


@task("voting: evaluate", settings=VoteSettings, reply=Tally, reveals=Reveals.METRICS, check=check_own_tally)
def evaluate_vote(party: Party, payload: VotePayload, settings: VoteSettings) -> Tally:
    """The tally of the vote on one part of the party's rows."""
    rows = party.data.part(settings.part)
    if not len(rows):
        return {}
    return tally(rows.schema.target, vote(settings.learners, payload["model"], rows), rows.target)


def _choice(party: Party, learners: Sequence[TreeLearner | Learner]) -> int:
    """The number of the learner that the party names in its settings, or of the one that it is dealt."""
    names = [name_of(type(learner)) for learner in learners]
    wanted = party.settings.get("learner")
    if not wanted:
        return party.index % len(names)
    if wanted not in names:
        raise ConfigError(f"party '{party.name}' wants the learner '{wanted}', which is not offered",
                          remedy=f"{nearest(wanted, names)} Or add it to algorithm.learners")
    return names.index(wanted)


def _score(learner: TreeLearner | Learner, model: Payload, rows: Dataset, metric: str) -> float | None:
    """The metric on these rows; nothing where there are none, or it does not exist for them."""
    if not len(rows):
        return None
    values = summarise(rows.schema.target, learner.evaluate(model, rows))
    if metric not in values:
        raise ConfigError(f"models cannot be weighed by '{metric}' here", remedy=nearest(metric, values))
    return values[metric] if isfinite(values[metric]) else None


def _weights(replies: Replies[MemberReply]) -> NDArray[np.float64]:
    """Shares of the vote, by score; a model without a score counts as the mean of the others."""
    known = [score for reply in replies.payloads if (score := reply["score"]) is not None]
    if replies and not known:
        raise DataError("no party has validation rows to score its model on", remedy="set data.split.validation = 0.2")
    mean = sum(known) / max(len(known), 1)
    scores = np.array([mean if reply["score"] is None else reply["score"] for reply in replies.payloads])
    scores = np.maximum(scores, 0.0)
    return scores / scores.sum() if scores.any() else np.full(len(scores), 1 / max(len(scores), 1))


def _check_member(learners: Sequence[TreeLearner | Learner], schema: Schema, reply: MemberReply, whose: str) -> None:
    if reply["learner"] >= len(learners):
        raise PayloadError(f"{whose} sent a model of a learner that was not offered")
    if reply["score"] is not None and not 0 <= reply["score"] <= 1:
        raise PayloadError(f"{whose} sent a score that is not between 0 and 1: {reply['score']!r}")
    check_usable(learners[reply["learner"]], schema, reply["model"], whose)
