"""Best tree: parties grow trees and judge them all; the one that is right most often is the model."""

from dataclasses import dataclass
from typing import ClassVar, TypedDict

import tequio as tq


@tq.record
class TreeSettings:
    """How trees are grown, and read."""
    learner: tq.TreeLearner


class Grown(TypedDict):
    """A tree of one party's rows."""
    tree: tq.Payload


class Judged(TypedDict):
    """For each tree, how many rows it got right."""
    right: list[tq.Count]


@tq.task("best-tree: grow", settings=TreeSettings, reply=Grown, reveals=tq.Reveals.STRUCTURE)
def grow(party: tq.Party, payload: tq.Payload, settings: TreeSettings) -> Grown:
    """Fit a tree to the party's training rows."""
    return {"tree": settings.learner.fit(party.data.train, party.rng("grow")).to_payload()}


@tq.task("best-tree: judge", settings=TreeSettings, reply=Judged, reveals=tq.Reveals.METRICS)
def judge(party: tq.Party, payload: tq.Payload, settings: TreeSettings) -> Judged:
    """Let every tree answer the party's validation rows."""
    rows = party.data.validation
    answers = [settings.learner.predict(tree, rows).argmax(axis=1) for tree in payload["trees"]]
    return {"right": [int((answer == rows.target).sum()) for answer in answers]}


@tq.register("algorithm", "best-tree")
@dataclass(frozen=True, kw_only=True)
class BestTree(tq.Algorithm):
    """Each chosen party grows a tree; the one that is right most often at all parties is the model."""

    learner: tq.TreeLearner = tq.part()
    selector: tq.Selector = tq.part(factory=tq.AllParties)
    shows_replies: ClassVar[bool] = False  # a tree tells a selector nothing about its party

    def start(self, federation: tq.Federation) -> tq.State:
        """No tree yet."""
        return tq.State({})

    def round(self, federation: tq.Federation, state: tq.State) -> tq.State:
        """Grow and judge; the tree of the last round defends its place."""
        chosen, settings = tq.select(self, federation, state), TreeSettings(learner=self.learner)
        grown = federation.ask(chosen.parties, grow, settings=settings)
        trees = [reply["tree"] for reply in grown.payloads] + ([state.model] if state.model else [])
        judged = federation.ask(federation.eligible(), judge, {"trees": trees}, settings=settings)
        right = [sum(counts) for counts in zip(*(reply["right"] for reply in judged.payloads), strict=True)]
        best = trees[right.index(max(right))] if right else None
        return tq.finish_round(self, federation, state, chosen, grown, best)
