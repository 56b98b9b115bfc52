"""Attacks on updates: what an onlooker sees of a run's rounds, which rows that shows, and what kind of rows."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from tequio.algorithms.training import train
from tequio.attacks.label_leakage import area_under_curve
from tequio.attacks.privacy.inference import (
    flat,
    is_recognised,
    signal_to_noise,
    squared_error,
    structural_similarity,
    told,
)
from tequio.attacks.privacy.inversion import label_of, reconstructed
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.aggregation import difference, zeros
from tequio.federation.averaging import Averaging, select
from tequio.federation.federation import Federation, Rules
from tequio.federation.rng import stream
from tequio.federation.stages import summing_stage
from tequio.federation.task import TrainSettings
from tequio.privacy.verification.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.scenario import Scenario
    from tequio.federation.population import Population
    from tequio.learners.learner import Arrays, LocalTraining


View = Literal["coordinator", "released"]
"""Who looks on: the coordinator, at all that reaches it; or somebody who sees the model before and after a round."""


@dataclass(frozen=True)
class Probed:
    """A finished run with its data and its parts, ready to be attacked. `own` are rows that the attacker holds."""

    result: Result
    scenario: Scenario
    algorithm: Averaging
    own: Dataset

    @property
    def seed(self) -> int:
        """That of the run; attacks draw from streams of their own."""
        return self.result.config.seed

    @property
    def bounds(self) -> tuple[float, float]:
        """Between what an entry of a row may lie, as the attacker's own rows show."""
        features = self.own.features
        return float(features.min()), float(features.max())


def probed(result: Result) -> Probed:
    """Make a finished run ready; runs whose updates or models these attacks know nothing of are refused."""
    scenario = make_scenario(result.config)
    algorithm, schema = scenario.algorithm, scenario.population.schema
    crossing = algorithm.disclosure(schema)
    if not isinstance(algorithm, Averaging) or crossing is None or crossing.arrays != ("update",) \
            or schema.target.kind != "classes":
        raise ConfigError(f"the attacks on privacy know classes and one update a party, which "
                          f"'{result.config.algorithm['name']}' on this data has not",
                          remedy="probe a run such as one of 'fedavg' on data with classes")
    if scenario.test is None or not len(scenario.test):
        raise ConfigError("the attacker has no rows of its own to compare with", remedy="set data.test = 0.2")
    return Probed(result, scenario, algorithm, scenario.test)


def holding(population: Population, dataset: Dataset, rows: Sequence[NDArray[np.integer]]) -> Population:
    """The same parties with other rows, all for training."""
    partition = Partition.of(rows, names=population.partition.names, categories=population.partition.categories)
    return replace(population, dataset=dataset, partition=partition, split=Split(0.0, 0.0), _views=OrderedDict())


@dataclass(frozen=True)
class Observed:
    """Updates of single parties by their number, or of all of a round together (`whole`), and who took part."""

    model: Arrays
    parties: NDArray[np.int64]
    single: dict[int, Arrays]
    whole: Arrays | None = None

    def of(self, party: int) -> Arrays:
        """What there is to be seen of a party's update."""
        return self.whole if self.whole is not None else self.single[party]


def observed(run: Probed, population: Population, view: View, *, round: int = 1,
             local: LocalTraining | None = None) -> Observed:
    """What an onlooker sees of a round on a fresh model, when gradients are longest, that these parties play."""
    algorithm = _looked_at(run.algorithm, view, local)
    ledger, stages = run.scenario.ledger, algorithm.way
    if ledger is not None:
        ledger.restore({"memory": {}, "entries": []})
    with closing(InlineEngine()) as engine:
        engine.open(population)
        notary = Transcript() if any(stage.spec.proves for stage in stages) else None
        federation = Federation(population, engine, run.seed, Rules(), run.scenario.topology, round=round,
                                notary=notary)
        state = algorithm.start(federation)
        model = cast("Arrays", state.model)
        if view == "coordinator" and summing_stage(stages) is None:
            replies = federation.ask(federation.everyone(), train, {"model": model}, stages=stages,
                                     settings=TrainSettings(learner=algorithm.learner, local=algorithm.local))
            return Observed(model, replies.parties, {reply.party: reply.payload["update"] for reply in replies})
        chosen = select(algorithm, federation, state).parties
        after = algorithm.round(federation, state).model
        return Observed(model, np.sort(chosen), {}, difference(after, model))


def _looked_at(algorithm: Averaging, view: View, local: LocalTraining | None) -> Averaging:
    """The algorithm as it is at the view: the coordinator sees updates before it adds noise to them."""
    stages = tuple(replace(cast("Any", stage), noise=0.0) if view == "coordinator" and stage.mechanism is not None
                   and stage.mechanism.place == view else stage for stage in algorithm.stages)
    return replace(algorithm, stages=stages, local=local or algorithm.local)


_MOST_VICTIMS, _MOST_DECOYS = 30, 99
_SINGLE, _SUMS = 120, 60
"""Updates to learn from, and as many to be told: of single parties, and of rounds of which only sums are seen."""
_FIRST_ROUND_OF_VICTIMS = 1000


@dataclass(frozen=True)
class Inverted:
    """A row, what was made of it, and whether its label was told."""

    truth: NDArray[np.floating]
    guess: NDArray[np.float64]
    label_told: bool


def inverted(run: Probed, view: View, most: int = _MOST_VICTIMS) -> list[Inverted]:
    """Reconstruct the one row of each party from a round in which each takes one plain step on it."""
    population, schema = run.scenario.population, run.scenario.population.schema
    rows = [population.partition.party_rows(party)[:1] for party in range(len(population))]
    seen = observed(run, holding(population, population.dataset, rows), view,
                    local=_one_step(run.algorithm.local))
    rng, found = stream(run.seed, "probe inversion"), []
    for party in seen.parties[:most]:
        gradient = _turned(seen.of(int(party)))
        row = population.dataset.take(rows[party])
        guess = reconstructed(run.algorithm.learner, schema, seen.model, gradient, run.bounds, rng)
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
    local = replace(run.algorithm.local, decay=1.0)
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


def _mean(values: Iterator[float]) -> float:
    return float(np.mean([float(value) for value in values]))
