"""SecureBoost: gradient boosting over parties with different columns, under encryption.

Cheng et al., SecureBoost: a lossless federated learning framework, IEEE Intelligent Systems 2021, with the packing of
gradients and of offers, and the subtraction of siblings, of Chen et al. (SecureBoost+, 2021). The label holder works
out each row's gradient and second derivative and hides them; the others add them up by the bins of their own columns
and hand back, in secret order, what the rows left of each possible split add up to; the label holder opens these, takes
the best split, and its owner divides the rows. In numbers nothing differs from boosting with all columns in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
from tequio.algorithms.vertical.trees.sums import Form, fixed_point
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.federation.task import task
from tequio.learners.metrics import summarise, tally
from tequio.learners.trees.boosted import gradients, scores_of
from tequio.learners.trees.boosting import Boosting, starting_model
from tequio.learners.trees.offers import LossEarned
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.vertical import Request
    from tequio.federation.algorithm import State
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]


@register("algorithm", "secureboost", paper="Cheng et al., 2021; Chen et al., 2021",
          example='[algorithm]\nname = "secureboost"\n\n[learner]\nname = "boosted_trees"\ndepth = 3\nbins = 32\n')
@dataclass(frozen=True, kw_only=True)
class SecureBoost(VerticalAlgorithm):
    """Boosted trees over parties with different columns; a round adds a tree (a tree a class).

    Settings of the trees are those of the learner 'boosted_trees'; its number of trees does not apply, rounds do. Each
    party keeps what its own splits look at, the label holder what the leaves say; nobody has the whole model, so
    everyone is needed to predict.

    Parameters:
        alignment: psi (find common rows by private set intersection) or agreed (rows are the same already)
        encryption: of gradients: an encryption's name or a table with its name and parameters; 'plain' is the twin
        own_first_tree: grow the first tree from the label holder's columns alone, so that no other party sees rows
            grouped by their labels
    """

    encryption: str | dict[str, Any] = "paillier"
    own_first_tree: bool = False

    def prepare(self, talk: Conversation, state: State) -> State:
        """Bins at every party; the key and the first margins at the label holder."""
        settings = self._settings(talk)
        talk.ask(talk.roles.holders, put_into_bins, settings={"bins": needed_learner(self, Boosting).bins})
        talk.tell(talk.roles.label_holder, make_keys, settings=settings)
        talk.tell(talk.roles.label_holder, start_margins, settings=settings)
        return state.next({**state.model, "kind": "vertical trees", **Skeleton.empty().to_payload()})

    def step(self, talk: Conversation, state: State) -> State:
        """Grow the next trees, one an output."""
        settings, trees = self._settings(talk), Skeleton.from_payload(state.model, len(talk.federation))
        label_holder = talk.roles.label_holder
        others = () if self.own_first_tree and not len(trees) else talk.roles.others
        begun = talk.tell(label_holder, derive, {"trees": len(trees)}, settings={**settings, "hide": bool(others)})
        grown = grow(talk, begun, Plan(settings, needed_learner(self, Boosting).depth, others))
        news = {} if grown.last is None else {"splits": grown.last}
        talk.tell(label_holder, add_trees, {"grown": grown.trees.to_payload(), **news}, settings=settings)
        return state.next({**state.model, **trees.plus(grown.trees).to_payload()})

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Take the rows down all trees; the label holder adds up what the leaves say."""
        trees = Skeleton.from_payload(state.model, len(talk.federation))
        talk.tell(talk.roles.label_holder, add_up, {"leaves": leaves_reached(talk, trees, request)})

    def _settings(self, talk: Conversation) -> dict[str, Any]:
        learner = needed_learner(self, Boosting)
        return {"learner": learner, "columns": learner.columns, "apart": learner.columns < 1,
                "encryption": made_encryption(self.encryption),
                "names": {str(party): talk.federation.name(party) for party in talk.roles.holders}}


@task("secureboost: start")
def start_margins(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: margins that predict the same for every row."""
    rows = common_rows(party, "train")
    model = starting_model(rows)
    party.state["base"] = model.base
    party.state["objective"] = model.objective
    party.state["margins"] = np.repeat(model.base[None], len(rows), axis=0)
    return {}


@task("secureboost: derive")
def derive(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: first and second derivatives of each row's loss, as whole numbers, hidden."""
    require_trees(party, payload["trees"])
    rows = common_rows(party, "train")
    pair = gradients(party.state["objective"], party.state["margins"], rows.target)
    outputs = pair[0].shape[1]
    values = np.stack(pair, axis=2).reshape(len(rows), 2 * outputs)
    form = Form.of_sums(len(rows), 1.0 if party.state["objective"] != "squared" else float(np.abs(values).max()))
    channels = 2 * np.arange(outputs)[:, None] + np.array([0, 2])
    grove = Grove.planted(fixed_point(values, form.fraction), channels, form.fraction,
                          np.ones((outputs, len(rows)), np.uint8))
    return plant(party, grove, form, settings, hide=settings["hide"])


@task("secureboost: add trees")
def add_trees(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: what the leaves of the grown trees say, and the margins with them."""
    grown = grown_leaves(party, payload)
    grove, learner = grown.grove, settings["learner"]
    value = LossEarned(learner.growth).value(np.ldexp(grove.sums.astype(np.float64), -grove.fraction))
    value = np.where(grove.left < 0, value, 0.0)
    margins = party.state["margins"] + value[grove.node_of].T
    keep_trees(party, grown, {"value": value}, undo="margins")
    party.state["margins"] = margins
    rows = common_rows(party, "train")
    counts = tally(rows.schema.target, scores_of(party.state["objective"], margins), rows.target)
    return {"loss": summarise(rows.schema.target, counts)["loss"]}


@task("secureboost: add up")
def add_up(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the scores of rows from the leaves where they end."""
    outputs = len(party.state["base"])
    said = party.state["trees"]["value"][payload["leaves"]]
    margins = party.state["base"] + said.reshape(-1, outputs, said.shape[1]).sum(axis=0).T
    party.state["scores"] = scores_of(party.state["objective"], margins)
    return {}
