"""A random forest over parties with different columns, under encryption.

The trees of Breiman's random forests (2001), grown as Liu et al. (Federated forest, IEEE Transactions on Big Data 2022)
deal the work: the label holder hides the class of each row once per round, the others add classes up by the bins of
their own columns, and the label holder chooses the splits. Which rows count how often in a tree is drawn by the
coordinator and says nothing about anybody's data, so all trees of a round grow side by side from the same hidden
classes. Columns are drawn per tree and party, not per split: a fresh draw at every split would show which offers belong
to one column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Interval

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.rows import KeptScores, common_rows
from tequio.algorithms.vertical.trees.growing import Plan, count_asked, grow, leaves_reached
from tequio.algorithms.vertical.trees.labels import (
    Grove,
    Planted,
    PlantSettings,
    grown_leaves,
    keep_trees,
    plant,
    require_trees,
)
from tequio.algorithms.vertical.trees.offering import (
    BLOCK_OF,
    HIDDEN,
    SPLITS,
    WEIGHTS,
    BinSettings,
    TreeSettings,
    put_into_bins,
    route,
)
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees, Skeleton
from tequio.algorithms.vertical.trees.sums import Form, KeySettings, made_encryption, make_keys
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.federation.algorithm import part
from tequio.federation.task import Done, NoSettings, Reveals, record, task
from tequio.learners.trees.forest import RandomForest, Voting
from tequio.learners.trees.learner import class_codes
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.trees.growing import ReachedLeaves
    from tequio.algorithms.vertical.trees.labels import GrownRequest, TreesSoFar
    from tequio.algorithms.vertical.vertical import Request
    from tequio.federation.algorithm import State
    from tequio.federation.population import Party
    from tequio.federation.task import AnyTask

# Half or more of the columns did best on validation rows of breast cancer and of credit card clients.
_SHARE_OF_COLUMNS = 2 / 3


@register("algorithm", "vertical-forest", paper="Breiman, 2001; Liu et al., 2022",
          example='[algorithm]\nname = "vertical-forest"\n\n[learner]\nname = "random-forest"\ntrees = 50\n')
@dataclass(frozen=True, kw_only=True)
class VerticalForest(VerticalAlgorithm):
    """A random forest over parties with different columns; a round adds some trees until the learner's are grown.

    Settings of the trees are those of the learner 'random-forest', but for `columns`, which is drawn per tree and
    party, and of which 0 stands for two thirds: the square root is for a draw at every split, and would starve whole
    trees. Each party keeps what its own splits look at, the label holder what the leaves say.

    Parameters:
        alignment: psi (find common rows by private set intersection) or agreed (rows are the same already)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        encryption: of classes: an encryption's name or a table with its name and parameters; 'plain' is the twin
        bins: most bins of a column
        together: trees that grow side by side in a round
    """

    kept_to_score: ClassVar[Mapping[type, Sequence[str]]] = {OwnSplits: ("records",), OwnTrees: ("trees/counts",)}

    takes: ClassVar[frozenset[str]] = frozenset({"number"})

    learner: RandomForest = part()
    encryption: str | dict[str, Any] = "paillier"
    bins: Annotated[int, Interval(ge=2, le=65_535)] = 32
    together: Annotated[int, Ge(1)] = 10

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The encryption."""
        return (made_encryption(self.encryption),)

    def prepare(self, talk: Conversation, state: State) -> State:
        """Bins at every party, and the key at the label holder."""
        settings = KeySettings(encryption=made_encryption(self.encryption))
        talk.ask(talk.roles.holders, put_into_bins, settings=BinSettings(bins=self.bins))
        talk.ask_one(talk.roles.label_holder, make_keys, settings=settings)
        return state.next({**state.model, "kind": "vertical trees", **Skeleton.empty().to_payload()})

    def step(self, talk: Conversation, state: State) -> State:
        """Grow some trees side by side."""
        trees = Skeleton.from_payload(state.model, len(talk.federation))
        count = min(self.together, self.learner.trees - len(trees))
        if count < 1:
            return state
        weights = drawn_rows(count, state.model["rows"]["train"], talk.federation.rng("rows of trees"))
        label_holder, others = talk.roles.label_holder, talk.roles.others
        settings = TreeSettings(
            learner=self.learner, columns=self.learner.columns or _SHARE_OF_COLUMNS, apart=True,
            encryption=made_encryption(self.encryption),
            names={str(party): talk.federation.name(party) for party in talk.roles.holders})
        planted = talk.ask_one(label_holder, hide_classes, {"weights": weights, "trees": len(trees)},
                               settings=PlantSettings(encryption=settings.encryption, hide=bool(others)))
        grown = grow(talk, planted, Plan(settings, self.learner.depth, others, weights))
        talk.ask_one(label_holder, add_trees, grown.request)
        return state.next({**state.model, **trees.plus(grown.trees).to_payload()})

    def finished(self, state: State) -> str:
        """When all trees of the learner are there."""
        wanted = self.learner.trees
        return f"all {wanted} trees are grown" if state.model and len(state.model["sizes"]) >= wanted else ""

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Take the rows down all trees; the label holder counts the votes."""
        trees = Skeleton.from_payload(state.model, len(talk.federation))
        talk.ask_one(talk.roles.label_holder, count_votes, {"leaves": leaves_reached(talk, trees, request)},
                     settings=VoteSettings(voting=self.learner.voting))

    @classmethod
    def tasks_of_prediction(cls) -> tuple[AnyTask, ...]:
        """Ways down the trees, and their votes."""
        return (*super().tasks_of_prediction(), count_asked, route, count_votes)


def drawn_rows(trees: int, rows: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(trees, rows) how often each row is drawn when as many as there are are drawn with repetition."""
    return np.stack([np.bincount(rng.integers(rows, size=rows), minlength=rows) for _ in range(trees)]).astype(np.uint8)


