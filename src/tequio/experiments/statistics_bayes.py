"""The Bayesian signed-rank test: how probable it is that one method is better than another, rather than a p-value.

Benavoli, Corani, Demšar, Zaffalon: Time for a change: a tutorial for comparing multiple classifiers through Bayesian
analysis, JMLR 2017; the prior is a Dirichlet process with one pseudo-observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PRIOR_STRENGTH = 0.5
SAMPLES = 20_000
_MOST_NUMBERS = 5_000_000


@dataclass(frozen=True)
class Belief:
    """Probabilities that the first method is better, that both are practically alike, and that the second is better."""

    first: float
    alike: float
    second: float


def draw_weights(rows: int, rng: np.random.Generator, *, samples: int = SAMPLES,
                 prior: float = PRIOR_STRENGTH) -> NDArray[np.float64]:
    """Weights of the prior's observation and of so many rows, from their posterior: a Dirichlet distribution.

    All pairs of methods on the same rows share them. Of very many rows fewer samples are drawn.
    """
    strengths = np.ones(rows + 1)
    strengths[0] = prior
    return rng.dirichlet(strengths, max(1, min(samples, _MOST_NUMBERS // (rows + 1))))


def bayesian_signed_rank(differences: ArrayLike, rope: float, weights: NDArray[np.float64]) -> Belief:
    """What differences (first minus second, a row each; more is better) say about the two methods.

    Differences of at most `rope` are of no practical importance. Each draw of weights for the observed differences, and
    for one of zero that stands for the prior, gives the chances that the mean of two differences lies left of, inside,
    or right of the region of no importance. The belief in a region is the share of draws in which it has the largest of
    the three chances.
    """
    observed = np.concatenate([[0.0], np.asarray(differences, dtype=np.float64)])
    sums = observed[:, None] + observed[None, :]
    worse, better = (sums < -2 * rope).astype(np.float64), (sums > 2 * rope).astype(np.float64)
    second = np.einsum("ij,ij->i", weights @ worse, weights)
    first = np.einsum("ij,ij->i", weights @ better, weights)
    shares = _largest(first, second) if rope == 0 else np.bincount(
        np.argmax(np.stack([first, 1 - first - second, second]), axis=0), minlength=3)
    return Belief(*(float(share) for share in shares / len(weights)))


def _largest(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without a region of no importance there are two sides; a draw that favours neither counts half for each."""
    even = (first == second).sum() / 2
    return np.array([(first > second).sum() + even, 0.0, (first < second).sum() + even])
