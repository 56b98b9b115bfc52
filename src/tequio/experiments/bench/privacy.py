"""What protection costs: a round whose updates are clipped and noised against the same round without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tequio.components import build
from tequio.engines.inline import InlineEngine
from tequio.engines.threads import one_thread
from tequio.experiments.bench.clock import best_in_turn
from tequio.experiments.bench.problems import PROBLEMS, Rounds

if TYPE_CHECKING:
    from tequio.federation.algorithm import Algorithm

_MARK = 1.05


def noised_round(repeats: int, workers: int) -> dict[str, Any]:
    """A round of the case `mlp` with central differential privacy, clip adapting, over one without any stage."""
    limits, problem = one_thread(), PROBLEMS["mlp"]
    population, plain = problem.population(), problem.algorithm()
    contestants = {"plain": Rounds(plain, population, InlineEngine()),
                   "private": Rounds(_private(plain, problem.cohort), population, InlineEngine())}
    best = best_in_turn(contestants, repeats)
    limits.restore_original_limits()
    return {"seconds": best["private"], "value": best["private"] / best["plain"], "mark": _MARK,
            "unit": "x a round without noise", "plain_seconds": best["plain"]}


def _private(algorithm: Algorithm, cohort: int) -> Algorithm:
    stage = build("stage", "central-dp", {"noise": 0.5, "quantile": 0.5, "expected": cohort})
    return replace(algorithm, parts=replace(algorithm.parts, stages=(stage,)))
