"""A party's network in two parts: the core that all share, and a head with one output for each of its own labels.

Heads are of different sizes. For training and prediction they are filled up to the widest head of the federation with
labels of weight zero, so that many parties can be trained in one batched call. What is filled up never changes and is
cut off again.

Rare labels get weights that make up for how rare they are, from the party's own training rows, and decision borders
that suit them, from its validation rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tequio.data.dataset import Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.learners.learner import Arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Learner

HEAD = "output."
"""What the names of a head's arrays begin with: the last layer of the dense learners."""

LARGEST_WEIGHT = 50.0
"""Bound on the weight of a label's positive rows: one row must not drown all others."""

BORDERS = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Probabilities among which a label's decision border is chosen."""

DOUBT = 5
"""A border chosen on this many positive rows is half believed: on the logit scale it goes halfway from one half."""

_MOST_SCHEMAS = 8
_schemas: dict[tuple[int, int], tuple[tuple[Any, ...], Schema]] = {}


def core_of(model: Arrays) -> Arrays:
    """The part that is shared."""
    return {name: values for name, values in model.items() if not name.startswith(HEAD)}


def head_of(model: Arrays) -> Arrays:
    """The part that stays with the party."""
    return {name: values for name, values in model.items() if name.startswith(HEAD)}


def fresh_core(learner: Learner, federation: Federation) -> Arrays:
    """The coordinator's first core."""
    require_labels(federation.schema)
    model = learner.initial(federation.schema, federation.rng("initial model"))
    core, head = core_of(model), head_of(model)
    if not core or not head:
        raise ConfigError(f"the learner '{type(learner).__name__}' has no hidden layers to share and a last layer "
                          "'output' to keep", remedy="set learner.name = 'mlp' and learner.hidden = [100, 20]")
    return core


def require_labels(schema: Schema) -> None:
    """Refuse targets that are not labels."""
    if schema.target.kind != "multilabel":
        raise DataError(f"this algorithm learns labels, and the target '{schema.target.name}' is of kind "
                        f"'{schema.target.kind}'", remedy="choose multi-label data, or another algorithm")


def widest_head(federation: Federation) -> int:
    """Labels of the party that knows most: how many a party knows is no secret."""
    labels = federation.population.partition.labels
    return federation.schema.target.size if labels is None else max(len(own) for own in labels)


class Network(TypedDict):
    """A core with a head, and how good they were on validation rows; less is better."""

    core: Arrays
    head: Arrays
    score: float


class OwnNetworks(TypedDict, total=False):
    """What a party keeps: its head and the core it trained last, its best network so far and for how many rounds none
    was better, and the best one of an earlier phase."""

    head: Arrays
    core: Arrays
    best: Network
    waited: int
    aside: Network


def own_head(party: Party, learner: Learner) -> Arrays:
    """The head that the party keeps, or its first one."""
    kept = party.recall(OwnNetworks).get("head")
    return head_of(learner.initial(party.data.train.schema, party.rng("head"))) if kept is None else kept


def widened(head: Arrays, width: int) -> Arrays:
    """The head with outputs of zeros up to a width."""
    return {name: np.concatenate([values, np.zeros((width - len(values), *values.shape[1:]), values.dtype)])
            if len(values) < width else values for name, values in head.items()}


def narrowed(head: Arrays, width: int) -> Arrays:
    """The first outputs of a widened head."""
    return {name: values[:width] for name, values in head.items()}


def widened_data(data: Dataset, width: int) -> Dataset:
    """The rows with as many labels as the widest head has; those filled up repeat a label and must weigh nothing."""
    labels = np.arange(data.schema.target.size) if data.labels is None else data.labels
    filled = np.concatenate([labels, np.repeat(labels[:1], width - len(labels))])
    return replace(data, schema=_schema(data.schema, width), labels=filled)


def label_weights(own: NDArray[np.float64] | None, labels: int, width: int) -> NDArray[np.float32] | None:
    """Weights (2, width) that give each real label its own weight and the filled-up ones none.

    The loss is a mean over all outputs, so real labels gain what the others take from the mean.
    """
    if own is None and labels == width:
        return None
    weights = np.zeros((2, width), dtype=np.float32)
    weights[:, :labels] = (1.0 if own is None else own) * (width / labels)
    return weights


def scores_of(learner: Learner, core: Arrays, head: Arrays, data: Dataset, width: int) -> NDArray[Any]:
    """Probabilities of the party's labels, (rows, labels)."""
    scores = learner.predict({**core, **widened(head, width)}, widened_data(data, width))
    return scores[:, :data.schema.target.size]


def _schema(schema: Schema, width: int) -> Schema:
    """One schema for all parties, so that one network is built and not one a party."""
    key = (id(schema.features), width)
    if key not in _schemas:
        if len(_schemas) >= _MOST_SCHEMAS:
            _schemas.pop(next(iter(_schemas)))
        names = tuple(f"label {number}" for number in range(width))
        # The features are kept too: nothing else can then come to live under their id.
        _schemas[key] = (schema.features, replace(schema, target=Target("multilabel", names)))
    return _schemas[key][1]


def balanced_weights(truth: NDArray[Any], strength: float) -> NDArray[np.float64] | None:
    """Weights (2, labels) for absent and for applying labels; 1 for both where strength is 0.

    Positive rows of a label weigh (negatives / positives) ** strength, so that at strength 1 both sides weigh alike.
    """
    if not strength:
        return None
    positives = truth.astype(bool).sum(axis=0)
    odds = (len(truth) - positives + 1) / (positives + 1)
    return np.stack([np.ones(truth.shape[1]), np.clip(odds ** strength, 1.0 / LARGEST_WEIGHT, LARGEST_WEIGHT)])


def best_borders(scores: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """Of each label the border with the best F1 on these rows, drawn towards one half where positive rows are few.

    Of equally good borders it is the one nearest to one half.
    """
    labels = truth.shape[1]
    actual = truth.astype(bool)
    if not len(actual):
        return np.full(labels, 0.5)
    predicted = scores[None] > BORDERS[:, None, None]
    hits = (predicted & actual).sum(axis=1)
    f1 = 2 * hits / np.maximum(predicted.sum(axis=1) + actual.sum(axis=0), 1)
    # A nudge that decides between equals only: differences of F1 are larger as long as there are under a million rows.
    best = BORDERS[(f1 - 1e-7 * np.abs(BORDERS - 0.5)[:, None]).argmax(axis=0)]
    positives = actual.sum(axis=0)
    odds = (best / (1 - best)) ** (positives / (positives + DOUBT))
    borders: NDArray[np.float64] = odds / (1 + odds)
    return borders


def around_half(scores: NDArray[Any], borders: NDArray[np.float64]) -> NDArray[Any]:
    """Scores moved on the logit scale so that each label's border lies at one half."""
    inside = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    odds = inside / (1 - inside) * (1 - borders) / borders
    return odds / (1 + odds)
