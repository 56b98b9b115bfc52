"""Agnostic federated learning: the model that is best for the worst mixture of parties.

Mohri, Sivek, Suresh: Agnostic federated learning, ICML 2019.

The coordinator keeps a mixture of domains, at first by their rows. In a round the model steps down along the mixture of
the parties' changes, and the mixture steps up along the losses that they report, back onto the simplex. A domain is a
party, or a category of parties. The paper asks every domain in every round; where only some are chosen, the mixture of
those that answered is used, and only theirs moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Gt

from tequio.algorithms.horizontal.fair import train_telling_loss
from tequio.algorithms.training import fresh_state, training_settings
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation

_LEAST_WEIGHT = 1e-9


@register("algorithm", "agnostic", paper="Mohri et al., 2019")
@dataclass(frozen=True, kw_only=True)
class Agnostic(Algorithm):
    """Federated averaging with weights that follow the worst-served parties or categories.

    Parameters:
        mixture_rate: how far the mixture moves along the losses in a round
        domains: each party counts for itself, or each category of the partition as a whole
    """

    sums_only = True

    mixture_rate: Annotated[float, Gt(0)] = 0.1
    domains: Literal["party", "category"] = "party"

    def start(self, federation: Federation) -> State:
        """A fresh model, and domains by their rows."""
        rows = np.bincount(self._domains(federation), weights=federation.sizes)
        return fresh_state(self, federation, mixture=rows / rows.sum())

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average by the mixture; then the mixture moves towards those with high losses."""
        chosen, mixture = self.select(federation, state), state.memory["mixture"]
        replies = federation.ask(chosen.parties, train_telling_loss, {"model": state.model},
                                 settings=training_settings(self), stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        domains, rows = self._domains(federation)[replies.parties], replies.values("rows").astype(np.float64)
        shares = rows / np.bincount(domains, weights=rows)[domains]
        mean = self.aggregate(federation, state, replies,
                              weights=np.maximum(mixture[domains], _LEAST_WEIGHT) * shares)
        losses = np.zeros(len(mixture))
        np.add.at(losses, domains, shares * replies.values("received_loss"))
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update), mean,
                             mixture=self._moved(mixture, losses, np.unique(domains)))

    def _domains(self, federation: Federation) -> NDArray[np.int64]:
        return federation.groups if self.domains == "category" else federation.everyone()

    def _moved(self, mixture: NDArray[np.float64], losses: NDArray[np.float64],
               heard: NDArray[np.int64]) -> NDArray[np.float64]:
        """One step up for the domains that were heard; together they keep the weight that they had."""
        moved, weight = mixture.copy(), mixture[heard].sum()
        moved[heard] = on_simplex(mixture[heard] + self.mixture_rate * losses[heard], weight)
        return moved


def on_simplex(values: NDArray[np.float64], total: float = 1.0) -> NDArray[np.float64]:
    """The nearest point whose entries are not negative and sum to `total` (Duchi et al., 2008)."""
    if total <= 0:
        return np.zeros_like(values)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    nearest: NDArray[np.float64] = np.maximum(values - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return nearest
