"""Fairness among parties: more weight for those that the model serves badly.

q-FedAvg. Li, Sanjabi, Beirami, Smith: Fair resource allocation in federated learning, ICLR 2020. The objective is the
mean of F_k^(q+1) / (q+1), F_k being party k's loss. With L = 1 / learning rate and u_k the party's change, the
coordinator moves by sum of L F_k^q u_k over sum of h_k, h_k = q F_k^(q-1) L^2 |u_k|^2 + L F_k^q being a bound on how
much party k's term can bend. With q = 0 this is federated averaging. The paper draws parties by their size and then
weighs them alike; as elsewhere in this family the selector draws, and both sums are weighted.

Agnostic. Mohri, Sivek, Suresh: Agnostic federated learning, ICML 2019. The coordinator keeps a mixture of domains, at
first by their rows. In a round the model steps down along the mixture of the parties' changes, and the mixture steps up
along the losses that they report, back onto the simplex. A domain is a party, or a category of parties. The paper asks
every domain in every round; where only some are chosen, the mixture of those that answered is used, and only theirs
moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from tequio.algorithms.training import Phase, UpdateReply, received_job, training_task, update_of
from tequio.federation.aggregation import squared_norm
from tequio.federation.averaging import Averaging, Weights, averaging_round, weights_by
from tequio.federation.task import TrainSettings
from tequio.learners.metrics import LARGEST_SUM
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.training import ModelPayload
    from tequio.federation.algorithm import State
    from tequio.federation.averaging import Averaged
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays, Trained

_SMALLEST_LOSS = 1e-10
_LEAST_WEIGHT = 1e-9


class FairReply(UpdateReply):
    """How the model changed, and the received model's mean loss on the party's rows."""

    received_loss: float


def _reply(party: Party, payload: ModelPayload, result: Trained, settings: TrainSettings) -> FairReply:
    tally = settings.learner.evaluate(payload["model"], party.data.train)
    return {**update_of(party, payload["model"], result, settings.learner),
            "received_loss": tally["loss_sum"] / tally["rows"]}


train_telling_loss = training_task("fair.train", TrainSettings, FairReply, Phase(received_job, _reply))
"""Train the received model, and reply with the change and the received model's mean loss on the party's rows."""


@register("algorithm", "q-fedavg", paper="Li et al., 2020")
@dataclass(frozen=True, kw_only=True)
class QFedAvg(Averaging):
    """Federated averaging in which parties with a high loss count more.

    Parameters:
        q: how much more: a party's weight goes with the q-th power of its loss (0: federated averaging)
        lipschitz: the constant L, how fast gradients change (0: one over the learning rate of the round)
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    sums_only: ClassVar[bool] = False

    q: Annotated[float, Ge(0)] = 1.0
    lipschitz: Annotated[float, Ge(0)] = 0.0
    weights: Weights = "size"

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average by loss, and take a step as long as the losses' bend allows."""
        return averaging_round(self, federation, state, train_telling_loss,
                               TrainSettings(learner=self.learner, local=self.local),
                               weights=lambda replies: self._sizes(replies) * self._losses(replies) ** self.q,
                               step=self.step)

    def step(self, averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        """The mean change times sum of L F^q over sum of h."""
        if not self.q:
            return averaged.following(), {}
        replies, lipschitz = averaged.replies, self.lipschitz or 1 / self.local.rate(averaged.round)
        losses, sizes = self._losses(replies), self._sizes(replies)
        squares = np.array([squared_norm(payload["update"]) for payload in replies.payloads])
        straight = lipschitz * losses ** self.q
        bent = self.q * losses ** (self.q - 1) * lipschitz ** 2 * squares
        return averaged.following(float(np.sum(sizes * straight) / np.sum(sizes * (bent + straight)))), {}

    def _losses(self, replies: Replies[Any]) -> NDArray[np.float64]:
        return np.maximum(replies.values("received_loss").astype(np.float64), _SMALLEST_LOSS)

    def _sizes(self, replies: Replies[Any]) -> NDArray[np.float64]:
        sizes = weights_by(self.weights, replies)
        shares: NDArray[np.float64] = sizes / sizes.sum() if self.weights == "size" else sizes
        return shares


@register("algorithm", "agnostic", paper="Mohri et al., 2019")
@dataclass(frozen=True, kw_only=True)
class Agnostic(Averaging):
    """Federated averaging with weights that follow the worst-served parties or categories.

    Parameters:
        mixture_rate: how far the mixture moves along the losses in a round
        domains: each party counts for itself, or each category of the partition as a whole
    """

    mixture_rate: Annotated[float, Gt(0)] = 0.1
    domains: Literal["party", "category"] = "party"

    def start(self, federation: Federation) -> State:
        """A fresh model, and domains by their rows."""
        rows = np.bincount(self._domains(federation), weights=federation.sizes)
        return super().start(federation).next(mixture=rows / rows.sum())

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average by the mixture; then the mixture moves towards those with high losses."""
        mixture = state.memory["mixture"]

        def weights(replies: Replies[Any]) -> NDArray[np.float64]:
            domains, shares = self._shares(federation, replies)
            found: NDArray[np.float64] = np.maximum(mixture[domains], _LEAST_WEIGHT) * shares
            return found

        def step(averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
            domains, shares = self._shares(federation, averaged.replies)
            losses = np.zeros(len(mixture))
            np.add.at(losses, domains, shares * averaged.replies.values("received_loss"))
            return averaged.following(), {"mixture": self._moved(mixture, losses, np.unique(domains))}

        return averaging_round(self, federation, state, train_telling_loss,
                               TrainSettings(learner=self.learner, local=self.local), weights=weights, step=step)

    def _domains(self, federation: Federation) -> NDArray[np.int64]:
        return federation.groups if self.domains == "category" else federation.everyone()

    def _shares(self, federation: Federation, replies: Replies[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Each reply's domain, and its share of that domain's rows."""
        domains, rows = self._domains(federation)[replies.parties], replies.values("rows").astype(np.float64)
        return domains, rows / np.bincount(domains, weights=rows)[domains]

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
    kept = np.flatnonzero(falling > excess)
    if not len(kept):  # beside such numbers the total is lost; moving all of them alike does not move the nearest point
        return on_simplex(np.minimum(values, LARGEST_SUM) - min(falling[0], LARGEST_SUM), total)
    nearest: NDArray[np.float64] = np.maximum(values - excess[kept[-1]], 0.0)
    return nearest
