"""XGBoost as a learner. Its models travel as JSON documents.

XGBoost trusts what it loads, and a malformed tree can bring the whole process down. So only trees are taken from a
document that somebody sent, all are checked, and a new document is written around them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.errors import MissingExtra, PayloadError
from tequio.learners import metrics
from tequio.learners.trees.boosted import Objective, objective_for, scores_of
from tequio.learners.trees.indicators import indicators_of
from tequio.learners.trees.learner import checked_weights, rows_of
from tequio.learners.trees.places import mixed_rows
from tequio.learners.trees.tree import LEAF, real_numbers, whole_numbers
from tequio.registry import register

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Schema
    from tequio.learners.learner import Payload, Received, Tally
    from tequio.learners.trees.indicators import Indicators

    Document = dict[str, Any]

_OBJECTIVES: dict[Objective, str] = {
    "logistic": "binary:logistic", "softmax": "multi:softprob", "squared": "reg:squarederror"}

MAXIMUM_BYTES = 1 << 28
"""A longer document is refused unread."""

_NO_PARENT = 2**31 - 1
_WHOLE = ("left_children", "right_children", "split_indices", "default_left", "split_type")
_REAL = ("split_conditions", "base_weights", "loss_changes", "sum_hessian")
_NOTHING: dict[str, list[int]] = {
    "categories": [], "categories_nodes": [], "categories_segments": [], "categories_sizes": []}


@dataclass(frozen=True, eq=False)
class XGBoostModel:
    """A sound document, and what its margins mean."""

    objective: Objective
    document: NDArray[np.uint8] = field(repr=False)
    indicators: Indicators = field(repr=False)

    @classmethod
    def of(cls, document: Document, schema: Schema) -> XGBoostModel:
        """The model that a sound document describes."""
        return cls(objective_for(schema.target), to_bytes(document), indicators_of(schema))

    def margins(self, features: Array) -> NDArray[np.float32]:
        """(rows, outputs) sums of the starting score and the trees."""
        xgboost = _package()
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(self.document.tobytes()))
        rows = xgboost.DMatrix(self.indicators.apply(features), nthread=1)
        margins: NDArray[np.float32] = booster.predict(rows, output_margin=True)
        return margins if margins.ndim == 2 else margins[:, None]

    def predict(self, features: Array) -> NDArray[np.float64]:
        """(rows, classes) probabilities, or (rows,) numbers."""
        return scores_of(self.objective, self.margins(features).astype(np.float64))

    def to_payload(self) -> Payload:
        """The model as a payload."""
        return {"kind": "xgboost", "document": self.document}


@register("learner", "xgboost", paper="Chen and Guestrin, 2016")
@dataclass(frozen=True)
class XGBoost:
    """Gradient-boosted trees of the package XGBoost, for classes or numbers.

    A category is told from all others of its column; missing values go to the side where they lower the loss more.

    Parameters:
        trees: rounds of boosting; with more than two classes a round adds a tree a class
        depth: most conditions from a root to a leaf
        learning_rate: share of its best values that each tree adds
        bins: most bins a column
        l2: pull of the leaves' values towards 0 (lambda)
        min_gain: what a split has to lower the loss by (gamma)
        min_child_weight: least sum of second derivatives on either side of a split
        rows: share of the rows that each tree looks at
        columns: share of the columns that each tree looks at
    """

    trees: Annotated[int, Ge(1)] = 100
    depth: Annotated[int, Ge(1)] = 6
    learning_rate: Annotated[float, Gt(0)] = 0.1
    bins: Annotated[int, Ge(2)] = 256
    l2: Annotated[float, Ge(0)] = 1.0
    min_gain: Annotated[float, Ge(0)] = 0.0
    min_child_weight: Annotated[float, Ge(0)] = 1.0
    rows: Annotated[float, Interval(gt=0, le=1)] = 1.0
    columns: Annotated[float, Interval(gt=0, le=1)] = 1.0

    takes: ClassVar[frozenset[str]] = frozenset({"number", "category", "missing"})

    def fit(self, data: Dataset, rng: np.random.Generator, *,
            weights: NDArray[np.float64] | None = None) -> XGBoostModel:
        """The ensemble of these rows; the rng draws rows and columns."""
        mean = float(np.average(data.target, weights=weights)) if data.schema.target.kind == "number" else 0.0
        start = self.start(data.schema, mean)
        margins = XGBoostModel.of(start, data.schema).margins(mixed_rows(data, "xgboost"))
        trees = self.boost(margins, data, self.trees, rng, weights=weights)
        return XGBoostModel.of(with_trees(start, trees), data.schema)

    def start(self, schema: Schema, mean: float = 0.0) -> Document:
        """A model without trees: equal chances for all classes, or the mean."""
        return _start(self, schema, mean)

    def boost(self, margins: NDArray[np.float32], data: Dataset, rounds: int, rng: np.random.Generator, *,
              weights: NDArray[np.float64] | None = None) -> XGBoostTrees:
        """The trees of so many rounds of boosting on these rows, which stand at these margins."""
        xgboost, features = _package(), indicators_of(data.schema).apply(mixed_rows(data, "xgboost"))
        rows = xgboost.DMatrix(features, data.target, weight=checked_weights(weights, len(data)), nthread=1,
                               base_margin=margins if margins.shape[1] > 1 else margins[:, 0])
        parameters = {**self.parameters(data.schema), "base_score": 0.5, "seed": int(rng.integers(2**31))}
        grown = np.frombuffer(xgboost.train(parameters, rows, rounds).save_raw("json"), dtype=np.uint8)
        # The score that rows without margins would start from is not looked at.
        return read_document(grown, self.start(data.schema, 0.5), whose="XGBoost")[1]

    def opened(self, payload: Received, schema: Schema, *,
               whose: str = "a party") -> tuple[Document, XGBoostTrees]:
        """A model without trees and the trees, all checked, that a payload holds."""
        return read_document(payload.get("document"), self.start(schema), whose=whose)

    def predict(self, model: XGBoostModel | Received, data: Dataset) -> NDArray[np.float64]:
        """Class shares (rows, classes) or numbers (rows,) by a model or by its payload, which is checked first."""
        if not isinstance(model, XGBoostModel):
            model = XGBoostModel.of(with_trees(*self.opened(model, data.schema)), data.schema)
        return model.predict(rows_of(data))

    def evaluate(self, model: XGBoostModel | Received, data: Dataset) -> Tally:
        """Additive counts of the rows."""
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)

    def parameters(self, schema: Schema) -> dict[str, str | float]:
        """The settings under XGBoost's own names."""
        objective = objective_for(schema.target)
        classes = {"num_class": schema.target.size} if objective == "softmax" else {}
        return {"objective": _OBJECTIVES[objective], "tree_method": "hist", "nthread": 1, "verbosity": 0,
                "max_depth": self.depth, "eta": self.learning_rate, "max_bin": self.bins, "lambda": self.l2,
                "gamma": self.min_gain, "min_child_weight": self.min_child_weight, "subsample": self.rows,
                "colsample_bytree": self.columns, **classes}


