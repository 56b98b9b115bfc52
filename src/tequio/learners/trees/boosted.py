"""Boosted trees as plain data: regression trees whose values add up to a margin, and what the margin means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from tequio.errors import DataError, PayloadError
from tequio.learners.trees.forest import split_by_size
from tequio.learners.trees.tree import Walk, each_once, fault_of_splits, node_depths, real_numbers, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Target
    from tequio.learners.learner import Payload, Received

Objective = Literal["logistic", "softmax", "squared"]
"""Two classes, several classes, numbers."""

_SMALLEST_SHARE = 1e-6  # of a class, so that its starting margin is finite


@dataclass(frozen=True, eq=False)
class RegressionTree:
    """A binary tree with a number at each node; otherwise as `Tree`.

    threshold:  (nodes,) where a node splits, 0 at leaves
    value:      (nodes,) what a leaf adds to a margin
    gain:       (nodes,) what a split earned, 0 at leaves
    missing:    (nodes,) of XGBoost's trees: the child for missing values; categories are split as in mixed trees
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)
    value: NDArray[np.float64] = field(repr=False)
    gain: NDArray[np.float64] = field(repr=False)
    missing: NDArray[np.int32] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.feature)

    @cached_property
    def walk(self) -> Walk:
        """The tables by which rows go down the tree."""
        if self.missing is not None:
            depths = node_depths(each_once(self.children, self.missing))
            return Walk.of_mixed(self.feature, self.threshold, self.children, self.missing, depths)
        return Walk.of(self.feature, self.children, self.threshold)

    def predict(self, features: Array) -> NDArray[np.float64]:
        """(rows,) the number of the leaf where each row ends."""
        return self.value.take(self.walk.find(features))


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Trees that add up. `base` holds the margin that each output starts from; tree i adds to output i % outputs."""

    objective: Objective
    base: NDArray[np.float64]
    trees: tuple[RegressionTree, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.trees)

    def plus(self, trees: Iterable[RegressionTree]) -> BoostedTrees:
        """The ensemble with more trees at its end."""
        return replace(self, trees=(*self.trees, *trees))

    def margins(self, features: Array) -> NDArray[np.float64]:
        """(rows, outputs) sums of base and trees."""
        outputs = len(self.base)
        margins = np.repeat(self.base[None], len(features), axis=0)
        for index, tree in enumerate(self.trees):
            margins[:, index % outputs] += tree.predict(features)
        return margins

    def predict(self, features: Array) -> NDArray[np.float64]:
        """(rows, classes) probabilities, or (rows,) numbers."""
        return scores_of(self.objective, self.margins(features))

    def to_payload(self) -> Payload:
        """The ensemble as a payload: the trees' arrays one after the other, and how many nodes each has."""
        arrays = {name: np.concatenate([getattr(tree, name) for tree in self.trees]) if self.trees else empty
                  for name, empty in _EMPTY.items()}
        return {"kind": "boosted", "objective": self.objective, "base": self.base,
                "sizes": np.array([len(tree) for tree in self.trees], dtype=np.int32), **arrays}

    @classmethod
    def from_payload(cls, payload: Received, *, features: int, classes: int,
                     whose: str = "a party") -> BoostedTrees:
        """The ensemble back from a payload that somebody sent; a single unsound tree makes it be refused."""
        try:
            model = cls(payload["objective"], real_numbers(payload["base"]), tuple(_trees(payload)))
        except (KeyError, TypeError, ValueError) as cause:
            raise PayloadError(f"{whose} sent something that is not an ensemble of boosted trees: {cause!r}") from None
        fault = _fault_of(model, features, classes)
        if fault:
            raise PayloadError(f"{whose} sent boosted trees that are not sound: {fault}")
        return model


_EMPTY: dict[str, Array] = {
    "feature": np.zeros(0, np.int32), "threshold": np.zeros(0), "children": np.zeros((0, 2), np.int32),
    "value": np.zeros(0), "gain": np.zeros(0)}


def objective_for(target: Target) -> Objective:
    """What to boost for data with this target."""
    if target.kind == "number":
        return "squared"
    if target.kind != "classes" or target.size < 2:
        raise DataError(f"boosted trees predict classes or numbers, not a target of kind '{target.kind}' with "
                        f"{target.size} classes", remedy="choose another learner")
    return "logistic" if target.size == 2 else "softmax"


def base_margins(objective: Objective, totals: Array, rows: float) -> NDArray[np.float64]:
    """Margins to start from, by totals that add up over parties: rows of each class, or the sum of the numbers."""
    if objective == "squared":
        return np.asarray(totals, dtype=np.float64).reshape(1) / rows
    shares = np.clip(np.asarray(totals) / rows, _SMALLEST_SHARE, 1 - _SMALLEST_SHARE)
    return np.log(shares[1:] / shares[:1]) if objective == "logistic" else np.log(shares)


def gradients(objective: Objective, margins: NDArray[np.float64],
              target: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(rows, outputs) first and second derivatives of the loss by the margin."""
    if objective == "squared":
        return margins - target[:, None], np.ones_like(margins)
    if objective == "logistic":
        share = _sigmoid(margins)
        return share - target[:, None], share * (1 - share)
    share = _softmax(margins)
    return share - (target[:, None] == np.arange(margins.shape[1])), share * (1 - share)


def scores_of(objective: Objective, margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rows, classes) probabilities, or (rows,) numbers."""
    if objective == "squared":
        return margins[:, 0]
    if objective == "logistic":
        return np.concatenate([_sigmoid(-margins), _sigmoid(margins)], axis=1)
    return _softmax(margins)


def _sigmoid(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    # exp of a positive margin could overflow.
    small = np.exp(-np.abs(margins))
    share: NDArray[np.float64] = np.where(margins >= 0, 1, small) / (1 + small)
    return share


def _softmax(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _trees(payload: Received) -> Iterable[RegressionTree]:
    sizes = whole_numbers(payload["sizes"])
    if not sizes.size:
        return []
    arrays: list[Array] = [
        whole_numbers(payload["feature"]), real_numbers(payload["threshold"]), whole_numbers(payload["children"]),
        real_numbers(payload["value"]), real_numbers(payload["gain"])]
    return [RegressionTree(*parts) for parts in zip(*(split_by_size(array, sizes) for array in arrays), strict=True)]


def _fault_of(model: BoostedTrees, features: int, classes: int) -> str:
    outputs = {"logistic": 1, "softmax": classes, "squared": 1}
    if not isinstance(model.objective, str) or model.objective not in get_args(Objective):
        return f"their objective is {model.objective!r}"
    if (model.objective == "squared") != (classes == 1) or (model.objective == "logistic") != (classes == 2) or \
            model.base.shape != (outputs[model.objective],):
        return f"objective '{model.objective}' with {model.base.size} outputs does not fit {classes} classes"
    if len(model.trees) % len(model.base):
        return f"{len(model.trees)} trees cannot be dealt to {len(model.base)} outputs"
    if not np.isfinite(model.base).all():
        return "they start from a margin that is not finite"
    return next((fault for tree in model.trees if (fault := _fault_of_tree(tree, features))), "")


def _fault_of_tree(tree: RegressionTree, features: int) -> str:
    if any(array.ndim != 1 for array in (tree.feature, tree.threshold, tree.value, tree.gain)) or \
            tree.children.ndim != 2:
        return "arrays of a tree do not fit each other"
    if not (np.isfinite(tree.value).all() and np.isfinite(tree.gain).all()):
        return "a tree has a value that is not finite"
    return fault_of_splits("binary", tree.feature, tree.threshold, tree.children, features)
