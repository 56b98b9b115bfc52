"""Guided selection: parties with a high loss that are not too slow.

Lai, Zhu, Madhyastha, Chowdhury: Oort: efficient federated learning via guided participant selection, OSDI 2021.

The paper's statistical utility is |B| sqrt(mean of the squared losses of B): `oort-rms`. `oort` makes do with the mean
loss that parties report from training anyway, which is the same where losses are alike. Parties not tried yet are
explored uniformly, as nothing is known of their devices before they answered. Only parties that have answered are
remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np
from annotated_types import Ge, Le

from tequio.federation.evaluation import EvaluateSettings
from tequio.federation.selection import Choice, CohortSelector, Count, Fraction, Share
from tequio.federation.task import Reveals, Rows, task
from tequio.learners.metrics import row_losses
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.selection import RoundOutcome, SelectionContext

    Observed = tuple[NDArray[np.int64], NDArray[np.float64]]

_COLUMNS = {"parties": np.int64, "utility": np.float64, "seconds": np.float64, "round": np.int64, "times": np.int64}
_CLIP, _CONFIDENCE, _FIRST_PERCENTILE, _MORE_TIME = 0.95, 0.95, 30.0, 10.0


@register("selector", "oort", paper="Lai et al., 2021")
@dataclass(frozen=True)
class Oort(CohortSelector):
    """Parties whose rows the model fits badly and that answer soon, with a share of parties never tried.

    How badly is rows times the mean loss that parties report from training. The paper's root mean square of the rows'
    losses, in which few badly fitted rows count more, is in the selector `oort-rms`, at the price of one more question.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded up
        explore: share of a round's parties that are new, at first
        explore_decay: factor on that share after every round
        explore_least: the share never falls below this
        penalty: exponent on how much slower than preferred a party is (0: slow parties are as good as fast ones)
        window: rounds after which the preferred time is looked at: it grows where utility fell
        most: a party is not chosen for its utility after so many rounds (0: no bound)
    """

    count: Count = 0
    fraction: Fraction = 0.1
    explore: Share = 0.9
    explore_decay: Share = 0.98
    explore_least: Share = 0.2
    penalty: Annotated[float, Ge(0)] = 2.0
    window: Annotated[int, Ge(1)] = 20
    most: Count = 0

    def choose(self, context: SelectionContext) -> Choice:
        """Some of the best known parties, and some that are new."""
        wanted = min(self.count or ceil(self.fraction * (len(context.federation.eligible()))), len(context.eligible))
        known = _known(context.memory)
        new = context.eligible[~_mask(context, known["parties"])[context.eligible]]
        share = max(self.explore * self.explore_decay ** max(context.federation.round - 1, 0), self.explore_least)
        tried = self._candidates(context, known)
        exploring = min(max(round(share * wanted), wanted - len(tried)), len(new))
        best = self._best(context, tried, {name: values[tried] for name, values in known.items()}, wanted - exploring)
        fresh = new[context.rng.choice(len(new), exploring, replace=False, shuffle=False)]
        return Choice(np.sort(np.concatenate([known["parties"][best], fresh])), dict(context.memory))

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Remember loss and time of those that answered, and give the preferred time room where utility falls."""
        parties, utility = self.observed_utility(context, outcome)
        seconds = _observed_seconds(context, parties)
        known = _with(_known(context.memory), parties, utility, seconds, context.federation.round)
        return {**known, **self._paced(context.memory, float(utility.sum()), context.federation.round)}

    def observed_utility(self, context: SelectionContext, outcome: RoundOutcome) -> Observed:
        """Who reported a loss, and its rows times its mean loss while it trained."""
        known = [reply for reply in outcome.replies if "loss" in reply.payload]
        return (np.array([reply.party for reply in known], dtype=np.int64),
                np.array([max(reply.payload["loss"], 0.0) * reply.payload["rows"] for reply in known]))

    def _candidates(self, context: SelectionContext, known: Payload) -> NDArray[np.int64]:
        """Places of the known parties that may be chosen for their utility."""
        allowed = _mask(context, context.eligible)[known["parties"]]
        if self.most:
            allowed &= known["times"] < self.most
        return np.flatnonzero(allowed)

    def _best(self, context: SelectionContext, places: NDArray[np.int64], known: Payload,
              wanted: int) -> NDArray[np.int64]:
        """Draw by utility among those within reach of the last that would be taken."""
        if wanted <= 0 or not len(places):
            return places[:0]
        percentile = float(context.memory.get("percentile", _FIRST_PERCENTILE))
        utility = self.utility(known, context.federation.round, percentile)
        wanted = min(wanted, len(places))
        cut = _CONFIDENCE * np.partition(utility, -wanted)[-wanted]
        pool = np.flatnonzero(utility >= cut)
        # Who wins a race of exponential clocks with these rates is a draw without replacement by these weights.
        finish = context.rng.exponential(size=len(pool)) / np.maximum(utility[pool], 1e-12)
        return places[pool[np.argpartition(finish, wanted - 1)[:wanted]]]

    def utility(self, known: Payload, round: int, percentile: float) -> NDArray[np.float64]:
        """Statistical utility between 0 and 1, more for parties not seen for long, less for slow ones."""
        clipped = np.minimum(known["utility"], np.quantile(known["utility"], _CLIP))
        low, high = float(clipped.min()), float(clipped.max())
        scaled = (clipped - low) / (high - low) if high > low else np.ones(len(clipped))
        worth = scaled + np.sqrt(0.1 * log(max(round, 1)) / np.maximum(known["round"], 1))
        preferred = float(np.percentile(known["seconds"], percentile))
        slow = known["seconds"] > preferred
        slowness = np.divide(preferred, known["seconds"], out=np.ones(len(worth)), where=slow)
        return np.asarray(worth * slowness ** self.penalty, dtype=np.float64)

    def _paced(self, memory: Payload, gained: float, round: int) -> Payload:
        """The pacer: where a window of rounds brought less utility than the one before, slower parties are let in."""
        percentile = float(memory.get("percentile", _FIRST_PERCENTILE))
        gain, before = float(memory.get("gain", 0.0)) + gained, float(memory.get("gain_before", 0.0))
        if round % self.window:
            return {"percentile": percentile, "gain": gain, "gain_before": before}
        percentile = min(percentile + (_MORE_TIME if gain < before else 0.0), 100.0)
        return {"percentile": percentile, "gain": 0.0, "gain_before": gain}


