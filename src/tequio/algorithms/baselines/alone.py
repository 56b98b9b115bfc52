"""The baseline without a federation: each party trains a model of its own, on its own rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.training import fresh_state, job_from, training_settings, training_task
from tequio.algorithms.trees.fitting import agreed, fit_own, fits_trees
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.evaluation import evaluate_own
from tequio.federation.rng import stream
from tequio.federation.task import task
from tequio.learners.metrics import merge
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Job, Tally, Trained


@register("algorithm", "alone")
@dataclass(frozen=True, kw_only=True)
class Alone(Algorithm):
    """Each party trains a model of its own and shares nothing.

    All start from the same initial model, which also is the run's result, as there is no common one. With a selector
    only the chosen parties train on in a round. Trees have no initial model: a party fits its own the first time that
    it is chosen, and the run has no result but the score. Stages and aggregator do not apply.

    Parameters:
        scored_parties: how many parties' models are scored on the coordinator's rows; the score is their mean
    """

    scored_parties: Annotated[int, Ge(1)] = 20

    def start(self, federation: Federation) -> State:
        """The common initial model, if models have one; nobody has trained yet."""
        nobody = np.empty(0, dtype=np.int64)
        return State({}, {"trained": nobody}) if fits_trees(self) else fresh_state(self, federation, trained=nobody)

    def round(self, federation: Federation, state: State) -> State:
        """Every chosen party trains its own model on."""
        chosen = self.select(federation, state, observed=False)
        return state.next(trained=train_alone(federation, self, state, chosen.parties), selector=chosen.memory)

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of its own model, which is the initial one, if any, where it has not trained yet."""
        trained = np.intersect1d(parties, state.memory["trained"])
        beginners = np.setdiff1d(parties, trained)
        tallies = super().evaluate(federation, state, part, beginners) if len(beginners) else {}
        replies = federation.ask(trained, evaluate_own, settings={"learner": self.learner, "part": part})
        tallies |= {reply.party: reply.payload for reply in replies if reply.payload}
        return dict(sorted(tallies.items()))

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The mean over some eligible parties' models, the same ones in every round, as the sum of their tallies."""
        trained = state.memory["trained"]
        if not len(trained):
            return super().score(federation, state, rows)
        drawn = stream(federation.seed, "scored parties").permutation(trained)
        drawn = drawn[np.isin(drawn, federation.eligible())][:self.scored_parties]
        replies = federation.ask(drawn, hand_over_own)
        tallies = [self.learner.evaluate(reply.payload["model"], rows) for reply in replies]
        return merge(tallies) if tallies else None


def train_alone(federation: Federation, algorithm: Algorithm, state: State,
                parties: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ask parties to train their own models on; those who have none get the state's model to start from.

    Gives all parties that have one now, by the memory `trained`. A tree is fitted once.
    """
    trained = state.memory["trained"]
    fresh = np.setdiff1d(parties, trained)
    if fits_trees(algorithm):
        replies = federation.ask(fresh, fit_own, settings={"learner": algorithm.learner, **agreed(federation)})
    else:
        replies = federation.ask(parties, train_own, settings=training_settings(algorithm),
                                 each={int(party): {"model": state.model} for party in fresh})
    return np.union1d(trained, replies.parties)


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, payload["model"] if "model" in payload else party.state["own_model"])


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    party.state["own_model"] = result.model
    return {"rows": result.rows, "steps": result.steps, "loss": result.loss}


train_own = training_task("train own model", _job, _reply)


@task("hand over own model")
def hand_over_own(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The model that the party keeps for itself."""
    return {"model": party.state["own_model"]}
