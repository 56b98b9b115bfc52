"""What algorithms share that fuse the parties' trees into one: the four exchanges and what each side does in them.

1. up: each party's tree; 2. down: all trees; 3. up: how good each is on the party's validation rows; 4. down: the tree
and the rules that the coordinator made of those good enough. Each party then keeps the better of that tree and its own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from tequio.algorithms.trees.fitting import agreed, agreed_rows
from tequio.components import build, name_of
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.evaluation import tally_here
from tequio.federation.task import task
from tequio.learners.metrics import summarise
from tequio.learners.trees.cart import Cart
from tequio.learners.trees.filters import surviving
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.leaf_noise import with_noisy_counts
from tequio.learners.trees.learner import rows_of
from tequio.learners.trees.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Tally
    from tequio.learners.trees.rules import Rules

METRICS = ("accuracy", "f1_macro")
"""What trees are judged by, the local ones and the global one alike."""

_MOST_ROWS = 2.0 ** 53  # larger counts are no whole numbers any more

Part = Literal["validation", "train", "test"]
Depth = Literal["local", "none"] | Annotated[int, Ge(1)]


@dataclass(frozen=True, kw_only=True)
class TreeFusion(Algorithm):
    """What fusing algorithms share: trees go up, all of them down, scores up, and one tree with its rules down."""

    filter: str | dict[str, Any] = "mean"
    min_trees: Annotated[int, Ge(1)] = 1
    judged_on: Part = "validation"

    def start(self, federation: Federation) -> State:
        """No tree yet."""
        learner = self.parts.learner
        if not isinstance(learner, ID3 | Cart):
            given = name_of(type(learner)) if learner is not None else "none"
            raise ConfigError(f"'{name_of(type(self))}' fuses single trees, and the learner is '{given}'",
                              remedy="set learner.name = 'id3' for categories, or 'cart' for numbers")
        self._filter()
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """The four exchanges. Further rounds change nothing."""
        if state.model:
            return state
        chosen = self.select(federation, state, observed=False)
        trees = self._collect(federation, chosen.parties)
        if not trees:
            return state.next(selector=chosen.memory)
        told = self._cross_evaluate(federation, trees)
        scores = mean_scores([payload["scores"] for payload in told.payloads if payload["rows"]], len(trees),
                             self.judged_on)
        kept = surviving(self.judged(scores), self._filter(), self.min_trees)
        parties, started = list(trees), perf_counter()
        model, notes = self.fuse([trees[parties[place]] for place in kept], kept, told, federation)
        federation.record("fusion", {"round": federation.round, "trees": len(trees), "scores": scores.round(6).tolist(),
                                     "kept": [federation.name(parties[place]) for place in kept],
                                     "seconds": round(perf_counter() - started, 4), **notes})
        self._deliver(federation, told.parties, model)
        return state.next(model, selector=chosen.memory)

    def judged(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """What of the (trees, metrics) scores the filter looks at: a tree must be good enough in every column."""
        return scores

    @abstractmethod
    def fuse(self, trees: Sequence[Tree], kept: NDArray[np.intp], told: Replies,
             federation: Federation) -> tuple[Payload, dict[str, Any]]:
        """The tree and the rules of the trees that were kept, and what is worth noting about how they came about."""

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of the tree; the rules are not sent again."""
        return super().evaluate(federation, State(state.model.get("tree", {})), part, parties)

    def _filter(self) -> Any:
        table = {"name": self.filter} if isinstance(self.filter, str) else self.filter
        return build("filter", table.get("name", ""), {key: table[key] for key in table.keys() - {"name"}},
                     where="algorithm.filter")

    def _collect(self, federation: Federation, parties: NDArray[np.int64]) -> dict[int, Tree]:
        """Exchange 1."""
        deepest = self.depth_for("local", len(federation.schema.features))
        opened = partial(_tree, federation.schema, self.kind, deepest)
        replies = federation.ask(parties, fit_tree, settings=self.fitting_settings(federation), check=opened)
        log(federation, 1, "up", "local trees", replies)
        return {reply.party: opened(reply.payload) for reply in replies}

    def fitting_settings(self, federation: Federation) -> dict[str, Any]:
        """What a party needs to know to fit its tree."""
        return {"learner": self.parts.learner, "epsilon": 0.0, **agreed(federation)}

    def _cross_evaluate(self, federation: Federation, trees: Mapping[int, Tree]) -> Replies:
        """Exchanges 2 and 3. Parties that vanish here leave their trees behind."""
        replies = federation.ask(list(trees), cross_evaluate, {"trees": [tree.to_payload() for tree in trees.values()]},
                                 settings={"learner": self.parts.learner, "part": self.judged_on,
                                           "leaves": self.counts_leaves},
                                 check=partial(_check_scores, list(trees.values()), self.counts_leaves))
        log(federation, 2, "down", "all trees", replies)
        log(federation, 3, "up", "scores of all trees", replies)
        return replies

    def _deliver(self, federation: Federation, parties: NDArray[np.int64], model: Payload) -> None:
        """Exchange 4. Nothing comes back but that it arrived: whether a party adopts the tree is its own affair."""
        replies = federation.ask(parties, receive, {"model": model}, settings={"learner": self.parts.learner})
        log(federation, 4, "down", "global tree and rules", replies)

    @property
    def kind(self) -> str:
        """Of the trees that the learner grows."""
        return "multiway" if isinstance(self.parts.learner, ID3) else "binary"

    @property
    def counts_leaves(self) -> bool:
        """Whether parties also tell how many of their rows reach each leaf of each tree."""
        return False

    def depth_for(self, depth: Depth, columns: int) -> int | None:
        """Most conditions of the global tree: as many as the local ones may have, none, or a number."""
        if depth != "local":
            return None if depth == "none" else depth
        learner: Any = self.parts.learner
        return int(learner.depth) or max(columns // 2, 1)


def fused(tree: Tree, rules: Rules) -> Payload:
    """What is delivered: the tree and the rules."""
    return {"tree": tree.to_payload(), "rules": rules.to_payload()}


def log(federation: Federation, number: int, direction: Literal["up", "down"], what: str, replies: Replies) -> None:
    """Record one of the exchanges of the method."""
    sizes = [reply.bytes_up if direction == "up" else reply.bytes_down for reply in replies]
    federation.record("method exchange", {"round": federation.round, "number": number, "direction": direction,
                                          "what": what, "parties": len(replies), "bytes": sum(sizes)})


def mean_scores(told: Sequence[NDArray[np.float64]], trees: int, part: str) -> NDArray[np.float64]:
    """(trees, metrics): the mean over the parties that have rows to judge on; the only tree needs no judge."""
    if not told and trees > 1:
        raise DataError(f"no party has {part} rows to judge the others' trees on",
                        remedy="set data.split.validation = 0.2")
    return np.mean(told, axis=0) if told else np.ones((trees, len(METRICS)))


@task("icdta4fl: fit tree")
def fit_tree(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The party's tree. It keeps a copy, with the exact counts even where noisy ones are published."""
    tree = settings["learner"].fit(agreed_rows(party, settings), party.rng("fit"))
    party.state |= {"local_tree": tree.to_payload(), "own_model": tree.to_payload()}
    epsilon = settings["epsilon"]
    return {"tree": (with_noisy_counts(tree, epsilon, party.rng("leaf noise")) if epsilon else tree).to_payload()}


def _cross_evaluate_together(parties: Sequence[Party], payloads: Sequence[Payload],
                             settings: Mapping[str, Any]) -> list[Payload]:
    """The same for many parties: all receive the same trees, which are opened once."""
    trees = _opened(payloads[0]["trees"], parties[0].data.train.schema)
    return [_judged(party, trees, settings) for party in parties]


@task("icdta4fl: cross-evaluate", many=_cross_evaluate_together)
def cross_evaluate(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """How good each of the trees is on the party's rows, as (trees, metrics)."""
    return _judged(party, _opened(payload["trees"], party.data.train.schema), settings)


@task("icdta4fl: receive tree and rules")
def receive(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Adopt the global tree iff it is more accurate on the party's validation rows than its own."""
    received, own = (tally_here(party, model, {**settings, "part": "validation"})
                     for model in (payload["model"], party.state["local_tree"]))
    target = party.data.validation.schema.target
    if received and summarise(target, received)["accuracy"] > summarise(target, own)["accuracy"]:
        party.state["own_model"] = payload["model"]["tree"]
    return {}


def _opened(trees: Sequence[Payload], schema: Schema) -> list[Tree]:
    return [Tree.from_payload(tree, features=len(schema.features), classes=schema.target.size, whose="the coordinator")
            for tree in trees]


def _judged(party: Party, trees: Sequence[Tree], settings: Mapping[str, Any]) -> Payload:
    rows: Dataset = getattr(party.data, settings["part"])
    tallies = [settings["learner"].evaluate(tree, rows) for tree in trees] if len(rows) else []
    values = [summarise(rows.schema.target, tally) for tally in tallies]
    scores = np.array([[of_tree[name] for name in METRICS] for of_tree in values]).reshape(-1, len(METRICS))
    told: Payload = {"rows": len(rows), "scores": scores}
    return {**told, "leaves": [_leaf_counts(tree, party.data.train) for tree in trees]} if settings["leaves"] else told


def _leaf_counts(tree: Tree, rows: Dataset) -> NDArray[np.float64]:
    """(leaves, classes): how many rows of each class reach each leaf."""
    counts = np.zeros((len(tree), tree.classes))
    np.add.at(counts, (tree.find(rows_of(rows)), rows.target.astype(np.int64)), 1.0)
    return counts[tree.leaves]


def _tree(schema: Schema, kind: str, deepest: int | None, payload: Payload, whose: str = "a party") -> Tree:
    """The tree in a reply, if it is sound and of the kind and depth that was asked for."""
    tree = Tree.from_payload(payload.get("tree", {}), features=len(schema.features), classes=schema.target.size,
                             whose=whose)
    if tree.kind != kind:
        raise PayloadError(f"{whose} sent a {tree.kind} tree, and {kind} ones are fused")
    if deepest is not None and tree.depths.max() > deepest:
        raise PayloadError(f"{whose} sent a tree of depth {tree.depths.max()}, and at most {deepest} was asked for")
    if tree.support[0] <= 0:
        raise PayloadError(f"{whose} sent a tree without any rows behind it")
    return tree


def _check_scores(trees: Sequence[Tree], with_leaves: bool, payload: Payload, whose: str) -> None:
    rows, scores = payload.get("rows"), payload.get("scores")
    shape = (len(trees) if rows else 0, len(METRICS))
    if not isinstance(rows, int) or rows < 0 or not isinstance(scores, np.ndarray) or scores.shape != shape or \
            not ((scores >= 0) & (scores <= 1)).all():
        raise PayloadError(f"{whose} did not send a score between 0 and 1 for each tree and metric")
    if with_leaves:
        _check_leaves(trees, payload.get("leaves"), whose)


def _check_leaves(trees: Sequence[Tree], leaves: Any, whose: str) -> None:
    shapes = [(len(tree.leaves), tree.classes) for tree in trees]
    if not isinstance(leaves, list) or [np.shape(counts) for counts in leaves] != shapes or \
            any((np.asarray(counts) < 0).any() or (np.asarray(counts) > _MOST_ROWS).any() for counts in leaves):
        raise PayloadError(f"{whose} did not send a count of rows for each leaf of each tree")
