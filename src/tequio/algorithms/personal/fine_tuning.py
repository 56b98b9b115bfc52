"""Local fine-tuning: federated averaging, and every party trains the global model on before it uses it.

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage: Federated evaluation of on-device personalization, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.personal.averaging import Personal, averaged, collected, with_epochs
from tequio.algorithms.personal.inference import by_model
from tequio.algorithms.training import Weights, job_from, local_training, train
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays


@register("algorithm", "fine-tuning", paper="Wang et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FineTuning(Personal):
    """Federated averaging; each party answers with the global model after some epochs on its own rows.

    Parameters:
        epochs: epochs of fine-tuning before a party answers
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    epochs: Annotated[int, Ge(1)] = 1
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By a model that is tuned each time and not kept."""
        return _INFERENCE

    def told(self, part: str = "test") -> dict[str, Any]:
        """With the training of the tuning."""
        tuning = replace(with_epochs(self.parts.local, self.epochs), optimizer_memory="fresh")
        return {**super().told(part), "local": tuning}

    def round(self, federation: Federation, state: State) -> State:
        """One round of federated averaging."""
        chosen, replies = collected(self, federation, state, train)
        return averaged(self, federation, state, chosen, replies, self.weights)


def tuned(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Arrays:
    """The received model after training on the party's rows."""
    job, local = job_from(party, payload["model"], purpose="tune"), local_training(party, settings)
    model: Arrays = settings["learner"].train(job.model, job.data, local, job.rng,
                                              learning_rate=local.rate(party.round)).model
    return model


_INFERENCE = by_model("fine-tuning", tuned)
