"""Per-FedAvg: a global model from which one step on a party's own rows leads to a good personal one.

Fallah, Mokhtari, Ozdaglar: Personalized federated learning with theoretical guarantees: a model-agnostic meta-learning
approach, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt

from tequio.algorithms.personal.averaging import Personal, averaged, collected
from tequio.algorithms.personal.gradient_steps import batches, require_plain_sgd, training_rows
from tequio.algorithms.personal.inference import by_model
from tequio.algorithms.training import Weights, fresh_state, local_training, require_gradients
from tequio.federation.models import difference, shifted
from tequio.federation.task import task
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.dataset import Dataset
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

_NUDGE = 1e-2
"""Length of the step by which the Hessian-free form feels the curvature, in units of the gradient's length."""


@register("algorithm", "per-fedavg", paper="Fallah et al., 2020")
@dataclass(frozen=True, kw_only=True)
class PerFedAvg(Personal):
    """Learns a global model that adapts well: parties answer with it after a few gradient steps on their own rows.

    Parameters:
        adapt_rate: step size alpha of an adaptation step
        adapt_steps: adaptation steps, on all of a party's rows, before it answers
        form: leave out second derivatives (first-order), or take them by differences of gradients (hessian-free)
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    sums_only = True

    adapt_rate: Annotated[float, Gt(0)] = 0.01
    adapt_steps: Annotated[int, Ge(1)] = 1
    form: Literal["first-order", "hessian-free"] = "first-order"
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the adapted model."""
        return _INFERENCE

    def told(self, part: str = "test") -> dict[str, Any]:
        """With how to adapt."""
        return {**super().told(part), "adapt_rate": self.adapt_rate, "adapt_steps": self.adapt_steps}

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_gradients(self, "per-fedavg")
        require_plain_sgd(self.parts.local, "per-fedavg")
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Meta-steps at the parties; the mean of their changes."""
        chosen, replies = collected(self, federation, state, train_to_adapt, adapt_rate=self.adapt_rate, form=self.form)
        return averaged(self, federation, state, chosen, replies, self.weights)


@task("per-fedavg.train")
def train_to_adapt(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Each step adapts on one batch and takes the gradient of the adapted model on the next."""
    local, rows, learner = local_training(party, settings), training_rows(party), settings["learner"]
    rate, model, losses = local.rate(party.round), payload["model"], [float("nan")]
    per_step = 3 if settings["form"] == "hessian-free" else 2
    drawn: list[Dataset] = list(batches(rows, local, party.rng("train")))
    for start in range(0, max(len(drawn) - per_step + 1, min(len(drawn), 1)), per_step):
        some = [drawn[(start + place) % len(drawn)] for place in range(per_step)]
        gradient, loss = _meta_gradient(learner, model, some, settings["adapt_rate"])
        model = shifted(model, gradient, -rate)
        losses.append(loss)
    return {"update": difference(model, payload["model"]), "rows": len(rows), "steps": len(losses) - 1,
            "loss": float(np.mean(losses[1:])) if len(losses) > 1 else losses[0]}


def _meta_gradient(learner: Any, model: Arrays, some: list[Dataset], rate: float) -> tuple[Arrays, float]:
    """(I - alpha H) g, where g is the gradient after adaptation; the first-order form leaves out H."""
    first, _ = learner.gradient(model, some[0])
    gradient, loss = learner.gradient(shifted(model, first, -rate), some[1])
    if len(some) < 3:
        return gradient, loss
    length = np.sqrt(sum(float(np.vdot(values, values)) for values in gradient.values()))
    nudge = _NUDGE / max(length, 1e-12)
    ahead, behind = (learner.gradient(shifted(model, gradient, sign * nudge), some[2])[0] for sign in (1, -1))
    curved = {name: (ahead[name] - behind[name]) / (2 * nudge) for name in gradient}
    return shifted(gradient, curved, -rate), loss


def adapted(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Arrays:
    """The received model after a few gradient steps on all of the party's training rows."""
    model: Arrays = payload["model"]
    for _ in range(settings["adapt_steps"] if len(party.data.train) else 0):
        model = shifted(model, settings["learner"].gradient(model, party.data.train)[0], -settings["adapt_rate"])
    return model


_INFERENCE = by_model("per-fedavg", adapted)
