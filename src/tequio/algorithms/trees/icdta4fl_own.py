"""ICDTA4FL-own: the one tree of ICDTA4FL-plus for everybody, in whose leaves each party has its own mix of classes.

Where parties differ in how common the classes are, the common tree answers for a mix of classes that no party has. But
what the classes look like is alike everywhere, and then Bayes' rule says what a leaf means at home: the share of a
class there, times how much more common that class is at the party than in the federation. After the first three
exchanges of ICDTA4FL come 4. down: the tree; 5. up: how many rows of each class a party has in each of its leaves; 6.
down: the tree with the sums over all parties. A party's own rows in a leaf then speak against `common_rows` rows of
everybody's.

Saerens, Latinne, Decaestecker: Adjusting the outputs of a classifier to new a priori probabilities, Neural Computation
14(1), 2002.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

import numpy as np
from annotated_types import Ge, Gt

from tequio.algorithms.personal.answering import by_model
from tequio.algorithms.trees.fitting import AgreedSettings, agreed, agreed_rows
from tequio.algorithms.trees.icdta4fl import LeafFusion, fused, leaf_counts, log
from tequio.errors import ConfigError, PayloadError
from tequio.federation.algorithm import Answering, State
from tequio.federation.evaluation import EvaluateSettings, Part, tallies_in
from tequio.federation.payload import Payload
from tequio.federation.sums import Named, SumsReply, sum_over_rows
from tequio.federation.task import Sums, most_rows, record, task
from tequio.learners.trees.rules import extract
from tequio.learners.trees.tree import Tree, with_leaf_counts
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.answers import Answer
    from tequio.learners.learner import Tally


@register("algorithm", "icdta4fl-own", paper="Saerens et al., 2002", example=(
    '[algorithm]\nname = "icdta4fl-own"\ncommon_rows = 100.0\n\n[learner]\nname = "cart"\n'))
@dataclass(frozen=True, kw_only=True)
class Icdta4flOwn(LeafFusion):
    """The small tree of ICDTA4FL-plus, its leaves read by each party's own mix of classes; one round, six exchanges.

    For parties that differ in how common the classes are. Everybody has the same conditions to read, and class shares
    of their own behind them. The coordinator's rows are answered with the shares of all parties' rows together.

    Parameters:
        filter: which trees are good enough by the mean of the metrics, a name or a table of name and parameters
        min_trees: fewest trees to fuse; the best ones are added where the filter leaves fewer
        judged_on: rows on which parties judge the trees; test only to reproduce results that did so
        prune: parties cut off the branches of their trees that make no fewer errors on their validation rows
        leaves: most leaves of the global tree, that is, rules to read
        depth: most conditions of the global tree: local (as the parties' trees), none (no limit), or a number
        common_rows: how many rows everybody's class shares in a leaf count for, against the party's own rows there
    """

    leaves: Annotated[int, Ge(2)] = 60
    common_rows: Annotated[float, Gt(0)] = 30.0

    adoptable: ClassVar[bool] = False  # parties answer with leaves of their own

    def start(self, federation: Federation) -> State:
        """No tree yet."""
        if federation.schema.target.kind == "number":
            raise ConfigError("'icdta4fl-own' reads leaves by each party's own mix of classes, and numbers have none",
                              remedy="set algorithm.name = 'icdta4fl-plus'")
        return super().start(federation)

    def deliver(self, federation: Federation, model: Payload, parties: NDArray[np.int64], number: int = 6) -> Payload:
        """Exchanges 4 to 6."""
        columns, classes = len(federation.schema.features), federation.schema.target.size
        tree = Tree.from_payload(model["tree"], features=columns, classes=classes)
        found = sum_over_rows(federation, parties, count_rows, {"tree": tree.to_payload()}, stages=self.poisoning,
                              settings=AgreedSettings(agreed=agreed(federation)),
                              shapes={"counts": (len(tree.leaves), classes)}, check=check_counts)
        log(federation, 4, "down", "global tree", found.replies)
        log(federation, 5, "up", "rows in its leaves", found.replies)
        # A row of the trees' vote stands behind every leaf, and speaks where nobody has rows.
        counted = with_leaf_counts(tree, found["counts"] + tree.probabilities[tree.leaves])
        return super().deliver(federation, fused(counted, extract(counted, columns)), found.parties, number)

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of the tree with its own leaves."""
        if not state.model:
            return {}
        return tallies_in(federation.ask(parties, OWN_LEAVES.on_own, _tree_of(state), settings=self._settings(part)))

    def own_answer(self, party: Party, federation: Federation, state: State) -> Answer | None:
        """The tree with the party's leaves."""
        return OWN_LEAVES.answer_of(party, _tree_of(state), self._settings("test")) if state.model else None

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """The same, at real parties."""
        federation.ask(parties, OWN_LEAVES.keep, _tree_of(state), settings=self._settings("test"))

    def answering(self, federation: Federation, state: State) -> Answering:
        """All parties have leaves of their own; where none is named, the common ones speak."""
        return Answering(parties=tuple(federation.eligible().tolist())) if state.model else Answering()

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """A hash of each party's tree."""
        replies = federation.ask(federation.eligible(), OWN_LEAVES.fingerprint, _tree_of(state),
                                 settings=self._settings("test")) if state.model else ()
        return [reply.payload["sha256"] for reply in replies]

    def _settings(self, part: Part) -> OwnLeavesSettings:
        return OwnLeavesSettings(learner=self.learner, part=part, common_rows=self.common_rows)


class TreePayload(TypedDict):
    """The common tree."""

    tree: Payload


@record
class OwnLeavesSettings(EvaluateSettings):
    """How a party weighs its own rows in a leaf against everybody's, besides how it evaluates."""

    common_rows: float


def _tree_of(state: State) -> Payload:
    return {"tree": state.model["tree"]}


def _check_rows(reply: SumsReply, federation: Federation, party: int) -> None:
    """Refuse more rows than the party has."""
    counts, most = reply["sums"].get("counts"), most_rows(int(federation.sizes[party]))
    if isinstance(counts, np.ndarray) and not counts.sum() <= most:
        raise PayloadError(f"party '{federation.name(party)}' sent counts of more rows than it has")


@task("icdta4fl-own: count rows", settings=AgreedSettings, reply=SumsReply,
      reveals=Sums(lambda settings, schema: {"counts": 1.0}), check=_check_rows)
def count_rows(party: Party, payload: TreePayload, settings: AgreedSettings) -> SumsReply:
    """Rows of each class in each leaf of the common tree."""
    rows = agreed_rows(party, settings)
    return {"sums": {"counts": leaf_counts(_opened(payload, rows.schema), rows)}}


def check_counts(sums: Named, whose: str) -> None:
    """Refuse counts that are no whole numbers from 0."""
    if (sums["counts"] < 0).any() or (sums["counts"] % 1).any():
        raise PayloadError(f"{whose} sent counts of rows that are negative or broken")


def own_leaves(tree: Tree, own: NDArray[np.float64], common_rows: float) -> Tree:
    """The tree as a party reads it: (leaves, classes) own rows, and everybody's shares at the party's mix of classes.

    The party's mix is that of its rows and one row of everybody's.
    """
    everybody = tree.probabilities[0]
    mix = own.sum(axis=0) + everybody
    ratio = np.divide(mix / mix.sum(), everybody, out=np.zeros_like(mix), where=everybody > 0)
    shares = tree.probabilities[tree.leaves] * ratio
    shares /= shares.sum(axis=1, keepdims=True)
    return with_leaf_counts(tree, own + common_rows * shares)


def _opened(payload: TreePayload, schema: Schema) -> Tree:
    return Tree.from_payload(payload["tree"], features=len(schema.features), classes=schema.target.size,
                             whose="the coordinator")


def _read(party: Party, payload: TreePayload, settings: OwnLeavesSettings) -> Payload:
    rows = party.data.train
    tree = _opened(payload, rows.schema)
    return own_leaves(tree, leaf_counts(tree, rows), settings.common_rows).to_payload()


OWN_LEAVES = by_model("icdta4fl-own", OwnLeavesSettings, _read)
"""How parties answer: with the common tree and their own leaves."""
