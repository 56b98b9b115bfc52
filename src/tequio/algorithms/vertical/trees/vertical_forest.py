"""A random forest over parties with different columns, under encryption.

The trees of Breiman's random forests (2001), grown as Liu et al. (Federated forest, IEEE Transactions on Big Data 2022)
deal the work: the label holder hides the class of each row once a round, the others add classes up by the bins of their
own columns, and the label holder chooses the splits. Which rows count how often in a tree is drawn by the coordinator
and says nothing about anybody's data, so all trees of a round grow side by side from the same hidden classes. Columns
are drawn a tree and party, not a split: a fresh draw at every split would show which offers belong to one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Interval

from tequio.algorithms.trees.fitting import needed_learner
from tequio.algorithms.vertical.rows import common_rows
from tequio.algorithms.vertical.trees.grove import Grove
from tequio.algorithms.vertical.trees.growing import Plan, grow
from tequio.algorithms.vertical.trees.labels import plant
from tequio.algorithms.vertical.trees.leaves import grown_leaves, keep_trees, require_trees
from tequio.algorithms.vertical.trees.offering import put_into_bins
from tequio.algorithms.vertical.trees.predicting import leaves_reached
from tequio.algorithms.vertical.trees.secrecy import made_encryption, make_keys
from tequio.algorithms.vertical.trees.skeleton import Skeleton
from tequio.algorithms.vertical.trees.sums import Form
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.federation.task import task
from tequio.learners.trees.forest import RandomForest
from tequio.learners.trees.learner import class_codes
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.vertical import Request
    from tequio.federation.algorithm import State
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]

# Half or more of the columns did best on validation rows of breast cancer and of credit card clients.
_SHARE_OF_COLUMNS = 2 / 3


@register("algorithm", "vertical-forest", paper="Breiman, 2001; Liu et al., 2022",
          example='[algorithm]\nname = "vertical-forest"\n\n[learner]\nname = "random_forest"\ntrees = 50\n')
@dataclass(frozen=True, kw_only=True)
class VerticalForest(VerticalAlgorithm):
    """A random forest over parties with different columns; a round adds some trees until the learner's are grown.

    Settings of the trees are those of the learner 'random_forest', but for `columns`, which is drawn a tree and party,
    and of which 0 stands for two thirds: the square root is for a draw at every split, and would starve whole trees.
    Each party keeps what its own splits look at, the label holder what the leaves say.

    Parameters:
        alignment: psi (find common rows by private set intersection) or agreed (rows are the same already)
        encryption: of classes: an encryption's name or a table with its name and parameters; 'plain' is the twin
        bins: most bins a column
        together: trees that grow side by side in a round
    """

    encryption: str | dict[str, Any] = "paillier"
    bins: Annotated[int, Interval(ge=2, le=65_535)] = 32
    together: Annotated[int, Ge(1)] = 10

    def prepare(self, talk: Conversation, state: State) -> State:
        """Bins at every party, and the key at the label holder."""
        talk.ask(talk.roles.holders, put_into_bins, settings={"bins": self.bins})
        talk.tell(talk.roles.label_holder, make_keys, settings=self._settings(talk))
        return state.next({**state.model, "kind": "vertical trees", **Skeleton.empty().to_payload()})

    def step(self, talk: Conversation, state: State) -> State:
        """Grow some trees side by side."""
        learner, settings = needed_learner(self, RandomForest), self._settings(talk)
        trees = Skeleton.from_payload(state.model, len(talk.federation))
        count = min(self.together, learner.trees - len(trees))
        if count < 1:
            return state
        weights = drawn_rows(count, state.model["rows"]["train"], talk.federation.rng("rows of trees"))
        label_holder, others = talk.roles.label_holder, talk.roles.others
        begun = talk.tell(label_holder, hide_classes, {"weights": weights, "trees": len(trees)}, settings=settings)
        grown = grow(talk, begun, Plan(settings, learner.depth, others, weights))
        news = {} if grown.last is None else {"splits": grown.last}
        talk.tell(label_holder, add_trees, {"grown": grown.trees.to_payload(), **news}, settings=settings)
        return state.next({**state.model, **trees.plus(grown.trees).to_payload()})

    def finished(self, state: State) -> str:
        """When all trees of the learner are there."""
        wanted = needed_learner(self, RandomForest).trees
        return f"all {wanted} trees are grown" if state.model and len(state.model["sizes"]) >= wanted else ""

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Take the rows down all trees; the label holder counts the votes."""
        trees = Skeleton.from_payload(state.model, len(talk.federation))
        talk.tell(talk.roles.label_holder, count_votes, {"leaves": leaves_reached(talk, trees, request)},
                  settings=self._settings(talk))

    def _settings(self, talk: Conversation) -> dict[str, Any]:
        learner = needed_learner(self, RandomForest)
        return {"learner": learner, "columns": learner.columns or _SHARE_OF_COLUMNS, "apart": True,
                "hide": bool(talk.roles.others), "encryption": made_encryption(self.encryption),
                "names": {str(party): talk.federation.name(party) for party in talk.roles.holders}}


def drawn_rows(trees: int, rows: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(trees, rows) how often each row is drawn when as many as there are are drawn with repetition."""
    return np.stack([np.bincount(rng.integers(rows, size=rows), minlength=rows) for _ in range(trees)]).astype(np.uint8)


@task("vertical-forest: hide classes")
def hide_classes(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: a one in the place of each row's class, hidden."""
    require_trees(party, payload["trees"])
    rows = common_rows(party, "train")
    classes = (class_codes(rows, "vertical-forest")[:, None] == np.arange(rows.schema.target.size)).astype(np.int64)
    form = Form.of_counts(len(rows))
    channels = np.tile([0, classes.shape[1]], (len(payload["weights"]), 1))
    return plant(party, Grove.planted(classes, channels, 0, payload["weights"]), form, settings,
                 hide=settings["hide"])


@task("vertical-forest: add trees")
def add_trees(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the classes at the leaves of the grown trees."""
    grown = grown_leaves(party, payload)
    keep_trees(party, grown, {"counts": grown.grove.sums.astype(np.float64)})
    return {}


@task("vertical-forest: vote")
def count_votes(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the scores of rows from the leaves where they end."""
    counts = party.state["trees"]["counts"]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    if settings["learner"].voting == "majority":
        shares = np.eye(counts.shape[1])[shares.argmax(axis=1)]
    party.state["scores"] = shares[payload["leaves"]].mean(axis=0)
    return {}
