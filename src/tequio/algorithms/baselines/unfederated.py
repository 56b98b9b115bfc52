"""The baselines without a federation: each party trains on its own rows only, or all rows are in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

import numpy as np
from annotated_types import Ge

from tequio.algorithms.training import Phase, job_from, optimizer_memory, train, training_task
from tequio.algorithms.trees.fitting import FitSettings, agreed, check_usable, fit, fit_own
from tequio.errors import ConfigError
from tequio.federation.aggregation import shifted
from tequio.federation.algorithm import Algorithm, Answering, State, part
from tequio.federation.averaging import fresh_state, select
from tequio.federation.evaluation import (
    EvaluateSettings,
    OwnModel,
    evaluate_own,
    keep_own,
    own_fingerprints,
    tallies_in,
)
from tequio.federation.payload import Payload
from tequio.federation.rng import stream
from tequio.federation.selection import AllParties, Selector
from tequio.federation.task import Count, NoSettings, Reveals, Rows, TrainSettings, task
from tequio.learners.answers import One
from tequio.learners.learner import Arrays, Learner, LocalTraining
from tequio.learners.metrics import merge
from tequio.learners.trees.learner import TreeLearner
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.trees.fitting import FittedReply
    from tequio.data.dataset import Dataset
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Job, Tally, Trained

_KEPT = "optimizer memory"


@register("algorithm", "alone")
@dataclass(frozen=True, kw_only=True)
class Alone(Algorithm):
    """Each party trains a model of its own and shares nothing.

    All start from the same initial model, which also is the run's result, as there is no common one. With a selector
    only the chosen parties train on in a round. Trees have no initial model: a party fits its own the first time that
    it is chosen, and the run has no result but the score.

    Parameters:
        scored_parties: how many parties' models are scored on the coordinator's rows; the score is their mean
    """

    learner: Learner | TreeLearner = part()
    local: LocalTraining = part(factory=LocalTraining)
    selector: Selector = part(factory=AllParties)
    scored_parties: Annotated[int, Ge(1)] = 20

    shows_replies: ClassVar[bool] = False
    adoptable: ClassVar[bool] = False  # there is no common model

    def start(self, federation: Federation) -> State:
        """The common initial model, if models have one; nobody has trained yet."""
        nobody = np.empty(0, dtype=np.int64)
        if isinstance(self.learner, TreeLearner):
            return State({}, {"trained": nobody})
        return fresh_state(self.learner, federation, trained=nobody)

    def round(self, federation: Federation, state: State) -> State:
        """Every chosen party trains its own model on."""
        chosen = select(self, federation, state)
        trained = train_alone(federation, self.learner, self.local, state.model, state.memory["trained"],
                              chosen.parties)
        return state.next(trained=trained, selector=chosen.memory)

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of its own model, which is the initial one, if any, where it has not trained yet."""
        trained = np.intersect1d(parties, state.memory["trained"])
        beginners = np.setdiff1d(parties, trained)
        tallies = super().evaluate(federation, state, part, beginners) if len(beginners) else {}
        replies = federation.ask(trained, evaluate_own, settings=EvaluateSettings(learner=self.learner, part=part))
        tallies |= tallies_in(replies)
        return dict(sorted(tallies.items()))

    def answer(self, federation: Federation, state: State) -> None:
        """There is no common model."""

    def own_answer(self, party: Party, federation: Federation, state: State) -> One | None:
        """The party's own model."""
        own = party.recall(OwnModel)
        return One(self.learner, own["model"]) if "model" in own else None

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """Each keeps its own model."""
        federation.ask(parties, keep_own, settings=EvaluateSettings(learner=self.learner, part="test"))

    def answering(self, federation: Federation, state: State) -> Answering:
        """The parties that trained, of which some are scored."""
        trained = state.memory["trained"]
        return Answering("own", tuple(trained.tolist()), tuple(self._drawn(federation, trained).tolist())) \
            if len(trained) else Answering()

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """A hash of each party's own model."""
        return own_fingerprints(federation, state.memory["trained"])

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The mean over some eligible parties' models, the same ones in every round, as the sum of their tallies."""
        trained = state.memory["trained"]
        if not len(trained):
            return super().score(federation, state, rows)
        replies = federation.ask(self._drawn(federation, trained), hand_over_own, settings=NoSettings())
        tallies = [self.learner.evaluate(reply["model"], rows) for reply in replies.payloads]
        return merge(tallies) if tallies else None

    def _drawn(self, federation: Federation, trained: NDArray[np.int64]) -> NDArray[np.int64]:
        drawn = stream(federation.seed, "scored parties").permutation(trained)
        return drawn[np.isin(drawn, federation.eligible())][:self.scored_parties]


