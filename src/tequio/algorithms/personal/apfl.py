"""APFL: each party mixes the global model with one of its own, and learns in which proportion.

Deng, Kamani, Mahdavi: Adaptive personalized federated learning, 2020.

Every local step moves the party's copy w of the global model along its own gradient, the personal model v along that of
the mixture, and the share along the inner product of (v - w) with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Interval

from tequio.algorithms.personal.averaging import Personal, averaged, collected
from tequio.algorithms.personal.gradient_steps import Descent, batches, training_rows
from tequio.algorithms.personal.inference import by_model
from tequio.algorithms.training import Weights, fresh_state, local_training, require_gradients, training_settings
from tequio.federation.models import difference, shifted
from tequio.federation.task import task
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays


_KEPT = ("optimizer memory of the copy", "optimizer memory of the own model")


@register("algorithm", "apfl", paper="Deng et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Apfl(Personal):
    """Each party answers with a mixture of the global model and its own, whose share it learns by gradient descent.

    Parameters:
        share: share alpha of the own model in the mixture at the start
        share_rate: step size of the share (0: it stays)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    share_rate: Annotated[float, Ge(0)] = 1e-4
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the mixture with the newest global model."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_gradients(self, "apfl")
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train both models; average the copies of the global one."""
        chosen, replies = collected(self, federation, state, train_mixture, share=self.share,
                                    share_rate=self.share_rate)
        return averaged(self, federation, state, chosen, replies, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once."""
        settings = training_settings(self, share=self.share, share_rate=self.share_rate)
        federation.ask(parties, train_mixture, {"model": state.model}, settings=settings)


@task("apfl.train")
def train_mixture(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Train the received model, the party's own and the share, in one pass over the batches."""
    learner, local, rows = settings["learner"], local_training(party, settings), training_rows(party)
    common: Arrays = payload["model"]
    own: Arrays = party.state.get("own_model", common)
    share, losses = float(party.state.get("share", settings["share"])), [float("nan")]
    keeps, rate = local.optimizer_memory == "kept", local.rate(party.round)
    down, own_down = (Descent(local, rate, party.state.get(name) if keeps else None) for name in _KEPT)
    for batch in batches(rows, local, party.rng("train")):
        gradient, loss = learner.gradient(common, batch)
        common = down.step(common, gradient)
        mixed_gradient, _ = learner.gradient(mixture(common, own, share), batch)
        own = own_down.step(own, {name: share * values for name, values in mixed_gradient.items()})
        along = sum(float(np.vdot(own[name] - common[name], values)) for name, values in mixed_gradient.items())
        share = float(np.clip(share - settings["share_rate"] * along, 0.0, 1.0))
        losses.append(loss)
    party.state["own_model"], party.state["share"] = own, share
    if keeps:
        party.state.update({name: descent.memory for name, descent in zip(_KEPT, (down, own_down), strict=True)})
    return {"update": difference(common, payload["model"]), "rows": len(rows), "steps": len(losses) - 1,
            "loss": float(np.mean(losses[1:])) if len(losses) > 1 else losses[0]}


def mixture(common: Arrays, own: Arrays, share: float) -> Arrays:
    """share * own + (1 - share) * common."""
    return shifted(common, difference(own, common), share)


def _mixture_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Arrays:
    own = party.state.get("own_model")
    return payload["model"] if own is None else mixture(payload["model"], own, float(party.state["share"]))


_INFERENCE = by_model("apfl", _mixture_here)
