"""Selectors: which parties take part in a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import ConfigError, QuorumError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload


@dataclass(frozen=True)
class Choice:
    """The parties of a round, and what the selector wants to remember for the next."""

    parties: NDArray[np.int64]
    memory: Payload = field(default_factory=dict)


@runtime_checkable
class Selector(Protocol):
    """Says which parties take part in a round. Its memory is handed in and out, so that it can be saved."""

    def choose(self, federation: Federation, eligible: NDArray[np.int64], memory: Payload,
               rng: np.random.Generator) -> Choice:
        """Some of the eligible parties, in any order."""
        ...


@register("selector", "all")
@dataclass(frozen=True)
class AllParties:
    """Every eligible party takes part in every round."""

    def choose(self, federation: Federation, eligible: NDArray[np.int64], memory: Payload,
               rng: np.random.Generator) -> Choice:
        """All of them."""
        return Choice(eligible)


@register("selector", "random", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class RandomParties:
    """A uniform random sample without replacement, of a given number or fraction of the parties.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
    """

    count: Annotated[int, Ge(0)] = 0
    fraction: Annotated[float, Interval(gt=0, le=1)] = 1.0

    def choose(self, federation: Federation, eligible: NDArray[np.int64], memory: Payload,
               rng: np.random.Generator) -> Choice:
        """Draw the cohort; the cost depends on the cohort, not on the population."""
        wanted = self.count or max(1, round(self.fraction * len(eligible)))
        if wanted > len(eligible):
            raise ConfigError(f"the selector wants {wanted} parties a round but only {len(eligible)} are eligible",
                              remedy="lower selector.count, or loosen the eligibility rules")
        return Choice(eligible[np.sort(rng.choice(len(eligible), size=wanted, replace=False, shuffle=False))])


@register("selector", "fixed")
@dataclass(frozen=True)
class FixedParties:
    """The same named parties in every round, as far as they are eligible.

    Parameters:
        parties: names of the parties
    """

    parties: tuple[str, ...] = ()

    def choose(self, federation: Federation, eligible: NDArray[np.int64], memory: Payload,
               rng: np.random.Generator) -> Choice:
        """The listed ones."""
        wanted = np.array([federation.index(name) for name in self.parties], dtype=np.int64)
        chosen = np.intersect1d(wanted, eligible)
        if not len(chosen):
            raise QuorumError("none of the parties that the selector names is eligible",
                              remedy="name other parties in selector.parties, or loosen the eligibility rules")
        return Choice(chosen)


