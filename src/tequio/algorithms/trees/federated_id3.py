"""Federated-ID3: one decision tree from counts.

Truex, Baracaldo, Anwar, Steinke, Ludwig, Zhang, Zhou: A hybrid approach to privacy-preserving federated learning, AISec
2019, without the noise and the encryption that the paper adds.

The paper asks for the counts of one node after the other. Here all open nodes of a level are asked for at once: the
parties send one array of counts (node, category of every column, class), and only its sum over the parties is looked
at, so the tree is the one that ID3 grows on the pooled rows, node for node, however the rows are dealt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.trees.fitting import agreed, agreed_rows, needed_learner
from tequio.errors import DataError, PayloadError
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.task import task
from tequio.learners.trees.counting import Categories, counts_of_rows
from tequio.learners.trees.id3 import ID3, grow_id3
from tequio.learners.trees.learner import category_codes, class_codes
from tequio.learners.trees.tree import Tree
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


@register("algorithm", "federated-id3", paper="Truex et al., 2019",
          example='[algorithm]\nname = "federated-id3"\n\n[learner]\nname = "id3"\n')
@dataclass(frozen=True, kw_only=True)
class FederatedID3(Algorithm):
    """One ID3 tree of all parties' rows, grown level by level from the sum of their counts; all in one round.

    It is the tree that the learner `id3` fits to the pooled rows. Its depth and the other settings are those of the
    learner. What leaves a party are counts of rows by node, category and class, which for a node that few of its rows
    reach tell much about these rows. Further rounds change nothing.
    """

    def start(self, federation: Federation) -> State:
        """No tree yet."""
        needed_learner(self, ID3)
        for feature in federation.schema.features:
            if not feature.categorical:
                raise DataError(f"column '{feature.name}' is numeric, and 'federated-id3' splits categories",
                                remedy="set data.prepare = [\"discretise\"]")
        return State({})

    def crossing(self, schema: Schema) -> Crossing:
        """Counts, level by level; a row counts once in every column."""
        depth = needed_learner(self, ID3).depth or max(len(schema.features) // 2, 1)
        return Crossing(moves={"counts": len(schema.features) ** 0.5}, releases=depth + 1)

    def round(self, federation: Federation, state: State) -> State:
        """Grow the whole tree, one exchange a level."""
        if state.model:
            return state
        chosen, learner = self.select(federation, state, observed=False), needed_learner(self, ID3)
        categories, classes = Categories.of(federation.schema), federation.schema.target.size
        settings = agreed(federation)

        def summed_counts(tree: Tree, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
            shape = (len(nodes), categories.total, classes)
            replies = federation.ask(chosen.parties, count, {"tree": tree.to_payload(), "nodes": nodes},
                                     settings=settings, stages=self.parts.stages,
                                     check=None if self.parts.stages else _sound_counts(shape, categories))
            if not replies:
                return np.zeros(shape)
            counts = np.sum([payload["update"]["counts"] for payload in replies.payloads], axis=0, dtype=np.float64)
            return np.maximum(counts, 0.0)  # noise may make counts negative

        tree = grow_id3(summed_counts, categories, classes, depth=learner.depth, min_split=learner.min_split,
                        children=learner.children)
        return state.next(tree.to_payload() if tree.support[0] else None, selector=chosen.memory)


@task("federated-id3: count")
def count(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Rows at each of the nodes, by category and class: (nodes, categories, classes)."""
    rows = agreed_rows(party, settings)
    codes, labels = category_codes(rows, "federated-id3"), class_codes(rows, "federated-id3")
    categories, classes = Categories.of(rows.schema), rows.schema.target.size
    tree = Tree.from_payload(payload["tree"], features=codes.shape[1], classes=classes, whose="the coordinator")
    counts = counts_of_rows(codes, labels, categories, classes)(tree, payload["nodes"])
    return {"update": {"counts": counts.astype(np.int64)}}


def _sound_counts(shape: tuple[int, ...], categories: Categories) -> Callable[[Payload, str], None]:
    """A check of one party's counts: whole numbers from 0, and by every column the same rows of each class."""

    def check(payload: Payload, whose: str) -> None:
        counts = payload["update"]["counts"] if isinstance(payload.get("update"), dict) else None
        if not isinstance(counts, np.ndarray) or counts.shape != shape or counts.dtype.kind not in "iu":
            raise PayloadError(f"{whose} sent something that is not a table of counts of shape {shape}")
        by_column = np.add.reduceat(counts, categories.starts, axis=1)
        if (counts < 0).any() or (by_column != by_column[:, :1]).any():
            raise PayloadError(f"{whose} sent counts that are negative or do not add up")

    return check
