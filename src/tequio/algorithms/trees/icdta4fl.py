"""ICDTA4FL and ICDTA4FL-plus: one readable tree from the trees of all parties, in one round and four exchanges.

1. up: each party's tree; 2. down: all trees; 3. up: how good each is on the party's validation rows; 4. down: the tree
and the rules that the coordinator made of those good enough. Each party then keeps the better of that tree and its own.

Argente-Garrido, Zuheros, Luzón, Herrera: An interpretable client decision tree aggregation process for federated
learning, Information Sciences 694, 2025.

Where ICDTA4FL multiplies the trees' rules and grows a tree from thousands of them, each counted alike, ICDTA4FL-plus
asks the parties in the same third exchange how many of their rows reach each leaf, and grows the global tree from the
leaves themselves: the split first that removes most of the vote's impurity, weighed by rows. Any number of leaves gives
the best tree that this order of splits has for it, so a reader chooses how much there is to read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NotRequired, TypedDict, cast

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from tequio.algorithms.trees.fitting import AgreedSettings, LocalTree, TreeAlgorithm, agreed, agreed_rows
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import select
from tequio.federation.evaluation import OwnModel, Part, tally_here
from tequio.federation.payload import Payload
from tequio.federation.task import Done, Reveals, Rows, record, task
from tequio.learners.metrics import summarise
from tequio.learners.trees.filters import surviving
from tequio.learners.trees.forest import Cart
from tequio.learners.trees.growing import Growing, NodeEntropy, RuleWeight, Shrink, distil, grow
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.learner import rows_of
from tequio.learners.trees.pruning import without_errors
from tequio.learners.trees.rules import Fusing, IntervalMerge, Weighting, extract, fuse, mixed_form
from tequio.learners.trees.tree import Tree, with_noisy_counts
from tequio.noise.coins import Coins
from tequio.registry import build, register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.federation.sums import SumsReply
    from tequio.learners.learner import Tally
    from tequio.learners.trees.filters import Filter
    from tequio.learners.trees.rules import Rules

METRICS = ("accuracy", "f1_macro")
"""What trees are judged by, the local ones and the global one alike; those of numbers by r2, which counts from 0 up."""

_MOST_ROWS = 2.0 ** 53  # larger counts are no whole numbers any more

Depth = Literal["local", "none"] | Annotated[int, Ge(1)]
Notes = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class TreeFusion(TreeAlgorithm):
    """What both share: trees go up, all of them down, scores up, and one tree with its rules down."""

    learner: ID3 | Cart = part()
    filter: str | dict[str, object] = "mean"
    min_trees: Annotated[int, Ge(1)] = 1
    judged_on: Part = "validation"
    prune: bool = False

    shows_replies: ClassVar[bool] = False

    def start(self, federation: Federation) -> State:
        """No tree yet."""
        self._filter()
        if self.leaf_epsilon and federation.schema.target.kind == "number":
            raise ConfigError("epsilon covers counts of rows, and leaves that predict numbers publish exact means",
                              remedy="set algorithm.epsilon = 0, or predict classes")
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """The four exchanges. Further rounds change nothing."""
        if state.model:
            return state
        chosen = select(self, federation, state)
        trees = self._collect(federation, chosen.parties)
        if not trees:
            return state.next(selector=chosen.memory)
        judgements = self._cross_evaluate(federation, trees)
        scores = mean_scores([reply["scores"] for reply in judgements.payloads if reply["rows"]], len(trees),
                             self.judged_on, len(metrics_for(federation.schema)))
        kept = surviving(self.judged(scores), self._filter(), self.min_trees)
        parties, started = list(trees), perf_counter()
        model, notes = self.fuse([trees[parties[index]] for index in kept], kept, judgements, federation)
        rows = int(federation.sizes[judgements.parties].sum())
        if cast("int", notes["leaves"]) > rows:
            federation.record("warning", {"message": f"the global tree has {notes['leaves']:,} leaves, more than the "
                                                     f"{rows:,} rows that its parties have: set algorithm.leaves = 64, "
                                                     "or as many as people are to read"})
        federation.record("fusion", {"round": federation.round, "trees": len(trees), "scores": scores.round(6).tolist(),
                                     "kept": [federation.name(parties[index]) for index in kept],
                                     "seconds": round(perf_counter() - started, 4), **notes})
        return state.next(self.deliver(federation, model, judgements.parties), selector=chosen.memory)

    def judged(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """What of the (trees, metrics) scores the filter looks at: a tree must be good enough in every column."""
        return scores

    @abstractmethod
    def fuse(self, trees: Sequence[Tree], kept: NDArray[np.intp], judgements: Replies[JudgeReply],
             federation: Federation) -> tuple[Payload, Notes]:
        """The tree and the rules of the trees that were kept, and what is worth noting about how they came about."""

    def deliver(self, federation: Federation, model: Payload, parties: NDArray[np.int64], number: int = 4) -> Payload:
        """The last exchange. Parties only acknowledge: whether one adopts the tree is its own affair."""
        delivered = federation.ask(parties, receive, {"model": model}, settings=ReceiveSettings(learner=self.learner))
        log(federation, number, "down", "global tree and rules", delivered)
        return model

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of the tree; the rules are not sent again."""
        return super().evaluate(federation, State(state.model.get("tree", {})), part, parties)

    def _filter(self) -> Filter:
        table = {"name": self.filter} if isinstance(self.filter, str) else self.filter
        built: Filter = build("filter", str(table.get("name", "")), {key: table[key] for key in table if key != "name"},
                              where="algorithm.filter")
        return built

    def _collect(self, federation: Federation, parties: NDArray[np.int64]) -> dict[int, Tree]:
        """Exchange 1."""
        kinds = ("multiway" if isinstance(self.learner, ID3) else "binary", "mixed")
        opened = partial(_tree, federation.schema, kinds, self.depth_for("local", len(federation.schema.features)))
        settings = LocalTreeSettings(learner=self.learner, prune=self.prune, epsilon=self.leaf_epsilon,
                                     secret=self.leaf_secret, agreed=agreed(federation))
        replies = federation.ask(parties, fit_tree, settings=settings, stages=self.poisoning, check=opened)
        log(federation, 1, "up", "local trees", replies)
        return {reply.party: opened(reply.payload) for reply in replies}

    def _cross_evaluate(self, federation: Federation, trees: Mapping[int, Tree]) -> Replies[JudgeReply]:
        """Exchanges 2 and 3. Parties that vanish here leave their trees behind."""
        settings = JudgeSettings(learner=self.learner, part=self.judged_on, leaves=self.counts_leaves)
        replies = federation.ask(list(trees), cross_evaluate, {"trees": [tree.to_payload() for tree in trees.values()]},
                                 settings=settings, stages=self.poisoning,
                                 check=partial(_check_judgement, list(trees.values()), self.counts_leaves,
                                               len(metrics_for(federation.schema))))
        log(federation, 2, "down", "all trees", replies)
        log(federation, 3, "up", "scores of all trees", replies)
        return replies

    @property
    def leaf_epsilon(self) -> float:
        """Privacy of the counts in the leaves of the parties' trees; 0 where they are exact."""
        return 0.0

    @property
    def leaf_secret(self) -> bool:
        """Whether the noise on them comes from the operating system."""
        return False

    @property
    def counts_leaves(self) -> bool:
        """Whether parties also report how many of their rows reach each leaf of each tree."""
        return False

    def depth_for(self, depth: Depth, columns: int) -> int | None:
        """Most conditions of the global tree: as many as the local ones may have, none, or a number."""
        if depth == "none":
            return None
        return (self.learner.depth or max(columns // 2, 1)) if depth == "local" else depth


@register("algorithm", "icdta4fl", paper="Argente-Garrido et al., 2025", example=(
    '[algorithm]\nname = "icdta4fl"\nfilter = {name = "percentile", percent = 75}\n\n[learner]\nname = "id3"\n'))
@dataclass(frozen=True, kw_only=True)
class Icdta4fl(TreeFusion):
    """Trees of all parties fused into one readable tree by way of their rules; one round, four exchanges.

    Every two rules of different trees that do not contradict each other become one rule, with both trees' votes; the
    global tree is grown from these rules. Whole trees leave the parties, with their thresholds and with the counts of
    rows in their leaves, and every party sees all of them.

    Parameters:
        filter: which trees are good enough, a name or a table of name and parameters
        min_trees: fewest trees to fuse; the best ones are added where the filter leaves fewer
        judged_on: rows on which parties judge the trees; test only to reproduce results that did so
        prune: parties cut off the branches of their trees that make no fewer errors on their validation rows
        interval_merge: bounds of a merged rule: intersection (both hold) or least_restrictive (the source's words)
        weighting: votes of a merged rule: sum (every tree alike), halving (their mean) or samples (by rows)
        budget: most rules that are kept; rules of least support are left out first, and what that costs is recorded
        leaves: most leaves of the global tree (0: as many as the budget); splits that tell least are left out first
        node_entropy: of the classes that rules decide for (argmax) or of the mean of their class shares (mean_proba)
        rule_weight: by the rows that a rule is estimated to cover (support), or every rule alike (count, as the source
            words it; with a limited depth a leaf then mixes rules of very unequal support)
        shrink: a split leaves fewer rules in every child, or at least in any
        depth: most conditions of the global tree: local (as the parties' trees), none (no limit), or a number
    """

    interval_merge: IntervalMerge = "intersection"
    weighting: Weighting = "sum"
    budget: Annotated[int, Ge(1)] = 3000
    leaves: Annotated[int, Ge(0)] = 0
    node_entropy: NodeEntropy = "argmax"
    rule_weight: RuleWeight = "support"
    shrink: Shrink = "every"
    depth: Depth = "local"

    def fuse(self, trees: Sequence[Tree], kept: NDArray[np.intp], judgements: Replies[JudgeReply],
             federation: Federation) -> tuple[Payload, Notes]:
        """Rules of all trees, their product within the budget, and the tree that is grown from it."""
        columns = len(federation.schema.features)
        rules, losses = fuse(rules_of(trees, columns), Fusing(self.interval_merge, self.weighting, self.budget))
        tree, unsplit = grow(rules, Growing(self.node_entropy, self.rule_weight, self.shrink,
                                            self.depth_for(self.depth, columns), self.leaves or self.budget))
        return fused(tree, rules), {"rules": len(rules), "leaves": len(tree.leaves),
                                    "losses": {**asdict(losses), "unsplit_leaves": unsplit}}


@dataclass(frozen=True, kw_only=True)
class LeafFusion(TreeFusion):
    """The vote of the better half of the trees in one tree of few leaves, by the rows that reach each tree's leaves."""

    filter: str | dict[str, object] = "median"
    leaves: Annotated[int, Ge(2)] = 64
    depth: Depth = "none"

    def fuse(self, trees: Sequence[Tree], kept: NDArray[np.intp], judgements: Replies[JudgeReply],
             federation: Federation) -> tuple[Payload, Notes]:
        """The vote of the trees in a tree of few leaves, whose rules are the rules."""
        columns = len(federation.schema.features)
        lists = rules_of(trees, columns)
        if self.counts_leaves:
            sizes = federation.sizes[judgements.parties]
            lists = [_supported(rules, judgements, sizes, index)
                     for rules, index in zip(lists, kept.tolist(), strict=True)]
        tree = distil(lists, leaves=self.leaves, depth=self.depth_for(self.depth, columns))
        rules = extract(tree, columns)
        return fused(tree, rules), {"rules": len(rules), "leaves": len(tree.leaves)}

    def judged(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score per tree: trees that are a little weaker by one metric are worth keeping for the other."""
        mean: NDArray[np.float64] = scores.mean(axis=1, keepdims=True)
        return mean

    @property
    def counts_leaves(self) -> bool:
        """Parties count their rows in the leaves of every tree."""
        return True


@register("algorithm", "icdta4fl-plus", example=(
    '[algorithm]\nname = "icdta4fl-plus"\nleaves = 32\n\n[learner]\nname = "cart"\n'))
@dataclass(frozen=True, kw_only=True)
class Icdta4flPlus(LeafFusion):
    """Trees of all parties fused into one small tree by the rows behind their leaves; one round, four exchanges.

    The better half of the trees is kept, by the mean of accuracy and macro-F1. With `epsilon` the counts in the leaves
    of published trees are differentially private (a row more or less); the trees' splits and the parties' scores are
    not covered by that, and the parties then report no further counts.

    Parameters:
        filter: which trees are good enough by the mean of the metrics, a name or a table of name and parameters
        min_trees: fewest trees to fuse; the best ones are added where the filter leaves fewer
        judged_on: rows on which parties judge the trees; test only to reproduce results that did so
        prune: parties cut off the branches of their trees that make no fewer errors on their validation rows
        leaves: most leaves of the global tree, that is, rules to read
        depth: most conditions of the global tree: local (as the parties' trees), none (no limit), or a number
        epsilon: privacy of the counts in the published trees' leaves (0: exact counts)
        secret: seed that noise from the operating system rather than from the run's seed; runs then differ
    """

    epsilon: Annotated[float, Ge(0)] = 0.0
    secret: bool = False

    @property
    def leaf_epsilon(self) -> float:
        """Parties add the noise before anything leaves them."""
        return self.epsilon

    @property
    def leaf_secret(self) -> bool:
        """As the config says."""
        return self.secret

    @property
    def counts_leaves(self) -> bool:
        """Exact counts only: every tree that rows are counted in would need its share of epsilon."""
        return not self.epsilon


def rules_of(trees: Sequence[Tree], columns: int) -> list[Rules]:
    """Each tree's rules; their support is their share of the tree's rows, of as many rows as all trees have together.

    All parties' rows are taken to be like those of the party that grew the tree.
    """
    if any(tree.kind == "mixed" for tree in trees):
        trees = [mixed_form(tree) for tree in trees]
    together = sum(float(tree.support[0]) for tree in trees)
    return [extract(tree, columns, support=tree.support[tree.leaves] * (together / tree.support[0])) for tree in trees]


def _supported(rules: Rules, judgements: Replies[JudgeReply], sizes: NDArray[np.int64], index: int) -> Rules:
    """A tree's rules with the rows of all parties that answered as their support; no party counts more than it has."""
    counts = np.stack([reply["leaves"][index].sum(axis=1) for reply in judgements.payloads])
    counts *= np.minimum(sizes / np.maximum(counts.sum(axis=1), 1.0), 1.0)[:, None]
    support = counts.sum(axis=0)
    return replace(rules, support=support) if support.any() else rules


def fused(tree: Tree, rules: Rules) -> Payload:
    """What is delivered: the tree and the rules."""
    return {"tree": tree.to_payload(), "rules": rules.to_payload()}


def log(federation: Federation, number: int, direction: Literal["up", "down"], what: str,
        replies: Replies[TreeReply] | Replies[JudgeReply] | Replies[Done] | Replies[SumsReply]) -> None:
    """Record one of the exchanges of the method."""
    sizes = [reply.bytes_up if direction == "up" else reply.bytes_down for reply in replies]
    federation.record("method exchange", {"round": federation.round, "number": number, "direction": direction,
                                          "what": what, "parties": len(replies), "bytes": sum(sizes)})


def mean_scores(scores: Sequence[NDArray[np.float64]], trees: int, part: str,
                metrics: int = len(METRICS)) -> NDArray[np.float64]:
    """(trees, metrics): the mean over the parties that have rows to judge on; the only tree needs no judge."""
    if not scores and trees > 1:
        raise DataError(f"no party has {part} rows to judge the others' trees on",
                        remedy="set data.split.validation = 0.2")
    return np.mean(scores, axis=0) if scores else np.ones((trees, metrics))


@record
class LocalTreeSettings(AgreedSettings):
    """How a party fits and prunes its tree, and how private the counts in the leaves of the published one are."""

    learner: ID3 | Cart
    epsilon: float
    prune: bool
    secret: bool = False


class TreeReply(TypedDict):
    """A party's tree."""

    tree: Payload


@task("icdta4fl: fit tree", settings=LocalTreeSettings, reply=TreeReply, reveals=Reveals.STRUCTURE)
def fit_tree(party: Party, payload: Payload, settings: LocalTreeSettings) -> TreeReply:
    """The party's tree. It keeps a copy, with the exact counts even where noisy ones are published."""
    tree = settings.learner.fit(agreed_rows(party, settings), party.rng("fit"))
    held = party.data.validation
    if settings.prune and len(held):
        tree = without_errors(tree, rows_of(held), held.target)
    party.keep(LocalTree, {"tree": tree.to_payload()})
    party.keep(OwnModel, {"model": tree.to_payload()})
    if settings.epsilon:
        coins = Coins.from_system() if settings.secret else party.coins("leaf noise")
        tree = with_noisy_counts(tree, settings.epsilon, coins)
    return {"tree": tree.to_payload()}


@record
class JudgeSettings:
    """On which rows trees are judged, and whether the rows in their leaves are counted too."""

    learner: ID3 | Cart
    part: Part
    leaves: bool


class TreesPayload(TypedDict):
    """All parties' trees."""

    trees: Sequence[Payload]


class JudgeReply(TypedDict):
    """How many rows judged the trees, (trees, metrics) scores, and (leaves, classes) counts of rows by tree."""

    rows: Rows
    scores: NDArray[np.float64]
    leaves: NotRequired[Sequence[NDArray[np.float64]]]


def _cross_evaluate_together(parties: Sequence[Party], payloads: Sequence[TreesPayload],
                             settings: JudgeSettings) -> list[JudgeReply]:
    """The same for many parties: all receive the same trees, which are opened once."""
    trees = _opened(payloads[0]["trees"], parties[0].data.train.schema)
    return [_judged(party, trees, settings) for party in parties]


@task("icdta4fl: cross-evaluate", settings=JudgeSettings, reply=JudgeReply, reveals=Reveals.METRICS,
      many=_cross_evaluate_together)
def cross_evaluate(party: Party, payload: TreesPayload, settings: JudgeSettings) -> JudgeReply:
    """How good each of the trees is on the party's rows."""
    return _judged(party, _opened(payload["trees"], party.data.train.schema), settings)


@record
class ReceiveSettings:
    """By which learner a party compares trees."""

    learner: ID3 | Cart


class FusedPayload(TypedDict):
    """The global tree and its rules."""

    model: Payload


@task("icdta4fl: receive tree and rules", settings=ReceiveSettings, reply=Done, reveals=Reveals.NOTHING)
def receive(party: Party, payload: FusedPayload, settings: ReceiveSettings) -> Done:
    """Adopt the global tree iff it is more accurate on the party's validation rows than its own."""
    received, own = (tally_here(party, model, settings.learner, "validation")
                     for model in (payload["model"], party.recall(LocalTree)["tree"]))
    target = party.data.validation.schema.target
    metric = "r2" if target.kind == "number" else "accuracy"
    if received and summarise(target, received)[metric] > summarise(target, own)[metric]:
        party.keep(OwnModel, {"model": payload["model"]["tree"]})
    return {}


def metrics_for(schema: Schema) -> tuple[str, ...]:
    """What trees for such a target are judged by."""
    return ("r2",) if schema.target.kind == "number" else METRICS


def _opened(trees: Sequence[Payload], schema: Schema) -> list[Tree]:
    return [Tree.from_payload(tree, features=len(schema.features), classes=schema.target.size, whose="the coordinator")
            for tree in trees]


def _judged(party: Party, trees: Sequence[Tree], settings: JudgeSettings) -> JudgeReply:
    rows = party.data.part(settings.part)
    tallies = [settings.learner.evaluate(tree, rows) for tree in trees] if len(rows) else []
    values = [summarise(rows.schema.target, tally) for tally in tallies]
    metrics = metrics_for(rows.schema)
    scores = np.array([[max(of_tree[name], 0.0) for name in metrics] for of_tree in values]).reshape(-1, len(metrics))
    reply: JudgeReply = {"rows": len(rows), "scores": scores}
    if settings.leaves:
        reply["leaves"] = [leaf_counts(tree, party.data.train) for tree in trees]
    return reply


def leaf_counts(tree: Tree, rows: Dataset) -> NDArray[np.float64]:
    """(leaves, classes): how many rows of each class reach each leaf."""
    counts = np.zeros((len(tree), tree.classes))
    classes = rows.target.astype(np.int64) if tree.value is None else np.zeros(len(rows), dtype=np.int64)
    np.add.at(counts, (tree.find(rows_of(rows)), classes), 1.0)
    return counts[tree.leaves]


def _tree(schema: Schema, kinds: tuple[str, str], deepest: int | None, reply: TreeReply,
          whose: str = "a party") -> Tree:
    """The tree in a reply, if it is sound and of the kind and depth that was asked for."""
    tree = Tree.from_payload(reply["tree"], features=len(schema.features), classes=schema.target.size, whose=whose)
    if tree.kind not in kinds:
        raise PayloadError(f"{whose} sent a {tree.kind} tree, and {kinds[0]} ones are fused")
    if deepest is not None and tree.depths.max() > deepest:
        raise PayloadError(f"{whose} sent a tree of depth {tree.depths.max()}, and at most {deepest} was asked for")
    if (tree.value is not None) != (schema.target.kind == "number"):
        raise PayloadError(f"{whose} sent a tree that does not predict what was asked for")
    if tree.support[0] <= 0:
        raise PayloadError(f"{whose} sent a tree without any rows behind it")
    return tree


def _check_judgement(trees: Sequence[Tree], with_leaves: bool, metrics: int, reply: JudgeReply, whose: str) -> None:
    scores, leaves = reply["scores"], reply.get("leaves", [])
    if scores.shape != (len(trees) if reply["rows"] else 0, metrics) or not ((scores >= 0) & (scores <= 1)).all():
        raise PayloadError(f"{whose} did not send a score between 0 and 1 for each tree and metric")
    shapes = [(len(tree.leaves), tree.classes) for tree in trees] if with_leaves else []
    if [np.shape(counts) for counts in leaves] != shapes or any(
            (np.asarray(counts) < 0).any() or (np.asarray(counts) > _MOST_ROWS).any() for counts in leaves):
        raise PayloadError(f"{whose} did not send a count of rows for each leaf of each tree")
