"""q-FedAvg: more weight for parties that the model serves badly.

Li, Sanjabi, Beirami, Smith: Fair resource allocation in federated learning, ICLR 2020.

The objective is the mean of F_k^(q+1) / (q+1), F_k being party k's loss. With L = 1 / learning rate and u_k the party's
change, the coordinator moves by sum of L F_k^q u_k over sum of h_k, h_k = q F_k^(q-1) L^2 |u_k|^2 + L F_k^q being a
bound on how much party k's term can bend. With q = 0 this is federated averaging.

The paper draws parties by their size and then weighs them alike; as elsewhere in this family the selector draws, and
both sums are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from tequio.algorithms.horizontal.fair import train_telling_loss
from tequio.algorithms.training import Weights, fresh_state, party_weights, training_settings
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted, squared_norm
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.replies import Replies

_SMALLEST_LOSS = 1e-10


@register("algorithm", "q-fedavg", paper="Li et al., 2020")
@dataclass(frozen=True, kw_only=True)
class QFedAvg(Algorithm):
    """Federated averaging in which parties with a high loss count more.

    Parameters:
        q: how much more: a party's weight goes with the q-th power of its loss (0: federated averaging)
        lipschitz: the constant L, how fast gradients change (0: one over the learning rate of the round)
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    q: Annotated[float, Ge(0)] = 1.0
    lipschitz: Annotated[float, Ge(0)] = 0.0
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average by loss, and take a step as long as the losses' bend allows."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train_telling_loss, {"model": state.model},
                                 settings=training_settings(self), stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        losses = np.maximum(replies.values("received_loss").astype(np.float64), _SMALLEST_LOSS)
        sizes = party_weights(replies, self.weights)
        sizes = np.ones(len(replies)) if sizes is None else sizes / sizes.sum()
        mean = self.aggregate(federation, state, replies, weights=sizes * losses ** self.q)
        length = self._length(replies, losses, sizes, self.lipschitz or 1 / self.parts.local.rate(federation.round))
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update, length), mean)

    def _length(self, replies: Replies, losses: NDArray[np.float64], sizes: NDArray[np.float64],
                lipschitz: float) -> float:
        """What the mean change is multiplied with: sum of L F^q over sum of h."""
        if not self.q:
            return 1.0
        squares = np.array([squared_norm(payload["update"]) for payload in replies.payloads])
        straight = lipschitz * losses ** self.q
        bent = self.q * losses ** (self.q - 1) * lipschitz ** 2 * squares
        return float(np.sum(sizes * straight) / np.sum(sizes * (bent + straight)))