@lru_cache(maxsize=64)
def _start(learner: XGBoost, schema: Schema, mean: float) -> Document:
    """Made by XGBoost itself, so that the document is of its installed version."""
    xgboost = _package()
    nothing = xgboost.DMatrix(np.zeros((1, len(indicators_of(schema).column))), np.zeros(1), nthread=1)
    base = mean if schema.target.kind == "number" else 0.5
    booster = xgboost.train({**learner.parameters(schema), "base_score": base}, nothing, 0)
    return from_bytes(np.frombuffer(booster.save_raw("json"), dtype=np.uint8))


def _package() -> ModuleType:
    try:
        import xgboost
    except ImportError:
        raise MissingExtra("xgboost", "trees", "the learner 'xgboost'") from None
    return xgboost


@dataclass(frozen=True, eq=False)
class XGBoostTrees:
    """Checked trees: how many nodes each has, and XGBoost's arrays of all of them one after the other."""

    sizes: NDArray[np.int64]
    arrays: dict[str, Array] = field(repr=False)

    def __len__(self) -> int:
        return len(self.sizes)

    def scaled(self, share: float) -> XGBoostTrees:
        """The trees whose leaves count only for a share; a leaf's value stands in place of a split's threshold."""
        leaf, conditions = self.arrays["left_children"] == LEAF, self.arrays["split_conditions"]
        return XGBoostTrees(self.sizes, {
            **self.arrays, "split_conditions": np.where(leaf, share * conditions, conditions),
            "base_weights": share * self.arrays["base_weights"]})

    def written(self, first: int, features: str) -> list[Document]:
        """The trees as documents, numbered from `first`."""
        ends = np.cumsum(self.sizes)[:-1]
        parts = {name: np.split(values, ends) for name, values in self.arrays.items()}
        return [_written(first + index, {name: part[index] for name, part in parts.items()}, features)
                for index in range(len(self))]


