"""Central differential privacy: parties clip their updates, the coordinator noises their sum, afresh or along a tree.

McMahan, Ramage, Talwar, Zhang: Learning differentially private recurrent language models, ICLR 2018 (fixed
denominator). Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping, NeurIPS 2021.
The coordinator divides by the cohort that was expected, not by the one that came: otherwise one party more or less
would change every other party's share. It is trusted with the clipped updates, or, where a later stage hides them, with
their sum; whoever sees only models is not.

Kairouz, McMahan, Song, Thakkar, Thakurta, Xu: Practical and private (deep) learning without sampling or shuffling, ICML
2021. Dwork, Naor, Pitassi, Rothblum: Differential privacy under continual observation, STOC 2010. Rounds are the leaves
of binary trees; every node has noise of its own, for good. The model after round t has the noise of the nodes that t is
made of in binary (6 = 4 + 2: two nodes), not of t rounds. A party moves every node above a round in which it took part,
by the length of its clipped update for each such round. What that comes to is computed from the rounds in which parties
really took part; it is small where they take turns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.errors import ConfigError
from tequio.federation.stages import COUNTED, SumCapacity
from tequio.noise.coins import Coins
from tequio.noise.grid import step_for
from tequio.noise.sampling import rounded_gaussian
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.ledger import Context, Entry, round_up
from tequio.privacy.noised_sum import NoisedSum
from tequio.privacy.noising import clipped, keyed_by, size_of
from tequio.registry import name_of, register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import Aggregated
    from tequio.learners.learner import Arrays
    from tequio.noise.grid import Whole
    from tequio.privacy.ledger import Ledger

_WITHIN = "within clip"


@register("stage", "central-dp", paper="McMahan et al., 2018; Andrew et al., 2021")
@dataclass(frozen=True)
class CentralDP(NoisedSum):
    """Clip each party's update at the party, add Gaussian noise to the sum at the coordinator.

    Parameters:
        clip: largest length of a party's update, all its arrays together; where it adapts, the first one
        noise: standard deviation of the noise on the sum, in units of `clip` (left out: as privacy.epsilon asks)
        quantile: let `clip` follow this quantile of the updates' lengths, privately (0: it stays)
        clip_rate: how fast it follows
        bit_noise: noise on the count of updates within `clip` (0: a twentieth of the expected cohort)
        most_rows: parties weigh by their rows, up to so many (0: all alike)
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        expected: parties that a round expects, which the sum is divided by (0: those that answer; runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    quantile: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    clip_rate: Annotated[float, Gt(0)] = 0.2
    bit_noise: Annotated[float, Ge(0)] = 0.0
    most_rows: Annotated[int, Ge(0)] = 0

    by_party: ClassVar[bool] = False

    @property
    def heaviest(self) -> float:
        """The weight of a party that counts in full."""
        return float(self.most_rows or 1)

    def capacity(self) -> SumCapacity | None:
        """The same whoever comes, and however many rows they have."""
        most = super().capacity()
        return None if most is None else replace(most, weight=self.heaviest)

    def now(self) -> CentralDP:
        """With the clip of this moment."""
        return self if self.ledger is None else replace(self, clip=self.ledger.memory.get("clip", self.clip))

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip, and say in one bit whether that was needed."""
        content, was_within = clipped(payload, self.arrays, self.clip, kept=party.state)
        if self.most_rows:
            content["rows"] = min(content["rows"], self.most_rows)
        return {**content, COUNTED: {_WITHIN: int(was_within)}} if self.quantile else content

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: as for any noised sum, and nobody weighs more than agreed."""
        replies = super().receive(replies, round, seed)
        return replies if not self.most_rows else replace(replies, answers=tuple(
            replace(reply, payload={**reply.payload, "rows": min(reply.payload["rows"], self.most_rows)})
            for reply in replies))

    def transform_mean(self, federation: Federation, mean: Arrays, aggregated: Aggregated) -> Arrays:
        """At the coordinator: the noised sum over the expected cohort; then the clip may move."""
        total = super().transform_mean(federation, mean, aggregated)
        if self.quantile and self.ledger is not None and not self.ledger.owed:
            counted = 0 if aggregated.replies.of_nobody else len(aggregated.parties)
            self._adapt(self.ledger, _count_within(aggregated), counted, federation)
        return total

    def draw(self, like: Arrays, length: float, expected: float, name: str, round: int, seed: int) -> Whole:
        """Fresh noise for every release; secret noise also for a round that is played again with another outcome."""
        coins = Coins.derived(keyed_by(like, seed) if self.secret else seed, "central noise", name, round, self._number)
        return rounded_gaussian(coins, self.update_noise(expected) * length, size_of(like))

    @property
    def _number(self) -> int:
        """That of the release, which keeps the noise of two releases in one round apart."""
        return 0 if self.ledger is None else len(self.ledger.entries)

    def update_noise(self, expected: float) -> float:
        """Where the clip adapts, the update carries a little more noise, so that both together tell as much as `noise`
        says: 1/noise^2 = 1/update_noise^2 + 1/(2 bit_noise)^2."""
        noise, bits = self.known_noise, 2 * (self.bit_noise or expected / 20)
        if not self.quantile or not noise:
            return noise
        if noise >= bits:
            raise ConfigError(f"a noise of {noise:g} leaves none of it to share with the adaptive clip, whose count "
                              f"has a noise of {bits / 2:g}",
                              remedy=f"set bit_noise above {noise / 2:g}, or quantile = 0")
        return float((noise**-2 - bits**-2) ** -0.5)

    def _adapt(self, ledger: Ledger, within: int, counted: int, federation: Federation) -> None:
        """A geometric step of the clip towards the quantile, by a noised count of updates that were short enough."""
        expected = self.expected or max(counted, 1)
        spread = (self.bit_noise or expected / 20) if self.known_noise else 0.0
        coins = Coins.derived(ledger.secret() if self.secret else federation.seed, "central count", federation.round,
                              self._number)
        # Counts are multiples of a half here, which every grid of this kind has.
        step = min(step_for(spread), 0.5) if spread else 1.0
        noise = float(rounded_gaussian(coins, spread / step, 1)[0]) * step
        share = (within - counted / 2 + noise) / expected + 0.5
        clip = self.clip * exp(-self.clip_rate * (share - self.quantile))
        ledger.memory["clip"] = min(clip, ledger.context.largest)

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """One Gaussian release a round, amplified by how its parties were drawn."""
        return [dict(Counter(central_release(entry, context) for entry in entries))]

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """Every round with the expected cohort."""
        return [Entry(round, noise, round_up(context.cohort)) for round in range(1, context.rounds + 1)]

    def objections(self, context: Context) -> list[str]:
        """Weights that nothing bounds, and sums that have no room for an update."""
        if self.most_rows and not context.by_rows:
            return ["most_rows bounds weights by rows, and all parties weigh alike: leave it out, or set "
                    "algorithm.weights = 'size'"]
        return super().objections(replace(context, by_rows=context.by_rows and not self.most_rows))

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        clip = f"the {self.quantile:.0%} quantile of lengths, found privately" if self.quantile else f"{self.clip:g}"
        return (f"Each party's update is clipped to a length of {clip}; Gaussian noise of {self.known_noise:.4g} times "
                f"that length is added to the sum. {self.trust(context)} {neighbours(context)}")


def _count_within(aggregated: Aggregated) -> int:
    """How many updates were short enough: as they say themselves, or summed with them where they are hidden."""
    if aggregated.summed is not None:
        return int(aggregated.summed.extra_counts[0])
    counted = set(aggregated.parties.tolist())
    return sum(reply.payload.get(COUNTED, {}).get(_WITHIN, 0) for reply in aggregated.replies if reply.party in counted)


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


Node = tuple[int, int]
"""Its height, and its place among the nodes of that height, counted from 0."""


@register("stage", "dp-ftrl", paper="Kairouz et al., 2021")
@dataclass(frozen=True)
class TreeNoise(NoisedSum):
    """Clip each party's update, and add to the sum the change of a tree's noise from one round to the next.

    Best where parties take turns (selector 'in-turn'): nobody need be drawn at random, and noise hardly piles up.

    Parameters:
        clip: largest length of a party's update, all its arrays together
        noise: standard deviation of a node's noise, in units of `clip` (left out: as privacy.epsilon asks)
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        expected: parties that a round expects, which the sum is divided by (0: those that answer; runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    noise_lasts: ClassVar[bool] = True

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: charge the ledger. A round is one leaf, so that it can release one sum only."""
        if self.ledger is not None and any(entry.round == round for entry in self.ledger.entries):
            raise ConfigError(f"round {round} asks parties for updates a second time, and '{name_of(type(self))}' has "
                              "noise for one sum per round", remedy="use 'central-dp'")
        return super().receive(replies, round, seed)

    def draw(self, like: Arrays, length: float, expected: float, name: str, round: int, seed: int) -> Whole:
        """Noise of the nodes that round t has and round t - 1 had not, less that of the others."""
        now, before, total = nodes_of(round), nodes_of(round - 1), np.zeros(size_of(like), np.int64)
        for node, change in [*((node, np.add) for node in now - before),
                             *((node, np.subtract) for node in before - now)]:
            coins = Coins.derived(seed, "tree noise", name, *node)
            change(total, rounded_gaussian(coins, self.known_noise * length, total.size), out=total)
        return total

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """One Gaussian release for the whole run: all nodes, which the busiest party moves the most."""
        if not entries:
            return []
        rounds: dict[int, list[int]] = {}
        for entry in entries:
            for party in entry.answered:
                rounds.setdefault(party, []).append(entry.round)
        last, noise = max(entry.round for entry in entries), min(entry.noise for entry in entries)
        moved = max((self.moved(own, last, context) for own in {tuple(own) for own in rounds.values()}), default=0.0)
        return [{Release(noise / moved): 1}] if moved else []

    def moved(self, rounds: Sequence[int], last: int, context: Context) -> float:
        """How far a party that takes part in these rounds moves all that carries noise, in lengths of its update."""
        return sensitivity(rounds, last)

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """One party for each turn, or one that takes part in every round."""
        return [Entry(round, noise, 1, ((round - 1) % context.turns if context.turns else 0,))
                for round in range(1, context.rounds + 1)]

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party's update is clipped to a length of {self.clip:g}; the sum over all rounds so far carries "
                f"the noise of a binary tree, whose nodes have {self.noise or 0:.4g} times that length each. "
                f"{self.neighbours(context)}")

    def neighbours(self, context: Context) -> str:
        """Which runs cannot be told apart, and who is trusted."""
        return ("Neighbours: two runs, one with a party and one without what it sends, in the rounds in which parties "
                f"really took part. Who takes part is not hidden. {self.trust(context)}")


def nodes_of(rounds: int) -> set[Node]:
    """The nodes whose leaves are rounds 1 to `rounds`: one for every one of its binary digits."""
    found, start = set(), 0
    for height in reversed(range(rounds.bit_length())):
        if rounds >> height & 1:
            found.add((height, start >> height))
            start += 1 << height
    return found


def sensitivity(rounds: Iterable[int], last: int) -> float:
    """How far a party moves all nodes that `last` rounds complete, as one vector, in lengths of its update.

    It moves a node once for each of its rounds under it, at worst all in one direction.
    """
    moved: Counter[Node] = Counter()
    for round in rounds:
        for height in range(last.bit_length()):
            place = (round - 1) >> height
            if (place + 1) << height <= last:
                moved[height, place] += 1
    return sqrt(sum(count**2 for count in moved.values()))
