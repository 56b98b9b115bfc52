"""Who watches whom: how many neighbours, shares and witnesses a sum needs, who they are, and which sets will do.

Every party computes all of this itself, from the size of the cohort, from how many may be corrupt, and from randomness
that all parties made together. Nothing of it is taken from the coordinator.

Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020,
for sparse graphs. Here neighbours stand on a circle, and every set must leave enough members in the places clockwise of
each of its members. That keeps honest members connected whoever chose the set: among the members clockwise of an honest
one, one is honest; go on from it, right round the circle. That argument is our own.

Parties may say, each under its signature, that another cheats (`dispute`). Two honest parties are never in dispute, so
that one of each pair is corrupt, and nobody knows which. Pairs are left out together for some rounds: one pair for each
party that is not left out already, so that corrupt parties take no more honest ones along than they are themselves. Who
is in dispute with more parties than may be corrupt is corrupt itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, floor, log2
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from tequio.errors import QuorumError
from tequio.privacy.aggregation.encodings import Draws, derived_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation

    Members = NDArray[np.bool_]

ALL_WITH_ALL = 50
"""Up to this number of parties everybody is everybody's neighbour, and a witness."""

ETA = 20
"""The chance that a round is lost, with as many parties absent as allowed, is 2^-20 at most."""

FEWEST = 3

ROUNDS = 10
"""For how long a pair in dispute is left out."""

_SECRET, _ATTEMPTS, _SUMS = 40, 3, 10


def secrecy(round: int) -> int:
    """The bits of safety that a sum of a round needs, so that all sums of a run together keep 40: three more for eight
    attempts at joint randomness, ten for 1,024 sums, and one more each time that a long run doubles."""
    return _SECRET + _ATTEMPTS + max(_SUMS, ceil(log2(max(round, 1))))


def count_of(share: float, parties: int) -> int:
    """How many parties a share of them is, rounded down."""
    return floor(share * parties + 1e-9)


@dataclass(frozen=True)
class Graph:
    """Neighbours of each party, shares that open a secret, and members that a window of half the neighbours needs."""

    degree: int
    needed: int
    window: int = 0

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return not self.window


@dataclass(frozen=True)
class Witnesses:
    """How many witnesses there are, how many of them may be corrupt, and how many signatures make a quorum."""

    count: int
    corrupt: int
    quorum: int


