"""How many parties, and which: what selectors that draw or rank share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.selection import Turn

Count = Annotated[int, Ge(0)]
Fraction = Annotated[float, Interval(gt=0, le=1)]
Share = Annotated[float, Interval(ge=0, le=1)]


def cohort_size(turn: Turn, count: int, fraction: float) -> int:
    """How many parties to choose: the count, or (0) a fraction of all; as many as there are where some are away."""
    most = len(turn.federation.eligible())
    if count > most:
        raise ConfigError(f"the selector wants {count} parties a round but only {most} are eligible",
                          remedy="lower selector.count, or loosen the eligibility rules")
    return min(count or max(1, round(fraction * most)), len(turn.eligible))


def draw_by_weight(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places drawn one after another without replacement, each with chances in proportion to exp(log weight).

    A log weight of minus infinity is never drawn while there are others. The largest of the log weights after adding
    Gumbel noise are such a draw, and never overflow.
    """
    keys = np.asarray(log_weights, dtype=np.float64) + rng.gumbel(size=np.shape(log_weights))
    return top_places(keys, count, rng)


def top_places(values: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places of the largest values, in ascending order; ties are broken at random."""
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    shuffled = rng.permutation(len(values))
    best = np.argpartition(-values[shuffled], min(count, len(values)) - 1)[:count]
    return np.sort(shuffled[best])


def known_values(turn: Turn, name: str, unknown: float) -> NDArray[np.float64]:
    """A number for every party of the federation from the selector's memory; `unknown` before anything is known."""
    kept = turn.memory.get(name)
    return np.full(len(turn.federation), unknown) if kept is None else np.array(kept, dtype=np.float64)
