"""The attacks on privacy by name, how they do against a finished run, and those that look at its final model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast, get_args

import numpy as np

from tequio.attacks.privacy.inference import (
    by_shadows,
    by_threshold,
    class_losses,
    is_recognised,
    structural_similarity,
)
from tequio.attacks.privacy.inversion import representatives
from tequio.errors import ConfigError, nearest
from tequio.experiments.running.store import PROBES as FILE
from tequio.experiments.running.store import write_json
from tequio.experiments.running.table import Table
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining
from tequio.probing.target import View, gradient_inversion, probed, property_inference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.running.results import Result
    from tequio.learners.learner import Arrays
    from tequio.probing.target import Probed


_MOST_ROWS, _SHADOWS, _MOST_EPOCHS = 2000, 4, 40


@dataclass(frozen=True)
class Probe:
    """An attack: what it does to a run at a view (numbers by name, `success` and `guess` among them), and its source.

    Attacks on updates look different from each view; those on the final model do not.
    """

    attempt: Callable[[Probed, View], dict[str, float]]
    paper: str
    looks_at: str

    @property
    def views(self) -> tuple[View, ...]:
        """From where it makes a difference to look."""
        return get_args(View) if self.looks_at == "updates" else ("released",)


def probe(result: Result, attack: str, view: View = "released") -> dict[str, float]:
    """How an attack does against a run. It is kept in the run's folder, because it always comes out the same."""
    if attack not in PROBES:
        raise ConfigError(f"there is no attack on privacy called '{attack}'", remedy=nearest(attack, PROBES))
    path, key = result.folder / FILE, f"{attack} {view}"
    sha = result.summary["model_sha256"]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept = kept if kept.get("model_sha256") == sha else {"model_sha256": sha}
    if key not in kept:
        kept[key] = PROBES[attack].attempt(probed(result), view)
        write_json(path, kept)
    found: dict[str, float] = kept[key]
    return found


def probe_table(results: Sequence[Result], attacks: Sequence[str] = ()) -> Table:
    """One line a run, attack and view."""
    table = Table()
    for result in results:
        for attack in attacks or PROBES:
            views = PROBES[attack].views if attack in PROBES else ("released",)
            for view in views:
                found = probe(result, attack, view)
                table.add({"run": result.folder.name, "attack": attack,
                           "seen by": "coordinator" if view == "coordinator" else "everybody",
                           "success": found["success"], "guess": found["guess"],
                           "attempts": int(found["attempts"]), "more": _more(found)})
    return table


def _more(found: dict[str, float]) -> str:
    """The other measures, in short."""
    shown = ("psnr", "ssim", "labels_told", "advantage", "area", "shadow_area")
    return ", ".join(f"{name.replace('_', ' ')} {found[name]:.2f}" for name in shown if name in found)


def membership_inference(run: Probed, view: View) -> dict[str, float]:
    """Rows that the parties trained on, told from the attacker's own by their loss, alone and beside shadow models.

    `success` is the share of right guesses where members and others are equally many. Both views see the same model.
    """
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
    return {"success": (1 + found["advantage"]) / 2, "guess": 0.5, **found, **by_shadows(inside, outside, shadows),
            "attempts": float(len(members) + len(others))}


def class_reconstruction(run: Probed, view: View) -> dict[str, float]:
    """What the model takes for the best example of each class: is the mean of that class the most like it?

    Both views see the same model.
    """
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
    return {"success": float(np.mean(hits)), "guess": 1 / len(present), "ssim": float(np.mean(likeness)),
            "attempts": float(len(present))}


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


PROBES = {
    "gradient-inversion": Probe(gradient_inversion, "Zhu et al., 2019; Geiping et al., 2020", "updates"),
    "membership-inference": Probe(membership_inference, "Yeom et al., 2018; Carlini et al., 2022", "model"),
    "property-inference": Probe(property_inference, "Melis et al., 2019", "updates"),
    "class-reconstruction": Probe(class_reconstruction, "Fredrikson et al., 2015", "model"),
}
"""By the name under which they are asked for."""