def to_bytes(document: Document) -> NDArray[np.uint8]:
    """The document as an array of bytes, which may travel."""
    return np.frombuffer(json.dumps(document, separators=(",", ":")).encode(), dtype=np.uint8)


def from_bytes(data: object) -> Document:
    """The document back from bytes; nothing in it has been checked."""
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise ValueError("it is not an array of bytes")
    if data.size > MAXIMUM_BYTES:
        raise ValueError(f"it is {data.size} bytes long, more than the {MAXIMUM_BYTES} allowed")
    document: Document = json.loads(data.tobytes(), parse_constant=_refuse)
    return document


def read_document(data: object, like: Document, *, whose: str = "a party") -> tuple[Document, XGBoostTrees]:
    """`like`, with the starting score of a document that somebody sent, and its trees; refused unless all is sound."""
    try:
        document = from_bytes(data)
        _check_kind(document, like)
        base = _checked_base(document["learner"]["learner_model_param"]["base_score"], like)
        trees = _checked_trees(document["learner"]["gradient_booster"]["model"], like)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as cause:
        raise PayloadError(f"{whose} sent an XGBoost model that cannot be used: {cause}") from None
    parameters = {**like["learner"]["learner_model_param"], "base_score": base}
    return {**like, "learner": {**like["learner"], "learner_model_param": parameters}}, trees


def with_trees(document: Document, trees: XGBoostTrees) -> Document:
    """The sound document with more trees at its end."""
    known, features = tree_list(document), document["learner"]["learner_model_param"]["num_feature"]
    return _with_list(document, known + trees.written(len(known), features))


def without_first(document: Document, count: int) -> Document:
    """The sound document without its first trees."""
    return _with_list(document, tree_list(document)[count:])


def tree_list(document: Document) -> list[Document]:
    """The trees of a document, as it writes them."""
    trees: list[Document] = document["learner"]["gradient_booster"]["model"]["trees"]
    return trees


def _with_list(document: Document, whole: list[Document]) -> Document:
    learner, booster = document["learner"], document["learner"]["gradient_booster"]
    outputs, sizes = _outputs(document), {**booster["model"]["gbtree_model_param"], "num_trees": str(len(whole))}
    model = {**booster["model"], "gbtree_model_param": sizes, "trees": whole,
             "tree_info": [index % outputs for index in range(len(whole))],
             "iteration_indptr": list(range(0, len(whole) + 1, outputs))}
    return {**document, "learner": {**learner, "gradient_booster": {**booster, "model": model}}}


def _refuse(constant: str) -> None:
    raise ValueError(f"it holds {constant}")


def _outputs(document: Document) -> int:
    return max(int(document["learner"]["learner_model_param"]["num_class"]), 1)


