"""What many parties cost: choosing among a million, valuing updates, and rounds of timing only.

    python -m tequio.bench.choosing REPEATS        a round among a million and among a thousand, as JSON
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.bench.problems import Measured, Problem, Rounds, best_in_turn, seconds
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine, one_thread
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.selection import SelectionContext
from tequio.learners.learner import LocalTraining
from tequio.registry import build

if TYPE_CHECKING:
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.payload import Payload


_DIGITS = Problem("digits", "mlp", parties=300, rows=180, shape=(784,), cohort=3, batch=20, mark=4.0)
_VALIDATION_ROWS = 6_000
_MILLION, _COHORT, _GROUPS = 1_000_000, 100, 20


def valued_round(repeats: int, workers: int) -> Measured:
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
    parts = {"learner": build("learner", _DIGITS.learner), "local": local,
             "selector": build("selector", selector, {"count": _DIGITS.cohort, **more})}
    made: Algorithm = build("algorithm", "fedavg", {"weights": "uniform"}, parts=parts)
    return made


def choice_among_a_million(repeats: int, workers: int) -> Measured:
    """The slowest of the selectors that need no answer from the parties, the first choice of a run included."""
    times = {name: min(_choice_seconds(name) for _ in range(min(repeats, 3))) for name in ("random", "stratified")}
    return {"seconds": max(times.values()), "value": max(times.values()), "mark": 0.5, "unit": "s",
            "by_selector": times}


def _choice_seconds(name: str) -> float:
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((_MILLION, 1)), np.zeros(_MILLION))
    groups = tuple(f"group {party % _GROUPS}" for party in range(_MILLION))
    partition = Partition(np.arange(_MILLION), np.arange(_MILLION + 1), categories=groups)
    federation = Federation(Population(dataset, partition, Split(0.0, 0.0)), InlineEngine())
    selector = build("selector", name, {"count": _COHORT})
    turn = SelectionContext(federation, federation.eligible(), {}, np.random.default_rng(0))
    return seconds(lambda: selector.choose(turn))


_PARTIES, _ROUNDS, _PLAYED = 10_000, 1000, 50


def oort_among_a_million(repeats: int, workers: int) -> Measured:
    """The slower of Oort's choices: when it knows nobody, and when every party has answered once."""
    federation = _federation(_MILLION)
    times = {name: min(_choosing(federation, memory) for _ in range(repeats))
             for name, memory in (("nobody known", {}), ("everybody known", _everyone_known()))}
    return {"seconds": max(times.values()), "value": max(times.values()), "mark": 0.5, "unit": "s", "by_memory": times}


def timing_only(repeats: int, workers: int) -> Measured:
    """What 1,000 rounds of all 10,000 parties take, from the best of some tens of rounds."""
    parts = {"local": LocalTraining(epochs=5, batch=20),
             "selector": build("selector", "scheduled-random", {"fraction": 1.0})}
    algorithm = build("algorithm", "timing", {"parameters": 101_770}, parts=parts)
    federation = _federation(_PARTIES)
    state = algorithm.start(federation)

    def round() -> None:
        nonlocal state
        federation.round += 1
        state = algorithm.round(federation, state)

    best = min(seconds(round) for _ in range(_PLAYED))
    return {"seconds": best * _ROUNDS, "value": best * _ROUNDS, "mark": 60.0, "unit": "s for 1,000 rounds"}


def _federation(parties: int) -> Federation:
    """One row a party, on the clock."""
    schema = Schema.of_numbers(["x"], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, np.zeros((parties, 1), dtype=np.float32), np.arange(parties) % 2)
    partition = Partition(np.arange(parties), np.arange(parties + 1))
    engine = InlineEngine()
    population = Population(dataset, partition, Split(0.0, 0.0))
    engine.open(population)
    return Federation(population, engine, clock=Clock(Mobile(), population.sizes.astype(np.float64)))


def _choosing(federation: Federation, memory: Payload) -> float:
    federation.round = 300
    context = SelectionContext(federation, federation.eligible(), memory, np.random.default_rng(0))
    selector = build("selector", "oort", {"count": _COHORT})
    return seconds(lambda: selector.choose(context))


def _everyone_known() -> Payload:
    """Oort's memory after every party has answered once."""
    draw = np.random.default_rng(0)
    return {"parties": np.arange(_MILLION), "utility": draw.random(_MILLION), "seconds": draw.random(_MILLION) * 100,
            "round": draw.integers(1, 300, _MILLION), "times": np.ones(_MILLION, dtype=np.int64)}


_FEATURES, _ROWS_A_PARTY = 100, 20


def round_among_a_million(repeats: int, workers: int) -> Measured:
    """A round among a million parties over one among a thousand, in a process of its own for the sake of its peak."""
    command = [sys.executable, "-m", __name__, str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: Measured = json.loads(done.stdout)
    fits = measured["peak_megabytes"] < 2000
    return {**measured, "value": measured["ratio_to_1000_parties"] if fits else float("inf"), "mark": 1.2,
            "unit": "x a round among 1,000"}


def _rounds(parties: int) -> Rounds:
    draw = np.random.default_rng(0)
    rows = 60_000
    schema = Schema.of_numbers([f"x{column}" for column in range(_FEATURES)], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, draw.standard_normal((rows, _FEATURES), dtype=np.float32), draw.integers(0, 2, rows))
    partition = build("partition", "sampled", {"parties": parties, "rows": _ROWS_A_PARTY}).deal(dataset, draw)
    parts = {"learner": build("learner", "logistic"), "local": LocalTraining(batch=10, learning_rate=0.1),
             "selector": build("selector", "random", {"count": _COHORT})}
    population = Population(dataset, partition, Split(validation=0.0, test=0.0))
    return Rounds(build("algorithm", "fedavg", parts=parts), population, InlineEngine())


def main() -> None:
    """Print the comparison as JSON."""
    best = best_in_turn({"million": _rounds(1_000_000), "thousand": _rounds(1_000)}, int(sys.argv[1]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": best["million"], "seconds_with_1000_parties": best["thousand"],
                      "ratio_to_1000_parties": best["million"] / best["thousand"], "peak_megabytes": peak}))


if __name__ == "__main__":
    main()
