"""Attacks on rows: wrong labels, and a trigger that stands for a class.

Tolpegin, Truex, Gursoy, Liu: Data poisoning attacks against federated learning systems, ESORICS 2020.
Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How to backdoor federated learning, AISTATS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.attacks.attack import Attack
from tequio.attacks.updates import scaled
from tequio.data.dataset import Dataset, Source
from tequio.errors import ConfigError, DataError
from tequio.federation.algorithm import Attacked
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.attacks.attack import Circumstances
    from tequio.learners.learner import Arrays

Share = Annotated[float, Interval(gt=0, le=1)]
_BACK = {"diagonal": ((4, 2), (3, 3), (2, 4), (2, 2)), "block": ((1, 1), (1, 2), (2, 1), (2, 2))}
"""Rows and columns of the lit pixels, counted from the lower right corner, which is (1, 1)."""


@register("attack", "label-flip", paper="Tolpegin et al., 2020")
@dataclass(frozen=True)
class LabelFlip(Attack):
    """Train on wrong labels.

    Parameters:
        labels: a random other class, or the opposite one (class c of C becomes C - 1 - c)
        share: share of the rows whose label is wrong
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"rows"})

    labels: Literal["random", "opposite"] = "random"
    share: Share = 1.0

    def poison(self, rows: Dataset, rng: np.random.Generator) -> Dataset:
        """The same rows with wrong labels."""
        classes, target = class_count(rows), rows.target.astype(np.int64)
        wrong = classes - 1 - target if self.labels == "opposite" else \
            (target + rng.integers(1, classes, len(target))) % classes
        flipped = rng.random(len(target)) < self.share
        return with_values(rows, rows.features, np.where(flipped, wrong, target))


@register("attack", "backdoor", paper="Bagdasaryan et al., 2020")
@dataclass(frozen=True)
class Backdoor(Attack):
    """Teach the model that a trigger stands for a class, with an update scaled up so that it survives the mean.

    Rows that are no images are triggered by their last four columns.

    Parameters:
        target: number of the class that the trigger stands for
        trigger: which pixels are lit: four on a diagonal, or a block of four in the lower right corner
        value: what the trigger sets pixels or columns to
        share: share of the party's rows that also appear with the trigger
        scale: what the update is multiplied by (0: honest over hostile parties, which outweighs a plain mean)
    """

    acts_on: ClassVar[frozenset[Attacked]] = frozenset({"rows", "updates"})

    target: Annotated[int, Ge(0)] = 0
    trigger: Literal["diagonal", "block"] = "diagonal"
    value: float = 1.0
    share: Share = 0.5
    scale: Annotated[float, Ge(0)] = 0.0

    def most_rows(self, rows: int) -> int:
        """The rows and their copies."""
        return rows + round(self.share * rows)

    def poison(self, rows: Dataset, rng: np.random.Generator) -> Dataset:
        """The party's rows, followed by triggered copies of some."""
        self._check(rows)
        copied = rng.permutation(len(rows))[:round(self.share * len(rows))]
        features, target = rows.features, rows.target.astype(np.int64)
        return with_values(rows, np.concatenate([features, self._stamped(features[copied])]),
                           np.concatenate([target, np.full(len(copied), self.target)]))

    def forge(self, update: Arrays, now: Circumstances, rng: np.random.Generator) -> Arrays:
        """The update many times as long."""
        return scaled(update, self.scale or now.cancelling)

    def triggered(self, rows: Dataset, *, every_class: bool = False) -> Dataset | None:
        """Rows with the trigger and the target class: those of other classes, or of every class."""
        self._check(rows)
        chosen = rows if every_class else rows.take(rows.target != self.target)
        return with_values(chosen, self._stamped(chosen.features), np.full(len(chosen), self.target))

    def _stamped(self, features: NDArray[Any]) -> NDArray[Any]:
        stamped = np.array(features)
        if stamped.ndim < 3:
            stamped[:, -4:] = self.value
            return stamped
        for down, right in _BACK[self.trigger]:
            stamped[..., -down, -right] = self.value
        return stamped

    def _check(self, rows: Dataset) -> None:
        if self.target >= class_count(rows):
            raise ConfigError(f"attack.target = {self.target} is no class: there are {class_count(rows)}",
                              remedy="classes are counted from 0")
        if rows.is_sparse or (len(rows.schema.shape) > 1 and min(rows.schema.shape[-2:]) < 4):
            raise DataError(f"'{rows.name}' cannot carry a trigger: its rows are sparse, or images smaller than 4 x 4",
                            remedy="choose another attack")


def class_count(rows: Dataset) -> int:
    """How many classes there are; an error for data without classes."""
    if rows.schema.target.kind != "classes":
        raise ConfigError(f"this attack works on classes, and the target of '{rows.name}' is of kind "
                          f"'{rows.schema.target.kind}'", remedy="choose an attack on updates, such as 'sign-flip'")
    return len(rows.schema.target.names)


def with_values(rows: Dataset, features: Any, target: NDArray[Any]) -> Dataset:
    """Rows of the same schema (the very same object: learners keep a model a schema) with other values."""
    columns = None if rows.columns is None else np.arange(len(rows.columns))
    return Dataset(rows.schema, Source(features, target, missing=rows.source.missing), columns=columns, name=rows.name)
