"""Membership: which rows a model was trained on, told by how models with and without a row answer it.

LiRA: Carlini, Chien, Nasr, Song, Terzis, Tramer: Membership inference attacks from first principles, S&P 2022. Of each
row it compares the model's log-odds with those of shadow models that were trained with the row and without it.

RMIA: Zarifzadeh, Liu, Shokri: Low-cost high-power membership inference attacks, ICML 2024. It compares how much more
probable the model finds the row than models usually do, with the same of other rows. A few shadows are enough.

The area under the ROC curve has DeLong's interval: DeLong, DeLong, Clarke-Pearson: Comparing the areas under two or
more correlated receiver operating characteristic curves, Biometrics 1988.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logsumexp, ndtri
from scipy.stats import rankdata

from tequio.attacks.label_leakage import area_under_curve
from tequio.privacy.auditing import share_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MANY = 64
"""Shadows with which the spread of each row on its own is known well enough, and RMIA asks for a ratio above 2."""

_LEAST = 1e-30
"""Below the smallest probability that single precision can hold apart from 0."""


@dataclass(frozen=True)
class Shadows:
    """Log-odds of the true class of each row: under the model that is attacked (`seen`), under shadow models
    (`answers`, one line a shadow), and which rows these were trained on (`inside`)."""

    seen: Floats
    answers: Floats
    inside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.answers)


def log_odds(probabilities: NDArray[Any], target: NDArray[Any]) -> Floats:
    """ln p - ln(1 - p) of each row's true class, with 1 - p summed over the other classes: it does not cancel where the
    model is sure."""
    values = np.log(np.maximum(probabilities.astype(np.float64), _LEAST))
    return log_odds_of_outputs(values, target)


def log_odds_of_outputs(outputs: NDArray[Any], target: NDArray[Any]) -> Floats:
    """The same from what a model gives before its softmax, or before its sigmoid where two classes have one output."""
    values = outputs.astype(np.float64)
    if values.shape[1] == 1:
        return np.where(target == 1, values[:, 0], -values[:, 0])
    rows = np.arange(len(target))
    others = values.copy()
    others[rows, target] = -np.inf
    found: Floats = values[rows, target] - logsumexp(others, axis=1)
    return found


def lira_online(shadows: Shadows) -> Floats:
    """ln of how likely the model's log-odds are among shadows with the row, over those without it."""
    with_row, without = _spread(shadows, shadows.inside), _spread(shadows, ~shadows.inside)
    return _log_normal(shadows.seen, *with_row) - _log_normal(shadows.seen, *without)


def lira_offline(shadows: Shadows) -> Floats:
    """How far the model's log-odds lie above those of shadows without the row, in their deviations."""
    mean, deviation = _spread(shadows, ~shadows.inside)
    return (shadows.seen - mean) / deviation


def rmia(shadows: Shadows) -> Floats:
    """Share of rows that the row outdoes in how much more probable the model finds it than shadows do."""
    usual = expit(shadows.answers).mean(axis=0)
    return _outdone(expit(shadows.seen) / np.maximum(usual, _LEAST), 2.0 if len(shadows) >= _MANY else 1.0)


def rmia_offline(shadows: Shadows) -> Floats:
    """The same by shadows without the row; how its presence would have raised them is tuned on the first of them."""
    first = Shadows(shadows.answers[0], shadows.answers[1:], shadows.inside[1:])
    slopes = np.linspace(0.0, 1.0, 11)
    areas = [area_under_curve(_offline_ratio(first, slope), shadows.inside[0]) for slope in slopes]
    slope = float(slopes[int(np.argmax(areas))])
    return _outdone(_offline_ratio(shadows, slope), 2.0 if len(shadows) >= _MANY else 1.0)


