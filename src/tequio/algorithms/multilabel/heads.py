"""A party's network in two parts: the core that all share, and a head with one output for each of its own labels.

Heads are of different sizes. For training and prediction they are filled up to the widest head of the federation with
labels of weight zero, so that many parties can be trained in one batched call. What is filled up never changes and is
cut off again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.schema import Schema, Target
from tequio.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.learners.learner import Arrays, Learner

HEAD = "output."
"""What the names of a head's arrays begin with: the last layer of the dense learners."""

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


def own_head(party: Party, learner: Learner) -> Arrays:
    """The head that the party keeps, or its first one."""
    kept: Arrays | None = party.state.get("head")
    if kept is None:
        kept = head_of(learner.initial(party.data.train.schema, party.rng("head")))
    return kept


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


def label_weights(own: NDArray[Any] | None, labels: int, width: int) -> NDArray[np.float32] | None:
    """Weights (2, width) that give each real label its own weight and the filled-up ones none.

    The loss is a mean over all outputs, so real labels gain what the others take from the mean.
    """
    if own is None and labels == width:
        return None
    weights = np.zeros((2, width), dtype=np.float32)
    weights[:, :labels] = (1.0 if own is None else own) * (width / labels)
    return weights


def scores_of(learner: Learner, core: Arrays, head: Arrays, data: Dataset, settings: Mapping[str, Any]) -> Any:
    """Probabilities of the party's labels, (rows, labels)."""
    model = {**core, **widened(head, settings["width"])}
    return learner.predict(model, widened_data(data, settings["width"]))[:, :data.schema.target.size]


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
