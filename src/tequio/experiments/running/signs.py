"""Signs that something is going wrong, each as one sentence with the key to change.

Some can be seen in the data before the first round, some in what the last evaluation found. A run says each of them
once: on the screen, in its events and in its summary, from where reports and the dashboard take them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs.column import Column
from tequio.data.inspecting.columns import LEAKS
from tequio.data.inspecting.scores import bins_of, outcome_of, score
from tequio.errors import listed
from tequio.experiments.running.headline import BALANCED, IMBALANCED, commonest_class
from tequio.learners.learner import GradientLearner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.config.tables import Config
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.population import Population


BY_DESIGN = ("dirichlet", "shards", "class-weights", "pooled")
"""Partitions that give parties other classes on purpose, or that have one party."""

OWN_TABLES = ("csv", "parquet", "sql", "given")
"""Datasets whose columns nobody has looked at before; those of the catalogue are known."""

EXPECTED = 5
"""A class is missed at a party where its rows would hold this many of it if all parties were alike."""

MOST_SCORED, MOST_CELLS, MOST_COLUMNS, MOST_LEAKS = 5_000, 10_000_000, 500, 3


def signs_in_data(config: Config, population: Population, raw: Dataset, algorithm: Algorithm) -> Iterator[str]:
    """What the rows of simulated parties show before the first round; `raw` are those rows before preparation."""
    yield from imbalance(config, raw)
    yield from missed_classes(config, population)
    yield from large_batches(config, population, algorithm)
    if config.data.name in OWN_TABLES:
        yield from leaks(raw)


def imbalance(config: Config, rows: Dataset | None) -> Iterator[str]:
    """One class has nearly all rows, so another metric than accuracy stands for the run."""
    name, share = commonest_class(rows.schema.target, rows) if rows is not None else ("", 0.0)
    if share > IMBALANCED and not config.evaluation.headline:
        yield (f"more than {IMBALANCED:.0%} of the rows are '{name}', so {BALANCED.replace('_', ' ')} stands for this "
               "run; to choose another metric set evaluation.headline = \"f1_macro\", for instance")


def large_batches(config: Config, population: Population, algorithm: Algorithm) -> Iterator[str]:
    """Parties that have fewer training rows than a batch holds."""
    batch = int(config.local.get("batch", 0))
    if not batch or not isinstance(algorithm.components.learner, GradientLearner):
        return
    share = 1.0 - population.split.validation - population.split.test
    rows = np.floor(population.sizes[population.sizes > 0] * share).astype(np.int64)
    small = rows[rows < batch]
    if len(small):
        fitting = 1 << max(int(small.min() // 2).bit_length() - 1, 0)
        yield (f"local.batch = {batch} is more than the training rows of {len(small)} of {len(rows)} parties (as few "
               f"as {small.min()}), so each of them takes one step per epoch; set local.batch = {fitting}")


def missed_classes(config: Config, population: Population) -> Iterator[str]:
    """Parties without a single row of a class that others have, where the partition did not mean that."""
    counts = _classes_at_parties(population) if config.data.partition["name"] not in BY_DESIGN else None
    if counts is None:
        return
    sizes = counts.sum(axis=1, keepdims=True)
    missed = (counts == 0) & (sizes * counts.sum(axis=0) / counts.sum() >= EXPECTED) & \
        ((counts > 0).sum(axis=1, keepdims=True) > 1)
    parties = np.flatnonzero(missed.any(axis=1))
    if len(parties):
        first = int(parties[0])
        name = population.schema.target.names[int(np.flatnonzero(missed[first])[0])]
        yield (f"{len(parties)} of {len(population)} parties have no row of some class, such as '{name}' at party "
               f"'{population.name(first)}', and learn that it never occurs; to leave that party out of training set "
               f"rules.held_out = [\"{population.name(first)}\"]")


def _classes_at_parties(population: Population) -> NDArray[np.int64] | None:
    """Rows of each class at each party; nothing where that says little or would be too large."""
    target, partition = population.schema.target, population.partition
    classes = len(target.names)
    if target.kind != "classes" or partition.columns is not None or len(partition) * classes > MOST_CELLS:
        return None
    parties = np.repeat(np.arange(len(partition)), partition.sizes)
    codes = parties * classes + population.dataset.target[partition.rows]
    return np.bincount(codes, minlength=len(partition) * classes).reshape(len(partition), classes)


def leaks(rows: Dataset) -> Iterator[str]:
    """Columns of a table that alone predict the target almost without error; scored as `tequio init` does."""
    schema = rows.schema
    if schema.target.kind not in ("classes", "number") or rows.is_sparse or len(schema.shape) > 1 or \
            len(schema.features) > MOST_COLUMNS:
        return
    some = rows.take(np.arange(0, len(rows), -(-len(rows) // MOST_SCORED) or 1))
    is_number = schema.target.kind == "number"
    outcome = outcome_of(_column("target", some.target), is_number=is_number)
    if outcome is None:
        return
    values, found = np.asarray(some.features, dtype=np.float64), dict[str, float]()
    for place, feature in enumerate(schema.features):
        alone = score(bins_of(_column(feature.name, values[:, place]), categories=feature.categorical), outcome)
        if alone >= LEAKS[outcome.metric]:
            found[feature.column] = max(alone, found.get(feature.column, 0.0))
    for column, alone in list(found.items())[:MOST_LEAKS]:
        yield (f"column '{column}' alone predicts '{schema.target.name}' almost without error ({outcome.metric} "
               f"{alone:.3f}); if it is only known afterwards set data.ignore = {listed(column)}")


def _column(name: str, values: Any) -> Column:
    numbers = np.asarray(values, dtype=np.float64)
    return Column(name, numbers, np.isnan(numbers), whole=True)


TOO_LARGE = 1_000.0
"""Training has diverged where its loss is this many times that of a model that knows nothing, and does not fall."""


def loss_of_ignorance(rows: Dataset) -> float:
    """The loss of a model that knows nothing: equal chances for all classes or labels, or 0 for each number. 0 where
    there is no such loss."""
    target = rows.schema.target
    if target.kind == "number":
        return float(np.mean(np.asarray(rows.target, dtype=np.float64) ** 2)) if len(rows) else 0.0
    return {"classes": float(np.log(max(len(target.names), 2))), "multilabel": float(np.log(2))}.get(target.kind, 0.0)


def signs_in_results(config: Config, metrics: Mapping[str, float], constant: str, stopped: str,
                     cause: str = "", *, clips: bool = True) -> Iterator[str]:
    """What the last evaluation shows; `cause` says where training met numbers that are none, `clips` whether the
    learner can limit gradients."""
    steady = how_to_steady(config, clips)
    if stopped == "diverged":
        why = cause or f"its loss is more than {TOO_LARGE:,.0f} times that of a model that knows nothing"
        yield f"the run has diverged: {why}; {steady}"
        return
    if constant:
        yield (f"the model answers '{constant}' for every test row; train longer (rounds = {2 * config.rounds}), or "
               "try other features or settings" + (f", such as {_rate(config)}" if "learning_rate" in config.local
                                                   else ""))
    explained = next((metrics[name] for name in ("test.r2", "parties.r2.pooled", "validation.r2")
                      if metrics.get(name) is not None), 0.0)
    if explained < 0:
        yield (f"the model is worse than always answering the mean (r2 = {explained:.3g}); {steady}, or "
               f"train longer (rounds = {2 * config.rounds})")


def how_to_steady(config: Config, clips: bool) -> str:
    """What to type where training leads nowhere."""
    rate = config.local.get("learning_rate")
    scaled = any("standardise" in str(step) or step == "auto" for step in config.data.prepare or ())
    advice = [f"set local.learning_rate = {rate / 10:g}"] if rate else []
    advice += ["local.clip_norm = 1.0"] if clips and config.local.get("clip_norm") == 0 else []
    advice += [] if scaled else ["data.prepare = [\"standardise\"]"]
    return " or ".join(advice) or "look at the columns: tequio init"


def _rate(config: Config) -> str:
    return f"local.learning_rate = {config.local['learning_rate'] * 10:g}"
