"""Aggregators that weigh a party by the direction of its updates: FoolsGold and FLTrust.

Fung, Yoon, Beschastnikh: The limitations of federated learning in Sybil settings, RAID 2020.
Cao, Fang, Liu, Gong: FLTrust: Byzantine-robust federated learning via trust bootstrapping, NDSS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt

from tequio.errors import ConfigError
from tequio.federation.aggregation import Aggregator, Combined, flatten, zeros
from tequio.federation.aggregators.distances import as_update, combination, gram
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Updates
    from tequio.federation.payload import Payload

_MOST_TRUST = 0.99


@register("aggregator", "foolsgold", paper="Fung et al., 2020")
@dataclass(frozen=True)
class FoolsGold(Aggregator):
    """Parties whose updates have so far pointed the same way as another's count less: Sybils share one purpose.

    Parameters:
        confidence: how sharply the weights are pushed towards 0 and 1
    """

    confidence: Annotated[float, Gt(0)] = 1.0

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Compare the sums of all that each party has sent; the mean goes by how unlike the others a party is."""
        matrix = updates.matrix()
        history = _with_history(updates, matrix, memory)
        trust = self._trust(gram(history["sums"][_places(history["parties"], updates.parties)]))
        shares = trust / trust.sum()
        notes = {"parties": updates.parties.tolist(), "trust": trust.tolist()}
        return Combined(as_update(combination(matrix, shares), updates), history, notes)

    def _trust(self, products: NDArray[np.float64]) -> NDArray[np.float64]:
        norms = np.sqrt(np.maximum(products.diagonal(), np.finfo(float).tiny))
        likeness = products / norms[:, None] / norms[None, :]
        np.fill_diagonal(likeness, 0.0)
        closest = likeness.max(axis=1)
        # Pardon honest parties that merely resemble a Sybil, who resembles another one more.
        pardon = np.minimum(1.0, closest[:, None] / np.where(closest > 0, closest, np.inf)[None, :])
        likeness *= np.where(closest[:, None] < closest[None, :], pardon, 1.0)
        unlike = np.clip(1.0 - likeness.max(axis=1), 0, 1)
        if not unlike.max() > np.sqrt(np.finfo(float).eps):
            return np.ones(len(unlike))  # all alike: nobody stands out, and somebody has to count
        unlike = np.minimum(unlike / unlike.max(), _MOST_TRUST)
        with np.errstate(divide="ignore"):
            pushed = self.confidence * (np.log(unlike / (1.0 - unlike)) + 0.5)
        trust: NDArray[np.float64] = np.clip(pushed, 0.0, 1.0)
        return trust


def _with_history(updates: Updates, matrix: NDArray[np.float64], memory: Payload) -> Payload:
    """The sum of all updates of each party ever seen, in order of party."""
    known = memory.get("parties", np.empty(0, dtype=np.int64))
    parties = np.union1d(known, updates.parties)
    if not len(known) and np.array_equal(parties, updates.parties):
        return {"parties": parties, "sums": matrix.astype(np.float64)}
    sums = np.zeros((len(parties), matrix.shape[1]))
    if len(known):
        sums[_places(parties, known)] = memory["sums"]
    sums[_places(parties, updates.parties)] += matrix
    return {"parties": parties, "sums": sums}


def _places(parties: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Where some parties are among all, in order; for all of them a slice, which copies nothing."""
    return slice(None) if np.array_equal(parties, some) else np.searchsorted(parties, some)


@register("aggregator", "fltrust", paper="Cao et al., 2021")
@dataclass(frozen=True)
class FLTrust(Aggregator):
    """Updates count as far as they point where the coordinator's own does, which it trains on a few rows of its own.

    The rows are set aside before the parties get theirs.

    Parameters:
        root_rows: how many rows the coordinator holds
    """

    root_rows: Annotated[int, Ge(1)] = 100

    @property
    def coordinator_rows(self) -> int:
        """As many as are set."""
        return self.root_rows

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Scale each update to the length of the coordinator's; weigh it by the cosine with it, where positive."""
        if updates.root is None:
            raise ConfigError("the aggregator 'fltrust' compares updates with one of the coordinator's own, and this "
                              "algorithm gives it none", remedy="use an algorithm that trains a model, such as fedavg")
        matrix, root = updates.matrix(), flatten(updates.root)
        length = np.sqrt(root @ root)
        norms = np.array([np.sqrt(np.dot(row, row)) for row in matrix], dtype=np.float64)
        divisors = np.maximum(norms * length, np.finfo(float).tiny)
        trust = np.clip((matrix @ root) / divisors, 0.0, 1.0)
        notes = {"parties": updates.parties.tolist(), "trust": trust.tolist()}
        if not trust.sum() > 0:
            return Combined(zeros(updates.arrays[0]), notes=notes)
        shares = trust / trust.sum() * length / np.maximum(norms, np.finfo(float).tiny)
        return Combined(as_update(combination(matrix, shares), updates), notes=notes)
