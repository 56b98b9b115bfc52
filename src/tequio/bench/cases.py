"""The cases of `tequio bench`, each with the mark it has to meet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tequio.bench.choosing import (
    choice_among_a_million,
    oort_among_a_million,
    round_among_a_million,
    timing_only,
    valued_round,
)
from tequio.bench.learning import consistency_share, multilabel_sweep, robust, robust_large, rows_a_second
from tequio.bench.problems import (
    DIGIT_FIVE,
    PROBLEMS,
    Measured,
    PlainLoop,
    Problem,
    Rounds,
    best_in_turn,
    run_peers,
    seconds,
)
from tequio.bench.protection import (
    ckks_and_paillier,
    clipping_and_noise,
    compression,
    masking,
    one_shot_sum,
    paillier_and_element_by_element,
)
from tequio.bench.trees import fusion, intersect, prediction, secureboost
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine, one_thread
from tequio.errors import ConfigError, nearest
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.task import Done, NoSettings, Reveals, task
from tequio.registry import build

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party


Case = Callable[[int, int], Measured]
"""Takes the number of repeats and of workers."""

_NOOP_PARTIES = 10_000


@task("bench.nothing", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def nothing(party: Party, payload: Payload, settings: NoSettings) -> Done:
    """Answer at once."""
    return {}


def run_case(name: str, *, repeats: int, workers: int, checkout: Path | None = None) -> Measured:
    """Measure one case; with a checkout, the peers installed there do the same work."""
    cases = CASES | ON_REQUEST
    if name not in cases:
        raise ConfigError(f"there is no bench case '{name}'", remedy=nearest(name, cases))
    measured = cases[name](repeats, workers)
    if checkout is not None and name in PROBLEMS:
        measured["peers"] = run_peers(checkout, name, rounds=max(repeats // 2, 3), workers=workers)
    return {"name": name, "seconds": None, "plain_loop_seconds": None, "ratio_to_plain_loop": None, "peers": {},
            **measured, "met": measured["value"] <= measured["mark"]}


def _training(problem: Problem, repeats: int, workers: int) -> Measured:
    limits = one_thread()
    population = problem.population()
    ours = Rounds(problem.algorithm(), population, build("engine", "local", {"workers": workers}).create())
    try:
        best = best_in_turn({"ours": ours, "plain loop": PlainLoop(problem, population)}, repeats)
    finally:
        ours.engine.close()
        limits.restore_original_limits()
    ratio = best["ours"] / best["plain loop"]
    return {"seconds": best["ours"], "plain_loop_seconds": best["plain loop"], "ratio_to_plain_loop": ratio,
            "value": ratio, "mark": problem.mark, "unit": "x plain loop", "workers": workers}


def _noop(repeats: int, workers: int) -> Measured:
    population, engine = _one_row_each(_NOOP_PARTIES), InlineEngine()
    engine.open(population)
    federation = Federation(population, engine)
    everyone = federation.everyone()
    best = min(seconds(lambda: federation.ask(everyone, nothing)) for _ in range(repeats + 1))
    engine.close()
    return {"seconds": best, "value": best / _NOOP_PARTIES * 1e6, "mark": 20.0, "unit": "microseconds a party"}


def _one_row_each(parties: int) -> Population:
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((parties, 1)), np.zeros(parties))
    return Population(dataset, Partition(np.arange(parties), np.arange(parties + 1)), Split(0.0, 0.0))


def _import(repeats: int, workers: int) -> Measured:
    code = "import time; started = time.perf_counter(); import tequio; print(time.perf_counter() - started)"
    best = min(float(_python("-c", code)) for _ in range(repeats))
    return {"seconds": best, "value": best, "mark": 0.3, "unit": "s"}


def _help(repeats: int, workers: int) -> Measured:
    best = min(seconds(lambda: _python("-m", "tequio", "--help")) for _ in range(repeats))
    return {"seconds": best, "value": best, "mark": 0.6, "unit": "s"}


def _python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


CASES: dict[str, Case] = {
    **{name: (lambda repeats, workers, problem=problem: _training(problem, repeats, workers))  # type: ignore[misc]
       for name, problem in (PROBLEMS | {DIGIT_FIVE.name: DIGIT_FIVE}).items()},
    "valued": valued_round, "choice": choice_among_a_million, "oort": oort_among_a_million, "timing": timing_only,
    "million": round_among_a_million, "multilabel": multilabel_sweep, "trees": fusion, "tree-prediction": prediction,
    "robust": robust, "personal": rows_a_second, "consistency": consistency_share, "psi": intersect,
    "secureboost": secureboost, "ckks": ckks_and_paillier, "paillier": paillier_and_element_by_element,
    "noise": clipping_and_noise, "masking": masking, "one-shot-sum": one_shot_sum, "compression": compression,
    "noop": _noop, "import": _import, "help": _help,
}
ON_REQUEST: dict[str, Case] = {"robust-large": robust_large}
"""Cases that take minutes: measured only where they are named."""