@register("selector", "oort-rms", paper="Lai et al., 2021")
@dataclass(frozen=True)
class OortAsPublished(Oort):
    """Oort with the paper's utility: rows times the root mean square of the rows' losses.

    Of two parties with the same mean loss, the one whose losses differ more between rows is worth more. Who took part
    is asked for the sum of squares under the model that it had received: the paper adds them up while the party trains,
    under a model that moves. `oort` asks nothing more and takes the mean loss that training reports.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded up
        explore: share of a round's parties that are new, at first
        explore_decay: factor on that share after every round
        explore_least: the share never falls below this
        penalty: exponent on how much slower than preferred a party is (0: slow parties are as good as fast ones)
        window: rounds after which the preferred time is looked at: it grows where utility fell
        most: a party is not chosen for its utility after so many rounds (0: no bound)
    """

    def observed_utility(self, context: SelectionContext, outcome: RoundOutcome) -> Observed:
        """Who answered, and |B| sqrt(mean of the squared losses of B). Asking takes no virtual time."""
        if not outcome.replies:
            return outcome.replies.parties, np.zeros(0)
        replies = context.federation.off_the_clock().ask(outcome.replies.parties, squared_losses,
                                                         {"model": context.model},
                                                         settings=EvaluateSettings(learner=context.learner,
                                                                                   part="train"))
        rows, roots = replies.values("rows").astype(np.float64), replies.values("root").astype(np.float64)
        return replies.parties, np.sqrt(rows) * roots


class Squares(TypedDict):
    """How many rows a party has in a part, and the root of the sum of their squared losses."""

    rows: Rows
    root: Annotated[float, Ge(0), Le(2.0 ** 53)]


@task("select.squared losses", settings=EvaluateSettings, reply=Squares, reveals=Reveals.METRICS)
def squared_losses(party: Party, payload: Payload, settings: EvaluateSettings) -> Squares:
    """How badly the received model fits the party's rows of a part."""
    rows = party.data.part(settings.part)
    losses = row_losses(rows.schema.target, settings.learner.predict(payload["model"], rows), rows.target)
    return {"rows": len(rows), "root": float(np.sqrt(losses @ losses))}


def _known(memory: Payload) -> Payload:
    return {name: memory.get(name, np.zeros(0, dtype=kind)) for name, kind in _COLUMNS.items()}


def _with(known: Payload, parties: NDArray[np.int64], utility: NDArray[Any], seconds: NDArray[Any],
          round: int) -> Payload:
    """What is known, with what some parties (sorted) showed in this round."""
    everyone = np.union1d(known["parties"], parties)
    old, now = np.searchsorted(everyone, known["parties"]), np.searchsorted(everyone, parties)
    grown = {name: np.zeros(len(everyone), dtype=kind) for name, kind in _COLUMNS.items()}
    for name, values in known.items():
        grown[name][old] = values
    grown["parties"], grown["utility"][now], grown["seconds"][now], grown["round"][now] = (
        everyone, utility, seconds, round)
    grown["times"][now] += 1
    return grown


def _mask(context: SelectionContext, parties: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For every party of the federation, whether it is one of these."""
    mask = np.zeros(len(context.federation), dtype=bool)
    mask[parties] = True
    return mask


def _observed_seconds(context: SelectionContext, parties: NDArray[np.int64]) -> NDArray[np.float64]:
    """When each party's answer came on the virtual clock; all alike without one."""
    clock = context.federation.clock
    if clock is None or clock.last is None:
        return np.zeros(len(parties))
    order = np.argsort(clock.last.parties)
    found: NDArray[np.float64] = clock.last.ends[order][np.searchsorted(clock.last.parties[order], parties)]
    return found
