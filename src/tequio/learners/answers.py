"""How a trained model answers rows: scores of each row, and the tally of rows whose truth is known.

Every algorithm says by an `Answer` what it ends with. An answer holds plain data beside learners of the registry, so it
can be written to a file and read back without any of the rows that it was trained on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tequio import registry
from tequio.errors import PayloadError, nearest
from tequio.learners.kmeans import KMeans
from tequio.learners.learner import Scorer
from tequio.learners.metrics import tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Schema
    from tequio.learners.learner import Payload, Tally


class Answer(ABC):
    """What answers rows that are prepared as those of the training were."""

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Answer]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Answer.kinds[cls.kind] = cls

    @abstractmethod
    def scores(self, rows: Dataset) -> Array:
        """Probabilities (rows, classes or labels), numbers (rows,), or the cluster of each row where it has one."""

    def tally(self, rows: Dataset) -> Tally:
        """Additive counts of rows with a target, as the run itself takes them."""
        return tally(rows.schema.target, self.scores(rows), rows.target)

    def labels(self, size: int) -> NDArray[np.int64]:
        """Which labels of a multi-label target the scores are of; all, unless a party knows some only."""
        return np.arange(size)

    @property
    def needed(self) -> tuple[str, ...] | None:
        """Names of the columns that it looks at; nothing where these are all."""
        return None

    def among(self, own: Mapping[str, Answer]) -> Answer:
        """With the parts of it that parties hold, where it needs them to answer."""
        return self

    @abstractmethod
    def to_payload(self) -> Payload:
        """As plain data and arrays."""

    @classmethod
    @abstractmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> Answer:
        """Back from plain data; `schema` is that of prepared rows."""


def pack_answer(answer: Answer) -> Payload:
    """An answer of any kind as plain data."""
    return {"answer": answer.kind, **answer.to_payload()}


def unpack_answer(payload: Mapping[str, Any], schema: Schema) -> Answer:
    """An answer of any kind back from plain data."""
    kind = str(payload.get("answer"))
    if kind not in Answer.kinds:
        registry.load_everything()
    if kind not in Answer.kinds:
        raise PayloadError(f"a model answers in a way called '{kind}', which is not known here",
                           remedy=nearest(kind, Answer.kinds))
    return Answer.kinds[kind].from_payload(payload, schema)


@dataclass(frozen=True)
class One(Answer):
    """One model of one learner."""

    kind: ClassVar[str] = "one"
    learner: Scorer
    model: Payload

    def scores(self, rows: Dataset) -> Array:
        """What the learner predicts."""
        return self.learner.predict(self.model, rows)

    def tally(self, rows: Dataset) -> Tally:
        """The learner's own tally, with its own loss."""
        return self.learner.evaluate(self.model, rows)

    @property
    def clusters(self) -> bool:
        """Whether rows are told their cluster instead of a target."""
        return isinstance(self.learner, KMeans)

    def to_payload(self) -> Payload:
        """The learner by name and parameters, and the model."""
        return {"learner": registry.to_plain(self.learner), "model": self.model}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> One:
        """The learner is built again by name."""
        return cls(learner_of(payload["learner"]), payload["model"])


def learner_of(plain: object) -> Any:
    """The learner that plain data names; anything else that could be built by name is refused."""
    learner = registry.from_plain(plain)
    if not isinstance(learner, Scorer):
        raise PayloadError(f"a model names a {type(learner).__name__} as its learner, which is none")
    return learner
