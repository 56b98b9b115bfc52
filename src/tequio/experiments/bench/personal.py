"""Personal methods and consistency weighting beside federated averaging, on the network of Digit-Five.

Rows a second count every row as often as a method takes its gradient: twice where a party trains two models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.engines.inline import InlineEngine
from tequio.experiments.bench.clock import best_in_turn
from tequio.experiments.bench.problems import Problem, Rounds
from tequio.federation.aggregation import Updates
from tequio.federation.algorithm import Parts

if TYPE_CHECKING:
    from tequio.federation.algorithm import Algorithm

_PROBLEM = Problem("digit-five", "digit_five_cnn", parties=4, rows=320, shape=(3, 16, 16), cohort=4, batch=64, mark=0)

# What a party of the source's federation does in a round: five parties, 7,000 rows, 5 epochs.
_PARTIES, _ROW_PASSES = 5, 7_000 * 5
_ROUNDS_OF_HISTORY = 12

PASSES = {"fedavg": 1, "ditto": 2, "fedper": 1, "fedrep": 2, "apfl": 2, "pfedme": 5, "per-fedavg": 1,
          "ifca": 1 + 2 / 3, "flprotector": 2}
"""How often a method takes the gradient of a row in one local epoch, with the settings below.

A forward pass alone is a third of that: IFCA first tries both of its models on every row.
"""

_SETTINGS: dict[str, dict[str, Any]] = {"flprotector": {"router": ""}}


def rows_a_second(repeats: int) -> dict[str, Any]:
    """FedAvg's rows a second over those of each method; the largest counts, and 1.25 is 80 % of FedAvg's."""
    rounds = {name: Rounds(_algorithm(name), _PROBLEM.population(), InlineEngine()) for name in PASSES}
    for play in rounds.values():
        play()  # the first round makes what later ones find: states, compiled kernels
    best = best_in_turn(dict(rounds), max(repeats // 2, 2))
    each = {name: best[name] / PASSES[name] for name in PASSES}
    for play in rounds.values():
        play.engine.close()
    ratios = {name: each[name] / each["fedavg"] for name in PASSES if name != "fedavg"}
    return {"seconds": best["fedavg"], "ratios": ratios, "value": max(ratios.values())}


def consistency_share(repeats: int) -> dict[str, Any]:
    """What consistency weighting adds to a round of five Digit-Five parties, as a share of the round.

    Training is timed on fewer rows and scaled to a party's 35,000 row passes a round on one core.
    """
    draw = np.random.default_rng(0)
    model = build("learner", "digit_five_cnn").initial(_PROBLEM.population().schema, draw)
    updates = [{name: draw.standard_normal(values.shape).astype(values.dtype) for name, values in model.items()}
               for _ in range(_PARTIES)]
    cohort = Updates(np.arange(_PARTIES), updates, np.ones(_PARTIES))
    aggregators = {name: build("aggregator", name) for name in ("consistency", "mean")}
    memory: dict[str, Any] = {}
    for _ in range(_ROUNDS_OF_HISTORY):
        memory = aggregators["consistency"].combine(cohort, memory).memory
    play = Rounds(_algorithm("fedavg"), _PROBLEM.population(), InlineEngine())
    best = best_in_turn({"round": play, "consistency": lambda: aggregators["consistency"].combine(cohort, memory),
                         "mean": lambda: aggregators["mean"].combine(cohort, {})}, max(repeats // 2, 2))
    play.engine.close()
    whole = best["round"] / (_PROBLEM.parties * _PROBLEM.rows) * _PARTIES * _ROW_PASSES
    return {"seconds": best["consistency"], "round_seconds": whole,
            "value": (best["consistency"] - best["mean"]) / whole}


def _algorithm(name: str) -> Algorithm:
    # Small steps: on random rows some methods diverge with larger ones.
    parts = Parts(build("learner", _PROBLEM.learner), replace(_PROBLEM.local(), learning_rate=0.001))
    made: Algorithm = build("algorithm", name, _SETTINGS.get(name, {}), parts={"parts": parts})
    return made
