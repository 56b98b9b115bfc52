"""FLProtector: a private increment on the global model, a router between the two, and consistency weighting.

Martínez Enríquez, Iglesias Rodríguez, García Polo: Análise de estratexias de aprendizaxe federada robustas a datos
heteroxéneos (Universidade de Santiago de Compostela).

A round is one of federated averaging, with the aggregator `consistency`, and then a local one: each party trains
W + delta from the new W and keeps the new delta. Nothing of the second reaches the first. The paper
leaves open whether the optimizer begins afresh in every training; its authors' program keeps two at every party, as
local.optimizer_memory = "kept" does here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.personal.answering import (
    Epochs,
    Inference,
    Personal,
    inference,
    trained_so_far,
    with_epochs,
)
from tequio.algorithms.training import Phase, job_from, train, training_task
from tequio.data.dataset import Dataset
from tequio.errors import PayloadError
from tequio.federation.aggregation import Aggregator, Mean, difference, shifted
from tequio.federation.aggregators.consistency import Consistency, ConsistencyPlus
from tequio.federation.averaging import Weights, averaging_round
from tequio.federation.evaluation import EvaluateSettings
from tequio.federation.payload import Payload
from tequio.federation.task import Reveals, Rows, Sums, TrainSettings, record, task
from tequio.federation.topology import ClientServer, Topology
from tequio.learners.answers import Answer, learner_of
from tequio.learners.learner import Arrays, Learner
from tequio.learners.metrics import merge, summarise
from tequio.learners.routers.router import Own, Router, accepted, fit_router, is_own
from tequio.registry import build, from_plain, register, to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.averaging import Averaged
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Job, Scorer, Tally, Trained

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much of its increment a party may choose to use."""


@register("algorithm", "flprotector", paper="Martínez Enríquez et al., 2025")
@dataclass(frozen=True, kw_only=True)
class FLProtector(Personal):
    """A private increment on a global model that follows consistent parties; each row is answered by one of the two.

    Parameters:
        personalise: whether parties train an increment of their own; without it the global model answers everything
        router: which rows the global model answers: a router's name, or a table with its name and parameters (empty:
            none, the personal model answers everything)
        weighting: whether the aggregator `consistency` takes the place of the mean
        personal_epochs: epochs of the increment a round (0: those of `local`)
        adaptive: whether each party chooses, by its validation rows, how much of its increment it uses
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only: ClassVar[bool] = False
    topologies: ClassVar[tuple[type[Topology], ...]] = (ClientServer,)  # consistency in groups is another one
    aggregator: Aggregator = field(default_factory=Mean, init=False)

    personalise: bool = True
    router: str | dict[str, Any] = "autoencoder"
    weighting: bool = True
    personal_epochs: Epochs = 0
    adaptive: bool = False
    weights: Weights = "size"

    def __post_init__(self) -> None:
        if self.weighting:
            object.__setattr__(self, "aggregator", self.consistency())

    @property
    def inference(self) -> Inference:
        """By the personal or by the global model, as the router decides row by row."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model, and no descriptions of anybody's rows."""
        self.made_router()
        return super().start(federation).next(descriptions={})

    def round(self, federation: Federation, state: State) -> State:
        """The federated phase, then the personal one from the new model."""
        answered: list[int] = []

        def step(averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
            answered.extend(party for party in averaged.replies.parties.tolist() if party >= 0)
            return averaged.following(), {"trained": trained_so_far(averaged)}

        state = averaging_round(self, federation, state, train, TrainSettings(learner=self.learner, local=self.local),
                                weights=self.weights, step=step)
        return self._personal_phase(federation, state, answered) if self.personalise else state

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains an increment and a router once."""
        if self.personalise:
            self._personal_phase(federation, state, parties.tolist())

    def evaluation_settings(self, part: Part = "test") -> RoutedSettings:
        """With the router."""
        return RoutedSettings(learner=self.learner, part=part, personal=self.personalise, router=self.made_router())

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """Hashes of the parties' personal models, where they train any."""
        return super().fingerprints(federation, state) if self.personalise else []

    def other_answers(self) -> dict[str, Algorithm]:
        """The same training, answered by one kind of model only: what the router and the increments are worth."""
        return {"own": replace(self, router=""), "common": replace(self, personalise=False)} if self.personalise else {}

    def routing(self, federation: Federation, state: State, rows: Dataset,
                parties: NDArray[np.int64]) -> dict[int, Payload]:
        """Of rows that the coordinator holds: would each party's own model answer, and how novel are they to it."""
        replies = federation.ask(parties, where_rows_go, {
            **self.evaluation_payload(state), "features": np.ascontiguousarray(rows.features)},
            settings=self.evaluation_settings())
        return {reply.party: dict(reply.payload) for reply in replies}

    def consistency(self) -> Aggregator:
        """The aggregator in place of the mean."""
        return Consistency()

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The router and the training of the increments."""
        router = self.made_router()
        return with_epochs(self.local, self.personal_epochs), *(() if router is None else (router,))

    def made_router(self) -> Router | None:
        """The router, if any."""
        table = {"name": self.router} if isinstance(self.router, str) else dict(self.router)
        if not table.get("name"):
            return None
        router: Router = build("router", table.pop("name"), table, where="algorithm.router")
        return router

    def _personal_phase(self, federation: Federation, state: State, parties: list[int]) -> State:
        router, known = self.made_router(), dict(state.memory["descriptions"])
        new = [party for party in parties if str(party) not in known]
        if new and router is not None and router.compares:
            replies = federation.ask(new, describe_rows, settings=RouterSettings(router=router))
            known |= {str(reply.party): reply.payload for reply in replies}
        others = {party: {"others": [known[other] for other in sorted(known, key=int) if int(other) != party]}
                  for party in parties} if known else None
        settings = IncrementSettings(learner=self.learner, local=with_epochs(self.local, self.personal_epochs),
                                     adaptive=self.adaptive, router=router)
        federation.ask(parties, personalise, {"model": state.model}, settings=settings, each=others)
        return state.next(descriptions=known)


@register("algorithm", "flprotector-plus")
@dataclass(frozen=True, kw_only=True)
class FLProtectorPlus(FLProtector):
    """FLProtector with a router that compares parties' rows, increments that help, and weights for outliers only.

    Where FLProtector fails: its router takes smooth foreign images for its own, its increments lose to the global model
    on hard rows, its weights fall on honest parties that are merely different, and in the first two rounds, when all
    count alike, a backdoor gets in. Needs validation rows.

    Parameters:
        personalise: whether parties train an increment of their own; without it the global model answers everything
        router: which rows the global model answers: a router's name, or a table with its name and parameters (empty:
            none, the personal model answers everything)
        weighting: whether the aggregator `consistency-plus` takes the place of the mean
        personal_epochs: epochs of the increment a round (0: those of `local`)
        adaptive: whether each party chooses, by its validation rows, how much of its increment it uses
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    router: str | dict[str, Any] = "likelihood-ratio"
    adaptive: bool = True

    def consistency(self) -> Aggregator:
        """Only parties far from their predicted update lose weight; before that, long updates are shortened."""
        return ConsistencyPlus()


