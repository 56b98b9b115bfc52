"""What a learner is, how it trains at one party, and how it reads the rows of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, overload, runtime_checkable

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.data.dataset import Array
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset, Matrix, Schema

Arrays = dict[str, Array]
"""A model's parameters: named arrays, in the learner's own order. This is what travels."""

Payload = dict[str, Any]
"""A model as plain data, as it travels."""

Received = Mapping[str, Any]
"""A payload that somebody sent. It is checked before it is used."""

Tally = dict[str, Any]
"""Additive evaluation counts (rows, loss sum, confusion matrix, ...); see `learners.metrics`."""


@register("training", "minibatch")
@dataclass(frozen=True)
class LocalTraining:
    """Mini-batch descent on the party's own rows.

    Parameters:
        epochs: passes over the party's training rows
        steps: stop after this many batches instead of counting epochs (0: count epochs)
        batch: rows a batch (0: all rows in one batch)
        optimizer: sgd or adam
        learning_rate: step size
        momentum: heavy-ball momentum of sgd
        weight_decay: L2 pull of every weight towards zero
        decay: factor on the learning rate after every round
        clip_norm: largest norm of a batch's gradient (0: no clipping)
        shuffle: draw a new row order every epoch; false takes rows as stored
        optimizer_memory: what momentum and adam remember of earlier steps: fresh (forgotten after every round) or kept
            (in the party's private state, from round to round)
    """

    epochs: Annotated[int, Ge(0)] = 1
    steps: Annotated[int, Ge(0)] = 0
    batch: Annotated[int, Ge(0)] = 32
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Annotated[float, Gt(0)] = 0.1
    momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Ge(0)] = 0.0
    decay: Annotated[float, Interval(gt=0, le=1)] = 1.0
    clip_norm: Annotated[float, Ge(0)] = 0.0
    shuffle: bool = True
    optimizer_memory: Literal["fresh", "kept"] = "fresh"

    def rate(self, round: int) -> float:
        """Learning rate of a round (rounds count from 1)."""
        return float(self.learning_rate * self.decay ** max(round - 1, 0))


@dataclass(frozen=True)
class Correction:
    """Added to every gradient: offset + pull * (weights - anchor). One form for FedProx, SCAFFOLD, FedDyn, Ditto.

    Without an anchor the pull is towards the model that training starts from. It is added after clipping. Parameters
    that are named `frozen` stay as they are.
    `label_weights` (2, labels) multiply the binary cross-entropy of each label where it is absent (first row) and where
    it applies (second row): 0 masks a label.
    """

    offset: Arrays | None = None
    pull: float = 0.0
    anchor: Arrays | None = None
    frozen: tuple[str, ...] = ()
    label_weights: Array | None = None


@dataclass(frozen=True)
class Trained:
    """What local training gives: the new parameters, how many steps it took, the mean loss of the last epoch, and what
    the optimizer remembers where that is to be kept."""

    model: Arrays
    steps: int
    loss: float
    rows: int
    memory: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedTogether(Sequence[Trained]):
    """What several jobs gave, side by side: arrays (jobs, ...) by name, and one number a job."""

    model: Arrays
    steps: list[int]
    loss: list[float]
    rows: list[int]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Trained: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trained]: ...
    def __getitem__(self, index: int | slice) -> Trained | list[Trained]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        model = {name: values[index] for name, values in self.model.items()}
        return Trained(model, self.steps[index], self.loss[index], self.rows[index])


@runtime_checkable
class Scorer(Protocol):
    """Whatever can score rows by a model: every learner, of trees too."""

    def predict(self, model: Any, data: Dataset) -> Array:
        """Scores of each row: (rows, classes or labels) for classification, (rows,) for numbers."""
        ...

    def evaluate(self, model: Any, data: Dataset) -> Tally:
        """Additive counts from which metrics follow; adding parties' tallies equals evaluating their pooled rows."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A model that one party trains. Parameters are always handed in and out; a learner itself has no state."""

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """Fresh parameters for data of that schema."""
        ...

    def train(self, model: Arrays, data: Dataset, training: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None) -> Trained:
        """Train a copy of `model` on the rows; the rng draws the row order of each epoch and nothing else shares it."""
        ...

    def predict(self, model: Arrays, data: Dataset) -> Array:
        """Scores of each row: (rows, classes or labels) for classification, (rows,) for numbers."""
        ...

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        """Additive counts from which metrics follow; adding parties' tallies equals evaluating their pooled rows."""
        ...


@runtime_checkable
class BufferedLearner(Learner, Protocol):
    """A learner whose models may hold more than weights, such as the running statistics of batch normalisation."""

    def buffers(self, schema: Schema) -> frozenset[str]:
        """Names of the arrays that training does not change by gradients."""
        ...


def buffers_of(learner: object, schema: Schema) -> frozenset[str]:
    """Names of a model's arrays that are no weights; most learners have none."""
    return learner.buffers(schema) if isinstance(learner, BufferedLearner) else frozenset()


@runtime_checkable
class GradientLearner(Learner, Protocol):
    """A learner with a gradient."""

    def gradient(self, model: Arrays, data: Dataset) -> tuple[Arrays, float]:
        """Gradient of the mean loss over all rows, and that loss."""
        ...


@runtime_checkable
class OutputLearner(Learner, Protocol):
    """A learner whose model has outputs before they become probabilities."""

    def outputs(self, model: Arrays, data: Dataset) -> Array:
        """What the model gives before it becomes probabilities, (rows, outputs)."""
        ...


@dataclass(frozen=True)
class Job:
    """One party's part of a batched training call."""

    model: Arrays
    data: Dataset
    rng: np.random.Generator = field(repr=False)
    correction: Correction | None = None


@runtime_checkable
class BatchedLearner(GradientLearner, Protocol):
    """A learner that can train many parties in one go, giving each the numbers it would get alone."""

    def trains_together(self, schema: Schema, training: LocalTraining) -> bool:
        """Whether this model and this way of training have a batched form that pays."""
        ...

    def train_together(self, jobs: Sequence[Job], training: LocalTraining, *,
                       learning_rate: float | None = None) -> Sequence[Trained]:
        """Train all jobs at once; result i does not depend on which other jobs are in the call.

        `TrainedTogether` is the form to give them in that algorithms handle fastest.
        """
        ...


@runtime_checkable
class Selective(Protocol):
    """What says which columns it takes: of numbers, of categories, with values missing."""

    takes: ClassVar[frozenset[str]]


def takes_of(learner: object, algorithm: object = None) -> frozenset[str]:
    """What columns may hold where this learner is trained by this algorithm: number, category, missing.

    A learner that says nothing takes numbers. An algorithm that can do less than its learner says so in the same way;
    without a learner it speaks for itself.
    """
    if learner is None:
        return algorithm.takes if isinstance(algorithm, Selective) else frozenset()
    takes = learner.takes if isinstance(learner, Selective) else frozenset({"number"})
    return takes & algorithm.takes if isinstance(algorithm, Selective) else takes


def check_numeric(schema: Schema, learner: str) -> None:
    """Refuse category codes: their order means nothing, so sums and distances of them do not either."""
    categorical = [feature.name for feature in schema.features if feature.categorical]
    if categorical:
        raise DataError(f"column '{categorical[0]}' is categorical, and '{learner}' needs numbers",
                        remedy="set data.prepare = [\"one-hot\"]")


def flat_features(data: Dataset) -> Matrix:
    """The features as (rows, columns), dense or CSR, in the type they are stored in."""
    features = data.features
    return features if data.is_sparse else features.reshape(len(data), len(data.schema.features))


def as_doubles(features: Matrix) -> Matrix:
    """The same matrix in double precision, C-ordered; no copy where it already is."""
    return np.ascontiguousarray(features, dtype=np.float64) if isinstance(features, np.ndarray) \
        else features.astype(np.float64, copy=False)
