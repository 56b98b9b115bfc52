"""What becomes of the global model at the parties: each adopts it only if it beats its own, or tunes it to its rows.

For algorithms that end with one model which their learner can evaluate (`Algorithm.adoptable`). Parties choose by their
validation rows and never by test rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
from annotated_types import Ge

from tequio.algorithms.baselines.unfederated import train_alone
from tequio.algorithms.training import ModelPayload, Phase, received_job, training_task
from tequio.algorithms.trees.fitting import LocalTree
from tequio.errors import ConfigError, DataError, nearest
from tequio.federation.evaluation import (
    EvaluateSettings,
    OwnModel,
    Part,
    check_own_tally,
    evaluate_own,
    tallies_in,
    tally_here,
)
from tequio.federation.payload import Payload
from tequio.federation.rng import stream
from tequio.federation.task import NoSettings, Reveals, TrainSettings, record, task
from tequio.learners.learner import Learner, LocalTraining, Scorer, Tally
from tequio.learners.metrics import higher_is_better, summarise
from tequio.learners.trees.learner import TreeLearner
from tequio.registry import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Trained


@dataclass(frozen=True)
class Adoption:
    """How a party decides between the global model and its own.

    Parameters:
        metric: what the two are compared by, on the party's validation rows
        rounds: rounds for which a party that keeps no model of its own trains one alone (0: as many as the run had)
    """

    metric: str = "loss"
    rounds: Annotated[int, Ge(0)] = 0


# In the words of a record: `global` and `own` are both models' values of the metric, where there are validation rows.
Decision = TypedDict("Decision", {"adopted": bool, "global": float | None, "own": float | None})


def adopt(federation: Federation, algorithm: Algorithm, state: State, parties: NDArray[np.int64],
          how: Adoption | None = None) -> dict[int, Decision]:
    """Let parties adopt the global model iff it beats their own; each keeps the better one as its `OwnModel`.

    Gives and records each party's decision and both values of the metric (None where it has no validation rows; such a
    party keeps its own model).
    """
    how = how or Adoption()
    settings = AdoptSettings(learner=algorithm.scorer, metric=how.metric, higher=higher_is_better(how.metric))
    _train_missing(federation, algorithm, parties, how.rounds or max(federation.round, 1))
    replies = federation.ask(parties, adopt_if_better, {"model": algorithm.result(state)}, settings=settings)
    decisions = {reply.party: reply.payload for reply in replies}
    if decisions and all(decision["global"] is None for decision in decisions.values()):
        raise DataError("no party has validation rows to compare models on", remedy="set data.split.validation = 0.2")
    for party, decision in decisions.items():
        federation.record("adoption", {"round": federation.round, "party": federation.name(party),
                                       "metric": how.metric, **decision})
    return decisions


def evaluate_adopted(federation: Federation, algorithm: Algorithm, part: Part,
                     parties: NDArray[np.int64]) -> dict[int, Tally]:
    """Each party's tally of the model it kept in `adopt`."""
    replies = federation.ask(parties, evaluate_own, settings=EvaluateSettings(learner=algorithm.scorer, part=part))
    return tallies_in(replies)


def evaluate_fine_tuned(federation: Federation, algorithm: Algorithm, state: State, part: Part,
                        parties: NDArray[np.int64], *, epochs: int) -> dict[int, Tally]:
    """What `algorithm.evaluate` gives, after some local epochs on the party's own training rows; nothing is kept."""
    learner, local = algorithm.scorer, algorithm.components.local
    if not isinstance(learner, Learner) or local is None:
        raise ConfigError(f"models of '{name_of(type(algorithm))}' cannot be fine-tuned: they are fitted in one go",
                          remedy="set adoption.fine_tune_epochs = 0")
    settings = TuneSettings(learner=learner, local=replace(local, epochs=epochs, steps=0), part=part)
    replies = federation.ask(parties, fine_tune, {"model": algorithm.result(state)}, settings=settings)
    return tallies_in(replies)


def _train_missing(federation: Federation, algorithm: Algorithm, parties: NDArray[np.int64], rounds: int) -> None:
    """Have parties that keep no model of their own train one, exactly as the baseline `alone` would have."""
    replies = federation.ask(parties, look_for_own, settings=NoSettings())
    missing = replies.parties[~replies.values("kept").astype(bool)]
    learner = algorithm.scorer
    if not len(missing) or not isinstance(learner, Learner | TreeLearner):
        return
    initial = {} if isinstance(learner, TreeLearner) else \
        learner.initial(federation.schema, stream(federation.seed, "initial model"))
    local = algorithm.components.local or LocalTraining()
    trained = np.empty(0, dtype=np.int64)
    for round in range(1, rounds + 1):
        trained = train_alone(replace(federation, round=round), learner, local, initial, trained, missing)


class KeptReply(TypedDict):
    """Whether the party keeps a model of its own."""

    kept: bool


@task("look for own model", settings=NoSettings, reply=KeptReply, reveals=Reveals.NOTHING)
def look_for_own(party: Party, payload: Payload, settings: NoSettings) -> KeptReply:
    """Whether the party keeps a model of its own."""
    return {"kept": "model" in party.recall(OwnModel)}


@record
class AdoptSettings:
    """By which learner and metric models are compared, and whether more is better."""

    learner: Scorer
    metric: str
    higher: bool


class GlobalPayload(TypedDict):
    """The global model."""

    model: Payload


@task("adopt if better", settings=AdoptSettings, reply=Decision, reveals=Reveals.METRICS)
def adopt_if_better(party: Party, payload: GlobalPayload, settings: AdoptSettings) -> Decision:
    """Compare the received model with the party's own on its validation rows, and keep the better one."""
    # A party that was handed a tree in the run itself may use that one already; it is compared with what it made alone.
    alone = party.recall(LocalTree).get("tree") or party.recall(OwnModel).get("model")
    received = _value(party, payload["model"], settings)
    own = None if alone is None else _value(party, alone, settings)
    adopted = alone is None
    if received is not None and own is not None:
        adopted = received > own if settings.higher else received < own
    party.keep(OwnModel, {"model": payload["model"] if adopted or alone is None else alone})
    return {"adopted": adopted, "global": received, "own": own}


def _value(party: Party, model: Payload, settings: AdoptSettings) -> float | None:
    """The metric of a model on the party's validation rows, where there are any."""
    tally = tally_here(party, model, settings.learner, "validation")
    if not tally:
        return None
    values = summarise(party.data.validation.schema.target, tally)
    if settings.metric not in values:
        raise ConfigError(f"models cannot be compared by '{settings.metric}' here",
                          remedy=nearest(settings.metric, values))
    return values[settings.metric]


@record
class TuneSettings(TrainSettings):
    """How models are tuned, and on which part of the rows they are then evaluated."""

    part: Part


def _tuned(party: Party, payload: ModelPayload, result: Trained, settings: TuneSettings) -> Tally:
    return tally_here(party, result.model, settings.learner, settings.part)


fine_tune = training_task("fine-tune and evaluate", TuneSettings, Tally, Phase(received_job, _tuned),
                          reveals=Reveals.METRICS, check=check_own_tally)
"""Train the received model on the party's rows and evaluate it; nothing is kept."""
