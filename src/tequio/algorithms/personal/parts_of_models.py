"""Models of which one part is everybody's and one each party's own: what FedPer, FedRep and FedBN share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tequio.algorithms.personal.averaging import only
from tequio.algorithms.personal.inference import by_model
from tequio.algorithms.training import job_from, party_weights
from tequio.errors import ConfigError
from tequio.federation.models import difference, shifted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.algorithms.training import Weights
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays, Job, Trained


def last_layers(model: Arrays, layers: int) -> tuple[str, ...]:
    """Parameters of the last layers; a layer is what shares a name up to its last dot."""
    names = list(dict.fromkeys(name.rpartition(".")[0] or name for name in model))
    if layers >= len(names):
        raise ConfigError(f"{layers} personal layers leave nothing to share: the model has {len(names)}",
                          remedy="set a smaller number of layers in the algorithm, or choose a deeper learner")
    kept = names[len(names) - layers:]
    return tuple(name for name in model if (name.rpartition(".")[0] or name) in kept)


def batch_normalisation(model: Arrays) -> tuple[str, ...]:
    """Parameters and running statistics of batch normalisation."""
    layers = {name.rpartition(".")[0] for name in model if name.endswith("running_mean")}
    if not layers:
        raise ConfigError("'fedbn' keeps batch normalisation at the parties, and this model has none",
                          remedy="choose a learner with batch normalisation, such as 'complex_cnn'")
    return tuple(name for name in model if name.rpartition(".")[0] in layers)


def whole(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Arrays:
    """The received model with the party's own part, if it has one."""
    own: Arrays = party.state.get("own_part", {})
    return {name: own.get(name, values) for name, values in payload["model"].items()}


def whole_job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    """Train all parameters."""
    return job_from(party, whole(party, payload, settings))


def keep_own_part(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    """Keep the private part and send how the shared one changed."""
    private = tuple(settings["private"])
    party.state["own_part"] = only(result.model, private)
    shared = {name: values for name, values in payload["model"].items() if name not in private}
    return {"update": difference(result.model, shared), "rows": result.rows, "steps": result.steps,
            "loss": result.loss}


def average_shared(algorithm: Algorithm, federation: Federation, state: State, replies: Replies,
                   private: tuple[str, ...], weights: Weights) -> State:
    """The mean of the shared part; the private part of the global model stays as it began, for newcomers."""
    if not replies:
        return state
    shared = {name: values for name, values in state.model.items() if name not in private}
    mean = algorithm.aggregate(federation, replace(state, model=shared), replies,
                               weights=party_weights(replies, weights))
    return state.next({**state.model, **shifted(shared, mean.update)}, aggregator=mean.memory)


INFERENCE = by_model("own part", whole)
"""Parties answer with the shared part and their own."""