def train_alone(federation: Federation, learner: Learner | TreeLearner, local: LocalTraining, initial: Arrays,
                trained: NDArray[np.int64], parties: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ask parties to train their own models on; those who have none yet start from the initial one.

    Gives all parties that have one now. A tree is fitted once.
    """
    fresh = np.setdiff1d(parties, trained)
    if isinstance(learner, TreeLearner):
        settings = FitSettings(learner=learner, agreed=agreed(federation))
        return np.union1d(trained, federation.ask(fresh, fit_own, settings=settings).parties)
    replies = federation.ask(parties, train_own, settings=TrainSettings(learner=learner, local=local),
                             each={int(party): {"model": initial} for party in fresh})
    return np.union1d(trained, replies.parties)


class StartPayload(TypedDict, total=False):
    """The initial model, for parties that have none of their own yet."""

    model: Arrays


class TrainedReply(TypedDict):
    """How a party's training went."""

    rows: Rows
    steps: Count
    loss: float


class ModelReply(TypedDict):
    """A party's own model."""

    model: Payload


def _job(party: Party, payload: StartPayload, settings: TrainSettings) -> Job:
    return job_from(party, payload["model"] if "model" in payload else party.recall(OwnModel)["model"])


def _reply(party: Party, payload: StartPayload, result: Trained, settings: TrainSettings) -> TrainedReply:
    party.keep(OwnModel, {"model": result.model})
    return {"rows": result.rows, "steps": result.steps, "loss": result.loss}


train_own = training_task("train own model", TrainSettings, TrainedReply, Phase(_job, _reply), reveals=Reveals.METRICS)
"""Train the party's own model on, and keep it."""


@task("hand over own model", settings=NoSettings, reply=ModelReply, reveals=Reveals.STRUCTURE)
def hand_over_own(party: Party, payload: Payload, settings: NoSettings) -> ModelReply:
    """The model that the party keeps for itself."""
    return {"model": party.recall(OwnModel)["model"]}


@register("algorithm", "centralised")
@dataclass(frozen=True, kw_only=True)
class Centralised(Algorithm):
    """All training rows in one place: those of the partition 'pooled', or those of all simulated parties.

    With one party the same numbers as federated averaging: a round is one local training. With several parties a
    simulation trains on all their training rows, and each party judges the model by its own rows, so that alone,
    federated and centralised are compared party by party on the same rows. Trees are fitted in the first round, and
    further rounds change nothing.
    """

    learner: Learner | TreeLearner = part()
    local: LocalTraining = part(factory=LocalTraining)

    def start(self, federation: Federation) -> State:
        """A fresh model, if models have one to start from."""
        partition = federation.population.partition
        if len(federation) > 1 and (partition.columns is not None or partition.labels is not None):
            raise ConfigError(f"'centralised' cannot put together rows of which {len(federation)} parties hold "
                              "different columns or labels", remedy="set data.partition.name = 'pooled'")
        return State({}) if isinstance(self.learner, TreeLearner) else fresh_state(self.learner, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train on, or fit a tree once."""
        if isinstance(self.learner, TreeLearner):
            return state if state.model else state.next(self._fitted(federation, self.learner))
        if len(federation) == 1:
            replies = federation.ask(federation.everyone(), train, {"model": state.model},
                                     settings=TrainSettings(learner=self.learner, local=self.local))
            if not replies:
                return state
            reply = replies[0].payload
            return state.next(shifted(state.model, {**reply["update"], **reply.get("buffers", {})}))
        trained = self.learner.train(state.model, training_rows(federation), self.local, federation.rng("centralised"),
                                     learning_rate=self.local.rate(federation.round),
                                     **optimizer_memory(self.learner, self.local, state.memory, _KEPT))
        return state.next(dict(trained.model), **({_KEPT: trained.memory} if trained.memory else {}))

    def _fitted(self, federation: Federation, learner: TreeLearner) -> Payload | None:
        """The model of all rows; nothing where the only party did not answer."""
        if len(federation) > 1:
            return dict(learner.fit(training_rows(federation), federation.rng("centralised")).to_payload())

        def check(reply: FittedReply, whose: str) -> None:
            check_usable(learner, federation.schema, reply["model"], whose)

        replies = federation.ask(federation.everyone(), fit, check=check,
                                 settings=FitSettings(learner=learner, agreed=agreed(federation)))
        return replies[0].payload["model"] if replies else None


def training_rows(federation: Federation) -> Dataset:
    """The training rows of all parties, one party after the other; real parties' rows cannot be had."""
    parts = [federation.population.view(int(party)).train for party in federation.everyone()]
    whole = federation.population.dataset
    rows = [np.arange(len(whole)) if part.rows is None else part.rows for part in parts]
    return replace(whole, rows=np.concatenate(rows))