@record
class IncrementSettings(TrainSettings):
    """How a party chooses the share of its increment, and the router that it fits."""

    adaptive: bool
    router: Router | None


@record
class RouterSettings:
    """A router."""

    router: Router


@record
class RoutedSettings(EvaluateSettings):
    """Whether parties answer with models of their own, and which router decides row by row."""

    learner: Learner
    personal: bool
    router: Router | None


class IncrementPayload(TypedDict):
    """The new global model and, for routers that compare, what the other parties said of their rows."""

    model: Arrays
    others: NotRequired[list[Payload]]


class Increment(TypedDict, total=False):
    """What a party adds to the global model, how much of it it uses, and its fitted router."""

    delta: Arrays
    share: float
    router: Payload


class IncrementReply(TypedDict):
    """The loss of the personal model, which stays at the party."""

    rows: Rows
    personal_loss: float


def personal_model(party: Party, payload: IncrementPayload, settings: object = None) -> Arrays:
    """W + share * delta; W itself for a party without an increment."""
    kept = party.recall(Increment)
    return shifted(payload["model"], kept["delta"], kept.get("share", 1.0)) if "delta" in kept else payload["model"]


def _job(party: Party, payload: IncrementPayload, settings: IncrementSettings) -> Job:
    delta = party.recall(Increment).get("delta")
    return job_from(party, payload["model"] if delta is None else shifted(payload["model"], delta), purpose="personal")


def _keep(party: Party, payload: IncrementPayload, result: Trained, settings: IncrementSettings) -> IncrementReply:
    delta = difference(result.model, payload["model"])
    party.keep(Increment, {"delta": delta})
    if settings.adaptive:
        party.keep(Increment, {"share": best_share(settings.learner, payload["model"], delta, party.data.validation)})
    if settings.router is not None:
        _fit_router(party, payload, settings.learner, settings.router)
    return {"rows": result.rows, "personal_loss": result.loss}


personalise = training_task("flprotector.personalise", IncrementSettings, IncrementReply, Phase(_job, _keep),
                            reveals=Reveals.METRICS)
"""Train W + delta from the received W, keep the new delta, and fit the router where that is due."""


def best_share(learner: Scorer, model: Arrays, delta: Arrays, rows: Dataset) -> float:
    """The share of an increment with the fewest errors on validation rows, then the least loss, then the smallest.

    Not the loss alone: a model that has learnt its rows by heart is too sure of itself and yet more often right.
    """
    if not len(rows):
        return 1.0
    tallies = [learner.evaluate(shifted(model, delta, share), rows) for share in _SHARES]
    right = [summarise(rows.schema.target, tally).get("accuracy", 0.0) for tally in tallies]
    return min(zip(_SHARES, right, tallies, strict=True), key=lambda one: (-one[1], one[2]["loss_sum"], one[0]))[0]


