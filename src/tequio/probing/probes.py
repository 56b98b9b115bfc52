"""Attacks on a final model: rows that it was trained on, and what its classes look like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from tequio.attacks.privacy.inference import (
    by_shadows,
    by_threshold,
    class_losses,
    is_recognised,
    structural_similarity,
)
from tequio.attacks.privacy.inversion import representatives
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining
from tequio.probing.probe import interval
from tequio.probing.target import ProbeOfAveraging, probed
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.running.results import Result
    from tequio.learners.learner import Arrays
    from tequio.probing.probe import View
    from tequio.probing.target import Probed


_MOST_ROWS, _SHADOWS, _MOST_EPOCHS = 2000, 4, 40


@register("probe", "membership-inference", paper="Yeom et al., 2018; Carlini et al., 2022")
@dataclass(frozen=True)
class MembershipInference(ProbeOfAveraging):
    """Rows that the parties trained on, told from others by their loss, alone and beside shadow models.

    `success` is the share of right guesses where members and others are equally many.
    """

    assumes: ClassVar[str] = "rows of the same kind (the test rows), the training, and for the threshold its mean loss"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """All views see the same model."""
        run = probed(result)
        rng, learner = stream(run.seed, "probe membership"), run.algorithm.learner
        half = rng.permutation(len(run.own))
        others, known = run.own.take(half[::2]), run.own.take(half[1::2])
        members = _some_members(run, rng)
        model = cast("Arrays", run.result.model)

        def losses(of: Arrays, rows: Dataset) -> NDArray[np.float64]:
            return class_losses(learner.predict(of, rows), rows.target)

        inside, outside = losses(model, members), losses(model, others)
        found = by_threshold(inside, outside)
        shadows = [np.concatenate([losses(shadow, members), losses(shadow, others)])
                   for shadow in _shadow_models(run, known, rng)]
        return {**found, "success": (1 + found["advantage"]) / 2, "guess": 0.5, **by_shadows(inside, outside, shadows),
                "attempts": float(len(members) + len(others))}


@register("probe", "class-reconstruction", paper="Fredrikson et al., 2015")
@dataclass(frozen=True)
class ClassReconstruction(ProbeOfAveraging):
    """What the model takes for the best example of each class: is the mean of that class the most like it?"""

    assumes: ClassVar[str] = "the range of entries of rows"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """All views see the same model."""
        run = probed(result)
        rows, schema = run.scenario.population.dataset, run.scenario.population.schema
        low, high = run.bounds
        made = representatives(run.algorithm.learner, schema, cast("Arrays", run.result.model), (low, high))
        features, target = np.asarray(rows.features), np.asarray(rows.target)
        present = np.unique(target)
        means = np.stack([features[target == label].mean(0) for label in present])
        hits = [is_recognised(mean, made[label], np.delete(means, place, 0))
                for place, (label, mean) in enumerate(zip(present, means, strict=True))]
        likeness = [structural_similarity(mean, made[label], high - low)
                    for label, mean in zip(present, means, strict=True)]
        return {**interval(sum(hits), len(hits)), "guess": 1 / len(present), "ssim": float(np.mean(likeness))}


def _some_members(run: Probed, rng: np.random.Generator) -> Dataset:
    """Rows that parties trained on, at most so many, from all of them alike."""
    population = run.scenario.population
    parties = [population.view(party).train for party in range(len(population))]
    everything = np.concatenate([np.asarray(mine.rows) for mine in parties])
    chosen = rng.permutation(len(everything))[:_MOST_ROWS]
    return replace(parties[0], rows=everything[np.sort(chosen)])


def _shadow_models(run: Probed, known: Dataset, rng: np.random.Generator) -> list[Arrays]:
    """Models of the attacker's own, each trained on half of its rows for as long as the run."""
    algorithm, config = run.algorithm, run.result.config
    local = algorithm.local
    plain = LocalTraining(epochs=min(config.rounds * max(local.epochs, 1), _MOST_EPOCHS), batch=local.batch or 32,
                          optimizer=local.optimizer, learning_rate=local.learning_rate)
    models = []
    for _ in range(_SHADOWS):
        rows = known.take(rng.permutation(len(known))[:max(len(known) // 2, 1)])
        fresh = algorithm.learner.initial(run.scenario.population.schema, rng)
        models.append(algorithm.learner.train(fresh, rows, plain, rng).model)
    return models
