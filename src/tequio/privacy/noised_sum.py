"""What mechanisms share that clip each party's update and noise the sum: who is charged, and what a hidden sum is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from tequio.federation.exchange import NOBODY, Reply
from tequio.federation.stages import BUFFERS, NoisePlace, StageSpec, SumCapacity
from tequio.noise.grid import SLACK, step_for
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.mechanism import Mechanism, Noise
from tequio.privacy.noising import SILENT, clipped, on_grid, size_of

if TYPE_CHECKING:
    from typing import Self

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import Aggregated
    from tequio.learners.learner import Arrays
    from tequio.noise.grid import Whole
    from tequio.privacy.ledger import Context, Ledger


@dataclass(frozen=True)
class ClippedUpdates(Mechanism):
    """What mechanisms have in common that bound each party's update."""

    clip: Annotated[float, Gt(0)] = 1.0
    noise: Noise = None
    secret: bool = False
    expected: Annotated[float, Ge(0)] = 0.0
    arrays: tuple[str, ...] = ("update",)

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model",), bounds=True, withholds=SILENT)

    def opened(self, noise: float, context: Context, ledger: Ledger | None = None) -> Self:
        """With the cohort that a round expects and the arrays that it protects."""
        return replace(self, noise=noise, ledger=ledger, expected=context.cohort, arrays=context.arrays)

    def capacity(self) -> SumCapacity | None:
        """What shares of a hidden sum are shares of: the same whoever comes, so that one party changes no other's."""
        return None if self.ledger is None else SumCapacity(self.ledger.context.most)

    def objections(self, context: Context) -> list[str]:
        """Weights that nothing bounds, and sums that have no room for an update."""
        found = [f"the stage '{context.hidden}' has room for entries of up to {context.largest:g}, and a clip of "
                 f"{self.clip:g} allows larger ones, whose party would fail: raise its `largest`"] \
            if context.hidden and self.clip > context.largest else []
        return [*found, *(["parties weigh by their rows, without a limit: set algorithm.weights = 'uniform'"]
                          if context.by_rows else [])]


@dataclass(frozen=True)
class NoisedSum(ClippedUpdates):
    """One that the coordinator noises: in the open the sum of what it sees, else a sum that is all it sees."""

    place: ClassVar[NoisePlace] = "coordinator"

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip."""
        return clipped(payload, self.arrays, self.clip, kept=party.state)[0]

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: charge the ledger, and owe it the noise. Where nobody came, an answer that is none."""
        noise = self.known_noise
        if self.ledger is None:
            return replies
        self.ledger.charge(replies, round, noise)
        if not replies and not self.ledger.template:
            return replies
        self.ledger.owed = set(self.arrays)
        if replies:
            return replies
        template, buffers = self.ledger.template, self.ledger.context.buffers
        noughts = {array: {name: np.zeros_like(values) for name, values in template.items()
                           if (name in buffers) == (array == BUFFERS)} for array in self.arrays}
        nobody: Payload = {"rows": 1, "steps": 0, **noughts}
        return replace(replies, answers=(Reply(NOBODY, nobody),))

    def transform_mean(self, federation: Federation, mean: Arrays, aggregated: Aggregated) -> Arrays:
        """At the coordinator: the sum over the expected cohort plus noise instead of the mean."""
        expected = self.expected or max(len(aggregated.parties), 1)
        seed = self.ledger.secret() if self.secret and self.ledger is not None else federation.seed
        factor = float(aggregated.weight / (self.heaviest * expected))
        if self.known_noise:
            size, one = size_of(mean), self.clip * SLACK / expected
            step = step_for(self.known_noise * one, one)
            # Two sums that differ by one party are rounded each, so that every entry may differ by one step more.
            length = (one + self._rounding(size, aggregated) / expected) / step + sqrt(self._sent_along(size))
            total = self.release(mean, factor, step, length, expected, aggregated.name, federation.round, seed)
        else:
            total = {name: (values * factor).astype(values.dtype, copy=False) for name, values in mean.items()}
        if self.ledger is not None:
            self.ledger.owed.discard(aggregated.name)
        return total

    def release(self, mean: Arrays, factor: float, step: float, length: float, expected: float, name: str, round: int,
                seed: int) -> Arrays:
        """The mean times a factor, with noise on a grid of that step."""
        return on_grid(mean, step, self.draw(mean, length, expected, name, round, seed), factor)

    @abstractmethod
    def draw(self, like: Arrays, length: float, expected: float, name: str, round: int, seed: int) -> Whole:
        """The noise of a release, in steps, where a party moves all of it by no more than a length of so many."""

    @property
    def heaviest(self) -> float:
        """The weight of a party that counts in full."""
        return 1.0

    def _rounding(self, size: int, aggregated: Aggregated) -> float:
        """How much further a party may move the sum when the mean is rounded to single precision, and when a hidden sum
        rounds its update to whole numbers: as much for every cohort of the run."""
        most = len(aggregated.parties) if self.ledger is None else self.ledger.context.most
        single = self.clip * most * 2.0 ** -23
        if aggregated.summed is None:
            return single
        _, _, parties = ring = aggregated.summed.ring
        return float(single + 0.5 * self._sent_along(size) ** 0.5 * parties / Ring.of(*ring).scale)

    def _sent_along(self, size: int) -> int:
        """How many numbers a party sends in all, if one of its arrays has `size` of them: all have but for buffers."""
        if self.ledger is None or BUFFERS not in self.arrays:
            return size * len(self.arrays)
        sizes = {name: values.size for name, values in self.ledger.template.items()}
        buffers = sum(sizes[name] for name in self.ledger.context.buffers)
        return (sum(sizes.values()) - buffers) * (len(self.arrays) - 1) + buffers

    def trust(self, context: Context) -> str:
        """Who has to be trusted with what."""
        if not context.hidden:
            return "The coordinator sees the clipped updates, and is trusted to add the noise."
        return (f"By '{context.hidden}' the coordinator sees no single update, but their sum before it adds the noise, "
                "which it is trusted to do.")
