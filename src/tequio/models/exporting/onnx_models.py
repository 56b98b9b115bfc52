"""What answers rows, as nodes of an ONNX graph: learners, and whatever puts several models together.

Trees are walked all at once: the node where each row is in each tree is a table (rows, trees), and a level down is a
few look-ups. Sums go in the order in which tequio adds, so that two classes that are equal there are equal here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.multilabel.tasks import Heads
from tequio.algorithms.personal.flprotector import Routed
from tequio.algorithms.trees.voting import Vote
from tequio.errors import ConfigError
from tequio.learners.answers import One
from tequio.learners.kmeans import KMeans
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.trees.tree import LEAF, Walk, each_once, node_depths
from tequio.models.exporting.forms import linear, tree_sum
from tequio.models.exporting.onnx_networks import is_own_in, network_scores, sigmoid_in
from tequio.models.exporting.raw_columns import RawColumns
from tequio.models.model import Joint
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.learners.answers import Answer
    from tequio.learners.learner import Payload, Scorer
    from tequio.models.exporting.forms import Branches, Link, TreeSum
    from tequio.models.exporting.onnx_graph import Graph
    from tequio.models.exporting.plan import Plan


@dataclass(frozen=True)
class Rows:
    """Raw rows in a graph, the same ones prepared (in double precision), and the plan that leads there."""

    plan: Plan
    raw: str
    prepared: str

    @property
    def schema(self) -> Schema:
        """The schema of prepared rows."""
        return self.plan.schema


def scores_in(graph: Graph, answer: Answer, rows: Rows) -> str:
    """Scores of rows in double precision: (rows, classes or labels or 1), or (rows, 1) clusters."""
    if isinstance(answer, One):
        return learner_scores(graph, answer.learner, answer.model, rows)
    if isinstance(answer, Vote):
        members = zip(answer.model["members"], answer.model["weights"], strict=True)
        terms = [graph("Mul", learner_scores(graph, answer.learners[member["learner"]], member["model"], rows),
                       graph.constant(float(weight))) for member, weight in members]
        return _added(graph, terms)
    if isinstance(answer, Heads):
        return _heads(graph, answer, rows)
    if isinstance(answer, Joint):
        return _joint(graph, answer, rows)
    if isinstance(answer, Routed):
        return _routed(graph, answer, rows)
    raise ConfigError(f"a model that answers by '{answer.kind}' cannot be exported to ONNX",
                      remedy="use tequio predict")


def learner_scores(graph: Graph, learner: Scorer, model: Payload, rows: Rows) -> str:
    """Scores by one learner's model."""
    if isinstance(learner, KMeans):
        centroids = np.asarray(model["centroids"], np.float64)
        product = graph("MatMul", rows.prepared, graph.constant(-2.0 * centroids.T))
        ranks = graph("Add", product, graph.constant((centroids ** 2).sum(axis=1)))
        return graph("ArgMin", ranks, axis=1, keepdims=1)
    if isinstance(learner, TorchLearner):
        return network_scores(graph, learner, model, rows.schema, rows.prepared)
    if (trees := tree_sum(learner, model, rows.schema)) is not None:
        return _tree_scores(graph, trees, rows)
    if (plain := linear(learner, model, rows.schema)) is not None:
        product = graph("MatMul", rows.prepared, graph.constant(plain.coef.T))
        return linked_in(graph, plain.link, graph("Add", product, graph.constant(plain.intercept, np.float64)))
    raise ConfigError(f"a model of the learner '{name_of(type(learner))}' cannot be exported to ONNX",
                      remedy="use tequio predict")


def linked_in(graph: Graph, link: Link, sums: str) -> str:
    """Scores from sums (rows, outputs) in double precision."""
    if link == "identity":
        return sums
    if link == "softmax":
        return graph("Softmax", sums, axis=1)
    if link == "labels":
        return sigmoid_in(graph, sums)
    return graph("Concat", sigmoid_in(graph, graph("Neg", sums)), sigmoid_in(graph, sums), axis=1)


def _tree_scores(graph: Graph, model: TreeSum, rows: Rows) -> str:
    """The sum over trees; binary ones compare raw numbers."""
    from tequio.models.exporting.onnx_graph import prepared_in

    values, columns = [model.start[None], *(tree.values for tree in model.trees)], rows.prepared
    trees: Sequence[Branches] = model.trees
    if rows.plan.reading.missing:
        trees = [tree.with_gaps() for tree in trees]
    is_mixed = bool(trees) and trees[0].kind == "mixed"
    if is_mixed and model.single:
        columns = graph.cast(graph.cast(columns, np.float32), np.float64)
    elif trees and trees[0].kind == "binary":
        plan, trees = RawColumns(rows.plan, model.single).in_raw_terms(trees)
        columns = graph.cast(prepared_in(graph, plan, rows.raw)[0], np.float64)
    offsets = np.cumsum([0, *(len(part) for part in values)])
    first = graph("Gather", columns, graph.constant([0]), axis=1)
    if rows.plan.reading.missing:  # nought times NaN is no nought
        first = graph.cast(graph("IsNaN", first), np.float64)
    nothing = graph.cast(graph("Mul", first, graph.constant(0.0)), np.int64)
    places = [nothing]  # what the sum starts from, as a tree of one node
    if trees:
        places.append(_ends(graph, trees, offsets[1:-1], columns, nothing))
    dtype = np.float32 if model.single else np.float64
    added = graph("Gather", graph.constant(np.concatenate(values), dtype), graph("Concat", *places, axis=1))
    sums = graph("Gather", graph("CumSum", added, graph.constant(1)), graph.constant(len(trees)), axis=1)
    whole = graph.cast(sums, np.float64)
    shared = whole if model.divide == 1 else graph("Div", whole, graph.constant(float(model.divide)))
    return linked_in(graph, model.link, shared)


