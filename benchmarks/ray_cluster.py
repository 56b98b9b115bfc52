"""What the ray engine costs: python benchmarks/ray_cluster.py

Rounds of the `mlp` bench on a Ray cluster of two nodes of one core each on this machine, against the local engine with
two workers (mark: 1.3 x). They take turns; the best round of each counts.
"""

from __future__ import annotations

import json

from tequio.bench.problems import PROBLEMS, Rounds, best_in_turn
from tequio.engines.ray_engine import require_ray
from tequio.registry import build

MARK = 1.3
NODE = {"num_cpus": 1, "object_store_memory": 500_000_000, "include_dashboard": False}


def measure(repeats=20):
    require_ray()
    from ray.cluster_utils import Cluster

    problem = PROBLEMS["mlp"]
    population = problem.population()
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(**NODE)
    engines = {"ray": build("engine", "ray", {"address": cluster.address, "workers": 2}).create(),
               "local": build("engine", "local", {"workers": 2}).create()}
    try:
        rounds = {name: Rounds(problem.algorithm(), population, engine) for name, engine in engines.items()}
        best = best_in_turn(rounds, repeats)
    finally:
        for engine in engines.values():
            engine.close()
        cluster.shutdown()
    return {"ray_seconds": best["ray"], "local_seconds": best["local"], "ratio": best["ray"] / best["local"],
            "mark": MARK}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
