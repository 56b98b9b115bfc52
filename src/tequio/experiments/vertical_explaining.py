"""Vertical trees of a finished run as one party sees them: its own splits only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tequio.algorithms.vertical.trees.party_view import Viewer, trees_seen
from tequio.algorithms.vertical.trees.skeleton import Skeleton
from tequio.errors import ConfigError, RunError
from tequio.experiments.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tequio.experiments.results import Result
    from tequio.experiments.scenario import Scenario

VERTICAL_TREES = "vertical trees"
"""What the model of a run says that its trees are spread over parties."""


@dataclass(frozen=True, eq=False)
class PartyTrees:
    """The trees of a run as a party sees them. Shows itself in a terminal and in a notebook.

    party:   who looks; empty for the coordinator, who sees the shape of the trees and whose each split is
    role:    what that party is
    trees:   of each tree, what is known of each node
    hidden:  how many splits are hidden at which other party
    """

    run: str
    algorithm: str
    party: str
    role: str
    classes: tuple[str, ...]
    trees: tuple[list[dict[str, Any]], ...]
    hidden: Mapping[str, int]

    @cached_property
    def columns(self) -> dict[str, int]:
        """The viewer's own columns by how many splits look at them."""
        counts = Counter(node["title"] for tree in self.trees for node in tree if node["label"] == "own split")
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON knows it."""
        return {"run": self.run, "algorithm": self.algorithm, "party": self.party, "role": self.role,
                "columns": self.columns, "hidden": dict(self.hidden), "trees": [list(tree) for tree in self.trees]}

    def save_tree(self, path: str | Path) -> None:
        """Draw the trees as an `.html` page to explore."""
        # Views stand above experiments; these are the doors through which an explanation shows itself.
        import_module("tequio.views.vertical_trees").save_page(self, path)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        return str(import_module("tequio.views.vertical_trees").as_text(self))


def is_vertical(result: Result) -> bool:
    """Whether the model of a finished run is trees whose splits are spread over parties."""
    return bool(result.summary) and result.model.get("kind") == VERTICAL_TREES


def explain_vertical(result: Result, scenario: Scenario, party: str | None, rows: list[int]) -> PartyTrees:
    """The trees of a run as a party sees them, or as the coordinator does where none is named."""
    if rows:
        raise ConfigError("a decision of vertical trees is spread over parties, so no single place can explain a row",
                          remedy="leave out the row; name a party to see its own splits (--party NAME)")
    checkpoint = read_checkpoint(result.folder)
    if checkpoint is None:
        raise RunError(f"the run '{result.folder.name}' keeps no states of its parties", remedy="run it anew")
    population = scenario.population
    names = [population.name(number) for number in range(len(population))]
    holder = next(number for number, holds in enumerate(population.partition.holds_target or (True,)) if holds)
    viewer = _viewer(scenario, None if party is None else population.index(party), checkpoint.parties)
    trees = Skeleton.from_payload(result.model, len(population))
    classes = population.schema.target.names
    seen = trees_seen(trees, viewer, names, names[holder], classes)
    hidden = Counter(names[owner] for owner in trees.owner.tolist() if owner >= 0 and not viewer.sees_split(owner))
    role = "coordinator" if party is None else "label holder" if viewer.party == holder else "feature party"
    return PartyTrees(result.summary["run"], result.summary["algorithm"], party or "", role, tuple(classes),
                      tuple(seen), dict(sorted(hidden.items())))


def _viewer(scenario: Scenario, party: int | None, states: Mapping[int, Mapping[str, Any]]) -> Viewer:
    """One party with its own state and column names, and nothing of the others."""
    if party is None:
        return Viewer(-1)
    columns = scenario.population.view(party).train.schema.names
    return Viewer(party, states.get(party, {}), columns)
