"""XGBoost models as JSON documents: read with care, because they come from others, and put together from trees.

XGBoost trusts what it loads, and a malformed tree can bring the whole process down. So only trees are taken from a
document that somebody sent, all are checked, and a new document is written around them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError
from tequio.learners.trees.tree import LEAF, real_numbers, whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Document = dict[str, Any]

MAXIMUM_BYTES = 1 << 28
"""A longer document is refused unread."""

_NO_PARENT = 2**31 - 1
_WHOLE = ("left_children", "right_children", "split_indices", "default_left", "split_type")
_REAL = ("split_conditions", "base_weights", "loss_changes", "sum_hessian")
_NOTHING: dict[str, list[int]] = {
    "categories": [], "categories_nodes": [], "categories_segments": [], "categories_sizes": []}


@dataclass(frozen=True, eq=False)
class XGBoostTrees:
    """Checked trees: how many nodes each has, and XGBoost's arrays of all of them one after the other."""

    sizes: NDArray[np.int64]
    arrays: dict[str, NDArray[Any]] = field(repr=False)

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


def from_bytes(data: Any) -> Document:
    """The document back from bytes; nothing in it has been checked."""
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise ValueError("it is not an array of bytes")
    if data.size > MAXIMUM_BYTES:
        raise ValueError(f"it is {data.size} bytes long, more than the {MAXIMUM_BYTES} allowed")
    document: Document = json.loads(data.tobytes(), parse_constant=_refuse)
    return document


def read_document(data: Any, like: Document, *, whose: str = "a party") -> tuple[Document, XGBoostTrees]:
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


def _checked_base(base: Any, like: Document) -> str:
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
    arrays: dict[str, NDArray[Any]] = {}
    for names, numbers in ((_WHOLE, whole_numbers), (_REAL, real_numbers)):
        for name in names:
            if [len(tree[name]) for tree in listed] != sizes.tolist():
                raise ValueError("the arrays of a tree do not fit each other")
            arrays[name] = numbers(list(chain.from_iterable(tree[name] for tree in listed)))
    fault = _fault_of(sizes, arrays, int(like["learner"]["learner_model_param"]["num_feature"])) if listed else ""
    if fault:
        raise ValueError(f"a tree is not sound: {fault}")
    return XGBoostTrees(sizes, arrays)


def _fault_of(sizes: NDArray[np.int64], arrays: dict[str, NDArray[Any]], features: int) -> str:
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


def _written(number: int, arrays: dict[str, NDArray[Any]], features: str) -> Document:
    nodes, left = len(arrays["left_children"]), arrays["left_children"]
    inner, parents = np.flatnonzero(left != LEAF), np.full(nodes, _NO_PARENT)
    for child in (left, arrays["right_children"]):
        parents[child[inner]] = inner
    size = {"num_deleted": "0", "num_feature": features, "num_nodes": str(nodes), "size_leaf_vector": "1"}
    return {"id": number, **{name: values.tolist() for name, values in arrays.items()}, "parents": parents.tolist(),
            **_NOTHING, "tree_param": size}