@task("vertical-forest: hide classes", settings=PlantSettings, reply=Planted, reveals=Reveals.SCORES)
def hide_classes(party: Party, payload: TreesSoFar, settings: PlantSettings) -> Planted:
    """At the label holder: a one in the place of each row's class, hidden."""
    require_trees(party, payload["trees"])
    rows = common_rows(party, "train")
    classes = (class_codes(rows, "vertical-forest")[:, None] == np.arange(rows.schema.target.size)).astype(np.int64)
    channels = np.tile([0, classes.shape[1]], (len(payload["weights"]), 1))
    return plant(party, Grove.planted(classes, channels, 0, payload["weights"]), Form.of_counts(len(rows)), settings)


@task("vertical-forest: add trees", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def add_trees(party: Party, payload: GrownRequest, settings: NoSettings) -> Done:
    """At the label holder: the classes at the leaves of the grown trees."""
    grown = grown_leaves(party, payload)
    keep_trees(party, grown, {"counts": grown.grove.sums.astype(np.float64)})
    return {}


@record
class VoteSettings:
    """How trees vote."""

    voting: Voting


@task("vertical-forest: vote", settings=VoteSettings, reply=Done, reveals=Reveals.NOTHING)
def count_votes(party: Party, payload: ReachedLeaves, settings: VoteSettings) -> Done:
    """At the label holder: the scores of rows from the leaves where they end."""
    counts = party.recall(OwnTrees)["trees"]["counts"]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    if settings.voting == "majority":
        shares = np.eye(counts.shape[1])[shares.argmax(axis=1)]
    party.keep(KeptScores, {"scores": shares[payload["leaves"]].mean(axis=0)})
    return {}


describe(hide_classes, trees="how many trees there are", weights=WEIGHTS, hidden=HIDDEN, block_of=BLOCK_OF)
describe(add_trees, grown="the shape of the trees and whose each split is", splits=SPLITS)
describe(count_votes, leaves="in which leaf each row ends; what leaves say, only the label holder knows")
