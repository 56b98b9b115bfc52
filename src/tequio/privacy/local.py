"""Differential privacy by noise that parties add themselves: all of it (local), or a share of it (distributed).

Local: Dwork, McSherry, Nissim, Smith: Calibrating noise to sensitivity in private data analysis, TCC 2006 (Laplace).
Truex, Liu, Chow, Gursoy, Wei: LDP-Fed: federated learning with local differential privacy, EdgeSys 2020. Neighbours are
any two data sets that a party might hold: its clipped update may then turn round, which is twice the clip. A party pays
for the rounds in which it answers; being drawn hides nobody, because the coordinator knows who was.

Distributed: Agarwal, Kairouz, Liu: The Skellam mechanism for differentially private federated learning, NeurIPS 2021.
Kairouz, Liu, Steinke: The distributed discrete Gaussian mechanism for federated learning with secure aggregation, ICML
2021. Updates and noise are whole numbers of steps of one grid, which the hidden sum adds up without any rounding.
Skellam noise is the difference of two Poisson numbers, and the sum of independent ones is one of their variances' sum:
what is known about the sum does not rest on an approximation. The coordinator need not be trusted with the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, log2, sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.federation.aggregation import flatten
from tequio.federation.stages import NoisePlace, SumCapacity
from tequio.noise.grid import SLACK, conditional_length, rounded_conditionally, step_for
from tequio.noise.sampling import rounded_gaussian, rounded_laplace, skellam
from tequio.privacy.accounting import Accountant, Release, Spent
from tequio.privacy.mechanism import costliest
from tequio.privacy.noised_sum import ClippedUpdates
from tequio.privacy.noising import clipped, on_grid, release_coins, size_of
from tequio.privacy.updates import NoiseShare
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import Aggregated
    from tequio.learners.learner import Arrays
    from tequio.privacy.ledger import Context, Entry, Ledger

Shape = Literal["gaussian", "laplace"]
_REPLACED = 2.0


@register("stage", "local-dp", paper="Truex et al., 2020")
@dataclass(frozen=True)
class LocalDP(ClippedUpdates):
    """Clip each party's update and add Gaussian or Laplace noise to every entry, both at the party.

    Parameters:
        clip: largest length of a party's update, all its arrays together: Euclidean for Gaussian noise, the sum of
            absolute values for Laplace noise
        noise: standard deviation (Gaussian) or scale (Laplace) in units of `clip` (left out: as privacy.epsilon asks)
        shape: gaussian or laplace
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        expected: parties that a round expects (runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    shape: Shape = "gaussian"

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip and noise."""
        draw, order = (rounded_laplace, 1) if self.shape == "laplace" else (rounded_gaussian, 2)
        content, _ = clipped(payload, self.arrays, self.clip, order, kept=party.state)
        if not self.known_noise:
            return content
        coins = release_coins(party, "local noise", secret=self.secret)
        spread = self.known_noise * self.clip * SLACK
        step = step_for(spread, self.clip)
        return {**content, **{name: on_grid(content[name], step, draw(coins, spread / step, size_of(content[name])))
                              for name in self.arrays}}

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the parties that answered most often have spent."""
        return costliest(entries, lambda entry: Release(entry.noise / _REPLACED, self.shape))

    def capacity(self) -> SumCapacity | None:
        """None: a noised update may be rounded by what others do."""
        return None

    def objections(self, context: Context) -> list[str]:
        """None: whatever is made of a noised update is as private as it."""
        return []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party clips its update to {'an absolute sum' if self.shape == 'laplace' else 'a length'} of "
                f"{self.clip:g} and adds {self.shape.title()} noise of {self.noise or 0:.4g} times that to every entry "
                "before it leaves. Neighbours: any two data sets that a party might hold, as the coordinator sees it. "
                "Told is the epsilon of the parties that answered most often; how many rows a party has is not hidden.")


_STEPS = 20
"""The clip is 2^20 steps long, or up to twice as many, if the sum has room for that."""
_FEWEST_STEPS = 1 << 10
_TAIL = 12.0
"""Noise of more than so many deviations does not come: 10^-32 of it."""


@register("stage", "distributed-dp", paper="Agarwal et al., 2021; Kairouz et al., 2021",
          example='[[stages]]\nname = "distributed-dp"\nclip = 1.0\nnoise = 1.0\n\n[[stages]]\nname = "secure-sum"\n')
