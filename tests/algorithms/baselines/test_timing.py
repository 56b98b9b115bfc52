"""Timing only: the published rounds, updates and round times follow from selection and time model alone."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import pytest
import toy

from parts import Parts
from tequio.algorithms.baselines.timing import TimingOnly
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining
from tequio.registry import build

BUDGET, PARTIES = 24_000.0, 1000
MNIST, CIFAR = (60, 101_770), (50, 1_342_122)


def played(rows: int, parameters: int, selector: str, seed: int, **given: Any) -> dict[str, float]:
    """The thesis' second experiment without learning: 1,000 parties, 100 candidates, 24,000 virtual seconds."""
    schema = Schema.of_numbers(["x"], Target("classes", tuple("0123456789")))
    labels = np.repeat(np.arange(10), rows * PARTIES // 10)
    dataset = Dataset.of(schema, np.zeros((len(labels), 1)), labels)
    partition = build("partition", "class-weights", {"parties": PARTIES}).deal(dataset, np.random.default_rng(seed))
    population, engine = Population(dataset, partition, Split(0.0, 0.0), seed), InlineEngine()
    engine.open(population)
    clock = Clock(Mobile(upload_order="party"), population.sizes.astype(float), seed=seed)
    federation = Federation(population, engine, seed, clock=clock)
    algorithm = TimingOnly(parameters=parameters, **Parts(
        local=LocalTraining(epochs=5, batch=20), selector=build("selector", selector, given)))
    state = algorithm.start(federation)
    while clock.now < BUDGET:
        state = toy.one_more(algorithm, federation, state)
    return {"rounds": federation.round, "updates": clock.totals.updates, "seconds": clock.now / federation.round}


# Published: rounds, updates, seconds a round (thesis table 6.2). Simulated: means over 24 seeds of an independent
# simulation of the same model, which has no real overhead in its rounds.
PUBLISHED = {
    ("scheduled-random", MNIST): ((96, 9600, 251.32), (96.7, 9667, 249.9)),
    ("scheduled-random", CIFAR): ((8, 800, 3145.22), (8.0, 800, 3137.9)),
    ("hybridfl", MNIST): ((126, 9352, 190.64), (128.8, 9502, 187.1)),
    ("hybridfl", CIFAR): ((138, 607, 174.62), (143.3, 620, 168.1)),
}


@pytest.mark.parametrize(("selector", "problem"), PUBLISHED, ids=["random-mnist", "random-cifar", "hybrid-mnist",
                                                                  "hybrid-cifar"])
def test_published_rounds_updates_and_times_within_four_per_cent(selector: str, problem: tuple[int, int]) -> None:
    published, simulated = PUBLISHED[selector, problem]
    given = {"legacy": True} if selector == "hybridfl" else {}
    runs = [played(*problem, selector, seed, **given) for seed in range(2)]
    ours = [fmean(run[name] for run in runs) for name in ("rounds", "updates", "seconds")]
    np.testing.assert_allclose(ours, simulated, rtol=0.025)
    np.testing.assert_allclose(ours, published, rtol=0.04)


def test_the_clock_runs_as_it_does_with_learning() -> None:
    rows = toy.random_parties([5, 3, 4, 8])
    clocks = []
    for algorithm in (TimingOnly(**toy.parts()), FedAvg(**toy.parts())):
        federation = toy.federation(rows, rules=Rules(dropout=0.2, quorum=0.0))
        federation.clock = Clock(Mobile(deadline=2.0, speed=(1.0, 10.0)), federation.sizes.astype(float))
        toy.run(algorithm, federation, rounds=5)
        clocks.append(federation.clock)
    # The answers of real training also carry the loss and the number of rows: some dozens of bytes.
    assert clocks[0].now == pytest.approx(clocks[1].now, rel=1e-3)
    assert (clocks[0].totals.late, clocks[0].totals.lost) == (clocks[1].totals.late, clocks[1].totals.lost)
    assert clocks[0].counts.tolist() == clocks[1].counts.tolist()


def test_without_a_clock_it_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"'timing' runs on the virtual clock.*add a \[devices\] table"):
        toy.run(TimingOnly(**toy.parts()), toy.federation(toy.targets(1.0)))
