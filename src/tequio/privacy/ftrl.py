"""Noise that grows with the logarithm of the rounds: every prefix sum of updates is a sum of few noised tree nodes.

Kairouz, McMahan, Song, Thakkar, Thakurta, Xu: Practical and private (deep) learning without sampling or shuffling, ICML
2021. Dwork, Naor, Pitassi, Rothblum: Differential privacy under continual observation, STOC 2010.

Rounds are the leaves of binary trees; every node has noise of its own, for good. The model after round t has the noise
of the nodes that t is made of in binary (6 = 4 + 2: two nodes), not of t rounds. A party moves every node above a round
in which it took part, by the length of its clipped update for each such round. What that comes to is computed from the
rounds in which parties really took part; it is small where they take turns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tequio.errors import ConfigError
from tequio.federation.rng import stream
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.ledger import Context, Entry
from tequio.privacy.noised_sum import NoisedSum
from tequio.privacy.noising import gaussian, precision_of
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays

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

    by_party: ClassVar[bool] = True
    noise_lasts: ClassVar[bool] = True

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: charge the ledger. A round is one leaf, so that it can release one sum only."""
        if self.ledger is not None and any(entry.round == round for entry in self.ledger.entries):
            raise ConfigError(f"round {round} asks parties for updates a second time, and 'dp-ftrl' would give both "
                              "sums the same noise", remedy="use 'central-dp'")
        return super().receive(replies, round, seed)

    def draw(self, like: Arrays, one: float, expected: float, name: str, round: int,
             seed: int) -> tuple[NDArray[Any], float]:
        """Noise of the nodes that round t has and round t - 1 had not, less that of the others."""
        now, before, spread = nodes_of(round), nodes_of(round - 1), self.known_noise * one
        total = np.zeros(sum(values.size for values in like.values()), dtype=precision_of(like))
        for node, change in [*((node, np.add) for node in now - before),
                             *((node, np.subtract) for node in before - now)]:
            change(total, gaussian(like, spread, stream(seed, f"tree noise {name}", *node)), out=total)
        return total, spread

    def spent(self, entries: Sequence[Entry], context: Context) -> list[Spent]:
        """One Gaussian release for the whole run: all nodes, which the busiest party moves the most."""
        if not entries:
            return []
        rounds: dict[int, list[int]] = {}
        for entry in entries:
            for party in entry.answered:
                rounds.setdefault(party, []).append(entry.round)
        last, noise = max(entry.round for entry in entries), min(entry.noise for entry in entries)
        moved = max((sensitivity(own, last) for own in {tuple(own) for own in rounds.values()}), default=0.0)
        return [{Release(noise / moved): 1}] if moved else []

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """One party for each turn, or one that takes part in every round."""
        return [Entry(round, noise, 1, ((round - 1) % context.turns if context.turns else 0,))
                for round in range(1, context.rounds + 1)]

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party's update is clipped to a length of {self.clip:g}; the sum over all rounds so far carries "
                f"the noise of a binary tree, whose nodes have {self.noise or 0:.4g} times that length each. "
                "Neighbours: two runs, one with a party and one without what it sends, in the rounds in which parties "
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