def _check_kind(document: Document, like: Document) -> None:
    """Compare what decides how trees are used; whatever else a document says is never looked at."""
    for outer, name in (("objective", "name"), ("gradient_booster", "name"), ("learner_model_param", "num_feature"),
                        ("learner_model_param", "num_class")):
        found, expected = document["learner"][outer][name], like["learner"][outer][name]
        if found != expected:
            raise ValueError(f"its {outer if name == 'name' else name} is {found!r} instead of {expected!r}")


def _checked_base(base: str, like: Document) -> str:
    """The starting score of numbers may be any; that of classes is agreed on."""
    agreed = like["learner"]["learner_model_param"]["base_score"]
    expected, found = real_numbers(json.loads(agreed)), real_numbers(json.loads(base))
    free = like["learner"]["objective"]["name"] == "reg:squarederror"
    if found.shape != expected.shape or not (np.abs(found) < np.finfo(np.float32).max).all() or \
            not (free or (found == expected).all()):
        raise ValueError(f"its base_score is {base!r} instead of {agreed!r}")
    return json.dumps(found.tolist(), separators=(",", ":"))


def _checked_trees(model: Document, like: Document) -> XGBoostTrees:
    listed, outputs = model["trees"], _outputs(like)
    if len(listed) % outputs or [int(output) for output in model["tree_info"]] != [
            index % outputs for index in range(len(listed))]:
        raise ValueError("its trees do not belong to the outputs in turn")
    sizes = np.array([len(tree["left_children"]) for tree in listed], dtype=np.int64)
    arrays: dict[str, Array] = {}
    for names, numbers in ((_WHOLE, whole_numbers), (_REAL, real_numbers)):
        for name in names:
            if [len(tree[name]) for tree in listed] != sizes.tolist():
                raise ValueError("the arrays of a tree do not fit each other")
            arrays[name] = numbers(list(chain.from_iterable(tree[name] for tree in listed)))
    fault = _fault_of(sizes, arrays, int(like["learner"]["learner_model_param"]["num_feature"])) if listed else ""
    if fault:
        raise ValueError(f"a tree is not sound: {fault}")
    return XGBoostTrees(sizes, arrays)


def _fault_of(sizes: NDArray[np.int64], arrays: dict[str, Array], features: int) -> str:
    """What is wrong with the trees, all looked at together, or nothing."""
    left, right = arrays["left_children"], arrays["right_children"]
    inner = left != LEAF
    if not all(array.ndim == 1 for array in arrays.values()) or not sizes.all():
        return "its arrays do not fit each other"
    if not all(bool((np.abs(arrays[name]) < np.finfo(np.float32).max).all()) for name in _REAL):
        return "it has numbers that are not finite"
    column = arrays["split_indices"][inner]
    if arrays["split_type"].any() or (column < 0).any() or (column >= features).any():
        return "it splits on categories, or on a column that does not exist"
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    own, size = np.arange(len(left)) - starts, np.repeat(sizes, sizes)
    if ((right != LEAF) != inner).any() or any(((child <= own) | (child >= size))[inner].any()
                                               for child in (left, right)):
        return "it names a child that does not exist, or that comes before its parent"
    parents = np.bincount(np.concatenate([(starts + child)[inner] for child in (left, right)]), minlength=len(left))
    return "" if (parents == (own > 0)).all() else "a node has two parents or none"


def _written(number: int, arrays: dict[str, Array], features: str) -> Document:
    nodes, left = len(arrays["left_children"]), arrays["left_children"]
    inner, parents = np.flatnonzero(left != LEAF), np.full(nodes, _NO_PARENT)
    for child in (left, arrays["right_children"]):
        parents[child[inner]] = inner
    size = {"num_deleted": "0", "num_feature": features, "num_nodes": str(nodes), "size_leaf_vector": "1"}
    return {"id": number, **{name: values.tolist() for name, values in arrays.items()}, "parents": parents.tolist(),
            **_NOTHING, "tree_param": size}