@lru_cache(maxsize=256)
def graph_for(parties: int, corrupt: int, absent: int, sigma: int, eta: int = ETA) -> Graph:
    """The sparsest graph in which, but for a chance of 2^-sigma, nobody has too many corrupt neighbours and no window
    too many corrupt places, and, but for 2^-eta, nobody is stuck with as many parties absent as allowed."""
    if parties > ALL_WITH_ALL:
        for degree in range(2, parties - 1, 2):
            half = degree // 2
            needed = max(half + 1, _most(parties - 1, corrupt, degree, parties, sigma + 1) + 1)
            window = _most(parties - 1, corrupt, half, parties, sigma + 1) + 1
            if needed <= degree and window <= half and all(
                    parties * _tail(parties - 1, absent, drawn)[drawn - enough] <= 2.0 ** -(eta + 1)
                    for drawn, enough in ((degree, needed), (half, window))):
                return Graph(degree, needed, window)
    return Graph(parties - 1, (parties - 1 + corrupt) // 2 + 1)


@lru_cache(maxsize=256)
def witnesses_for(parties: int, corrupt: int, absent: int, sigma: int, eta: int = ETA) -> Witnesses:
    """The fewest witnesses of whom no two quorums can sign different things, and of whom a quorum stays."""
    if parties > ALL_WITH_ALL:
        for count in range(1, parties):
            bad = _most(parties, corrupt, count, 1, sigma)
            quorum = (count + bad) // 2 + 1
            if quorum <= count and _tail(parties, absent, count)[count - quorum] <= 2.0 ** -eta:
                return Witnesses(count, bad, quorum)
    return Witnesses(parties, min(corrupt, parties), (parties + corrupt) // 2 + 1)


def fewest_for(parties: int, corrupt: int, own: int = 0) -> int:
    """How many members any set has at least: two such sets share an honest party, and two honest ones are in each."""
    return max(FEWEST, own, (parties + corrupt) // 2 + 1, corrupt + 2)


def check_room(parties: int, corrupt: int) -> None:
    """Refuse a cohort that could hold as many corrupt parties as must be left in the end."""
    if parties < max(FEWEST, corrupt + 2):
        raise QuorumError(f"{parties} parties are too few for a sum: {corrupt} of all may be corrupt, and all of those "
                          f"might be here, so that {max(FEWEST, corrupt + 2)} are needed",
                          remedy="ask more parties per round, or lower `corrupt` of the stage if fewer would collude")


def _most(population: int, marked: int, drawn: int, times: int, bits: int) -> int:
    """The least c with `times` * P[more than c of the drawn are marked] <= 2^-bits."""
    return int(np.argmax(times * _tail(population, marked, drawn) <= 2.0 ** -bits))


@lru_cache(maxsize=4096)
def _tail(population: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """P[more than c of `drawn` are marked] for c = 0 .. drawn, where `marked` of a population are (hypergeometric)."""
    from scipy.special import gammaln

    counts = np.arange(drawn + 1)
    possible = (counts <= marked) & (drawn - counts <= population - marked)

    def ways(whole: int, part: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(gammaln(whole + 1) - gammaln(part + 1) - gammaln(whole - part + 1))

    found = np.zeros(drawn + 1)
    inside = counts[possible]
    found[possible] = np.exp(ways(marked, inside) + ways(population - marked, drawn - inside)
                             - ways(population, np.array(drawn)))
    # Summed from the small end, where digits are few.
    return np.append(np.cumsum(found[::-1])[::-1][1:], 0.0)


@dataclass(frozen=True, eq=False)
class Circle:
    """A cohort around a circle. Sets of members are given and taken as one truth value for each of the cohort."""

    cohort: NDArray[np.int64]
    order: NDArray[np.int64]
    graph: Graph

    def neighbours(self, party: int, among: Members | None = None) -> list[int]:
        """A party's neighbours in rising order: all, or those in a set."""
        known = self._neighbours.get(party)
        if known is None:
            place = int(np.flatnonzero(self.cohort == party)[0])
            if self.graph.complete:
                beside = np.delete(np.arange(len(self.cohort)), place)
            else:
                steps = np.arange(1, self.graph.degree // 2 + 1)
                steps = np.concatenate([-steps, steps])
                beside = np.sort(self.order[(self._place[place] + steps) % len(self.order)])
            known = self._neighbours[party] = beside
        return [int(other) for other in self.cohort[known if among is None else known[among[known]]]]

    def helpers(self, among: Members) -> NDArray[np.int64]:
        """How many neighbours in a set each of the cohort has."""
        if self.graph.complete:
            return np.asarray(among.sum() - among, dtype=np.int64)
        half = self.graph.degree // 2
        return self._in_arc(among, -half, -1) + self._in_arc(among, 1, half)

    def broken(self, members: Members) -> Members:
        """The members with too few neighbours in the set, or too few clockwise: sound is a set in which nobody is."""
        bad = self.helpers(members) < self.graph.needed
        if not self.graph.complete:
            bad |= self._in_arc(members, 1, self.graph.degree // 2) < self.graph.window
        return np.asarray(bad & members)

    def peeled(self, members: Members) -> Members:
        """The largest sound part of a set: without whoever breaks it, until nobody does."""
        while (broken := self.broken(members)).any():
            members = members & ~broken
        return members

    def _in_arc(self, members: Members, first: int, last: int) -> NDArray[np.int64]:
        """For each of the cohort, how many members stand from the first to the last step clockwise of it."""
        count, around = len(self.order), members[self.order].astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(np.concatenate([around, around, around]))])
        start = count + self._place
        return np.asarray(sums[start + last + 1] - sums[start + first])

    @cached_property
    def _place(self) -> NDArray[np.int64]:
        """Where each of the cohort stands on the circle."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(self.order))
        return places

    @cached_property
    def _neighbours(self) -> dict[int, NDArray[np.int64]]:
        return {}


@lru_cache(maxsize=64)
def drawn_circle(agreed: bytes, seed: bytes, round: int, name: str, cohort: tuple[int, ...], graph: Graph) -> Circle:
    """The circle of one sum."""
    places = Draws(derived_key(agreed, seed, "graph", round, name)).shuffled(np.arange(len(cohort)))
    return Circle(np.array(cohort, dtype=np.int64), places, graph)


@lru_cache(maxsize=64)
def drawn_witnesses(agreed: bytes, seed: bytes, round: int, name: str, cohort: tuple[int, ...],
                    count: int) -> tuple[int, ...]:
    """The witnesses of one sum, in rising order."""
    order = Draws(derived_key(agreed, seed, "witness", round, name)).shuffled(np.array(cohort, dtype=np.int64))
    return tuple(sorted(order[:count].tolist()))


class Disputes(TypedDict):
    """Pairs in dispute, each with the last round of that, and parties that are known to cheat."""

    pairs: list[list[int]]
    cheats: list[int]


def disputes_of(federation: Federation) -> Disputes:
    """What the coordinator knows of this run; it is kept with the checkpoint."""
    return cast("Disputes", federation.agreed.setdefault("disputes", {"pairs": [], "cheats": []}))


def dispute(federation: Federation, pairs: Iterable[tuple[int, int]]) -> None:
    """Note pairs of which one says that the other cheats."""
    known = disputes_of(federation)
    latest = {(one, other): since for one, other, since in known["pairs"]}
    latest |= {(min(pair), max(pair)): federation.round for pair in pairs}
    known["pairs"] = [[*pair, since] for pair, since in latest.items()]


def catch(federation: Federation, cheat: int) -> None:
    """Note a party that is found to cheat by what it has signed."""
    known = disputes_of(federation)
    known["cheats"] = sorted({*known["cheats"], cheat})


def left_out(federation: Federation, corrupt: int) -> set[int]:
    """The parties that this round goes without, where so many may be corrupt."""
    known = disputes_of(federation)
    against: dict[int, set[int]] = {}
    for one, other, _ in known["pairs"]:
        against.setdefault(one, set()).add(other)
        against.setdefault(other, set()).add(one)
    out = {*known["cheats"], *(party for party, others in against.items() if len(others) > corrupt)}
    for one, other, since in sorted(known["pairs"], key=lambda pair: pair[2]):
        if since < federation.round <= since + ROUNDS and not out & {one, other}:
            out |= {one, other}
    return out
