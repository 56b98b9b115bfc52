"""One small run of every algorithm through `tequio.run`, and what a user can see of its result."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTIES = 6
SEALED = {"encryption": {"name": "paillier", "bits": 1024, "randomness": "seeded"}}
"""Keys and pads from seeded streams, so that two runs can be compared."""

RICH: dict[str, dict[str, Any]] = {  # these need more rows, with enough events in each cell
    "effect": {"formula": "a ~ c", "treatment": "y"},
    "cox": {"formula": "Surv(exp(a), y) ~ b"},
    **{name: {"formula": "Surv(exp(d), y) ~ I(c > 0)", "step": 1.0, "horizon": 2.0, "minimum_count": 1}
       for name in ("kaplan-meier", "log-rank")}}
LEARNERS = {"federated-id3": "id3", "fedrf": "random-forest", "simfl": "boosted-trees", "fedgbdt": "boosted-trees",
            "histogram-gbdt": "boosted-trees", "fedper": "mlp", "fedrep": "mlp", "fedbn": "torch",
            "xgboost-bagging": "xgboost", "xgboost-cyclic": "xgboost", "icdta4fl": "cart", "icdta4fl-plus": "cart",
            "icdta4fl-own": "cart", "secureboost": "boosted-trees", "vertical-forest": "random-forest",
            "mlfedavg": "mlp", "mlfedavg-alone": "mlp", "mlfedavg-plus": "mlp"}
WITHOUT_LEARNER = {*RICH, "glm", "penalised-glm",
                   "ask", "kmeans", "statistics", "split-nn", "transfer", "vertical-linear", "vertical-logistic",
                   "vertical-poisson", "test", "meta"}
SIZES: dict[str, dict[str, Any]] = {
    "kmeans": {"clusters": 2}, "mlp": {"hidden": [5]}, "random-forest": {"trees": 3, "depth": 2},
    "boosted-trees": {"depth": 2, "bins": 8}, "cart": {"depth": 3}, "xgboost": {"depth": 2},
    "torch": {"module": "contracts.normalised:build", "arguments": {"inputs": 4, "outputs": 1}}}
"""Parameters that keep a learner small."""

SETTINGS: dict[str, dict[str, Any]] = {
    "test": {"tests": ["pearson(a, b)"]}, "meta": {"formula": "a ~ b"},
    "flprotector": {"router": {"name": "autoencoder", "epochs": 1}}, "kmeans": {"clusters": 2},
    "glm": {"formula": "a ~ b"}, "penalised-glm": {"formula": "a ~ b", "folds": 2}, **RICH,
    "mlfedavg-plus": {"federated_rounds": 1, "personal_rounds": 1, "second_rounds": 1},
    "fedrf": {"trees": 3}, "simfl": {"tables": 2}, "fedgbdt": {"tables": 2}, "fedbuff": {"buffer": 3},
    "semisync": {"period": 5.0}, "split-nn": {"bottom": [4], "cut": [3], "top": [4]}, "transfer": {"width": 3},
    "secureboost": SEALED, "vertical-linear": SEALED,
    "vertical-logistic": SEALED, "vertical-poisson": SEALED, "vertical-forest": {**SEALED, "bins": 8, "together": 3}}
TOPOLOGIES = {"gossip": "parallel", "cyclic": "cyclic"}
ON_THE_CLOCK = {"fedasync", "fedbuff", "semisync", "hybridfl", "timing"}
ON_COLUMNS = {"secureboost", "split-nn", "transfer", "vertical-forest", "vertical-linear", "vertical-logistic",
              "vertical-poisson"}
ON_LABELS = {"mlfedavg", "mlfedavg-alone", "mlfedavg-plus"}
WITHOUT_LOCAL = {*RICH, "glm", "penalised-glm",
                 "statistics", "federated-id3", "fedrf", "simfl", "fedgbdt", "histogram-gbdt", "icdta4fl",
                 "icdta4fl-plus", "icdta4fl-own", "kmeans", "secureboost", "vertical-forest", "xgboost-bagging",
                 "xgboost-cyclic", "ask", "test", "meta"}


def config_of(name: str) -> dict[str, Any]:
    """The keywords of `tequio.run` for a small run of an algorithm: two rounds, few rows, one process."""
    config: dict[str, Any] = {
        "name": name, "seed": 7, "rounds": 2, "data": data_of(name), "evaluation": {"every": 2},
        "algorithm": {"name": name, **SETTINGS.get(name, {})}, "engine": {"name": "local", "workers": 1}}
    if name not in WITHOUT_LEARNER:
        config["learner"] = learner(LEARNERS.get(name, "logistic"))
    if name not in WITHOUT_LOCAL:
        config["local"] = {"epochs": 2, "batch": 8, "learning_rate": 0.05}
    if name in TOPOLOGIES:
        config["topology"] = TOPOLOGIES[name]
    if name in ON_THE_CLOCK:
        config["devices"] = {"name": "mobile", "throughput": [0.5, 2.0]}
    return config


def learner(name: str) -> dict[str, Any]:
    """The table [learner] of a small model."""
    return {"name": name, **SIZES.get(name, {})}


def data_of(name: str) -> dict[str, Any]:
    """The table [data] for an algorithm: rows that were made up, and how they are dealt."""
    whole = {"test": 0.2, "split": {"validation": 0.1, "test": 0.2}, "one_class": "allow", "prepare": []}
    if name in ON_COLUMNS:
        content = rows(number=name == "vertical-linear", counts=name == "vertical-poisson", ids=True)
        return {**whole, "name": content, "target": "y", "id": "id",
                "partition": {"name": "columns", "parties": 3, "overlap": 0.8, "key_holder": True}}
    if name in ON_LABELS:
        return {**whole, "name": labelled_rows(), "target": list("vwxyz"),
                "partition": {"name": "label-sets", "sizes": [1, 1, 1, 2]}}
    partition: dict[str, Any] = {"name": "quantity", "parties": PARTIES, "minimum_rows": 10}
    if name == "centralised":
        partition = {"name": "pooled"}
    if name == "fedbn" or name in RICH:  # no batch of one row, which cannot be normalised; enough events
        partition = {"name": "iid", "parties": PARTIES}
    content = rows(2400 if name in RICH else 150, categories=name == "federated-id3")
    return {**whole, "name": content, "target": "y", "partition": partition}


def rows(count: int = 150, *, number: bool = False, counts: bool = False, categories: bool = False,
         ids: bool = False) -> dict[str, Any]:
    """A learnable table: four columns (numbers, or three categories each) and two classes, a number or a count."""
    draw = np.random.default_rng(0)
    features = draw.standard_normal((count, 4)).astype(np.float32)
    score = features @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.3 * draw.standard_normal(count)
    columns: dict[str, Any] = {"id": 10**6 + draw.permutation(10**5)[:count]} if ids else {}
    levels = np.array(["low", "middle", "high"])
    for column, values in zip("abcd", features.T, strict=True):
        columns[column] = levels[np.digitize(values, [-0.5, 0.5])] if categories else values
    if counts:
        return {**columns, "y": np.floor(np.exp(score / 2))}
    return {**columns, "y": score if number else np.where(score > 0, "yes", "no")}


def labelled_rows(count: int = 150) -> dict[str, Any]:
    """The same four columns with five labels."""
    draw = np.random.default_rng(1)
    columns = {name: values for name, values in rows(count).items() if name != "y"}
    labels = np.stack(list(columns.values()), axis=1) @ draw.standard_normal((4, 5)) > 0
    return {**columns, **{label: values.astype(np.int64) for label, values in zip("vwxyz", labels.T, strict=True)}}


def seen(result: Any) -> dict[str, Any]:
    """What a run made that a user can see, without times and traffic of this machine."""
    return {"model": result.summary["model_sha256"], "metrics": _stable(result.summary["metrics"]),
            "rounds": [_stable(row) for row in result.metrics.rows],
            **{table: [dict(row) for row in getattr(result, table).rows]
               for table in ("parties", "labels", "participation")}}


def fingerprint(result: Any) -> str:
    """A hash over everything that a run made and a user can see."""
    return digest(seen(result))


def digest(content: Any) -> str:
    """A hash of plain data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


_COST = ("seconds", "bytes_up", "bytes_down", "messages")


def _stable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in _COST}
