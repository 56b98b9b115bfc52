"""Attacks on updates: which row a party has trained on, and what kind of rows it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.attacks.label_leakage import area_under_curve
from tequio.attacks.privacy.inversion import label_of, reconstructed
from tequio.attacks.privacy.properties import flat, told
from tequio.attacks.privacy.scores import is_recognised, signal_to_noise, squared_error, structural_similarity
from tequio.experiments.probing.target import holding, observed
from tequio.federation.models import zeros
from tequio.federation.rng import stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.probing.target import Probed, View
    from tequio.learners.learner import Arrays, LocalTraining

_MOST_VICTIMS, _MOST_DECOYS = 30, 99
_SINGLE, _SUMS = 120, 60
"""Updates to learn from, and as many to be told: of single parties, and of rounds of which only sums are seen."""
_FIRST_ROUND_OF_VICTIMS = 1000


@dataclass(frozen=True)
class Inverted:
    """A row, what was made of it, and whether its label was told."""

    truth: NDArray[Any]
    guess: NDArray[np.float64]
    label_told: bool


def inverted(run: Probed, view: View, most: int = _MOST_VICTIMS) -> list[Inverted]:
    """Reconstruct the one row of each party from a round in which each takes one plain step on it."""
    population, schema = run.scenario.population, run.scenario.population.schema
    rows = [population.partition.party_rows(party)[:1] for party in range(len(population))]
    seen = observed(run, holding(population, population.dataset, rows), view,
                    local=_one_step(run.scenario.algorithm.parts.local))
    rng, found = stream(run.seed, "probe inversion"), []
    for party in seen.parties[:most]:
        gradient = _turned(seen.of(int(party)))
        row = population.dataset.take(rows[party])
        guess = reconstructed(run.scenario.algorithm.learner, schema, seen.model, gradient, run.bounds, rng)
        found.append(Inverted(row.features[0], guess, label_of(gradient, schema.target.size) == row.target[0]))
    return found


def gradient_inversion(run: Probed, view: View) -> dict[str, float]:
    """Rows reconstructed from the gradient of a batch of one: how many are recognised among decoys, and how alike.

    `guess` is the chance to be recognised, `guess_psnr` the likeness of the mean of the attacker's own rows.
    """
    found = inverted(run, view)
    low, high = run.bounds
    span, own = high - low, np.asarray(run.own.features)
    decoys = own[:_MOST_DECOYS]
    return {
        "success": _mean(is_recognised(one.truth, one.guess, decoys) for one in found),
        "guess": 1 / (1 + len(decoys)),
        "error": _mean(squared_error(one.truth, one.guess) for one in found),
        "psnr": _mean(signal_to_noise(one.truth, one.guess, span) for one in found),
        "guess_psnr": _mean(signal_to_noise(one.truth, own.mean(0), span) for one in found),
        "ssim": _mean(structural_similarity(one.truth, one.guess, span) for one in found),
        "labels_told": _mean(one.label_told for one in found), "attempts": float(len(found))}


def property_inference(run: Probed, view: View) -> dict[str, float]:
    """Whether the first class is twice as common at a party as overall, told by a classifier of updates.

    The attacker learns from updates that it makes of its own rows in the same way, noise included, and knows that half
    of the parties have the property.
    """
    rng = stream(run.seed, "probe property")
    shadows, had = _sampled(run, run.own, view, rng, first=1)
    victims, have = _sampled(run, run.scenario.population.dataset, view, rng, first=_FIRST_ROUND_OF_VICTIMS)
    chances = told(shadows, had, victims)
    hits = (chances > np.median(chances)) == have
    return {"success": float((hits[have].mean() + hits[~have].mean()) / 2), "guess": 0.5,
            "area": area_under_curve(chances, have), "attempts": float(len(have))}


def _sampled(run: Probed, source: Dataset, view: View, rng: np.random.Generator,
             first: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """What is seen of parties with and without the property: one a round where only sums are seen."""
    population = run.scenario.population
    size, updates, has = int(np.median(population.sizes)), [], []
    local = replace(run.scenario.algorithm.parts.local, decay=1.0)
    for round in range(first, first + _SINGLE):
        marked = rng.random(len(population)) < 0.5
        marked[rng.permutation(len(population))[:2]] = round % 2 == 0, round % 2 == 1
        rows = [_drawn(source, size, bool(mark), rng) for mark in marked]
        seen = observed(run, holding(population, source, rows), view, round=round, local=local)
        for party in seen.parties if seen.whole is None else rng.permutation(seen.parties)[:1]:
            updates.append(seen.of(int(party)))
            has.append(bool(marked[party]))
        enough = _SINGLE if seen.whole is None else _SUMS
        if len(updates) >= enough and 0 < sum(has) < len(has):
            break
    return flat(updates), np.array(has)


def _drawn(source: Dataset, size: int, is_marked: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of one party: the first class at its usual share, or at twice that."""
    target = np.asarray(source.target)
    is_first = target == 0
    share = min(float(is_first.mean()) * (2 if is_marked else 1), 1.0)
    count = round(size * share)
    inside, outside = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    return np.concatenate([rng.choice(inside, count, replace=count > len(inside)),
                           rng.choice(outside, size - count, replace=size - count > len(outside))])


def _one_step(local: LocalTraining) -> LocalTraining:
    return replace(local, epochs=1, steps=1, batch=1, optimizer="sgd", momentum=0.0, weight_decay=0.0, decay=1.0)


def _turned(update: Arrays) -> Arrays:
    """The gradient that an update went against."""
    return {name: nought - update[name] for name, nought in zeros(update).items()}


def _mean(values: Iterator[Any]) -> float:
    return float(np.mean([float(value) for value in values]))
