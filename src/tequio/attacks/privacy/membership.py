"""Membership inference: which rows a model was trained on.

Yeom, Giacomelli, Fredrikson, Jha: Privacy risk in machine learning: analyzing the connection to overfitting, CSF 2018
(loss threshold). Carlini, Chien, Nasr, Song, Terzis, Tramer: Membership inference attacks from first principles, S&P
2022 (losses beside those of models that did not see the row).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.attacks.label_leakage import area_under_curve
from tequio.attacks.privacy.scores import advantage, found_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LEAST_PROBABILITY = 1e-12


def class_losses(scores: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Cross-entropy of each row from the probabilities of classes."""
    true = scores[np.arange(len(target)), target].astype(np.float64)
    losses: NDArray[np.float64] = -np.log(np.clip(true, _LEAST_PROBABILITY, 1.0))
    return losses


def by_threshold(members: NDArray[np.float64], others: NDArray[np.float64]) -> dict[str, float]:
    """Take for a member whoever's loss is at most the mean loss of training, which this attacker knows."""
    losses = np.concatenate([members, others])
    is_member = np.arange(len(losses)) < len(members)
    return {"advantage": advantage(losses <= members.mean(), is_member), "area": area_under_curve(-losses, is_member),
            "found_at_1_percent": found_at(-losses, is_member, 0.01)}


def by_shadows(members: NDArray[np.float64], others: NDArray[np.float64], shadows: Sequence[NDArray[np.float64]]
               ) -> dict[str, float]:
    """Compare each row's log-odds with how those of models that never saw it spread: hard rows no longer look new.

    `shadows` are the losses of the same rows, members first, under such models.
    """
    losses = np.concatenate([members, others])
    outside = np.stack([_log_odds(each) for each in shadows])
    spread = np.sqrt(np.mean(outside.var(axis=0))) + 1e-9
    scores = (_log_odds(losses) - outside.mean(axis=0)) / spread
    is_member = np.arange(len(losses)) < len(members)
    return {"shadow_area": area_under_curve(scores, is_member),
            "shadow_found_at_1_percent": found_at(scores, is_member, 0.01)}


def _log_odds(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    chances = np.clip(np.exp(-losses), _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    odds: NDArray[np.float64] = np.log(chances) - np.log1p(-chances)
    return odds
