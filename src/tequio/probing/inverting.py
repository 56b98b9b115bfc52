"""Rows reconstructed from updates: of one row exactly, of a batch by a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Interval

from tequio.attacks.privacy.inference import (
    is_recognised,
    signal_to_noise,
    squared_error,
    structural_similarity,
)
from tequio.attacks.privacy.inversion import label_of, last_bias, reconstructed
from tequio.attacks.privacy.matching import Search, in_best_order, label_counts, matched_rows, nearest_of_all
from tequio.errors import ConfigError
from tequio.federation.aggregation import zeros
from tequio.federation.rng import stream
from tequio.probing.probe import View, interval
from tequio.probing.target import ProbeOfAveraging, holding, observed, probed
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.experiments.running.results import Result
    from tequio.learners.learner import Arrays, LocalTraining
    from tequio.probing.target import Probed

_MOST_VICTIMS, _MOST_DECOYS = 30, 99


@dataclass(frozen=True)
class Inverted:
    """Rows of a batch, what was made of them, in the same order, and the share of labels that showed."""

    truth: NDArray[np.floating]
    guess: NDArray[np.float64]
    labels_told: float


@register("probe", "gradient-inversion", paper="Zhu et al., 2019; Geiping et al., 2020")
@dataclass(frozen=True)
class GradientInversion(ProbeOfAveraging):
    """Which row did a party train on? From the update of one plain step on one row.

    Exact where rows enter a dense layer, else by a search. `success` is the share of rows that are, among 99 others,
    the most like their reconstruction; `guess_psnr` is the likeness of the mean of the attacker's own rows.
    """

    views: ClassVar[tuple[View, ...]] = ("coordinator", "released")
    assumes: ClassVar[str] = "the model, and that a party takes one plain step on one row"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """One row of each party, in the first round, when gradients are longest."""
        run = probed(result)
        found = inverted(run, view)
        decoys = np.asarray(run.own.features)[:_MOST_DECOYS]
        hits = sum(is_recognised(one.truth[0], one.guess[0], decoys) for one in found)
        return {**interval(hits, len(found)), "guess": 1 / (1 + len(decoys)), **_likeness(run, found)}


@register("probe", "batch-inversion", paper="Geiping et al., 2020")
@dataclass(frozen=True)
class BatchInversion(ProbeOfAveraging):
    """Which rows did a party train on? From the update of plain steps on a batch of them.

    Labels are restored from the bias of the output layer, then rows are searched for whose gradient points the same
    way, from several random starts; several steps are replayed. `success` is the share of rows that are, of the batch
    and of 99 others, the nearest to what they were matched with. The interval takes rows for independent, which those
    of one batch are not quite.

    Parameters:
        batch: rows that a party trains on, all in each step
        steps: plain steps that it takes
        victims: most parties attacked
        iterations: of the search
        restarts: random starts, of which the best objective is kept
        smoothness: weight of total variation for images (tables have none)
    """

    views: ClassVar[tuple[View, ...]] = ("coordinator", "released")
    assumes: ClassVar[str] = "the model, the learning rate, the size of the batch, that steps are plain, and rows of " \
                             "the same kind for the mean prediction"

    batch: Annotated[int, Interval(ge=1, le=16)] = 4
    steps: Annotated[int, Interval(ge=1, le=8)] = 1
    victims: Annotated[int, Ge(1)] = 8
    iterations: Annotated[int, Ge(8)] = 2400
    restarts: Annotated[int, Ge(1)] = 4
    smoothness: Annotated[float, Ge(0)] = 1e-4

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """One batch of each party, in the first round."""
        run = probed(result)
        found, own = inverted_batches(run, view, self), np.asarray(run.own.features)
        rng, hits, decoys = stream(run.seed, "probe decoys"), 0, min(_MOST_DECOYS, len(own))
        for one in found:
            others = own[rng.permutation(len(own))[:decoys]]
            hits += int(nearest_of_all(one.truth, one.guess, others).sum())
        return {**interval(hits, self.batch * len(found)), "guess": self.batch / (self.batch + decoys),
                **_likeness(run, found)}


def inverted(run: Probed, view: View, most: int = _MOST_VICTIMS) -> list[Inverted]:
    """Reconstruct the one row of each party from a round in which each takes one plain step on it."""
    schema, rng, found = run.scenario.population.schema, stream(run.seed, "probe inversion"), []
    for model, gradient, truth, labels in _seen(run, view, 1, 1, most):
        guess = reconstructed(run.algorithm.learner, schema, model, gradient, run.bounds, rng)
        found.append(Inverted(truth, guess[None], float(label_of(gradient, schema.target.size) == labels[0])))
    return found


def inverted_batches(run: Probed, view: View, how: BatchInversion) -> list[Inverted]:
    """Reconstruct a batch of each party from a round in which each takes plain steps on it."""
    schema, learner = run.scenario.population.schema, run.algorithm.learner
    seen = list(_seen(run, view, how.batch, how.steps, how.victims))
    model, rate = seen[0][0], run.algorithm.local.learning_rate
    expected = learner.predict(model, run.own).mean(axis=0)
    counts = [label_counts(last_bias(gradient, schema.target.size), expected, how.batch, rate * how.steps)
              for _, gradient, _, _ in seen]
    labels = np.stack([np.repeat(np.arange(len(of)), of) for of in counts])
    rows = matched_rows(learner, schema, model, [gradient for _, gradient, _, _ in seen], labels, run.bounds,
                        stream(run.seed, "probe inversion"), Search(how.iterations, how.restarts, how.smoothness),
                        steps=how.steps, rate=rate)
    return [Inverted(truth, in_best_order(truth, guess), _common(true, ours) / how.batch)
            for guess, ours, (_, _, truth, true) in zip(rows, labels, seen, strict=True)]


def _seen(run: Probed, view: View, batch: int, steps: int, most: int
          ) -> Iterator[tuple[Arrays, Arrays, NDArray[np.floating], NDArray[np.integer]]]:
    """Of each party the model, what its steps went against, and the rows and labels that it took them on."""
    population = run.scenario.population
    rows = [population.partition.party_rows(party)[:batch] for party in range(len(population))]
    short = next((party for party in range(len(population)) if len(rows[party]) < batch), None)
    if short is not None:
        raise ConfigError(f"party '{population.partition.name(short)}' has {len(rows[short])} rows, and no batch of "
                          f"{batch}", remedy=f"set batch = {max(len(rows[short]), 1)}")
    seen = observed(run, holding(population, population.dataset, rows), view,
                    local=_plain(run.algorithm.local, batch, steps))
    for party in seen.parties[:most]:
        update, taken = seen.of(int(party)), population.dataset.take(rows[party])
        gradient = {name: nought - update[name] for name, nought in zeros(update).items()}
        yield seen.model, gradient, np.asarray(taken.features), np.asarray(taken.target)


def _plain(local: LocalTraining, batch: int, steps: int) -> LocalTraining:
    return replace(local, epochs=1, steps=steps, batch=batch, optimizer="sgd", momentum=0.0, weight_decay=0.0,
                   decay=1.0)


def _common(first: NDArray[np.integer], second: NDArray[np.integer]) -> float:
    """How many labels two batches have in common."""
    return float(sum(min(int((first == label).sum()), int((second == label).sum())) for label in np.unique(first)))


def _likeness(run: Probed, found: list[Inverted]) -> dict[str, float]:
    """How alike rows and reconstructions are, on average, and how alike the mean of the attacker's own rows is."""
    low, high = run.bounds
    span, blind = high - low, np.asarray(run.own.features).mean(axis=0)
    pairs = [pair for one in found for pair in zip(one.truth, one.guess, strict=True)]
    return {"error": float(np.mean([squared_error(*pair) for pair in pairs])),
            "psnr": float(np.mean([signal_to_noise(*pair, span) for pair in pairs])),
            "guess_psnr": float(np.mean([signal_to_noise(truth, blind, span) for truth, _ in pairs])),
            "ssim": float(np.mean([structural_similarity(*pair, span) for pair in pairs])),
            "labels_told": float(np.mean([one.labels_told for one in found]))}
