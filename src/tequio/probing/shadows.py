"""Shadow models: runs like one that is attacked, on other halves of the rows.

Each candidate row, member or not, has a party, and each class is as common among a party's members as among its other
candidates. Two shadows at a time share out the candidates of each party and class: one trains on a random half of them,
the other on the rest. So every party has as many rows of every class as in the run itself, and every row is in exactly
half of the shadows. All else is as in the run: `run_config` prepares rows and runs them, with its algorithm, stages,
rounds and stop rules, from seeds of their own.

A shadow that is finished is kept as one array of scores; one that is under way goes on from its checkpoint.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import OrderedDict
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.attacks.privacy.membership import Shadows, log_odds, log_odds_of_outputs
from tequio.data.dataset import Dataset
from tequio.engines.local import worker_count
from tequio.errors import ConfigError
from tequio.experiments.config.tables import Output
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.results import Result
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.running.store import SHADOWS, write_whole
from tequio.experiments.sweep import carry_out, run_orders
from tequio.federation.rng import stream
from tequio.learners.answers import One
from tequio.learners.torch_learner import TorchLearner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.federation.population import Population
    from tequio.learners.answers import Answer
    from tequio.models.model import Model

    Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Rows of which half are members, and who holds them.

    `rows` are all that there are, those of parties first; `chosen` are the candidates among them, members first,
    `homes` the parties that hold or would hold them, `slots` the places of these members in the partition. What else
    parties train on they train on in every shadow.
    """

    population: Population
    rows: Dataset
    chosen: Rows
    homes: Rows
    slots: Rows

    @classmethod
    def of(cls, population: Population, test: Dataset | None, seed: int) -> Candidates:
        """Of each class as many members as other rows, each of which takes the party of a member of its class."""
        if population.schema.target.kind != "classes" or population.partition.columns is not None:
            raise ConfigError("membership is told by how probable a model finds the class of a whole row, and these "
                              "parties have no such rows", remedy="probe a run of parties that hold rows with classes")
        if test is None or not len(test):
            raise ConfigError("there are no rows that the run was not trained on",
                              remedy="set data.test = 0.5, so that there are as many as members")
        rows, held = _joined(population.dataset, test), population.partition.rows
        homes, trained = _slots(population)
        slots, others = np.flatnonzero(trained), np.arange(len(population.dataset), len(rows))
        rng, inside, outside = stream(seed, "probe candidates"), [], []
        for label in np.unique(rows.target[held[slots]]):
            mine = rng.permutation(slots[rows.target[held[slots]] == label])
            theirs = rng.permutation(others[rows.target[others] == label])
            paired = min(len(mine), len(theirs))
            inside.append(mine[:paired])
            outside.append(theirs[:paired])
        slots = np.concatenate(inside)
        if not len(slots):
            raise ConfigError("no class has both members and other rows", remedy="set data.test = 0.5")
        return cls(population, rows, np.concatenate([held[slots], *outside]), np.tile(homes[slots], 2), slots)

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Which candidates the run was trained on."""
        return np.arange(len(self.chosen)) < len(self.slots)

    def inside(self, shadow: int, seed: int) -> NDArray[np.bool_]:
        """Which candidates a shadow is trained on: of each party and class half, and its twin the other half."""
        order = self._in_order(np.arange(len(self.chosen)), stream(seed, "probe halves", shadow // 2))
        first = np.zeros(len(order), dtype=bool)
        first[order[::2]] = True
        return ~first if shadow % 2 else first

    def dealt(self, inside: NDArray[np.bool_], seed: int) -> Population:
        """The parties with the candidates of a shadow in the places of members, split as they were."""
        population, rng = self.population, stream(seed, "probe deal")
        taken = self._in_order(np.flatnonzero(inside), rng)
        left = self._in_order(np.arange(len(self.slots)), rng)
        rows = population.partition.rows.copy()
        rows[self.slots[left]] = self.chosen[taken]
        return replace(population, dataset=self.rows, partition=replace(population.partition, rows=rows), seed=seed,
                       split_seed=population.seed, _views=OrderedDict())

    def _in_order(self, candidates: Rows, rng: np.random.Generator) -> Rows:
        """By party and class, in random order inside each."""
        classes = self.rows.target[self.chosen[candidates]]
        return candidates[np.lexsort((rng.random(len(candidates)), classes, self.homes[candidates]))]


def _slots(population: Population) -> tuple[Rows, NDArray[np.bool_]]:
    """Of each place in the partition whose it is, and whether that party trains on its row and nobody else has it."""
    held = population.partition.rows
    homes = np.repeat(np.arange(len(population)), population.sizes)
    alone = np.bincount(held, minlength=len(population.dataset))[held] == 1
    trained = np.concatenate([np.isin(np.asarray(population.whole(party).rows),
                                      np.asarray(population.view(party).train.rows))
                              for party in range(len(population))])
    return homes, alone & trained


def shadows_of(result: Result, count: int) -> tuple[Shadows, NDArray[np.bool_]]:
    """The candidates' log-odds under the run's model and under its shadows, and which candidates are members."""
    train_shadows(result, count)
    candidates, seed, place = _candidates(result), result.config.seed, shadow_folder(result)
    answers = np.stack([np.load(place / f"{number}.npy") for number in range(count)])
    inside = np.stack([candidates.inside(number, seed) for number in range(count)])
    return Shadows(_odds(result.trained, candidates), answers, inside), candidates.is_member


def _candidates(result: Result) -> Candidates:
    found: list[Candidates] = []

    def dealt(population: Population, test: Dataset | None) -> Population:
        found.append(Candidates.of(population, test, result.config.seed))
        return population

    make_scenario(result.config, dealt=dealt)
    return found[0]


def shadow_folder(result: Result) -> Path:
    """Where the shadows of a run lie; a run that went on has another model, and others."""
    return result.folder / SHADOWS / str(result.summary["model_sha256"])[:16]


def train_shadows(result: Result, count: int, workers: int = 1, listen: Listener = ignore) -> None:
    """Train the shadows that are not there yet, on that many processes."""
    place = shadow_folder(result)
    missing = [number for number in range(count) if not (place / f"{number}.npy").is_file()]
    workers = min(worker_count(workers), len(missing)) if os.name == "posix" else 1

    def begin(position: int) -> None:
        listen("cell", {"number": missing[position] + 1, "cells": count, "label": f"shadow of {result.folder.name}",
                        "finished": False})

    if workers > 1:
        orders: list[Given] = [{"shadow": number, "folder": str(place / str(number))} for number in missing]
        run_orders(__name__, str(result.folder.resolve()), orders, workers, begin)
    else:
        for position, number in enumerate(missing):
            begin(position)
            train_shadow(result, number)


def train_shadow(result: Result, number: int) -> None:
    """Run a shadow to its end, keep its log-odds of the candidates, and forget the run."""
    place, candidates = shadow_folder(result) / str(number), _candidates(result)
    seed = int(stream(result.config.seed, "probe shadow", number).integers(2**31))
    inside = candidates.inside(number, result.config.seed)
    scenario = make_scenario(result.config, dealt=lambda population, test: candidates.dealt(inside, seed))
    # In a folder of its own it has ledgers of its own, too.
    config = result.config.model_copy(update={
        "seed": seed, "output": Output(folder=str(place), checkpoint_every=result.config.output.checkpoint_every),
        "engine": {"name": "local", "workers": 1}, "baselines": []})
    (place / "run").mkdir(parents=True, exist_ok=True)
    shadow, content = run_config(config, folder=place / "run", scenario=scenario), BytesIO()
    np.save(content, _odds(shadow.trained, candidates))
    write_whole(place.with_suffix(".npy"), content.getvalue())
    shutil.rmtree(place)


def _odds(model: Model, candidates: Candidates) -> NDArray[np.float64]:
    """Log-odds of each candidate's true class under a model, with the row prepared as its party did."""
    rows, reading, found = candidates.rows.take(candidates.chosen), model.reading, np.empty(len(candidates.chosen))
    if model.common is None:
        raise ConfigError("parties answer with models of their own, and there is none that all see",
                          remedy="probe a run of an algorithm with a common model, such as 'fedavg'")
    answer = model.common.among(model.own)
    groups = [("", np.arange(len(rows)))] if not reading.own else [
        (candidates.population.name(int(home)), np.flatnonzero(candidates.homes == home))
        for home in np.unique(candidates.homes)]
    for party, places in groups:
        found[places] = _odds_of(answer, reading.prepared(rows.take(places), party))
    return found


def _odds_of(answer: Answer, rows: Dataset) -> NDArray[np.float64]:
    """By the outputs of a network, since probabilities of single precision cannot tell sure from very sure."""
    if isinstance(answer, One) and isinstance(answer.learner, TorchLearner):
        return log_odds_of_outputs(answer.learner.outputs(answer.model, rows), rows.target)
    return log_odds(answer.scores(rows), rows.target)


def _joined(first: Dataset, second: Dataset) -> Dataset:
    """The rows of both, described as the first are."""
    features: list[Any] = [first.features, second.features]
    whole = sparse.vstack(features, format="csr") if first.is_sparse else np.concatenate(features)
    source = replace(first.source, features=whole, target=np.concatenate([first.target, second.target]), ids=None,
                     groups=None)
    return Dataset(first.schema, source, name=first.name)


def main() -> None:
    """A process that trains shadows of one run."""
    result = Result(Path(sys.argv[1]))
    carry_out(lambda order: train_shadow(result, int(order["shadow"])))


if __name__ == "__main__":
    main()
