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
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from tequio.errors import ConfigError
from tequio.federation.exchange import Reply
from tequio.federation.rng import stream
from tequio.federation.stages import Trait
from tequio.privacy.accounting import Release, Spent
from tequio.privacy.central import gaussian
from tequio.privacy.clipping import clipped, with_noise
from tequio.privacy.ledger import Context, Entry, Ledger
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays

Node = tuple[int, int]
"""Its height, and its place among the nodes of that height, counted from 0."""


@register("stage", "dp-ftrl", paper="Kairouz et al., 2021")
@dataclass(frozen=True)
class TreeNoise:
    """Clip each party's update, and add to the sum the change of a tree's noise from one round to the next.

    Best where parties take turns (selector 'in-turn'): nobody need be drawn at random, and noise hardly piles up.

    Parameters:
        clip: largest length of a party's update, all its arrays together
        noise: standard deviation of a node's noise, in units of `clip` (left out: as privacy.epsilon asks)
        secret: draw the noise from the operating system rather than from the seed; runs then differ
        expected: parties that a round expects, which the sum is divided by (0: those that answer; runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
    """

    clip: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Ge(0)] | None = None
    secret: bool = False
    expected: Annotated[float, Ge(0)] = 0.0
    arrays: tuple[str, ...] = ("update",)
    ledger: Ledger | None = field(default=None, metadata={"part": True}, repr=False, compare=False)

    unit: ClassVar[str] = "party"
    place: ClassVar[Literal["coordinator", "party"]] = "coordinator"
    protects: ClassVar[str] = "updates"
    by_party: ClassVar[bool] = True
    trait: ClassVar[Trait] = Trait(takes=("model",), bounds=True, noise="coordinator", adds_up=False)

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: clip."""
        return clipped(payload, self.arrays, self.clip)[0]

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: the mean of what is handed on is the sum over the expected cohort plus the noise that
        this round's prefix has and the last one's had not."""
        if self.noise is None:
            raise ConfigError("the noise of 'dp-ftrl' is not known", remedy="set its noise, or privacy.epsilon")
        if self.ledger is not None:
            self.ledger.charge(replies, round, self.noise)
            seed = self.ledger.secret() if self.secret else seed
        template = replies[0].payload if replies else dict.fromkeys(self.arrays, self.ledger.template) \
            if self.ledger is not None and self.ledger.template else {}
        if not template:
            return replies
        expected = self.expected or max(len(replies), 1)
        change = {name: self._change(template[name], round, seed, name, expected) for name in self.arrays}
        if not replies:
            nobody = {name: with_noise(template[name], iter(change[name]), 0.0) for name in self.arrays}
            return replace(replies, answers=(Reply(-1, {"rows": 1, "steps": 0, **nobody}),))
        return replace(replies, answers=tuple(replace(reply, payload={**reply.payload, **{
            name: with_noise(reply.payload[name], iter(change[name]), len(replies) / expected)
            for name in self.arrays}}) for reply in replies))

    def _change(self, like: Arrays, round: int, seed: int, name: str, expected: float) -> list[NDArray[np.float64]]:
        """Noise of the nodes that round t has and round t - 1 had not, less that of the others."""
        now, before = nodes_of(round), nodes_of(round - 1)
        sigma = (self.noise or 0.0) * self.clip / expected
        total = [0.0 * values for values in like.values()]
        for node, sign in [*((node, 1.0) for node in now - before), *((node, -1.0) for node in before - now)]:
            draws = gaussian(like, sigma, stream(seed, f"tree noise {name}", *node))
            total = [old + sign * extra for old, extra in zip(total, draws, strict=True)]
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
        moved = max((sensitivity(own, last) for own in {tuple(own) for own in rounds.values()}), default=0.0)
        return [{Release(noise / moved): 1}] if moved else []

    def planned(self, noise: float, context: Context) -> list[Entry]:
        """One party for each turn, or one that takes part in every round."""
        return [Entry(round, noise, 1, ((round - 1) % context.turns if context.turns else 0,))
                for round in range(1, context.rounds + 1)]

    def objections(self, context: Context) -> list[str]:
        """Weights that nothing bounds."""
        return ["parties weigh by their rows, without a limit: set algorithm.weights = 'uniform'"] \
            if context.by_rows else []

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party's update is clipped to a length of {self.clip:g}; the sum over all rounds so far carries "
                f"the noise of a binary tree, whose nodes have {self.noise or 0:.4g} times that length each. "
                "Neighbours: two runs, one with a party and one without what it sends, in the rounds in which parties "
                "really took part. Who takes part is not hidden.")


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
