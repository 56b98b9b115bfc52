"""What the selectors that look at time share: drawing candidates, asking what they have, and giving up in good time.

As many parties as fit before a deadline.

Nishio, Yonetani: Client selection for federated learning with heterogeneous resources in mobile edge, ICC 2019.

Parties that fit before a deadline and balance the classes, and offers of rows to the coordinator.

Yoshida, Nishio, Morikura, Yamamoto, Yonetani: Hybrid-FL for wireless networks: cooperative learning mechanism using
non-IID data, ICC 2020. The algorithm of the same name takes up the offers; with any other, only the choice counts.

HybridFL with a deadline that follows the candidates' mean times.

The rule comes from a bachelor's thesis on client selection (Granada, 2024): the deadline is multiplied in every round
by phi_t / phi_{t-1}, phi being the candidates' mean training time plus their mean upload time. The product telescopes:
the deadline of round t is T_0 * phi_t / phi_0 and remembers nothing in between, so its mean depends on how lucky the
first candidates were. The record shows both numbers side by side. `reference = "mean"` mends that.

A deadline that is chosen anew in every round, for the most useful updates a second.

An update more in a round is worth less than the one before: the noise in a mean of n updates stops mattering once n is
large against how much the parties differ (McCandlish et al., An empirical model of large-batch training, 2018, say the
same of batches). Here n updates are worth n h / (n + h), so h of them are worth half of what infinitely many are. The
selector ends the round where worth over expected time is highest. What it expects, it corrects by what it observed: how
much longer rounds took than planned, and how many of the chosen answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import numpy as np
from annotated_types import Ge, Gt, Interval, Le

from tequio.errors import ConfigError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.clock import Candidates, fitting, imbalance
from tequio.federation.selection import Choice, CohortSelector, Count, Fraction
from tequio.federation.task import LARGEST_COUNT, Counts, NoSettings, Sums, task
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.clock import Clock
    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.selection import RoundOutcome, SelectionContext


MOST_EMPTY_ROUNDS = 20


def clock_of(context: SelectionContext, selector: str) -> Clock:
    """The clock, without which selectors of this family cannot choose."""
    if context.federation.clock is None:
        raise ConfigError(f"the selector '{selector}' looks at the parties' times, and this run has no virtual clock",
                          remedy="add a [devices] table, such as: devices = \"mobile\"")
    return context.federation.clock


def draw(context: SelectionContext, count: int, fraction: float) -> NDArray[np.int64]:
    """Some eligible parties at random, in random order: a number of them, or a fraction, rounded up."""
    wanted = count or ceil(fraction * (len(context.federation.eligible())))
    return context.rng.choice(context.eligible, size=min(wanted, len(context.eligible)), replace=False)


def expected(context: SelectionContext, clock: Clock, parties: NDArray[np.int64]) -> Candidates:
    """The candidates' expected times in this round, for the model as it is now."""
    return Candidates.of(parties, clock.resources(parties, context.federation.round),
                         payloads.size({"model": context.model}), clock.rows(parties, context.local))


class ClassesReply(TypedDict):
    """Training rows of each class, the size of a row, and whether the party would hand rows over."""

    classes: Counts
    row_bytes: Annotated[Count, Le(LARGEST_COUNT)]
    shares: bool


@task("report classes", settings=NoSettings, reply=ClassesReply,
      reveals=Sums(lambda settings, schema: {"classes": 1.0}))
def report_classes(party: Party, payload: Payload, settings: NoSettings) -> ClassesReply:
    """How many training rows of each class the party has, how large a row is, and whether it would hand rows over."""
    rows = party.data.train
    target = rows.schema.target
    if target.kind != "classes":
        raise ConfigError("the classes of these rows cannot be counted: the target is not one class a row",
                          remedy="choose a selector that does not look at classes, such as 'fedcs'")
    features = rows.source.features
    return {"classes": np.bincount(rows.target, minlength=target.size),
            "row_bytes": int(np.prod(features.shape[1:])) * features.dtype.itemsize + rows.target.dtype.itemsize,
            "shares": bool(party.settings.get("share_rows"))}


def ask_classes(context: SelectionContext, parties: NDArray[np.int64]) -> Replies[ClassesReply]:
    """Ask candidates for their classes; that takes no virtual time, as the sources have it."""
    return context.federation.off_the_clock().ask(parties, report_classes, settings=NoSettings())


