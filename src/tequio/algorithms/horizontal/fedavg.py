"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval

from tequio.algorithms.training import train
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.replies import Replies


@register("algorithm", "fedavg", paper="McMahan et al., 2017")
@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm):
    """Parties train the model they received; the coordinator takes the mean of their changes.

    Parameters:
        weights: weigh each party by its number of rows (size), or all alike (uniform)
        mix: share of the global model in a party's next starting point; below 1 parties keep part of their own
    """

    weights: Literal["size", "uniform"] = "size"
    mix: Annotated[float, Interval(gt=0, le=1)] = 1.0

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return State(self.learner.initial(federation.schema, federation.rng("initial model")))

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train, {"model": state.model}, settings=self.settings(),
                                 stages=self.parts.stages)
        if not replies:
            return state.next(selector=chosen.memory)
        mean = self.aggregate(federation, state, replies, weights=party_weights(replies, self.weights))
        return state.next(shifted(state.model, mean.update), selector=chosen.memory, aggregator=mean.memory)

    def settings(self) -> dict[str, Any]:
        """What the parties need to know to train."""
        return {"learner": self.learner, "local": self.parts.local, "mix": self.mix}


def party_weights(replies: Replies, rule: str) -> NDArray[Any] | None:
    """Rows of each party, or nothing for equal weights."""
    return replies.values("rows") if rule == "size" else None
