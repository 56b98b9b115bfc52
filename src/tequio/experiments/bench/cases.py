"""The cases of `tequio bench`, each with the mark it has to meet."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.engines.threads import one_thread
from tequio.errors import ConfigError, nearest
from tequio.experiments.bench import million, multilabel, peers, personal, privacy, robust, trees
from tequio.experiments.bench.choosing import choice_among_a_million, valued_round
from tequio.experiments.bench.clock import best_in_turn, seconds
from tequio.experiments.bench.encrypted_regression import ckks_and_paillier, paillier_and_element_by_element
from tequio.experiments.bench.intersection import intersect
from tequio.experiments.bench.noise import clipping_and_noise
from tequio.experiments.bench.plain_loop import PlainLoop
from tequio.experiments.bench.problems import PROBLEMS, Problem, Rounds
from tequio.experiments.bench.timing import oort_among_a_million, timing_only
from tequio.experiments.bench.vertical_trees import secureboost
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

_NOOP_PARTIES = 10_000


@task("bench.nothing")
def nothing(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Answer at once."""
    return {}


def run_case(name: str, *, repeats: int, workers: int, checkout: Path | None = None) -> dict[str, Any]:
    """Measure one case; with a checkout, the peers installed there do the same work."""
    cases = CASES | ON_REQUEST
    if name not in cases:
        raise ConfigError(f"there is no bench case '{name}'", remedy=nearest(name, cases))
    measured = cases[name](repeats, workers)
    if checkout is not None and name in PROBLEMS:
        measured["peers"] = peers.run_peers(checkout, name, rounds=max(repeats // 2, 3), workers=workers)
    return {"name": name, "seconds": None, "plain_loop_seconds": None, "ratio_to_plain_loop": None, "peers": {},
            **measured, "met": measured["value"] <= measured["mark"]}


def _training(problem: Problem, repeats: int, workers: int) -> dict[str, Any]:
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


def _million(repeats: int, workers: int) -> dict[str, Any]:
    measured = million.measure(repeats)
    fits = measured["peak_megabytes"] < 2000
    return {**measured, "value": measured["ratio_to_1000_parties"] if fits else float("inf"), "mark": 1.2,
            "unit": "x a round among 1,000"}


def _multilabel(repeats: int, workers: int) -> dict[str, Any]:
    """Once each, taken in turn: a sweep lasts long enough for a busy spell of the machine to meet both alike."""
    rows = multilabel.dataset()
    parties = multilabel.populations(rows)
    limits = one_thread()
    turns = [(seconds(lambda: multilabel.ours(rows, workers)), seconds(lambda: multilabel.plain(parties)))
             for _ in range(max(repeats // 5, 1))]
    limits.restore_original_limits()
    best, loop = (min(times) for times in zip(*turns, strict=True))
    return {"seconds": best, "plain_loop_seconds": loop, "ratio_to_plain_loop": best / loop, "value": best / loop,
            "mark": 0.25, "unit": "x plain loop", "workers": workers}


def _trees(repeats: int, workers: int) -> dict[str, Any]:
    measured = trees.measure()
    return {**measured, "value": measured["seconds"] if measured["peak_megabytes"] < 2000 else float("inf"),
            "mark": 60.0, "unit": "s"}


def _tree_prediction(repeats: int, workers: int) -> dict[str, Any]:
    each = trees.microseconds_a_row(repeats)
    return {"seconds": each * trees.PREDICTED / 1e6, "value": each, "mark": 1.0, "unit": "microseconds a row"}


def _robust(repeats: int, workers: int) -> dict[str, Any]:
    return {**robust.measure(repeats), "mark": 3.0, "unit": "x plain numpy, at worst"}


def _robust_large(repeats: int, workers: int) -> dict[str, Any]:
    """Once each: the references need minutes."""
    return {**robust.measure(1, robust.MANY_PARAMETERS), "mark": 3.0, "unit": "x plain numpy, at worst"}


def _personal(repeats: int, workers: int) -> dict[str, Any]:
    return {**personal.rows_a_second(repeats), "mark": 1.25, "unit": "x FedAvg's time a row, at worst"}


def _consistency(repeats: int, workers: int) -> dict[str, Any]:
    return {**personal.consistency_share(repeats), "mark": 0.05, "unit": "of a round"}


def _noop(repeats: int, workers: int) -> dict[str, Any]:
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


def _import(repeats: int, workers: int) -> dict[str, Any]:
    code = "import time; started = time.perf_counter(); import tequio; print(time.perf_counter() - started)"
    best = min(float(_python("-c", code)) for _ in range(repeats))
    return {"seconds": best, "value": best, "mark": 0.3, "unit": "s"}


def _help(repeats: int, workers: int) -> dict[str, Any]:
    best = min(seconds(lambda: _python("-m", "tequio", "--help")) for _ in range(repeats))
    return {"seconds": best, "value": best, "mark": 0.6, "unit": "s"}


def _python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


CASES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    **{name: (lambda repeats, workers, problem=problem: _training(problem, repeats, workers))  # type: ignore[misc]
       for name, problem in PROBLEMS.items()},
    "valued": valued_round, "choice": choice_among_a_million, "oort": oort_among_a_million, "timing": timing_only,
    "million": _million, "multilabel": _multilabel,
    "trees": _trees, "tree-prediction": _tree_prediction, "robust": _robust, "personal": _personal,
    "consistency": _consistency, "psi": intersect, "secureboost": secureboost, "ckks": ckks_and_paillier,
    "paillier": paillier_and_element_by_element, "noise": clipping_and_noise, "masking": privacy.masking,
    "encrypted-sum": privacy.encrypted_sum, "compression": privacy.compression, "noop": _noop,
    "import": _import, "help": _help,
}
ON_REQUEST: dict[str, Callable[[int, int], dict[str, Any]]] = {"robust-large": _robust_large}
"""Cases that take minutes: measured only where they are named."""
