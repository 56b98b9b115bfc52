"""Aggregators that follow each party's way through the rounds: consistency weighting and FLDetector.

Martínez Enríquez, Iglesias Rodríguez, García Polo: FLProtector (Universidade de Santiago de Compostela).
Zhang, Cao, Jia, Gong: FLDetector: defending federated learning against model poisoning attacks via detecting malicious
clients, KDD 2022. The paper starts training anew without the parties it detects; here they are left out from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.federation.aggregation import Aggregator, Combined, flatten, weighted_mean, zeros
from tequio.federation.aggregators.trajectory import Trajectory, gone_on
from tequio.federation.rng import stream
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Updates
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

    Vector = NDArray[np.float64]

Score = Literal["raw", "normalised", "windowed", "relative", "outlying"]

_GAP_SAMPLES = 20
_OUTLYING = 2.0


@register("aggregator", "consistency", paper="Martínez Enríquez et al., 2025")
@dataclass(frozen=True)
class Consistency(Aggregator):
    """Parties count as far as their updates go where their last ones and the model's change foretell.

    Until there is a history to foretell from, which takes two rounds, all parties count alike, and what a hostile one
    plants then is forgotten slowly.

    Parameters:
        blend: share X of the parties' own weights (their rows) in the weight; 1 is the mean
        score: what is weighed: this round's discrepancy (raw), its share of the cohort's sum (normalised), the mean of
            that share over a window (windowed), the discrepancy over the cohort's median (relative), which does not
            depend on the size of the model, or how much more than twice as far as usual a party's update changes from
            the others' changes (outlying), which spares honest parties that are merely different, is not blurred where
            all are foretold badly, and takes one round of history only
        temperature: discrepancies are divided by it
        history: how many pairs of steps and changes are remembered
        window: over how many rounds the windowed score is a mean
        beginning: how updates count before there is a history, or from a party that was absent in the last round: as
            they are (alike), or shortened to the median length of the cohort's where they are longer (bounded)
    """

    blend: Annotated[float, Interval(ge=0, le=1)] = 0.0
    score: Score = "raw"
    temperature: Annotated[float, Gt(0)] = 1.0
    history: Annotated[int, Ge(1)] = 10
    window: Annotated[int, Ge(1)] = 10
    beginning: Literal["alike", "bounded"] = "alike"

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The mean by X * rows + (1 - X) * trust, where trust is a softmax of the negated scores."""
        matrix, before = updates.matrix(), Trajectory.of(memory)
        gaps = before.discrepancies(updates, matrix) if before is not None else None
        windows = _windows(memory, updates, gaps, self.window)
        if self.score == "outlying":
            scores = None if before is None else np.maximum(before.strangeness(updates, matrix) - _OUTLYING, 0.0)
        else:
            scores = None if gaps is None else self._scores(gaps, updates, windows)
        trust = np.full(len(updates), 1.0 / len(updates)) if scores is None else inverted_softmax(
            scores / self.temperature)
        weights = self.blend * updates.weights + (1.0 - self.blend) * updates.weights.sum() * trust
        arrays = updates.arrays
        if self.beginning == "bounded":
            arrays = _shortened(updates, matrix, None if before is None or scores is None else before.parties)
        mean = weighted_mean(arrays, weights)
        after = gone_on(before, updates, matrix, flatten(mean), self.history)
        notes: Payload = {"parties": updates.parties.tolist(), "trust": trust.tolist()}
        if gaps is not None:
            notes |= {"discrepancy": gaps.tolist(), "score": _windowed(updates, windows).tolist()}
        return Combined(mean, {"trajectory": after.to_payload(), "scores": windows}, notes)

    def _scores(self, gaps: Vector, updates: Updates, windows: dict[str, list[float]]) -> Vector:
        if self.score == "windowed":
            return _windowed(updates, windows)
        if self.score == "relative":
            median = float(np.median(gaps))
            return gaps / median if median > 0 else gaps
        return normalised(gaps) if self.score == "normalised" else gaps


@register("aggregator", "consistency-plus")
@dataclass(frozen=True)
class ConsistencyPlus(Consistency):
    """Consistency that leaves out who is out of the common run from the second round on, and nobody else.

    A hostile party that scales or turns its updates changes them several times as much as honest ones do, however
    different their rows. Who was not there in the last round cannot pull farther than the median update.

    Parameters:
        blend: share X of the parties' own weights (their rows) in the weight; 1 is the mean
        score: what is weighed, see `consistency`
        temperature: scores are divided by it
        history: how many pairs of steps and changes are remembered
        window: over how many rounds the windowed score is a mean
        beginning: how updates count from parties without a history: as they are (alike), or shortened to the median
            length of the cohort's where they are longer (bounded)
    """

    score: Score = "outlying"
    temperature: Annotated[float, Gt(0)] = 0.1
    beginning: Literal["alike", "bounded"] = "bounded"


