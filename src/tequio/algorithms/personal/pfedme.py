"""pFedMe: personal models by Moreau envelopes.

Dinh, Tran, Nguyen: Personalized federated learning with Moreau envelopes, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from tequio.algorithms.personal.averaging import Personal, averaged, collected
from tequio.algorithms.personal.gradient_steps import batches, require_plain_sgd, training_rows
from tequio.algorithms.personal.inference import by_model, own_or_received
from tequio.algorithms.training import Weights, fresh_state, local_training, require_gradients, training_settings
from tequio.federation.models import difference, shifted
from tequio.federation.task import task
from tequio.learners.learner import Correction
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


@register("algorithm", "pfedme", paper="Dinh et al., 2020")
@dataclass(frozen=True, kw_only=True)
class PFedMe(Personal):
    """Each batch gives a personal model near the party's copy of the global one, which then moves towards it.

    Parameters:
        pull: strength lambda of the tie between personal model and copy
        personal_steps: gradient steps K on each batch to find the personal model
        personal_rate: step size of these steps (0: that of `local`)
        coordinator_rate: how far beta the coordinator follows the mean copy
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    sums_only = True

    pull: Annotated[float, Gt(0)] = 15.0
    personal_steps: Annotated[int, Ge(1)] = 5
    personal_rate: Annotated[float, Ge(0)] = 0.0
    coordinator_rate: Annotated[float, Gt(0)] = 1.0
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the personal model."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_gradients(self, "pfedme")
        require_plain_sgd(self.parts.local, "pfedme")
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train copies by their personal models; follow the mean copy."""
        chosen, replies = collected(self, federation, state, train_envelope, **self._ties())
        return averaged(self, federation, state, chosen, replies, self.weights, self.coordinator_rate)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once."""
        federation.ask(parties, train_envelope, {"model": state.model},
                       settings=training_settings(self, **self._ties()))

    def _ties(self) -> dict[str, float]:
        return {"pull": self.pull, "personal_steps": self.personal_steps, "personal_rate": self.personal_rate}


@task("pfedme.train")
def train_envelope(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """For each batch: find the personal model near the copy, then move the copy towards it."""
    local, rows, pull = local_training(party, settings), training_rows(party), settings["pull"]
    rate = local.rate(party.round)
    near = replace(local, steps=settings["personal_steps"], batch=0, shuffle=False)
    copy, personal, loss, steps = payload["model"], None, float("nan"), 0
    for batch in batches(rows, local, party.rng("train")):
        found = settings["learner"].train(copy, batch, near, party.rng("personal"),
                                          learning_rate=settings["personal_rate"] or rate,
                                          correction=Correction(pull=pull, anchor=copy))
        personal, loss, steps = found.model, found.loss, steps + 1
        copy = shifted(copy, difference(copy, personal), -rate * pull)
    if personal is not None:
        party.state["own_model"] = personal
    return {"update": difference(copy, payload["model"]), "rows": len(rows), "steps": steps, "loss": loss}


_INFERENCE = by_model("pfedme", own_or_received)