def _fit_router(party: Party, payload: IncrementPayload, learner: Learner, router: Router) -> None:
    rows, fitted = party.data.train, party.recall(Increment).get("router")
    if router.follows_model or fitted is None:
        fitted = fit_router(router, rows, Own(learner, personal_model(party, payload)), party.rng("router"))
    others = payload.get("others")
    if others is not None and len(others) != len(fitted.get("others", ())):
        fitted = router.meet(fitted, rows, others)
    party.keep(Increment, {"router": fitted})


@task("flprotector.describe rows", settings=RouterSettings, reply=dict[str, Any], reveals=Sums())
def describe_rows(party: Party, payload: Payload, settings: RouterSettings) -> Payload:
    """What the router wants others to know of this party's rows: sums over all of them, never a row."""
    return dict(settings.router.describe(party.data.train))


@dataclass(frozen=True)
class Routed(Answer):
    """A party's own model and the common one; the router says row by row which of them answers.

    Without an own model the common one answers everything, without a router the own one does.
    """

    kind: ClassVar[str] = "routed"
    learner: Learner
    common: Arrays
    own: Arrays | None = None
    router: Router | None = None
    fitted: Payload = field(default_factory=dict)

    def owned(self, rows: Dataset) -> NDArray[np.bool_]:
        """Row by row, whether the own model answers."""
        if self.own is None:
            return np.zeros(len(rows), dtype=bool)
        if self.router is None:
            return np.ones(len(rows), dtype=bool)
        return is_own(self.router, self.fitted, rows, Own(self.learner, self.own))

    def scores(self, rows: Dataset) -> NDArray[Any]:
        """Each row by the model that answers it."""
        mine = self.owned(rows)
        if self.own is None or not mine.any():
            return self.learner.predict(self.common, rows)
        own = self.learner.predict(self.own, rows.take(mine))
        scores = np.empty((len(rows), *own.shape[1:]), own.dtype)
        scores[mine] = own
        if not mine.all():
            scores[~mine] = self.learner.predict(self.common, rows.take(~mine))
        return scores

    def tally(self, rows: Dataset) -> Tally:
        """Both models' rows, counted by the learner."""
        mine = self.owned(rows)
        models = ((self.own, mine), (self.common, ~mine))
        return merge([self.learner.evaluate(model, rows.take(which)) for model, which in models
                      if model is not None and which.any()])

    def to_payload(self) -> Payload:
        """Learner and router by name, and both models."""
        return {"learner": to_plain(self.learner), "router": to_plain(self.router), "fitted": self.fitted,
                "common": self.common, "own": self.own}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> Routed:
        """Learner and router are built again by name."""
        router = from_plain(payload["router"])
        if router is not None and not isinstance(router, Router):
            raise PayloadError(f"a model names a {type(router).__name__} as its router, which is none")
        return cls(learner_of(payload["learner"]), payload["common"], payload["own"], router, payload["fitted"])


def answer_here(party: Party, payload: IncrementPayload, settings: RoutedSettings) -> Routed:
    """How this party answers."""
    kept = party.recall(Increment)
    own = personal_model(party, payload) if "delta" in kept and settings.personal else None
    return Routed(settings.learner, payload["model"], own, settings.router, kept.get("router", {}))


_INFERENCE = on_own, on_sent, fingerprint, keep, _ = inference("flprotector", RoutedSettings, answer_here,
                                                               personal_model)


class RoutedRows(TypedDict):
    """The global model, and rows of the coordinator's."""

    model: Arrays
    features: NDArray[Any]


class RouteReply(TypedDict):
    """Of each row, whether the party's own model would answer it and how novel it is."""

    own: NDArray[np.bool_]
    novelty: NotRequired[NDArray[np.float64]]


@task("flprotector: where rows go", settings=RoutedSettings, reply=RouteReply, reveals=Reveals.STRUCTURE)
def where_rows_go(party: Party, payload: RoutedRows, settings: RoutedSettings) -> RouteReply:
    """Of rows that the coordinator sends, which the party's own model would answer, and how novel they are."""
    rows = Dataset.of(party.data.train.schema, payload["features"], np.zeros(len(payload["features"]), dtype=np.int64))
    model: IncrementPayload = {"model": payload["model"]}
    here, fitted = answer_here(party, model, settings), party.recall(Increment).get("router")
    if settings.router is None or fitted is None:
        return {"own": here.owned(rows)}
    novelty = settings.router.novelty(fitted, rows, Own(settings.learner, personal_model(party, model)))
    return {"own": accepted(fitted, novelty) if here.own is not None else here.owned(rows), "novelty": novelty}