def _shortened(updates: Updates, matrix: NDArray[Any], known: NDArray[np.int64] | None) -> list[Arrays]:
    """The updates, where those of parties that are not known yet are no longer than the median."""
    lengths = np.linalg.norm(matrix, axis=1)
    longest = np.where(np.isin(updates.parties, [] if known is None else known), np.inf, np.median(lengths))
    factors = np.minimum(1.0, longest / np.maximum(lengths, np.finfo(float).tiny))
    return [update if factor == 1.0 else
            {name: (values * factor).astype(values.dtype) for name, values in update.items()}
            for update, factor in zip(updates.arrays, factors, strict=True)]


def inverted_softmax(scores: Vector) -> Vector:
    """Positive weights that sum to one and fall with the score."""
    weights = np.exp(-(scores - scores.min()))
    shares: Vector = weights / weights.sum()
    return shares


def normalised(gaps: Vector) -> Vector:
    """Shares of the sum; all alike where it is nought."""
    total = gaps.sum()
    shares: Vector = gaps / total if total > 0 else np.full(len(gaps), 1.0 / len(gaps))
    return shares


def _windows(memory: Payload, updates: Updates, gaps: Vector | None, window: int) -> dict[str, list[float]]:
    """The last normalised discrepancies of each party, this round's among them."""
    windows = {name: list(values) for name, values in memory.get("scores", {}).items()}
    if gaps is not None:
        for party, share in zip(updates.parties.tolist(), normalised(gaps).tolist(), strict=True):
            windows[str(party)] = [*windows.get(str(party), []), share][-window:]
    return windows


def _windowed(updates: Updates, windows: dict[str, list[float]]) -> Vector:
    return np.array([np.mean(windows[str(party)]) for party in updates.parties.tolist()])


@register("aggregator", "fldetector", paper="Zhang et al., 2022")
@dataclass(frozen=True)
class FLDetector(Aggregator):
    """The mean without parties that keep departing from where their updates are foretold to go.

    A gap statistic says whether the parties' scores form more than one cluster; if so, those of the higher one are
    left out from then on.

    Parameters:
        window: over how many rounds a score is a mean; nobody is judged before it is full
        history: how many pairs of steps and changes are remembered
    """

    window: Annotated[int, Ge(1)] = 10
    history: Annotated[int, Ge(1)] = 10

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Score, look for two clusters, and average the parties that are not left out."""
        matrix, before = updates.matrix(), Trajectory.of(memory)
        gaps = before.discrepancies(updates, matrix) if before is not None else None
        windows = _windows(memory, updates, gaps, self.window)
        removed = np.union1d(memory.get("removed", np.empty(0, dtype=np.int64)), self._suspects(updates, windows))
        kept = ~np.isin(updates.parties, removed)
        weights = np.where(kept, updates.weights, 0.0)
        mean = weighted_mean(updates.arrays, weights) if kept.any() else zeros(updates.arrays[0])
        after = gone_on(before, updates, matrix, flatten(mean), self.history)
        notes: dict[str, Any] = {"parties": updates.parties.tolist(), "removed": removed.tolist()}
        return Combined(mean, {"trajectory": after.to_payload(), "scores": windows, "removed": removed}, notes)

    def _suspects(self, updates: Updates, windows: dict[str, list[float]]) -> NDArray[np.int64]:
        judged = np.array([party for party in updates.parties.tolist()
                           if len(windows.get(str(party), [])) >= self.window], dtype=np.int64)
        scores = np.array([np.mean(windows[str(party)]) for party in judged.tolist()])
        return judged[scores >= splitting_point(scores)] if len(judged) > 2 and has_clusters(scores) else judged[:0]


def splitting_point(scores: Vector) -> float:
    """Where two-means cuts numbers in two: the smallest member of the higher cluster."""
    ordered = np.sort(scores)
    spreads = [_spread(ordered[:cut]) + _spread(ordered[cut:]) for cut in range(1, len(ordered))]
    return float(ordered[1 + int(np.argmin(spreads))])


def has_clusters(scores: Vector) -> bool:
    """Whether the gap statistic (Tibshirani et al., 2001) prefers two clusters to one.

    Its reference samples come from a stream of their own, so that the answer depends on the scores alone.
    """
    reach = scores.max() - scores.min()
    if not reach > 0:
        return False
    draw = stream(0, "gap statistic")
    samples = [_log_spreads(draw.random(len(scores))) for _ in range(_GAP_SAMPLES)]
    expected, deviation = np.mean(samples, axis=0), np.std(samples, axis=0) * np.sqrt(1 + 1 / _GAP_SAMPLES)
    gaps = expected - _log_spreads((scores - scores.min()) / reach)
    return bool(gaps[0] < gaps[1] - deviation[1])


def _log_spreads(values: Vector) -> Vector:
    cut = splitting_point(values)
    two = _spread(values[values < cut]) + _spread(values[values >= cut])
    return np.log(np.maximum([_spread(values), two], np.finfo(float).tiny))


def _spread(values: Vector) -> float:
    return float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
