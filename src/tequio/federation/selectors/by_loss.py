"""Asking parties how well a model fits their training rows.

Power-of-choice: the candidates with the highest losses.

Cho, Wang, Joshi: Towards understanding biased client selection in federated learning, AISTATS 2022.

Candidates are drawn with chances in proportion to their rows, without replacement. They tell their loss of the current
model (pow-d), or the loss that they last reported from training stands for it (rpow-d: nothing more is sent; parties
that never took part come first).

Active federated learning.

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

from tequio.errors import ConfigError
from tequio.federation.evaluation import EvaluateSettings, evaluate, tallies_in
from tequio.federation.selection import (
    Choice,
    CohortSelector,
    Count,
    Fraction,
    Share,
    cohort_size,
    draw_by_weight,
    known_values,
    top_places,
)
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.selection import SelectionContext

    Losses = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.selection import RoundOutcome


def asked_losses(context: SelectionContext, parties: NDArray[np.int64]) -> Losses:
    """Who answered, each one's mean loss of the current model on its training rows, and how many these are.

    Asking takes no virtual time, as the sources have it.
    """
    replies = context.federation.off_the_clock().ask(parties, evaluate, {"model": context.model},
                                                     settings=EvaluateSettings(learner=context.learner, part="train"))
    tallies = {party: tally for party, tally in tallies_in(replies).items() if "loss_sum" in tally}
    rows = np.array([tally["rows"] for tally in tallies.values()], dtype=np.float64)
    sums = np.array([tally["loss_sum"] for tally in tallies.values()], dtype=np.float64)
    return np.array(list(tallies), dtype=np.int64), sums / rows, rows


def reported_losses(replies: Replies) -> Losses:
    """The same as the parties reported it from training: the mean loss while they trained their last epoch."""
    for reply in replies:
        if not {"loss", "rows"} <= reply.payload.keys():
            raise ConfigError("the selector looks at training losses, and this algorithm's parties report none",
                              remedy="use an algorithm whose parties train by gradient descent, such as 'fedavg'")
    return replies.parties, replies.values("loss").astype(np.float64), replies.values("rows").astype(np.float64)


@register("selector", "power-of-choice", paper="Cho et al., 2022")
@dataclass(frozen=True)
class PowerOfChoice(CohortSelector):
    """Of some candidates, drawn by size, those that the model fits worst.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        candidates: how many candidates are drawn (0: twice the parties of a round)
        losses: candidates are asked for their loss (asked), or the one last reported from training is used (reported)
    """

    count: Count = 0
    fraction: Fraction = 0.1
    candidates: Count = 0
    losses: Literal["asked", "reported"] = "asked"

    def choose(self, context: SelectionContext) -> Choice:
        """Draw the candidates, then take the highest losses."""
        wanted = cohort_size(context, self.count, self.fraction)
        drawn = min(max(self.candidates or 2 * wanted, wanted), len(context.eligible))
        sizes = np.log(context.federation.sizes[context.eligible].astype(np.float64))
        candidates = context.eligible[draw_by_weight(sizes, drawn, context.rng)]
        known = known_values(context, "losses", np.inf)
        places = top_places(self._losses(context, candidates, known), wanted, context.rng)
        return Choice(candidates[places], {"losses": known} if self.losses == "reported" else {})

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Remember what was reported, where that is used."""
        if self.losses == "asked":
            return {}
        known = known_values(context, "losses", np.inf)
        parties, means, _ = reported_losses(outcome.replies)
        known[parties] = means
        return {"losses": known}

    def _losses(self, context: SelectionContext, candidates: NDArray[np.int64],
                known: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.losses == "reported":
            return known[candidates]
        # Whoever does not answer now will hardly train: such candidates come last.
        found = np.full(len(candidates), -np.inf)
        parties, means, _ = asked_losses(context, candidates)
        found[np.searchsorted(candidates, parties)] = means
        return found


@register("selector", "afl", paper="Goetz et al., 2019")
@dataclass(frozen=True)
class ActiveParties(CohortSelector):
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

    def choose(self, context: SelectionContext) -> Choice:
        """Ask newcomers for their value, then draw by value and at random."""
        values = known_values(context, "values", np.nan)
        newcomers = context.eligible[np.isnan(values[context.eligible])]
        if len(newcomers):
            self._learn(values, asked_losses(context, newcomers))
        wanted = cohort_size(context, self.count, self.fraction)
        valued = floor(round((1 - self.explored) * wanted, 9))
        by_value = self._by_value(_filled(values[context.eligible]), valued, context.rng)
        others = np.delete(np.arange(len(context.eligible)), by_value)
        at_random = context.rng.choice(others, wanted - len(by_value), replace=False)
        places = np.sort(np.concatenate([by_value, at_random]))
        return Choice(context.eligible[places], {"values": values})

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Those who took part tell a new value."""
        values, replies = known_values(context, "values", np.nan), outcome.replies
        if replies:
            self._learn(values, reported_losses(replies) if self.measured == "training"
                        else asked_losses(context, replies.parties))
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
