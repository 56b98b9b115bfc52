"""What becomes of the global model at the parties: each adopts it only if it beats its own, or tunes it to its rows.

For any algorithm whose model a learner can evaluate. Parties choose by their validation rows and never by test rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.baselines.alone import train_alone
from tequio.algorithms.training import job_from, training_task
from tequio.algorithms.trees.fitting import fits_trees
from tequio.errors import ConfigError, DataError, nearest
from tequio.federation.algorithm import State
from tequio.federation.evaluation import evaluate_own, tally_here
from tequio.federation.rng import stream
from tequio.federation.task import task
from tequio.learners.metrics import higher_is_better, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.algorithm import Algorithm
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays, Job, Tally, Trained


@dataclass(frozen=True)
class Adoption:
    """How a party decides between the global model and its own.

    Parameters:
        metric: what the two are compared by, on the party's validation rows
        rounds: rounds for which a party that keeps no model of its own trains one alone (0: as many as the run had)
    """

    metric: str = "loss"
    rounds: Annotated[int, Ge(0)] = 0


def adopt(federation: Federation, algorithm: Algorithm, state: State, parties: NDArray[np.int64],
          how: Adoption | None = None) -> dict[int, dict[str, Any]]:
    """Let parties adopt the global model iff it beats their own; the one they keep is `own_model` in their state.

    Gives and records each party's decision and both values of the metric (None where it has no validation rows; such a
    party keeps its own model).
    """
    how = how or Adoption()
    higher = higher_is_better(how.metric)
    _train_missing(federation, algorithm, parties, how.rounds or max(federation.round, 1))
    replies = federation.ask(parties, adopt_if_better, {"model": algorithm.result(state)},
                             settings={"learner": algorithm.learner, "metric": how.metric, "higher": higher})
    decisions = {reply.party: dict(reply.payload) for reply in replies}
    if decisions and all(decision["global"] is None for decision in decisions.values()):
        raise DataError("no party has validation rows to compare models on", remedy="set data.split.validation = 0.2")
    for party, decision in decisions.items():
        federation.record("adoption", {"round": federation.round, "party": federation.name(party),
                                       "metric": how.metric, **decision})
    return decisions


def evaluate_adopted(federation: Federation, algorithm: Algorithm, part: str,
                     parties: NDArray[np.int64]) -> dict[int, Tally]:
    """Each party's tally of the model it kept in `adopt`."""
    replies = federation.ask(parties, evaluate_own, settings={"learner": algorithm.learner, "part": part})
    return {reply.party: reply.payload for reply in replies if reply.payload}


def evaluate_fine_tuned(federation: Federation, algorithm: Algorithm, state: State, part: str,
                        parties: NDArray[np.int64], *, epochs: int) -> dict[int, Tally]:
    """What `algorithm.evaluate` gives, after so many local epochs on the party's own training rows; nothing is kept."""
    local = replace(algorithm.parts.local, epochs=epochs, steps=0)
    replies = federation.ask(parties, fine_tune, {"model": algorithm.result(state)},
                             settings={"learner": algorithm.learner, "local": local, "part": part})
    return {reply.party: reply.payload for reply in replies if reply.payload}


@task("adopt if better")
def adopt_if_better(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Compare the received model with the party's own on its validation rows, and keep the better one."""
    # A party that was handed a tree in the run itself may use that one already; it is compared with what it made alone.
    alone = party.state.get("local_tree", party.state.get("own_model"))
    received, own = (_value(party, model, settings) for model in (payload["model"], alone))
    adopted = "own_model" not in party.state or _beats(received, own, settings)
    party.state["own_model"] = payload["model"] if adopted else alone
    return {"adopted": adopted, "global": received, "own": own}


def _beats(first: float | None, second: float | None, settings: Mapping[str, Any]) -> bool:
    if first is None or second is None:
        return False
    return first > second if settings["higher"] else first < second


def _value(party: Party, model: Arrays | None, settings: Mapping[str, Any]) -> float | None:
    """The metric of a model on the party's validation rows, where there are both."""
    tally = tally_here(party, model, {**settings, "part": "validation"}) if model is not None else {}
    if not tally:
        return None
    values = summarise(party.data.validation.schema.target, tally)
    if settings["metric"] not in values:
        raise ConfigError(f"models cannot be compared by '{settings['metric']}' here",
                          remedy=nearest(settings["metric"], values))
    return values[settings["metric"]]


def _train_missing(federation: Federation, algorithm: Algorithm, parties: NDArray[np.int64], rounds: int) -> None:
    """Have parties that keep no model of their own train one, exactly as the baseline `alone` would have."""
    replies = federation.ask(parties, look_for_own)
    missing = replies.parties[~replies.values("kept").astype(bool)]
    if not len(missing):
        return
    initial = {} if fits_trees(algorithm) else \
        algorithm.learner.initial(federation.schema, stream(federation.seed, "initial model"))
    trained = np.empty(0, dtype=np.int64)
    for round in range(1, rounds + 1):
        then = replace(federation, round=round)
        trained = train_alone(then, algorithm, State(initial, {"trained": trained}), missing)


@task("look for own model")
def look_for_own(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Whether the party keeps a model of its own."""
    return {"kept": "own_model" in party.state}


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, payload["model"])


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    return tally_here(party, result.model, settings)


fine_tune = training_task("fine-tune and evaluate", _job, _reply)
