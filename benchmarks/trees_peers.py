"""Race tequio's federated trees against FLEX-Trees on the same rows: ``python benchmarks/trees_peers.py``.

FLEX-Trees (flextrees 0.1.0, AGPL-3.0) runs in the environment of FLEX, which ``benchmarks/peers/setup.py flex`` makes.
The two take turns, each in a fresh process on one core, and the best of its turns counts. Each grows on a few rows
first, so that imports are done. What is timed is everything from rows in memory to the finished model at the
coordinator, in seconds of the processor because the machine may be busy; scoring it comes afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

from setup import environment_python, install  # noqa: E402
from tree_problems import NURSERY_SIZES, TREE_PROBLEMS, TreeProblem, few_rows, make_rows  # noqa: E402

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.federation import Federation

# flextrees asks for a package called "flex", meaning flexible-fl; the package index has an unrelated one of that name,
# which would overwrite FLEX. So its other requirements are named here, and it is installed without its own list.
PEER = ("flextrees==0.1.0",)
PEER_NEEDS = ("bitarray", "ucimlrepo", "future", "pandas")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def algorithm_for(problem: TreeProblem) -> Algorithm:
    """The algorithm with the settings of the peer's examples."""
    from tequio.algorithms.trees.federated_id3 import FederatedID3
    from tequio.algorithms.trees.fedrf import FedRF
    from tequio.algorithms.trees.simfl import SimFL
    from tequio.learners.trees.boosting import Boosting
    from tequio.learners.trees.forest import RandomForest
    from tequio.learners.trees.id3 import ID3

    if problem.method == "id3":
        return FederatedID3(learner=ID3(depth=problem.depth))
    if problem.method == "forest":
        forest = RandomForest(trees=problem.forest, depth=problem.depth, voting="majority")
        return FedRF(trees=problem.trees, learner=forest)
    boosting = Boosting(depth=problem.depth, learning_rate=problem.learning_rate, min_gain=1.0, columns=0.8)
    return SimFL(hashing="hyperplane", learner=boosting)


def dataset_of(problem: TreeProblem, features: Any, labels: Any) -> Dataset:
    """Rows with their schema."""
    from tequio.data.dataset import Dataset, Feature, Schema, Target

    if problem.method == "id3":
        columns = tuple(Feature(f"c{column}", tuple(str(code) for code in range(size)))
                        for column, size in enumerate(NURSERY_SIZES))
        return Dataset.of(Schema(columns, Target("classes", ("0", "1", "2", "3"))), features, labels)
    names = [f"x{column}" for column in range(features.shape[1])]
    return Dataset.of(Schema.of_numbers(names, Target("classes", ("0", "1"))), features, labels)


def grow(problem: TreeProblem, parts: list[Any]) -> tuple[Federation, State]:
    """From rows in memory to the finished model."""
    from tequio.data.partition import Partition, Split
    from tequio.engines.inline import InlineEngine
    from tequio.federation.federation import Federation
    from tequio.federation.population import Population

    ends = np.cumsum([len(labels) for _, labels in parts])
    partition = Partition.of(np.split(np.arange(ends[-1]), ends[:-1]))
    data = dataset_of(problem, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    engine = InlineEngine()
    engine.open(population := Population(data, partition, Split(validation=0.0, test=0.0)))
    federation, algorithm = Federation(population, engine), algorithm_for(problem)
    state = algorithm.start(federation)
    for _ in range(problem.trees if problem.method == "boosting" else 1):
        federation.round += 1
        state = algorithm.round(federation, state)
    return federation, state


def run_ours(problem: TreeProblem) -> dict[str, Any]:
    """Warm up, grow on the clock, and score the result on rows that nobody trained on."""
    from tequio import __version__
    from tequio.learners.metrics import summarise

    parts, held_out = make_rows(problem)
    grow(problem, few_rows(parts))
    started = time.process_time()
    federation, state = grow(problem, parts)
    seconds = time.process_time() - started
    tally = algorithm_for(problem).score(federation, state, dataset_of(problem, *held_out))
    assert tally is not None
    return {"peer": "tequio", "version": f"tequio {__version__}", "case": problem.name, "seconds": seconds,
            "accuracy": summarise(federation.schema.target, tally)["accuracy"]}


def turn(python: Path | str, script: Path, *arguments: str) -> dict[str, Any]:
    """One contestant's document; its own complaint where there is none."""
    done = subprocess.run([python, script, *arguments], capture_output=True, text=True, check=False, cwd=HERE,
                          env={**os.environ, **ONE_THREAD})
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{script.name} {' '.join(arguments)} failed:\n{done.stderr.strip()[-2000:]}")
    document: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return document


def race(case: str, repeats: int) -> dict[str, Any]:
    """Both contestants in turns; the best of each."""
    peer_python = environment_python("flex")
    turns = [(turn(sys.executable, Path(__file__).resolve(), "--ours", case),
              turn(peer_python, HERE / "peers" / "run_flextrees.py", "--case", case)) for _ in range(repeats)]
    ours, peer = (min(side, key=lambda document: document["seconds"]) for side in zip(*turns, strict=True))
    return {"case": case, "ours": ours, "peer": peer, "ratio": peer["seconds"] / ours["seconds"]}


def prepare_peer() -> None:
    """Install flextrees beside FLEX, if it is not there."""
    python = environment_python("flex")
    if not python.exists():
        raise SystemExit("there is no environment for FLEX; type: python benchmarks/peers/setup.py flex")
    if subprocess.run([python, "-c", "import flextrees.pool"], capture_output=True, check=False).returncode:
        install("flex", PEER_NEEDS)
        install("flex", PEER, alone=True)


def main() -> None:
    """Race, print a table or a JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=list(TREE_PROBLEMS), help="only this case; may be repeated")
    parser.add_argument("--repeats", type=int, default=3, help="turns each contestant takes (default: 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--ours", choices=list(TREE_PROBLEMS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ours:
        print(json.dumps(run_ours(TREE_PROBLEMS[arguments.ours])))
        return
    prepare_peer()
    results = [race(case, arguments.repeats) for case in arguments.case or TREE_PROBLEMS]
    if arguments.json:
        print(json.dumps(results))
        return
    print("| case | tequio, CPU s | flextrees, CPU s | times faster | accuracy tequio | accuracy flextrees |")
    print("|---|---:|---:|---:|---:|---:|")
    for result in results:
        ours, peer = result["ours"], result["peer"]
        print(f"| {result['case']} | {ours['seconds']:.4f} | {peer['seconds']:.4f} | {result['ratio']:.1f} "
              f"| {ours['accuracy']:.3f} | {peer['accuracy']:.3f} |")


if __name__ == "__main__":
    main()