def chosen(context: SelectionContext, selector: str, candidates: Candidates, places: NDArray[np.int64], deadline: float,
           **memory: Any) -> Choice:
    """The choice, with the deadline on the record; nobody in many rounds on end is an error that says why."""
    clock, empty = clock_of(context, selector), 0
    clock.notes["deadline"] = deadline
    if not len(places):
        empty = int(context.memory.get("empty", 0)) + 1
        needed = candidates.training + candidates.upload + candidates.download
        fastest = float(needed.min()) if len(needed) else float("inf")
        why = f"the fastest of {len(needed)} candidates needs {fastest:.1f} s and the deadline is {deadline:.1f} s"
        context.federation.record("warning", {"message": f"the selector '{selector}' chose nobody in round "
                                                      f"{context.federation.round}: {why}"})
        if empty >= MOST_EMPTY_ROUNDS:
            raise QuorumError(f"the selector '{selector}' chose nobody in {empty} rounds in a row: {why}",
                              remedy="raise selector.deadline, ask more candidates, or use a smaller model")
    return Choice(candidates.parties[places], {**memory, "empty": empty})


@register("selector", "fedcs", paper="Nishio and Yonetani, 2019")
@dataclass(frozen=True)
class FedCS(CohortSelector):
    """Of some random candidates, as many as can train and upload one after another before a deadline.

    Parameters:
        deadline: seconds that a round may take
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
    """

    deadline: Annotated[float, Gt(0)] = 180.0
    count: Count = 0
    fraction: Fraction = 0.1

    def choose(self, context: SelectionContext) -> Choice:
        """Ask for resources, then take whoever lengthens the round least, as long as it ends in time."""
        clock = clock_of(context, "fedcs")
        candidates = expected(context, clock, draw(context, self.count, self.fraction))
        return chosen(context, "fedcs", candidates, fitting(candidates, self.deadline), self.deadline)


@register("selector", "hybridfl", paper="Yoshida et al., 2020")
@dataclass(frozen=True)
class HybridSelector(CohortSelector):
    """Of some random candidates, those that fit before a deadline and keep the classes in balance.

    Parameters:
        deadline: seconds that a round may take
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
        root: weigh by the usual coefficient of variation; without, by variance over mean, as the formula is printed
        legacy: add up times as the runs behind the published table did, which underestimates a round a little
    """

    deadline: Annotated[float, Gt(0)] = 180.0
    count: Count = 0
    fraction: Fraction = 0.1
    root: bool = False
    legacy: bool = False

    def choose(self, context: SelectionContext) -> Choice:
        """Ask for resources and classes, then choose under the deadline."""
        clock = clock_of(context, "hybridfl")
        candidates = expected(context, clock, draw(context, self.count, self.fraction))
        return hybrid_choice(context, "hybridfl", clock, candidates, self.deadline, root=self.root, legacy=self.legacy)


def hybrid_choice(context: SelectionContext, selector: str, clock: Clock, candidates: Candidates, deadline: float, *,
                  root: bool, legacy: bool, **memory: Any) -> Choice:
    """The choice under a deadline, with the offers of consenting candidates in its memory."""
    replies = ask_classes(context, candidates.parties)
    candidates = candidates.part(np.isin(candidates.parties, replies.parties))
    told = np.array(replies.values("classes")).reshape(len(replies), context.federation.schema.target.size)
    # Replies come in party order, candidates in the order of the draw.
    classes = told[np.searchsorted(replies.parties, candidates.parties)]
    places = fitting(candidates, deadline, coefficient=partial(imbalance, root=root), classes=classes, legacy=legacy)
    offers = _offers(context, clock, candidates, places, replies)
    return chosen(context, selector, candidates, places, deadline, offers=offers, **memory)


def _offers(context: SelectionContext, clock: Clock, candidates: Candidates, places: NDArray[np.int64],
            replies: Replies[ClassesReply]) -> Payload:
    """What candidates that were not chosen would hand over, and the time until the first model is uploaded."""
    picked = candidates.parties[places]
    willing = [reply for reply in replies if reply.payload["shares"] and reply.party not in picked]
    parties = np.array([reply.party for reply in willing], dtype=np.int64)
    return {"parties": parties, "classes": [reply.payload["classes"] for reply in willing],
            "row_bytes": np.array([reply.payload["row_bytes"] for reply in willing], dtype=np.int64),
            "throughput": clock.resources(parties, context.federation.round).throughput,
            "window": float(candidates.training[places].min()) if len(places) else 0.0}