def _ends(graph: Graph, trees: Sequence[Branches], offsets: NDArray[np.int64], columns: str, nothing: str) -> str:
    """(rows, trees): the number of the node where each row ends, counted over all trees from the first offset on."""
    binary, is_mixed = trees[0].kind == "binary", trees[0].kind == "mixed"
    width = 2 if binary else max(tree.children.shape[1] for tree in trees) + 1
    walks = [_mixed_walk(tree, width - 1) if is_mixed else
             Walk.of(tree.feature, tree.children, tree.threshold if binary else None) for tree in trees]
    starts = offsets - offsets[0]
    onward = np.concatenate([np.pad(walk.onward.reshape(-1, walk.width), ((0, 0), (0, width - walk.width)), "edge")
                             + start for walk, start in zip(walks, starts, strict=True)])
    ways = graph.constant(onward.reshape(-1), np.int64)
    looked_at = graph.constant(np.concatenate([walk.column for walk in walks]), np.int64)
    cuts = np.concatenate([tree.threshold for tree in trees])
    thresholds = "" if not (binary or is_mixed) else graph.constant(np.nan_to_num(cuts))
    # At leaves, where the way leads nowhere else, any value is a number.
    leaves = np.concatenate([walk.leaf for walk in walks])
    on_numbers = graph.constant(leaves | ~np.isnan(cuts)) if is_mixed else ""
    here = graph("Add", nothing, graph.constant(starts[None], np.int64))
    for _ in range(max(walk.levels for walk in walks)):
        values = graph("GatherElements", columns, graph("Gather", looked_at, here), axis=1)
        if binary:
            low = graph("LessOrEqual", values, graph("Gather", thresholds, here))
            branch = graph.cast(graph("Not", low), np.int64)
        elif is_mixed:
            above = graph.cast(graph("Greater", values, graph("Gather", thresholds, here)), np.float64)
            way = graph("Where", graph("Gather", on_numbers, here), above, values)
            branch = graph.cast(graph("Where", graph("IsNaN", values), graph.constant(float(width - 1)), way), np.int64)
        else:
            last = graph.constant(float(width - 1))
            branch = graph.cast(graph("Where", graph("Less", values, last), values, last), np.int64)
        here = graph("Gather", ways, graph("Add", graph("Mul", here, graph.constant(width)), branch))
    return graph("Add", here, graph.constant(offsets[0]))


def _mixed_walk(tree: Branches, places: int) -> Walk:
    """The tables of a tree with room for that many categories."""
    assert tree.missing is not None
    children = np.pad(tree.children, ((0, 0), (0, places - tree.children.shape[1])), constant_values=LEAF)
    depths = node_depths(each_once(children, tree.missing.astype(np.int32)))
    return Walk.of_mixed(tree.feature, tree.threshold, children, tree.missing, depths)


def _heads(graph: Graph, answer: Heads, rows: Rows) -> str:
    """A party's networks for its labels, in the mean, moved so that each label's border lies at one half."""
    mine = replace(rows.schema, target=rows.schema.target.select([int(label) for label in answer.known]))
    scores = [network_scores(graph, _network(answer.learner), {**core, **head}, mine, rows.prepared)
              for core, head in answer.networks]
    mean = scores[0] if len(scores) == 1 else \
        graph("Div", _added(graph, scores), graph.constant(float(len(scores))))
    if answer.borders is not None:
        one = graph.constant(1.0)
        inside = graph("Clip", mean, graph.constant(1e-7), graph.constant(1 - 1e-7))
        odds = graph("Mul", graph("Div", inside, graph("Sub", one, inside)),
                     graph.constant((1 - answer.borders) / answer.borders))
        mean = graph("Div", odds, graph("Add", one, odds))
    return graph.cast(graph.cast(mean, np.float32), np.float64)


def _joint(graph: Graph, answer: Joint, rows: Rows) -> str:
    """All parties' labels, each in the mean of those who know it; 0 for a label that nobody knows."""
    counts, terms = np.zeros(answer.size), []
    for party in answer.answers:
        labels = party.labels(answer.size)
        own = scores_in(graph, party, rows)
        chosen = np.zeros((len(labels), answer.size))
        chosen[np.arange(len(labels)), labels] = 1.0
        terms.append(graph("MatMul", own, graph.constant(chosen)))
        counts[labels] += 1
    return graph("Div", _added(graph, terms), graph.constant(np.maximum(counts, 1)))


def _routed(graph: Graph, answer: Routed, rows: Rows) -> str:
    """A party's own model or the common one, row by row."""
    common = learner_scores(graph, answer.learner, answer.common, rows)
    if answer.own is None:
        return common
    own = learner_scores(graph, answer.learner, answer.own, rows)
    if answer.router is None:
        return own
    return graph("Where", is_own_in(graph, answer, rows.schema, rows.prepared, own), own, common)


def _network(learner: object) -> TorchLearner:
    if not isinstance(learner, TorchLearner):
        raise ConfigError("only heads of torch networks can be exported", remedy="use tequio predict")
    return learner


def _added(graph: Graph, terms: Sequence[str]) -> str:
    total = terms[0]
    for term in terms[1:]:
        total = graph("Add", total, term)
    return total
