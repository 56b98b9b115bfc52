"""Who is left out of secure sums because parties say, each under its signature, that another cheats.

Two honest parties are never in dispute, so that one of each pair is corrupt, and nobody knows which. Pairs are left out
together for some rounds: one pair for each party that is not left out already, so that corrupt parties take no more
honest ones along than they are themselves. Who is in dispute with more parties than may be corrupt is corrupt itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.federation.federation import Federation

ROUNDS = 10
"""For how long a pair is left out."""


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
