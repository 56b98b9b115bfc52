"""The ledger of a run: what was released, under which noise, from whom, what epsilon that comes to, and how to say so.

It is one object at the coordinator. The mechanism, a stage, reports every release to it; nothing is counted by plan.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, log, sqrt
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import TequioError
from tequio.privacy.accounting import Accountant, Release, Sampling, Spent, epsilon_of, skellam_numerical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays
    from tequio.privacy.mechanism import Mechanism


@dataclass(frozen=True)
class Terms:
    """What was agreed: a budget (0: none), the delta it is meant at, and who counts."""

    epsilon: float = 0.0
    delta: float = 1e-5
    accountant: Accountant = "pld"


@dataclass(frozen=True)
class Context:
    """What the ledger has to know of a run: how parties are drawn, what they send, and how they weigh.

    `turns` is the number of groups where parties take turns (0: they do not). For mechanisms that protect single rows,
    `descent` says of a party what chance its rows have to be in a batch and how many steps it takes a round;
    `everybody` are those it can be asked of. `releases` is how often a round asks a party for sums over its rows.
    `moves` is how far one row can move each array of such sums. `buffers` are names of the model's arrays that are no
    weights. `hidden` is the stage that shows the coordinator sums only, if there is one, `largest` the largest entry
    that it has room for, and `scale` how many whole numbers of its sums make up one.
    """

    parties: int
    cohort: float
    sampling: Sampling = "none"
    rounds: int = 1
    arrays: tuple[str, ...] = ("update",)
    by_rows: bool = False
    turns: int = 0
    descent: Callable[[int], tuple[float, int]] | None = None
    everybody: tuple[int, ...] = ()
    releases: int = 1
    moves: Mapping[str, float] = field(default_factory=dict)
    buffers: frozenset[str] = frozenset()
    hidden: str = ""
    largest: float = inf
    scale: float = inf

    @property
    def step(self) -> float:
        """How finely a hidden sum tells an update: each is multiplied with its share before it becomes whole."""
        return self.most / self.scale

    @property
    def most(self) -> int:
        """More parties than this do not come to one round: a power of two. Where each is drawn on its own, they do with
        a chance of less than 10^-12 (Bernstein's bound)."""
        cohort = self.cohort
        if self.sampling == "poisson":
            unlikely = 12 * log(10)
            cohort += unlikely / 3 + sqrt(unlikely**2 / 9 + 2 * unlikely * cohort)
        return 1 << (min(round_up(cohort), self.parties) - 1).bit_length()

    @property
    def rate(self) -> float:
        """Share of the parties that a round draws."""
        return min(self.cohort / self.parties, 1.0)


@dataclass(frozen=True)
class Entry:
    """One release: its round, its noise, how many parties were chosen for it, and who answered if that matters."""

    round: int
    noise: float
    chosen: int
    answered: tuple[int, ...] = ()


class Remembered(TypedDict, total=False):
    """What a mechanism carries from round to round: the clip of the moment, the seed of secret noise, and the filter by
    which noise is correlated, with what it remembers of each array."""

    clip: float
    secret: str
    factor: tuple[Sequence[float], Sequence[float]]
    filters: dict[str, NDArray[np.float64]]


@dataclass
class Ledger:
    """What a run has spent so far, and all that follows from it.

    `voids` are reasons for which there is no guarantee at all; `caveats` are what it does not cover. `template` has the
    shapes of what a round releases, so that a round that nobody answered releases noise like any other. `owed` are
    arrays that were charged and that the coordinator has not noised yet: a round must not end so.
    """

    terms: Terms
    mechanism: Mechanism
    context: Context
    voids: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    entries: list[Entry] = field(default_factory=list)
    memory: Remembered = field(default_factory=lambda: Remembered())
    template: Arrays = field(default_factory=dict, repr=False)
    owed: set[str] = field(default_factory=set)

    def charge(self, replies: Replies, round: int, noise: float) -> int:
        """Note a release; gives its number, which keeps the noise of two releases in one round apart."""
        chosen = len(replies) + len(replies.failures) + len(replies.dropped) + len(replies.late)
        answered = self._who_paid(replies) if self.mechanism.by_party else ()
        self.entries.append(Entry(round, noise, chosen, answered))
        return len(self.entries) - 1

    def _who_paid(self, replies: Replies) -> tuple[int, ...]:
        """Those who answered; where they noise for themselves also those whose answer came too late or was no good: it
        may have been seen."""
        answered = {reply.party for reply in replies}
        if self.mechanism.place != "coordinator":
            answered |= {*replies.late, *(failure.party for failure in replies.failures)}
        return tuple(sorted(answered))

    def epsilon(self) -> float:
        """What was spent so far; infinite where there is no guarantee."""
        if self.owed:
            raise TequioError(f"'{min(self.owed)}' was clipped, and used without the noise that it was charged with: "
                              "the algorithm has not aggregated it", remedy="let the algorithm use `aggregate`")
        return self._cost(self.entries, self.terms.accountant)

    def numerical(self) -> float | None:
        """Of Skellam noise, whose privacy loss distribution is no proof: what it comes to."""
        bills = [] if self.voids else self.mechanism.spent(self.entries, self.context)
        found = [skellam_numerical(bill, self.terms.delta) for bill in bills
                 if bill and all(release.shape == "skellam" and release.noise > 0 for release in bill)]
        return max(found) if found and len(found) == len(bills) else None

    def affords_more(self) -> bool:
        """Whether another round like the last one stays within the budget. The cheaper accountant is asked first."""
        if not self.terms.epsilon or self.voids:
            return True
        further = [*self.entries, *[self._another()] * self.context.releases]
        return (self._cost(further, "rdp") <= self.terms.epsilon
                or self._cost(further, self.terms.accountant) <= self.terms.epsilon)

    def after_another(self) -> float:
        """What is spent after one more round like the last one, or after the first."""
        return self._cost([*self.entries, *[self._another()] * self.context.releases], self.terms.accountant)

    def predicted(self, rounds: int, party: int) -> float:
        """What will be spent on a party after that many rounds, if all that follow are like the last one."""
        ahead = replace(self, entries=list(self.entries))
        done = max((entry.round for entry in self.entries), default=0)
        for _ in range(rounds - done):
            ahead.entries += [ahead._another()] * self.context.releases
        if self.mechanism.by_party:
            ahead.entries = [replace(entry, answered=(party,)) for entry in ahead.entries
                             if party in entry.answered or not done]
        return ahead.epsilon()

    def secret(self) -> int:
        """A seed that nobody knows, drawn once a run and kept in its checkpoint only."""
        return int(self.memory.setdefault("secret", secrets.token_hex(32)), 16)

    def to_plain(self) -> Payload:
        """For a checkpoint."""
        return {"memory": dict(self.memory),
                "entries": [[entry.round, entry.noise, entry.chosen, list(entry.answered)] for entry in self.entries]}

    def restore(self, kept: Payload) -> None:
        """Back from a checkpoint: what was spent stays spent."""
        self.memory, self.owed = kept["memory"].copy(), set()
        self.entries = [Entry(round, noise, chosen, tuple(answered))
                        for round, noise, chosen, answered in kept["entries"]]

    def resumed(self) -> None:
        """A round that was under way when the run ended may have been seen already. Played again from the seed it is
        the same release; where noise is secret it is another one, and is charged beforehand."""
        if self.mechanism.secret and not self.mechanism.noise_lasts:
            self.entries.append(self._another())

    def _cost(self, entries: Sequence[Entry], accountant: Accountant) -> float:
        if self.voids:
            return inf
        found = (epsilon_of(spent, self.terms.delta, accountant)
                 for spent in self.mechanism.spent(entries, self.context))
        return max(found, default=0.0)

    def _another(self) -> Entry:
        """The next round, at worst: everybody who ever answered does so again, in a cohort as expected. Where parties
        take turns it is those whose turn comes again, or somebody new."""
        round, turns = self.entries[-1].round + 1 if self.entries else 1, self.context.turns
        again = {party for entry in self.entries if not turns or entry.round == round - turns
                 for party in entry.answered}
        return Entry(round, float(self.mechanism.noise or 0.0), round_up(self.context.cohort),
                     tuple(sorted(again)) or self.context.everybody or (-1,))


def costliest_bill(ledger: Ledger) -> Spent:
    """What a run has spent on those that it cost most: a bill above everybody's, so that it composes with those of
    other runs. Where there is no guarantee it is a release without noise."""
    if ledger.voids:
        return {Release(0.0): 1}
    bills = ledger.mechanism.spent(ledger.entries, ledger.context)
    largest = {release: max(bill.get(release, 0) for bill in bills) for bill in bills for release in bill}
    if len(bills) < 2 or largest in bills:
        return largest
    worst = Release(min(release.noise for release in largest), next(iter(largest)).shape, next(iter(largest)).sampling,
                    max(release.rate for release in largest), min(release.steps for release in largest))
    return {worst: max(sum(bill.values()) for bill in bills)}


def round_up(cohort: float) -> int:
    """The parties of a round, as a whole number that is not too small."""
    return int(-(-cohort // 1))


_LEVEL = {"party": "user-level (a party with all its rows)", "row": "row-level (one row of a party)",
          "label": "label-level (the label of one row)"}
_HIDDEN = {"party": "whether any one party took part, or what it holds,",
           "row": "whether any one row was among a party's data",
           "label": "what the label of any one row was"}


def odds(epsilon: float) -> str:
    """How much epsilon lets an observer learn: e^epsilon, as a factor on odds."""
    fold = exp(min(epsilon, 20.0))
    return "more than a million-fold" if fold > 1e6 else f"{fold:.2g}-fold" if fold < 10 else f"{round(fold):,}-fold"


def statement(ledger: Ledger) -> Payload:
    """Epsilon and all that it hangs on."""
    terms, epsilon = ledger.terms, ledger.epsilon()
    return {"epsilon": epsilon if isfinite(epsilon) else None, "delta": terms.delta, "accountant": terms.accountant,
            "budget": terms.epsilon or None, "unit": ledger.mechanism.unit, "noise": ledger.mechanism.noise,
            "numerical": ledger.numerical(), "releases": len(ledger.entries), "sampling": ledger.context.sampling,
            "voids": list(ledger.voids), "caveats": list(ledger.caveats), "words": in_words(ledger, epsilon)}


def in_words(ledger: Ledger, epsilon: float) -> str:
    """The same for a reader who has to decide whether that is enough."""
    if ledger.voids:
        return "This run is not private, whatever noise it adds: " + "; ".join(ledger.voids) + "."
    mechanism = ledger.mechanism
    if not isfinite(epsilon):
        return f"This run is not private: no noise was added. {mechanism.words(ledger.context)}"
    terms = ledger.terms
    budget = f" of a budget of {terms.epsilon:g}" if terms.epsilon else ""
    parts = [f"Epsilon {epsilon:.3g}{budget} at delta {terms.delta:g}, by {len(ledger.entries)} releases "
             f"({terms.accountant.upper()} accountant), {_LEVEL[mechanism.unit]}: by all of them an observer's odds on "
             f"{_HIDDEN[mechanism.unit]} can change {odds(epsilon)}.", mechanism.words(ledger.context)]
    if (numerical := ledger.numerical()) is not None:
        parts.append(f"By privacy loss distributions it would be {numerical:.3g}, which is computed and not proved.")
    if not mechanism.secret:
        whom = "" if mechanism.place == "coordinator" else ", from the coordinator too"
        parts.append(f"Noise and choices follow from the seed, which must stay secret{whom}.")
    if ledger.caveats:
        parts.append("Not covered: " + "; ".join(ledger.caveats) + ".")
    return " ".join(parts)