@dataclass(frozen=True)
class DistributedDP(ClippedUpdates):
    """Clip each party's update and add its share of the noise, at the party, before a stage that hides all but sums.

    Parameters:
        clip: largest length of a party's update, all its arrays together
        noise: standard deviation of the noise on the sum, in units of `clip`, where as many parties drop out as
            tolerated (left out: as privacy.epsilon asks)
        tolerated: share of the expected parties that may drop out; if more do, nothing is summed and the run stops
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        expected: parties that a round expects (runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
        grid: the step that updates and noise are multiples of, a power of two (0: a millionth of the clip; runs fill
            it in)
    """

    tolerated: Annotated[float, Interval(ge=0, lt=1)] = 0.2
    grid: Annotated[float, Ge(0)] = 0.0

    place: ClassVar[NoisePlace] = "sum"
    accountant: ClassVar[Accountant | None] = "rdp"

    def opened(self, noise: float, context: Context, ledger: Ledger | None = None) -> Self:
        """On the grid of the run's hidden sum, whose steps may be wider than wished for."""
        return replace(super().opened(noise, context, ledger), grid=max(self.step, context.step))

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip, round to the grid, and add whole numbers of noise."""
        content, _ = clipped(payload, self.arrays, self.clip, kept=party.state)
        coins = release_coins(party, "share of noise", secret=self.secret)
        whole = {name: flatten(content[name]) / self.step for name in self.arrays}
        one, size = self.clip / self.step, sum(values.size for values in whole.values())
        rounded = rounded_conditionally(coins, np.concatenate([*whole.values()]), one)
        variance = (self.known_noise * conditional_length(one * SLACK, size)) ** 2 / self.enough(self.expected)
        party.keep(NoiseShare, {"round": party.round, "enough": self.enough(self.expected)})
        noised = (rounded + skellam(coins, variance, size)) * self.step
        ends = np.cumsum([values.size for values in whole.values()])[:-1]
        return {**content, **{name: _cut(part, content[name])
                              for name, part in zip(whole, np.split(noised, ends), strict=True)}}

    def transform_mean(self, federation: Federation, mean: Arrays, aggregated: Aggregated) -> Arrays:
        """At the coordinator: note how much noise the sum really has, which is more where fewer dropped out."""
        if self.ledger is not None:
            entry, shares = self.ledger.entries[-1], len(aggregated.parties) / self.enough(self.expected)
            noise = self.known_noise * sqrt(shares)
            self.ledger.entries[-1] = replace(entry, noise=noise if aggregated.name == self.arrays[0] else
                                              min(noise, entry.noise))
        return mean

    def capacity(self) -> SumCapacity | None:
        """Whoever comes has the same share, a power of two, so that steps of the grid stay whole numbers."""
        most = super().capacity()
        return None if most is None else replace(most, fewest=self.enough(self.expected))

    @property
    def step(self) -> float:
        """That of the grid."""
        return self.grid or 2.0 ** (floor(log2(self.clip)) - _STEPS)

    def enough(self, expected: float) -> int:
        """How many shares of noise make up the whole."""
        return max(floor((1 - self.tolerated) * expected + 1e-9), 1)

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """What the parties that answered most often have spent; nobody is hidden by being drawn."""
        steps = self.clip / max(self.step, context.step)
        return costliest(entries, lambda entry: Release(entry.noise, "skellam", steps=steps))

    def objections(self, context: Context) -> list[str]:
        """Sums that are not hidden, of unknown size, too coarse, or too narrow."""
        found = super().objections(context)
        if not context.hidden:
            found += ["each party adds a share of the noise only, which hides nothing before it is summed: add the "
                      "stage 'secure-sum' after 'distributed-dp'"]
        if context.sampling == "poisson":
            found += ["shares of noise add up to enough only where it is known how many parties come: with a selector "
                      "of a fixed number, set selector = 'all' (or 'random', 'in-turn')"]
        if context.step * _FEWEST_STEPS > self.clip:
            found += [f"the stage '{context.hidden}' adds in steps of {context.step:.2g}, too wide for a clip of "
                      f"{self.clip:g}: lower its `largest` or set bits = 64 there"]
        if self.noise is not None and self._reach(context) > context.largest:
            found += [f"updates with their noise reach up to {self._reach(context):.3g}, and '{context.hidden}' has "
                      f"room for {context.largest:g}: raise its `largest`"]
        return found

    def _reach(self, context: Context) -> float:
        return self.clip * (1 + _TAIL * (self.noise or 0.0) / sqrt(self.enough(context.cohort)))

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        enough = self.enough(context.cohort)
        return (f"Each party's update is clipped to a length of {self.clip:g}; every party adds a share of Skellam "
                f"noise, and {enough} shares have a deviation of {self.known_noise:.4g} times that length. By "
                f"'{context.hidden}' the coordinator sees the noised sum only; with fewer than {enough} parties it "
                "sees none. Neighbours: two runs, one with a party and one without what it sends, in the rounds in "
                "which parties really took part, as the coordinator sees it too. Not hidden: who takes part. Parties "
                "that tell the coordinator their own noise take their shares of it away.")


def _cut(vector: NDArray[np.float64], like: Arrays) -> Arrays:
    """The arrays again, in double precision, which holds whole steps exactly."""
    parts, start = {}, 0
    for name, values in like.items():
        parts[name] = vector[start:start + values.size].reshape(values.shape)
        start += values.size
    return parts
