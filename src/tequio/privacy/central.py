"""Central differential privacy: parties clip their updates, the coordinator noises their sum.

McMahan, Ramage, Talwar, Zhang: Learning differentially private recurrent language models, ICLR 2018 (fixed
denominator). Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping, NeurIPS 2021.

The coordinator divides by the cohort that was expected, not by the one that came: otherwise one party more or less
would change every other party's share. It is trusted with the clipped updates; whoever sees only models is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval

from tequio.errors import ConfigError
from tequio.federation.exchange import Reply
from tequio.federation.rng import stream
from tequio.federation.stages import Trait
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.clipping import clipped, with_noise
from tequio.privacy.ledger import Context, Entry, Ledger, round_up
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays

Noise = Annotated[float, Ge(0)] | None
_WITHIN = "within_clip"


@register("stage", "central-dp", paper="McMahan et al., 2018; Andrew et al., 2021")
@dataclass(frozen=True)
class CentralDP:
    """Clip each party's update at the party, add Gaussian noise to the sum at the coordinator.

    Parameters:
        clip: largest length of a party's update, all its arrays together; where it adapts, the first one
        noise: standard deviation of the noise on the sum, in units of `clip` (left out: as privacy.epsilon asks)
        quantile: let `clip` follow this quantile of the updates' lengths, privately (0: it stays)
        clip_rate: how fast it follows
        bit_noise: noise on the count of updates within `clip` (0: a twentieth of the expected cohort)
        most_rows: parties weigh by their rows, up to so many (0: all alike)
        secret: draw the noise from the operating system rather than from the seed; runs then differ
        expected: parties that a round expects, which the sum is divided by (0: those that answer; runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    clip: Annotated[float, Gt(0)] = 1.0
    noise: Noise = None
    quantile: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    clip_rate: Annotated[float, Gt(0)] = 0.2
    bit_noise: Annotated[float, Ge(0)] = 0.0
    most_rows: Annotated[int, Ge(0)] = 0
    secret: bool = False
    expected: Annotated[float, Ge(0)] = 0.0
    arrays: tuple[str, ...] = ("update",)
    ledger: Ledger | None = field(default=None, metadata={"part": True}, repr=False, compare=False)

    unit: ClassVar[str] = "party"
    place: ClassVar[Literal["coordinator", "party"]] = "coordinator"
    protects: ClassVar[str] = "updates"
    by_party: ClassVar[bool] = False
    trait: ClassVar[Trait] = Trait(takes=("model",), bounds=True, noise="coordinator", adds_up=False)

    def now(self) -> CentralDP:
        """With the clip of this moment."""
        return self if self.ledger is None else replace(self, clip=self.ledger.memory.get("clip", self.clip))

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip, and say in one bit whether that was needed."""
        content, was_within = clipped(payload, self.arrays, self.clip)
        if self.most_rows:
            content["rows"] = min(content["rows"], self.most_rows)
        return {**content, _WITHIN: int(was_within)} if self.quantile else content

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: the mean of what is handed on is the noised sum over the expected cohort."""
        number = 0 if self.ledger is None else self.ledger.charge(replies, round, self._noise)
        rng = stream(self.ledger.secret() if self.secret and self.ledger else seed, "central noise", round, number)
        expected = self.expected or max(len(replies), 1)
        if self.quantile:
            self._adapt([int(reply.payload[_WITHIN]) for reply in replies], expected, rng)
        template = replies[0].payload if replies else self._nobody()
        if not template:
            return replies
        sigma = self.update_noise(expected) * self.clip / expected
        noise = {name: list(gaussian(template[name], sigma, rng)) for name in self.arrays}
        return replace(replies, answers=self.noised(replies, template, noise, expected))

    def noised(self, replies: Replies, template: Payload, noise: dict[str, list[NDArray[Any]]],
               expected: float) -> tuple[Reply, ...]:
        """Answers whose mean is (sum of the updates) / expected + noise; one of nobody's where none came."""
        if not replies:
            empty = {name: with_noise(template[name], iter(noise[name]), 0.0) for name in self.arrays}
            return (Reply(-1, {"rows": 1, "steps": 0, **empty}),)
        weight = sum(reply.payload["rows"] / self.most_rows for reply in replies) if self.most_rows else len(replies)
        return tuple(replace(reply, payload={
            **{name: value for name, value in reply.payload.items() if name != _WITHIN},
            **{name: with_noise(reply.payload[name], iter(noise[name]), weight / expected) for name in self.arrays}})
            for reply in replies)

    @property
    def _noise(self) -> float:
        if self.noise is None:
            raise ConfigError("the noise of 'central-dp' is not known", remedy="set its noise, or privacy.epsilon")
        return self.noise

    def update_noise(self, expected: float) -> float:
        """Where the clip adapts, the update carries a little more noise, so that both together tell as much as `noise`
        says: 1/noise^2 = 1/update_noise^2 + 1/(2 bit_noise)^2."""
        noise, bits = self._noise, 2 * (self.bit_noise or expected / 20)
        if not self.quantile or not noise:
            return noise
        if noise >= bits:
            raise ConfigError(f"a noise of {noise:g} leaves none of it to share with the adaptive clip, whose count "
                              f"has a noise of {bits / 2:g}",
                              remedy=f"set bit_noise above {noise / 2:g}, or quantile = 0")
        return float((noise**-2 - bits**-2) ** -0.5)

    def _adapt(self, within: list[int], expected: float, rng: np.random.Generator) -> None:
        """Geometric steps of the clip towards the quantile, by a noised count of updates that were short enough."""
        if self.ledger is None:
            return
        spread = (self.bit_noise or expected / 20) if self._noise else 0.0
        share = (sum(within) - len(within) / 2 + spread * rng.standard_normal()) / expected + 0.5
        self.ledger.memory["clip"] = self.clip * exp(-self.clip_rate * (share - self.quantile))

    def _nobody(self) -> Payload:
        return {} if self.ledger is None or not self.ledger.template else \
            dict.fromkeys(self.arrays, self.ledger.template)

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """One Gaussian release a round, amplified by how its parties were drawn."""
        total: Spent = {}
        for entry in entries:
            release = central_release(entry, context)
            total[release] = total.get(release, 0) + 1
        return [total]

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """Every round with the expected cohort."""
        return [Entry(round, noise, round_up(context.cohort)) for round in range(1, context.rounds + 1)]

    def objections(self, context: Context) -> list[str]:
        """Weights that nothing bounds."""
        if context.by_rows and not self.most_rows:
            return ["parties weigh by their rows, without a limit: set algorithm.weights = 'uniform', or most_rows on "
                    "the stage"]
        if self.most_rows and not context.by_rows:
            return ["most_rows bounds weights by rows, and all parties weigh alike: leave it out, or set "
                    "algorithm.weights = 'size'"]
        return []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        clip = f"the {self.quantile:.0%} quantile of lengths, found privately" if self.quantile else f"{self.clip:g}"
        return (f"Each party's update is clipped to a length of {clip}; Gaussian noise of {self._noise:.4g} times that "
                f"length is added to the sum. {neighbours(context)}")


def gaussian(like: Arrays, sigma: float, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
    """Noise of the shapes and float types of some arrays, in their order."""
    for values in like.values():
        noise = rng.standard_normal(values.shape)
        noise *= sigma
        yield noise.astype(values.dtype, copy=False) if values.dtype.kind == "f" else noise


def central_release(entry: Entry, context: Context) -> Release:
    """A noised sum of clipped updates. Where one party may be replaced by another, it moves the sum twice as far."""
    if context.sampling == "fixed-size":
        return Release(entry.noise / 2, sampling="fixed-size", rate=min(entry.chosen / context.parties, 1.0))
    return Release(entry.noise, sampling=context.sampling, rate=context.rate)


def neighbours(context: Context) -> str:
    """Which runs cannot be told apart."""
    if context.sampling == "fixed-size":
        return ("Neighbours: two runs in which one party's data are replaced by any other's. Parties are drawn without "
                "replacement, which hides who was drawn (from those who do not see the run's record).")
    apart = "Neighbours: two runs, one with a party and one without what it sends."
    if context.sampling == "poisson":
        return (f"{apart} Each takes part in a round with a chance of {context.rate:g}, which hides who was drawn "
                "(from those who do not see the run's record).")
    return f"{apart} Who takes part is not hidden: every round counts in full."
