"""A model made ready for small requests: what does not depend on the row is worked out once.

`Model.predict` reads rows of any kind and size, finds the module for a schema and copies the parameters into it, every
time. One row does not need that. What comes out is equal to the last bit; whatever is unusual about a row gives None,
and the general way then answers it or says what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tequio.data.inputs.column import MISSING_MARKERS
from tequio.data.preprocessing.scaling import MinMax, Standardise
from tequio.learners.answers import One
from tequio.learners.descent import scores_of
from tequio.learners.torch_learner import TorchLearner, outputs_of
from tequio.learners.torch_model import own_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Schema
    from tequio.data.preprocessing import Fitted
    from tequio.models.model import Model

    Change = Callable[[Array], Array]


def row_type(schema: Schema) -> type[msgspec.Struct]:
    """A type that decodes a JSON object with exactly the columns of a schema: numbers, and texts for categories."""
    columns = {f"column_{place}": feature for place, feature in enumerate(schema.features)}
    return msgspec.defstruct("Row", [(key, str if feature.categorical else float) for key, feature in columns.items()],
                             rename={key: feature.name for key, feature in columns.items()},
                             forbid_unknown_fields=True)


class Compiled:
    """Answers rows that are decoded as `row_type` decodes them."""

    def __init__(self, model: Model) -> None:
        self.model, self._answer, self._reading = model, model.answer, model.reading
        self._codes = [(place, _codes(feature.domain)) for place, feature in enumerate(self._reading.schema.features)
                       if feature.domain is not None]
        self._dtype = np.dtype(self._reading.dtype)
        self._plain = not self._reading.sparse and self._dtype.kind == "f"
        self._scaling = _scaling(self._reading.own.get(model.party, self._reading.preparation), self._reading.schema)
        self._module = None
        if self._plain and isinstance(self._answer, One):
            learner = self._answer.learner
            if isinstance(learner, TorchLearner) and type(learner).predict is TorchLearner.predict:
                self._module = own_model(learner, self._reading.prepared_schema, self._answer.model)

    def scores(self, rows: Sequence[msgspec.Struct]) -> Array | None:
        """What `Model.answered` gives for these rows, or None where it has to be asked."""
        with np.errstate(over="ignore", invalid="ignore"):
            features = self._features(rows) if self._plain else None
            scores = None if features is None else self._scored(features)
        return scores if scores is not None and np.isfinite(scores).all() else None

    def _scored(self, features: Array) -> Array:
        if self._module is None:
            return self._answer.scores(self._prepared(features))
        if self._scaling is None or self._module.device != "cpu":
            outputs = outputs_of(self._module, self._prepared(features))
            return np.asarray(scores_of(self._module.kind, outputs, self._reading.schema.target).numpy())
        for change in self._scaling:
            features = change(features)
        return self._outputs(np.ascontiguousarray(features, dtype=np.float32))

    def _outputs(self, rows: NDArray[np.float32]) -> Array:
        import torch

        assert self._module is not None
        schema = self._reading.schema
        with torch.inference_mode():
            outputs = self._module.outputs(torch.from_numpy(rows.reshape(len(rows), *schema.shape)))
            return np.asarray(scores_of(self._module.kind, outputs, schema.target).numpy())

    def _features(self, rows: Sequence[msgspec.Struct]) -> Array | None:
        values = [list(msgspec.structs.astuple(row)) for row in rows]
        for place, codes in self._codes:
            for row in values:
                row[place] = codes.get(row[place])
                if row[place] is None:
                    return None
        features = np.array(values, dtype=np.float64).astype(self._dtype, copy=False)
        return features if np.isfinite(features).all() else None

    def _prepared(self, features: Array) -> Dataset:
        rows = self._reading.rows_of(features.reshape(len(features), *self._reading.schema.shape))
        return self._reading.prepared(rows, self.model.party)


def _codes(domain: Sequence[str]) -> dict[str, int]:
    """The code of each category that is read as it is written; others may stand for a missing value."""
    return {text: code for code, text in enumerate(domain) if text not in MISSING_MARKERS and text == text.strip()}


def _scaling(fitted: Fitted, schema: Schema) -> list[Change] | None:
    """The preparation as changes of an array, where it only scales numbers."""
    if any(feature.categorical for feature in schema.features):
        return None if fitted.steps else []
    changes: list[Change] = []
    for step, statistics in zip(fitted.steps, fitted.statistics, strict=True):
        if isinstance(step, Standardise):
            changes.append(_change(statistics["mean"], statistics["scale"]))
        elif isinstance(step, MinMax) and np.isfinite(statistics["low"]).all():
            span = statistics["high"] - statistics["low"]
            changes.append(_change(statistics["low"], np.where(span > 0, span, 1)))
        else:
            return None
    return changes


def _change(shift: Array, scale: Array) -> Change:
    return lambda values: (values - shift.astype(values.dtype)) / scale.astype(values.dtype)