@register("selector", "dyn-hybridfl", paper="Yoshida et al., 2020, with a rule of 2024")
@dataclass(frozen=True)
class DynHybridSelector(CohortSelector):
    """HybridFL's choice under a deadline that moves with the candidates' mean training and upload times.

    Parameters:
        deadline: seconds that the first round may take
        direction: slower candidates lengthen the deadline (follow, as the formula says) or shorten it (inverse)
        reference: a round's mean time is compared with that of the round before, or with the mean of all rounds so far
        damping: exponent on the factor; below 1 the deadline moves less
        lowest: the deadline never falls below this
        highest: the deadline never rises above this (0: no bound)
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
        root: weigh by the usual coefficient of variation; without, by variance over mean, as the formula is printed
        legacy: add up times as the runs behind the published table did, which underestimates a round a little
    """

    deadline: Annotated[float, Gt(0)] = 180.0
    direction: Literal["follow", "inverse"] = "follow"
    reference: Literal["previous", "mean"] = "previous"
    damping: Annotated[float, Interval(gt=0, le=1)] = 1.0
    lowest: Annotated[float, Ge(0)] = 0.0
    highest: Annotated[float, Ge(0)] = 0.0
    count: Count = 0
    fraction: Fraction = 0.1
    root: bool = False
    legacy: bool = False

    def choose(self, context: SelectionContext) -> Choice:
        """Move the deadline, then choose as HybridFL does."""
        clock = clock_of(context, "dyn-hybridfl")
        candidates = expected(context, clock, draw(context, self.count, self.fraction))
        rule = context.memory.get("rule", {})
        if len(candidates.parties):  # without candidates there is no pace to follow
            rule = self.moved(rule, float(candidates.training.mean() + candidates.upload.mean()))
            context.federation.record("deadline", {"round": context.federation.round, **rule})
        return hybrid_choice(context, "dyn-hybridfl", clock, candidates, rule.get("deadline", self.deadline),
                             root=self.root, legacy=self.legacy, rule=rule)

    def moved(self, rule: Payload, pace: float) -> Payload:
        """The rule's memory after a round whose candidates have this mean time (phi)."""
        rounds = rule.get("rounds", 0)
        first, mean = rule.get("first_pace", pace), rule.get("mean_pace", pace)
        before = self.deadline if self.reference == "mean" else rule.get("deadline", self.deadline)
        reference = mean if self.reference == "mean" else rule.get("pace", pace)
        deadline = max(before * self._factor(pace, reference), self.lowest)
        return {"deadline": min(deadline, self.highest) if self.highest else deadline, "pace": pace,
                "factor": self._factor(pace, reference), "telescoped": self.deadline * self._factor(pace, first),
                "first_pace": first, "mean_pace": (mean * rounds + pace) / (rounds + 1), "rounds": rounds + 1}

    def _factor(self, pace: float, reference: float) -> float:
        ratio = pace / reference if self.direction == "follow" else reference / pace
        return float(ratio ** self.damping)


@register("selector", "adaptive-deadline")
@dataclass(frozen=True)
class AdaptiveDeadline(CohortSelector):
    """Of some random candidates, as many as give the most useful updates per expected second.

    Parameters:
        half: how many updates in a round are worth half of infinitely many
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
        memory: weight of what was observed before against the last round, in what is learnt of delays and drop-outs
    """

    half: Annotated[float, Gt(0)] = 10.0
    count: Count = 0
    fraction: Fraction = 0.1
    memory: Annotated[float, Interval(ge=0, lt=1)] = 0.8

    def choose(self, context: SelectionContext) -> Choice:
        """Order the candidates by how little they lengthen the round, and cut where the rate is highest."""
        clock = clock_of(context, "adaptive-deadline")
        candidates = expected(context, clock, draw(context, self.count, self.fraction))
        order = fitting(candidates, float("inf"))
        delay, answering = float(context.memory.get("delay", 0.0)), float(context.memory.get("answering", 1.0))
        seconds = candidates.round_seconds(order)
        best = int(np.argmax(self.rates(seconds + delay, answering))) if len(order) else -1
        deadline = float(seconds[best] + delay) if len(order) else 0.0
        return chosen(context, "adaptive-deadline", candidates, order[:best + 1], deadline, delay=delay,
                      answering=answering, planned=float(seconds[best]) if len(order) else 0.0)

    def rates(self, seconds: NDArray[np.float64], answering: float = 1.0) -> NDArray[np.float64]:
        """Useful updates a second, if the round ends with the first, second, ... upload at these moments."""
        updates = answering * np.arange(1, len(seconds) + 1)
        return np.asarray(updates * self.half / (updates + self.half) / np.maximum(seconds, 1e-9), dtype=np.float64)

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Learn how much longer than planned the round took, and which share of the chosen answered."""
        last = clock_of(context, "adaptive-deadline").last
        if last is None or not len(last.parties) or context.memory["empty"]:
            return context.memory
        seen = {"delay": max(last.seconds - context.memory["planned"], 0.0), "answering": float(last.answered.mean())}
        return {**context.memory, **{name: self.memory * context.memory[name] + (1 - self.memory) * value
                                  for name, value in seen.items()}}
