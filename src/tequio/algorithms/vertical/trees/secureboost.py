"""SecureBoost: gradient boosting over parties with different columns, under encryption.

Cheng et al., SecureBoost: a lossless federated learning framework, IEEE Intelligent Systems 2021, with the packing of
gradients and of offers, and the subtraction of siblings, of Chen et al. (SecureBoost+, 2021). The label holder works
out each row's gradient and second derivative and hides them; the others add them up by the bins of their own columns
and hand back, in secret order, what the rows left of each possible split add up to; the label holder opens these, takes
the best split, and its owner divides the rows. In numbers nothing differs from boosting with all columns in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

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
    BinSettings,
    TreeSettings,
    put_into_bins,
    route,
)
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees, Skeleton
from tequio.algorithms.vertical.trees.sums import Form, KeySettings, fixed_point, made_encryption, make_keys
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.errors import ConfigError
from tequio.federation.algorithm import part
from tequio.federation.task import Done, NoSettings, Reveals, record, task
from tequio.learners.metrics import summarise, tally
from tequio.learners.trees.bins import LossEarned
from tequio.learners.trees.boosted import Objective, gradients, scores_of
from tequio.learners.trees.boosting import Boosting, starting_model
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.trees.growing import ReachedLeaves
    from tequio.algorithms.vertical.trees.labels import GrownRequest, TreesSoFar
    from tequio.algorithms.vertical.vertical import Request
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.task import AnyTask


class Start(TypedDict, total=False):
    """What the label holder starts from: the loss, and margins that predict the same for every row."""

    objective: Objective
    base: NDArray[np.float64]


@register("algorithm", "secureboost", paper="Cheng et al., 2021; Chen et al., 2021",
          example='[algorithm]\nname = "secureboost"\n\n[learner]\nname = "boosted-trees"\ndepth = 3\nbins = 32\n')
@dataclass(frozen=True, kw_only=True)
class SecureBoost(VerticalAlgorithm):
    """Boosted trees over parties with different columns; a round adds a tree (one per class, where there are several).

    Settings of the trees are those of the learner 'boosted-trees'; its number of trees does not apply, rounds do. Each
    party keeps what its own splits look at, the label holder what the leaves say; nobody has the whole model, so
    everyone is needed to predict.

    Parameters:
        alignment: psi (find common rows by private set intersection) or agreed (rows are the same already)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        encryption: of gradients: an encryption's name or a table with its name and parameters; 'plain' is the twin
        own_first_tree: grow the first tree from the label holder's columns alone, so that no other party sees rows
            grouped by their labels
        offer_noise: standard deviation of the noise that a party adds to its sums of gradients over each bin, so that
            the label holder cannot find single rows in them (a row's gradient is at most 1)
    """

    kept_to_score: ClassVar[Mapping[type, Sequence[str]]] = {
        OwnSplits: ("records",), OwnTrees: ("trees/value",), Start: ("objective", "base")}

    learner: Boosting = part()
    encryption: str | dict[str, Any] = "paillier"
    own_first_tree: bool = False
    offer_noise: Annotated[float, Ge(0)] = 0.0

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The encryption."""
        return (made_encryption(self.encryption),)

    def start(self, federation: Federation) -> State:
        """Refuse noise where nobody knows how large gradients are."""
        if self.offer_noise and federation.schema.target.kind != "classes":
            raise ConfigError("noise on sums is for classes: gradients of a number may be of any size",
                              remedy="set algorithm.offer_noise = 0")
        return super().start(federation)

    def prepare(self, talk: Conversation, state: State) -> State:
        """Bins at every party; the key and the first margins at the label holder."""
        holder, settings = talk.roles.label_holder, KeySettings(encryption=made_encryption(self.encryption))
        talk.ask(talk.roles.holders, put_into_bins, settings=BinSettings(bins=self.learner.bins))
        talk.ask_one(holder, make_keys, settings=settings)
        talk.ask_one(holder, start_margins)
        return state.next({**state.model, "kind": "vertical trees", **Skeleton.empty().to_payload()})

    def step(self, talk: Conversation, state: State) -> State:
        """Grow the next trees, one per output."""
        trees, holder = Skeleton.from_payload(state.model, len(talk.federation)), talk.roles.label_holder
        others = () if self.own_first_tree and not len(trees) else talk.roles.others
        settings = TreeSettings(
            learner=self.learner, columns=self.learner.columns, apart=self.learner.columns < 1,
            encryption=made_encryption(self.encryption),
            names={str(party): talk.federation.name(party) for party in talk.roles.holders}, noise=self.offer_noise)
        planted = talk.ask_one(holder, derive, {"trees": len(trees)}, settings=DeriveSettings(
            encryption=settings.encryption, hide=bool(others), noise=self.offer_noise, bins=self.learner.bins))
        grown = grow(talk, planted, Plan(settings, self.learner.depth, others))
        talk.ask_one(holder, add_trees, grown.request, settings=BoostSettings(learner=self.learner))
        return state.next({**state.model, **trees.plus(grown.trees).to_payload()})

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Take the rows down all trees; the label holder adds up what the leaves say."""
        trees = Skeleton.from_payload(state.model, len(talk.federation))
        talk.ask_one(talk.roles.label_holder, add_up, {"leaves": leaves_reached(talk, trees, request)})

    @classmethod
    def tasks_of_prediction(cls) -> tuple[AnyTask, ...]:
        """Ways down the trees, and what the leaves add up to."""
        return (*super().tasks_of_prediction(), count_asked, route, add_up)


@record
class BoostSettings:
    """How trees are boosted."""

    learner: Boosting


@task("secureboost: start", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def start_margins(party: Party, payload: Payload, settings: NoSettings) -> Done:
    """At the label holder: margins that predict the same for every row."""
    rows = common_rows(party, "train")
    model = starting_model(rows)
    party.keep(Start, {"objective": model.objective, "base": model.base})
    party.keep(OwnTrees, {"margins": np.repeat(model.base[None], len(rows), axis=0)})
    return {}


@record
class DeriveSettings(PlantSettings):
    """How much noise others add to the sums of how many bins, for which numbers need room."""

    noise: float
    bins: int


@task("secureboost: derive", settings=DeriveSettings, reply=Planted, reveals=Reveals.SCORES)
def derive(party: Party, payload: TreesSoFar, settings: DeriveSettings) -> Planted:
    """At the label holder: first and second derivatives of each row's loss, as whole numbers, hidden."""
    require_trees(party, payload["trees"])
    rows, objective = common_rows(party, "train"), party.recall(Start)["objective"]
    pair = gradients(objective, party.recall(OwnTrees)["margins"], rows.target)
    outputs = pair[0].shape[1]
    values = np.stack(pair, axis=2).reshape(len(rows), 2 * outputs)
    largest = 1.0 if objective != "squared" else float(np.abs(values).max())
    form = Form.of_gradients(len(rows), largest, settings.noise, settings.bins)
    channels = 2 * np.arange(outputs)[:, None] + np.array([0, 2])
    grove = Grove.planted(fixed_point(values, form.fraction), channels, form.fraction,
                          np.ones((outputs, len(rows)), np.uint8))
    return plant(party, grove, form, settings)


class TrainingLoss(TypedDict):
    """The mean loss of the training rows."""

    loss: float


@task("secureboost: add trees", settings=BoostSettings, reply=TrainingLoss, reveals=Reveals.METRICS)
def add_trees(party: Party, payload: GrownRequest, settings: BoostSettings) -> TrainingLoss:
    """At the label holder: what the leaves of the grown trees say, and the margins with them."""
    grown = grown_leaves(party, payload)
    grove = grown.grove
    value = LossEarned(settings.learner.growth).value(np.ldexp(grove.sums.astype(np.float64), -grove.fraction))
    value = np.where(grove.left < 0, value, 0.0)
    margins = party.recall(OwnTrees)["margins"] + value[grove.node_of].T
    keep_trees(party, grown, {"value": value}, margins)
    rows = common_rows(party, "train")
    counts = tally(rows.schema.target, scores_of(party.recall(Start)["objective"], margins), rows.target)
    return {"loss": summarise(rows.schema.target, counts)["loss"]}


@task("secureboost: add up", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def add_up(party: Party, payload: ReachedLeaves, settings: NoSettings) -> Done:
    """At the label holder: the scores of rows from the leaves where they end."""
    start, values = party.recall(Start), party.recall(OwnTrees)["trees"]["value"][payload["leaves"]]
    margins = start["base"] + values.reshape(-1, len(start["base"]), values.shape[1]).sum(axis=0).T
    party.keep(KeptScores, {"scores": scores_of(start["objective"], margins)})
    return {}


describe(derive, trees="how many trees there are", hidden=HIDDEN, block_of=BLOCK_OF)
describe(add_trees, grown="the shape of the trees and whose each split is", splits=SPLITS,
         loss="mean loss of the training rows")
describe(add_up, leaves="in which leaf each row ends; what leaves say, only the label holder knows")
