"""Attacks on updates: turned round, drowned in noise, or never computed.

Blanchard et al., NeurIPS 2017 (turned and Gaussian updates); Fraboni, Vidal, Lorenzi: Free-rider attacks on model
aggregation in federated learning, AISTATS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt

from tequio.attacks.attack import Attack
from tequio.federation.algorithm import Attacked
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np

    from tequio.attacks.attack import Circumstances
    from tequio.learners.learner import Arrays


@register("attack", "sign-flip", paper="Blanchard et al., 2017")
@dataclass(frozen=True)
class SignFlip(Attack):
    """Send the update with the opposite sign.

    Parameters:
        scale: what it is also multiplied by
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"updates"})

    scale: Annotated[float, Gt(0)] = 1.0

    def forge(self, update: Arrays, now: Circumstances, rng: np.random.Generator) -> Arrays:
        """Minus the update."""
        return scaled(update, -self.scale)


@register("attack", "mean", paper="Blanchard et al., 2017")
@dataclass(frozen=True)
class MeanAttack(Attack):
    """Send the update turned round and so long that a plain mean comes out near nought."""

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"updates"})

    def forge(self, update: Arrays, now: Circumstances, rng: np.random.Generator) -> Arrays:
        """Minus (N - m) / m times the update."""
        return scaled(update, -now.cancelling)


@register("attack", "gaussian", paper="Blanchard et al., 2017")
@dataclass(frozen=True)
class Gaussian(Attack):
    """Send Gaussian noise instead of the update.

    Parameters:
        deviation: standard deviation of every entry
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"updates"})

    deviation: Annotated[float, Gt(0)] = 1.0

    def forge(self, update: Arrays, now: Circumstances, rng: np.random.Generator) -> Arrays:
        """Nothing but noise."""
        return noise_like(update, self.deviation, rng)


@register("attack", "free-rider", paper="Fraboni et al., 2021")
@dataclass(frozen=True)
class FreeRider(Attack):
    """Send back the model as it came, disguised by noise that fades over the rounds.

    Parameters:
        deviation: standard deviation of the noise in the first round (0: no disguise)
        fading: the deviation falls with the round to the power of minus this
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"updates"})

    deviation: Annotated[float, Ge(0)] = 1e-3
    fading: Annotated[float, Ge(0)] = 1.0

    def forge(self, update: Arrays, now: Circumstances, rng: np.random.Generator) -> Arrays:
        """An update of noughts, or of fading noise."""
        return noise_like(update, self.deviation * max(now.round, 1) ** -self.fading, rng)


def scaled(update: Arrays, factor: float) -> Arrays:
    """The update times a factor, in its own types."""
    return {name: (values * factor).astype(values.dtype) for name, values in update.items()}


def noise_like(update: Arrays, deviation: float, rng: np.random.Generator) -> Arrays:
    """Gaussian noise of an update's shape."""
    return {name: (deviation * rng.standard_normal(values.shape)).astype(values.dtype)
            for name, values in update.items()}
