"""Federated-ID3: one decision tree from counts.

Truex, Baracaldo, Anwar, Steinke, Ludwig, Zhang, Zhou: A hybrid approach to privacy-preserving federated learning, AISec
2019, without the noise and the encryption that the paper adds.

The paper asks for the counts of one node after the other. Here all open nodes of a level are asked for at once: the
parties send one array of counts (node, category of every column, class), and only its sum over the parties is looked
at, so the tree is the one that ID3 grows on the pooled rows, node for node, however the rows are dealt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count as numbers
from typing import TYPE_CHECKING, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.trees.fitting import AgreedSettings, SummingTrees, agreed, agreed_rows
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.algorithm import Disclosure, State, part
from tequio.federation.averaging import select
from tequio.federation.payload import Payload
from tequio.federation.sums import Named, SumsReply, is_noised, sum_over_rows
from tequio.federation.task import Sums, task
from tequio.learners.trees.id3 import ID3, Categories, counts_of_rows, grow_id3
from tequio.learners.trees.learner import category_codes, class_codes
from tequio.learners.trees.tree import Tree
from tequio.registry import register

if TYPE_CHECKING:

    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party


@register("algorithm", "federated-id3", paper="Truex et al., 2019",
          example='[algorithm]\nname = "federated-id3"\n\n[learner]\nname = "id3"\n')
@dataclass(frozen=True, kw_only=True)
class FederatedID3(SummingTrees):
    """One ID3 tree of all parties' rows, grown level by level from the sum of their counts; all in one round.

    It is the tree that the learner `id3` fits to the pooled rows. Its depth and the other settings are those of the
    learner. What leaves a party are counts of rows by node, category and class, which for a node that few of its rows
    reach reveal much about these rows. There is nothing to do in further rounds.
    """

    learner: ID3 = part()

    shows_replies: ClassVar[bool] = False
    sums_only: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"category"})

    def start(self, federation: Federation) -> State:
        """No tree yet."""
        for feature in federation.schema.features:
            if not feature.categorical:
                raise DataError(f"column '{feature.name}' is numeric, and 'federated-id3' splits categories",
                                remedy="set data.prepare = [\"discretise\"]")
        return State({})

    def disclosure(self, schema: Schema) -> Disclosure:
        """Counts, level by level."""
        return Disclosure(moves=row_moves(schema), releases=self._levels(schema), rounds=1)

    def round(self, federation: Federation, state: State) -> State:
        """Grow the whole tree, one exchange per level."""
        if state.model:
            return state
        chosen = select(self, federation, state)
        categories, classes = Categories.of(federation.schema), federation.schema.target.size
        settings = AgreedSettings(agreed=agreed(federation))
        levels, tables = self._levels(federation.schema), numbers(1)

        def summed_counts(tree: Tree, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
            if next(tables) > levels and is_noised(self.stages):
                raise ConfigError("the counts of a level of the tree do not fit into one table, and the budget pays "
                                  "for one table per level", remedy=f"set learner.depth = {levels - 1}")
            found = sum_over_rows(federation, chosen.parties, count, {"tree": tree.to_payload(), "nodes": nodes},
                                  settings=settings, shapes={"counts": (len(nodes), categories.total, classes)},
                                  stages=self.way, check=partial(_check_counts, categories))
            counts: NDArray[np.float64] = np.maximum(found["counts"], 0.0)  # noise may make counts negative
            return counts

        tree = grow_id3(summed_counts, categories, classes, depth=self.learner.depth,
                        min_split=self.learner.min_split, min_leaf=self.learner.min_leaf,
                        children=self.learner.children)
        return state.next(tree.to_payload() if tree.support[0] else None, selector=chosen.memory)

    def finished(self, state: State) -> str:
        """When the tree is there."""
        return "the tree is grown" if state.model else ""

    def _levels(self, schema: Schema) -> int:
        """How deep the tree is at most."""
        return self.learner.depth or max(len(schema.features) // 2, 1)


class OpenNodes(TypedDict):
    """A tree and those of its nodes whose rows are to be counted."""

    tree: Payload
    nodes: NDArray[np.int64]


def row_moves(schema: Schema) -> dict[str, float]:
    """A row counts once in every column."""
    return {"counts": len(schema.features) ** 0.5}


@task("federated-id3: count", settings=AgreedSettings, reply=SumsReply,
      reveals=Sums(lambda settings, schema: row_moves(schema)))
def count(party: Party, payload: OpenNodes, settings: AgreedSettings) -> SumsReply:
    """Rows at each of the nodes, by category and class: (nodes, categories, classes)."""
    rows = agreed_rows(party, settings)
    codes, labels = category_codes(rows, "federated-id3"), class_codes(rows, "federated-id3")
    categories, classes = Categories.of(rows.schema), rows.schema.target.size
    tree = Tree.from_payload(payload["tree"], features=codes.shape[1], classes=classes, whose="the coordinator")
    counts = counts_of_rows(codes, labels, categories, classes)(tree, payload["nodes"])
    return {"sums": {"counts": counts.astype(np.float64)}}


def _check_counts(categories: Categories, sums: Named, whose: str) -> None:
    """Refuse counts that are no whole numbers from 0, or do not show the same rows of each class in every column."""
    counts = sums["counts"]
    by_column = np.add.reduceat(counts, categories.starts, axis=1)
    if (counts < 0).any() or (counts % 1).any() or (by_column != by_column[:, :1]).any():
        raise PayloadError(f"{whose} sent counts that are negative, broken or do not add up")
