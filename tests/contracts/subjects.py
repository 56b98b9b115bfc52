"""What the battery runs on: every registered component, made with its defaults or with the example given here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tequio import registry
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.data.partitions.columns import Columns
from tequio.federation.algorithm import part_types
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining
from tequio.registry import build

# Components that cannot be made, or would be too slow here, with their defaults alone.
EXAMPLES: dict[tuple[str, str], dict[str, Any]] = {
    ("stage", "attack"): {"attack": "mean", "hostile": [1], "parties": 3},
    ("partition", "bands"): {"positive": "yes"},
    ("partition", "custom"): {"function": "contracts.subjects:alternate"},
    ("partition", "sampled"): {"parties": 5, "rows": 4},
    ("availability", "trace"): {"path": "trace.csv"},
    ("selector", "fixed"): {"parties": ["1", "3"]},
    ("learner", "kmeans"): {"clusters": 2},
    ("learner", "mlp"): {"hidden": [5]},
    ("algorithm", "flprotector"): {"router": {"name": "autoencoder", "epochs": 1}},
    ("learner", "random-forest"): {"trees": 10, "depth": 2},
    ("algorithm", "secureboost"): {"encryption": {"name": "paillier", "bits": 1024, "randomness": "seeded"}},
    ("algorithm", "vertical-forest"): {"encryption": {"name": "paillier", "bits": 1024, "randomness": "seeded"},
                                       "bins": 8, "together": 3},
    ("algorithm", "glm"): {"formula": "a ~ b"},
    ("algorithm", "meta"): {"formula": "a ~ b"},
    ("algorithm", "penalised-glm"): {"formula": "a ~ b", "folds": 2},
    ("algorithm", "effect"): {"formula": "a ~ c", "treatment": "target"},
    ("algorithm", "cox"): {"formula": "Surv(exp(a), target) ~ b", "minimum_count": 1},
    **{("algorithm", name): {"formula": "Surv(exp(d), target) ~ I(c > 0)", "minimum_count": 1, "step": 4.0,
                             "horizon": 8.0} for name in ("kaplan-meier", "log-rank")},
    ("algorithm", "mlfedavg-plus"): {"federated_rounds": 2, "personal_rounds": 3},
    # Keys and pads from streams, so that states can be compared byte by byte.
    ("algorithm", "vertical-logistic"): {"encryption": {"name": "paillier", "bits": 1024, "randomness": "seeded"}},
    ("algorithm", "vertical-linear"): {"encryption": {"name": "paillier", "bits": 1024, "randomness": "seeded"}},
    ("algorithm", "vertical-poisson"): {"encryption": {"name": "paillier", "bits": 1024, "randomness": "seeded"}},
}


def alternate(dataset: Dataset, rng: np.random.Generator) -> Any:
    return np.arange(len(dataset)) % 3


def every(kind: str) -> Any:
    """Parametrise a test over every registered component of a kind."""
    return pytest.mark.parametrize("name", registry.names(kind))


def make(kind: str, name: str, **more: Any) -> Any:
    parts = parts_of(name) if kind == "algorithm" else None
    return build(kind, name, {**EXAMPLES.get((kind, name), {}), **more}, parts=parts)


# What algorithms train where it is not the learner `logistic`.
LEARNERS = {"federated-id3": "id3", "fedrf": "random-forest", "simfl": "boosted-trees", "fedgbdt": "boosted-trees",
            "histogram-gbdt": "boosted-trees", "fedper": "mlp", "fedrep": "mlp", "fedbn": "torch",
            "xgboost-bagging": "xgboost", "xgboost-cyclic": "xgboost", "icdta4fl": "cart", "icdta4fl-plus": "cart",
            "icdta4fl-own": "cart", "secureboost": "boosted-trees", "vertical-forest": "random-forest",
            "mlfedavg": "mlp", "mlfedavg-alone": "mlp", "mlfedavg-plus": "mlp"}
NORMALISED = {"module": "contracts.normalised:build", "arguments": {"inputs": 4, "outputs": 1}}


def parts_of(name: str) -> dict[str, Any]:
    """A learner and a way of training for an algorithm, as far as it has fields for them."""
    wanted = part_types(registry.find("algorithm", name).component)
    learner, parts = LEARNERS.get(name, "logistic"), {}
    if "learner" in wanted:
        if learner == "xgboost":
            pytest.importorskip("xgboost")
        parameters = NORMALISED if learner == "torch" else EXAMPLES.get(("learner", learner))
        parts["learner"] = build("learner", learner, parameters)
    if "local" in wanted:
        parts["local"] = LocalTraining(epochs=2, batch=8, learning_rate=0.05)
    return parts


def table(rows: int = 120, *, target: str = "classes", seed: int = 0) -> Dataset:
    """A small learnable table: four numeric columns, two balanced-ish classes, six groups."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((rows, 4)).astype(np.float32)
    score = features @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.3 * draw.standard_normal(rows)
    schema = Schema.of_numbers("abcd", Target("classes", ("no", "yes")) if target == "classes" else Target("number"))
    values = (score > 0).astype(np.int64) if target == "classes" else np.floor(np.exp(score / 2)) \
        if target == "count" else score
    return Dataset.of(schema, features, values, groups=np.arange(rows) % 6)


def categories(rows: int = 120, seed: int = 0) -> Dataset:
    """The same table with every column cut into three categories."""
    numbers = table(rows, seed=seed)
    features = tuple(Feature(name, ("low", "middle", "high")) for name in numbers.schema.names)
    schema = Schema(features, numbers.schema.target)
    return Dataset.of(schema, np.digitize(numbers.features, [-0.5, 0.5]), numbers.target)


def labelled(rows: int = 120, seed: int = 0) -> Dataset:
    """The same columns with five labels."""
    numbers = table(rows, seed=seed)
    draw = np.random.default_rng(seed + 1)
    labels = numbers.features @ draw.standard_normal((4, 5)) + 0.3 * draw.standard_normal((rows, 5)) > 0
    return Dataset.of(Schema.of_numbers("abcd", Target("multilabel", tuple("vwxyz"))), numbers.features,
                      labels.astype(np.int8), groups=np.arange(rows) % 6)


def population(parties: int = 6, dataset: Dataset | None = None, seed: int = 1) -> Population:
    data = dataset or table()
    rows = np.array_split(np.arange(len(data)), parties)
    labels = None
    if data.schema.target.kind == "multilabel":
        labels = tuple(np.sort(np.arange(party, party + 1 + party % 3) % 5) for party in range(parties))
    return Population(data, Partition.of(rows, labels=labels), Split(validation=0.1, test=0.2), seed=seed)


def by_columns(parties: int = 2, *, target: str = "classes", seed: int = 1) -> Population:
    """Parties with different columns, of which some rows are common, and a key holder."""
    data = table(target=target)
    ids = 10**12 + np.random.default_rng(seed).permutation(10**6)[:len(data)]  # none turns up in a message by chance
    data = Dataset.of(data.schema, data.features, data.target, ids=ids)
    partition = Columns(parties=parties, overlap=0.8, key_holder=True).deal(data, np.random.default_rng(seed))
    return Population(data, partition, Split(validation=0.1, test=0.2), seed=seed)


def clock(people: Population, seed: int = 0) -> Clock:
    """Phones whose links and processors differ, and one virtual clock for all."""
    return Clock(Mobile(throughput=(0.5, 2.0)), people.sizes.astype(float), seed=seed)
