"""What choosing parties costs: a round that values updates against a random one, and a choice among a million."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.engines.threads import one_thread
from tequio.experiments.bench.clock import best_in_turn, seconds
from tequio.experiments.bench.problems import Problem, Rounds
from tequio.federation.algorithm import Parts
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.selection import Turn
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from tequio.federation.algorithm import Algorithm

_DIGITS = Problem("digits", "mlp", parties=300, rows=180, shape=(784,), cohort=3, batch=20, mark=4.0)
_VALIDATION_ROWS = 6_000
_MILLION, _COHORT, _GROUPS = 1_000_000, 100, 20


def valued_round(repeats: int, workers: int) -> dict[str, Any]:
    """A round of GreedyFed over one of random selection: 300 parties, 3 a round, 5 epochs, 6,000 validation rows."""
    limits = one_thread()
    whole = replace(_DIGITS, rows=_DIGITS.rows + _VALIDATION_ROWS // _DIGITS.parties).population().dataset
    population = replace(_DIGITS.population(), dataset=whole)
    contestants = {name: Rounds(_algorithm(name), population, InlineEngine()) for name in ("greedyfed", "random")}
    for rounds in contestants.values():
        rounds.federation.validation = whole.take(np.arange(len(whole) - _VALIDATION_ROWS, len(whole)))
    best = best_in_turn(contestants, repeats)
    limits.restore_original_limits()
    return {"seconds": best["greedyfed"], "value": best["greedyfed"] / best["random"], "mark": _DIGITS.mark,
            "unit": "x a random round", "random_seconds": best["random"]}


def _algorithm(selector: str) -> Algorithm:
    local = LocalTraining(epochs=5, batch=_DIGITS.batch, optimizer="adam", learning_rate=0.001, shuffle=False)
    # No truncation: a round whose gain happens to be small costs as much as any other.
    more = {"truncation": 0.0} if selector == "greedyfed" else {}
    parts = Parts(build("learner", _DIGITS.learner), local,
                  build("selector", selector, {"count": _DIGITS.cohort, **more}))
    made: Algorithm = build("algorithm", "fedavg", {"weights": "uniform"}, parts={"parts": parts})
    return made


def choice_among_a_million(repeats: int, workers: int) -> dict[str, Any]:
    """The slowest of the selectors that need no answer from the parties, the first choice of a run included."""
    times = {name: max(_choice_seconds(name) for _ in range(min(repeats, 3))) for name in ("random", "stratified")}
    return {"seconds": max(times.values()), "value": max(times.values()), "mark": 0.5, "unit": "s",
            "by_selector": times}


def _choice_seconds(name: str) -> float:
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((_MILLION, 1)), np.zeros(_MILLION))
    groups = tuple(f"group {party % _GROUPS}" for party in range(_MILLION))
    partition = Partition(np.arange(_MILLION), np.arange(_MILLION + 1), categories=groups)
    federation = Federation(Population(dataset, partition, Split(0.0, 0.0)), InlineEngine())
    selector = build("selector", name, {"count": _COHORT})
    return seconds(lambda: selector.choose(Turn(federation, federation.eligible(), {}, np.random.default_rng(0))))
