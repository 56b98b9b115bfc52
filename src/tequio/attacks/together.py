"""Attacks of parties that know all updates of the round: inner-product manipulation, a little is enough, Sybils.

Xie, Koyejo, Gupta: Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation, UAI 2019.
Baruch, Baruch, Goldberg: A little is enough: circumventing defenses for distributed learning, NeurIPS 2019.
Fung, Yoon, Beschastnikh: The limitations of federated learning in Sybil settings, RAID 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from tequio.attacks.attack import Attack
from tequio.attacks.rows import class_count, with_values
from tequio.attacks.updates import noise_like, scaled
from tequio.errors import ConfigError
from tequio.federation.aggregation import shifted, squared_norm, weighted_mean
from tequio.federation.algorithm import Attacked
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.attacks.attack import Circumstances
    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Arrays


_USUAL_DEVIATIONS = 1.5
"""What the paper's strength comes to with 24 of 51 parties hostile, its own experiment."""


@register("attack", "inner-product", paper="Xie et al., 2019")
@dataclass(frozen=True)
class InnerProduct(Attack):
    """Send the honest parties' mean turned round, which leads the aggregate uphill.

    Parameters:
        scale: length of what is sent, in lengths of the honest mean
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"cohort"})

    scale: Annotated[float, Gt(0)] = 0.5

    def conspire(self, hostile: Sequence[Arrays], honest: Sequence[Arrays], now: Circumstances,
                 rng: np.random.Generator) -> Sequence[Arrays]:
        """Everyone sends the same."""
        known = honest or hostile
        return [scaled(weighted_mean(known, np.ones(len(known))), -self.scale)] * len(hostile)


@register("attack", "alie", paper="Baruch et al., 2019")
@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """Shift every coordinate by as many deviations as still hide among the honest parties' values.

    Parameters:
        deviations: how far: a number, the most that still wins a majority vote with a few honest parties (paper: 0
            where few parties are hostile, and then refused), or that and 1.5 where it is 0 (auto)
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"cohort"})

    deviations: Literal["auto", "paper"] | Annotated[float, Gt(0)] = "auto"

    def check(self, now: Circumstances) -> None:
        """The paper's own strength is 0 for small shares of hostile parties."""
        if not self._far(now.parties, now.hostile):
            raise ConfigError(f"attack.deviations = 'paper' is 0 with {now.hostile} of {now.parties} parties "
                              "hostile, so that the attack would do nothing",
                              remedy=f"set attack.deviations = 1.5, or attack.fraction = "
                                     f"{_smallest_share(now.parties):.2f}")

    def _far(self, parties: int, hostile: int) -> float:
        if not isinstance(self.deviations, str):
            return self.deviations
        return hiding_deviations(parties, hostile) or (_USUAL_DEVIATIONS if self.deviations == "auto" else 0.0)

    def conspire(self, hostile: Sequence[Arrays], honest: Sequence[Arrays], now: Circumstances,
                 rng: np.random.Generator) -> Sequence[Arrays]:
        """The mean minus so many standard deviations of the updates that the attackers know."""
        known = honest or hostile
        far = self._far(len(hostile) + len(honest), len(hostile))
        mean = weighted_mean(known, np.ones(len(known)))
        spread = {name: np.std([update[name] for update in known], axis=0) for name in mean}
        return [shifted(mean, spread, -far)] * len(hostile)


def hiding_deviations(parties: int, hostile: int) -> float:
    """z_max of the paper: the quantile at which enough honest parties lie farther out for a majority."""
    supporters = parties // 2 + 1 - hostile
    share = (parties - hostile - supporters) / max(parties - hostile, 1)
    return NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6))


def _smallest_share(parties: int) -> float:
    """Of hostile parties, from which on the paper's strength is above 0."""
    return next((hostile / parties for hostile in range(1, parties) if hiding_deviations(parties, hostile) > 0), 0.5)


@register("attack", "sybils", paper="Fung et al., 2020")
@dataclass(frozen=True)
class Sybils(Attack):
    """One attacker under several names: all call one class another and send copies of one update.

    Parameters:
        source: number of the class that is mislabelled
        target: number of the class that it is called
        disguise: length of the noise on each copy, in lengths of the update
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"rows", "cohort"})

    source: Annotated[int, Ge(0)] = 1
    target: Annotated[int, Ge(0)] = 0
    disguise: Annotated[float, Ge(0)] = 0.01

    def check(self, now: Circumstances) -> None:
        """A class that is called by its own name is no attack."""
        if self.source == self.target:
            raise ConfigError(f"attack.source and attack.target are both {self.source}, so that no row would be "
                              "mislabelled", remedy="set attack.target to another class")

    def poison(self, rows: Dataset, rng: np.random.Generator) -> Dataset:
        """Rows of the one class with the other's label."""
        class_count(rows)
        return with_values(rows, rows.features, np.where(rows.target == self.source, self.target, rows.target))

    def conspire(self, hostile: Sequence[Arrays], honest: Sequence[Arrays], now: Circumstances,
                 rng: np.random.Generator) -> Sequence[Arrays]:
        """Copies of the first one's update, each a little different."""
        first, size = hostile[0], sum(values.size for values in hostile[0].values())
        deviation = self.disguise * (squared_norm(first) / max(size, 1)) ** 0.5
        return [shifted(first, noise_like(first, deviation, rng)) for _ in hostile]