def _offline_ratio(shadows: Shadows, slope: float) -> Floats:
    """A row is as probable as the mean of models without it and of models with it, taken to be linear in each other."""
    outside = _mean(expit(shadows.answers), ~shadows.inside)
    found: Floats = expit(shadows.seen) / np.maximum(((1 + slope) * outside + 1 - slope) / 2, _LEAST)
    return found


def _outdone(ratio: Floats, least: float) -> Floats:
    """Of each row the share of rows z with ratio / ratio of z of at least so much."""
    found: Floats = np.searchsorted(np.sort(ratio), ratio / least, side="right") / len(ratio)
    return found


def _spread(shadows: Shadows, counted: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean and deviation of each row's log-odds over the shadows that count for it. Of few shadows the deviation is
    pooled over rows."""
    mean = _mean(shadows.answers, counted)
    squares = ((shadows.answers - mean) ** 2 * counted).sum(axis=0)
    freedom = counted.sum(axis=0) - 1
    if len(shadows) < _MANY:
        squares, freedom = squares.sum(keepdims=True), freedom.sum(keepdims=True)
    return mean, np.sqrt(squares / np.maximum(freedom, 1)) + 1e-12


def _mean(values: Floats, counted: NDArray[np.bool_]) -> Floats:
    found: Floats = (values * counted).sum(axis=0) / counted.sum(axis=0)
    return found


def _log_normal(values: Floats, mean: Floats, deviation: Floats) -> Floats:
    return -0.5 * ((values - mean) / deviation) ** 2 - np.log(deviation)


def area_bounds(scores: NDArray[Any], is_member: NDArray[np.bool_], confidence: float = 0.95) -> tuple[float, float]:
    """DeLong's interval of the area; where no two rows are ranked wrongly (or rightly), which he would take for sure,
    that of as many independent pairs."""
    above, below = _placements(scores, is_member)
    area, pairs = float(above.mean()), min(len(above), len(below))
    variance = float(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below))
    if not variance:
        return share_bounds(round(area * pairs), pairs, confidence) if area in (0.0, 1.0) else (area, area)
    margin = float(ndtri(0.5 + confidence / 2)) * variance**0.5
    return max(area - margin, 0.0), min(area + margin, 1.0)


def _placements(scores: NDArray[Any], is_member: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Of each member the share of others below it, and of each other the share of members above it."""
    inside, outside = scores[is_member], scores[~is_member]
    ranks = rankdata(np.concatenate([inside, outside]))
    above = (ranks[:len(inside)] - rankdata(inside)) / len(outside)
    below = (ranks[len(inside):] - rankdata(outside)) / len(inside)
    return above, 1 - below


REPORTED = {"found_at_1_percent": 0.01, "found_at_1_permille": 0.001}
"""The shares of false alarms at which members found are reported, by the name of that number."""

_FEWEST_ALARMS = 10
"""False alarms on which a reported share has to rest."""


def measured(scores: NDArray[Any], is_member: NDArray[np.bool_]) -> dict[str, float]:
    """How well scores tell members: the area under the ROC curve, and the share of members found at few false alarms,
    each with its 95 % interval. What would rest on fewer than ten false alarms is left out."""
    low, high = area_bounds(scores, is_member)
    found = {"success": area_under_curve(scores, is_member), "low": low, "high": high, "guess": 0.5,
             "attempts": float(len(scores))}
    members, others = int(is_member.sum()), int((~is_member).sum())
    for name, alarms in REPORTED.items():
        if alarms * others >= _FEWEST_ALARMS:
            hits = round(found_at(scores, is_member, alarms) * members)
            low, high = share_bounds(hits, members)
            found |= {name: hits / members, f"{name}_low": low, f"{name}_high": high}
    return found


def found_at(scores: NDArray[Any], is_member: NDArray[np.bool_], alarms: float) -> float:
    """Share of members that score above all but that share of the others."""
    others = np.sort(scores[~is_member])
    border = others[len(others) - 1 - int(alarms * len(others))]
    return float(np.mean(scores[is_member] > border))
