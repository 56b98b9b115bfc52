"""FLEX-Trees (flextrees, AGPL-3.0) on one of the tree problems; runs in the environment of FLEX only.

The flows are those of its notebooks, made of its own primitives, without the evaluations in between.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from tree_problems import NURSERY_SIZES, TREE_PROBLEMS, TreeProblem, few_rows, make_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def federated(parts: list[Any]) -> Any:
    """The parties' rows as FLEX holds them."""
    from flex.data import Dataset, FedDataset

    data = FedDataset()
    for party, (features, labels) in enumerate(parts):
        data[f"client_{party}"] = Dataset.from_array(features, labels)
    return data


def grow_id3(problem: TreeProblem, parts: list[Any]) -> Callable[[NDArray[Any]], Any]:
    """Federated-ID3: one exchange for every node and for every category of every column."""
    from flex.pool import FlexPool
    from flextrees import pool as primitives
    from flextrees.utils import ID3

    names = [f"c{column}" for column in range(len(NURSERY_SIZES))]
    values = {name: [str(code) for code in range(size)] for name, size in zip(names, NURSERY_SIZES, strict=True)}
    parts = [(features.astype(str), labels) for features, labels in parts]
    pool = FlexPool.client_server_pool(
        federated(parts), primitives.init_server_model_id3, dataset_features=[*names, "class"]
    )
    pool.servers.map(primitives.deploy_server_config_id3, pool.clients)
    root = primitives.build_id3(None, 0, names, pool, problem.depth, values)
    tree = ID3(max_depth=problem.depth, feature_names=names)
    tree.set_root(root)
    return lambda features: tree.predict(features.astype(str))


def grow_forest(problem: TreeProblem, parts: list[Any]) -> Callable[[NDArray[Any]], Any]:
    """Federated random forest: the steps of its example."""
    from flex.pool import FlexPool
    from flextrees import pool as primitives

    how = {"max_depth": problem.depth, "n_estimators": problem.forest}
    pool = FlexPool.client_server_pool(
        federated(parts), primitives.init_server_model_rf, config={"server_params": how, "clients_params": how}
    )
    pool.servers.map(primitives.deploy_server_config_rf, pool.clients)
    pool.clients.map(primitives.train_rf)
    pool.aggregators.map(primitives.collect_clients_trees_rf, pool.clients, nr_estimators=problem.trees)
    pool.aggregators.map(primitives.aggregate_trees_from_rf)
    pool.aggregators.map(primitives.set_aggregated_trees_rf, pool.servers)
    pool.servers.map(primitives.deploy_server_model_rf, pool.clients)
    [model] = pool.servers.map(lambda server, _: server["model"])
    return lambda features: model.predict(features)


def grow_boosted(problem: TreeProblem, parts: list[Any]) -> Callable[[NDArray[Any]], Any]:
    """Federated boosting with hashed rows: the steps of its example."""
    from flex.pool import FlexPool
    from flextrees import pool as primitives

    parameters = {"max_depth": problem.depth, "n_estimators": problem.trees, "learning_rate": problem.learning_rate}
    config = {"server_params": {**parameters, "estimators": []}, "clients_params": {**parameters, "estimators": []}}
    pool = FlexPool.client_server_pool(
        federated(parts), primitives.init_server_model_gbdt, config=config, dataset_dim=parts[0][0].shape[1]
    )
    clients, servers, aggregators = pool.clients, pool.servers, pool.aggregators
    servers.map(primitives.deploy_server_config_gbdt, clients)
    clients.map(primitives.init_hash_tables)
    clients.map(primitives.compute_hash_values)
    primitives.preprocessing_stage(clients, servers, aggregators)
    primitives.train_n_estimators(clients, servers, aggregators, problem.trees)
    [estimators] = servers.map(lambda server, _: server["server_params"]["estimators"])

    def predict(features: NDArray[Any]) -> NDArray[np.int64]:
        margins = 1 + problem.learning_rate * sum(tree.predict(features) for tree in estimators)
        return (margins > margins.mean()).astype(np.int64)  # its own rule

    return predict


METHODS = {"id3": grow_id3, "forest": grow_forest, "boosting": grow_boosted}


def run(problem: TreeProblem) -> dict[str, Any]:
    """Warm up, grow on the clock, and score the result on rows that nobody trained on."""
    parts, (features, labels) = make_rows(problem)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - what the framework draws from
    METHODS[problem.method](replace(problem, depth=1), few_rows(parts))
    started = time.process_time()
    predict = METHODS[problem.method](problem, parts)
    seconds = time.process_time() - started
    right = np.asarray(predict(features)).astype(str) == labels.astype(str)
    versions = f"flextrees {version('flextrees')}, flexible-fl {version('flexible-fl')}"
    return {"peer": "flextrees", "version": versions, "case": problem.name, "seconds": seconds,
            "accuracy": float(right.mean())}


def main() -> None:
    """Run one case and print its document; what the framework prints on the way is dropped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=sorted(TREE_PROBLEMS), required=True)
    case = parser.parse_args().case
    with contextlib.redirect_stdout(io.StringIO()):
        document = run(TREE_PROBLEMS[case])
    print(json.dumps(document))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
