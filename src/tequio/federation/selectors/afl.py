"""Active federated learning.

Goetz, Malik, Bui, Moon, Liu, Kumar: Active federated learning, 2019.

A party is worth more the worse the model fits it. Parties below a cut of the values are left out, others are drawn with
chances in proportion to exp(sharpness * value), and a share of the places is drawn from all parties alike. Only parties
of the last round tell a new value; before the first round everybody tells the value of the initial model.

The paper's value is the sum of losses over sqrt(rows), so that large parties count more; with the mean over sqrt(rows)
small parties do. The usual sharpness (0.01 to 0.03) makes exp(sharpness * value) nearly the same for all: then only the
cut tells parties apart. Taking the best in place of drawing turns into visiting everybody in turn, because a visited
party's value falls and those of the others stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge

from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import (
    Count,
    Fraction,
    Share,
    cohort_size,
    draw_by_weight,
    known_values,
    top_places,
)
from tequio.federation.selectors.losses import asked_losses, reported_losses
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.selection import Consequence, Turn
    from tequio.federation.selectors.losses import Losses


@register("selector", "afl", paper="Goetz et al., 2019")
@dataclass(frozen=True)
class ActiveParties:
    """Parties that the model fits badly are drawn more often, and some at random.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        excluded: share alpha_1 of the parties, those with the lowest values, that only the random places can go to
        sharpness: alpha_2, how much chances follow values (0: not at all)
        explored: share alpha_3 of the places that are drawn from all parties alike
        loss: a value is the mean loss, or the sum of losses, over sqrt(rows)
        measured: the loss as reported from the last epoch of training, or a fresh one of the model they had received
        take: draw the other places by value (sample), or give them to the highest values (top)
    """

    count: Count = 0
    fraction: Fraction = 0.1
    excluded: Share = 0.5
    sharpness: Annotated[float, Ge(0)] = 0.03
    explored: Share = 0.3
    loss: Literal["mean", "sum"] = "mean"
    measured: Literal["training", "fresh"] = "training"
    take: Literal["sample", "top"] = "sample"

    def choose(self, turn: Turn) -> Choice:
        """Ask newcomers for their value, then draw by value and at random."""
        values = known_values(turn, "values", np.nan)
        newcomers = turn.eligible[np.isnan(values[turn.eligible])]
        if len(newcomers):
            self._learn(values, asked_losses(turn, newcomers))
        wanted = cohort_size(turn, self.count, self.fraction)
        valued = floor(round((1 - self.explored) * wanted, 9))
        by_value = self._by_value(_filled(values[turn.eligible]), valued, turn.rng)
        others = np.delete(np.arange(len(turn.eligible)), by_value)
        at_random = turn.rng.choice(others, wanted - len(by_value), replace=False)
        places = np.sort(np.concatenate([by_value, at_random]))
        return Choice(turn.eligible[places], {"values": values})

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Those who took part tell a new value."""
        values, replies = known_values(turn, "values", np.nan), consequence.replies
        if replies:
            self._learn(values, reported_losses(replies) if self.measured == "training"
                        else asked_losses(turn, replies.parties))
        return {"values": values}

    def _learn(self, values: NDArray[np.float64], losses: Losses) -> None:
        parties, means, rows = losses
        values[parties] = means / np.sqrt(rows) if self.loss == "mean" else means * np.sqrt(rows)

    def _by_value(self, values: NDArray[np.float64], wanted: int, rng: np.random.Generator) -> NDArray[np.int64]:
        cut = min(floor(round(self.excluded * len(values), 9)), len(values) - wanted)
        log_chances = self.sharpness * values
        log_chances[np.argsort(values, kind="stable")[:cut]] = -np.inf
        if self.take == "sample":
            return draw_by_weight(log_chances, wanted, rng)
        return top_places(np.where(np.isinf(log_chances), -np.inf, values), wanted, rng)


def _filled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Parties that could not be asked count as average."""
    unknown = np.isnan(values)
    mean = float(values[~unknown].mean()) if not unknown.all() else 0.0
    return np.where(unknown, mean, values)
