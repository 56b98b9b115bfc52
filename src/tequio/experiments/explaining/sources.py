"""What a run left behind that can be explained: its trees, the parties' own, and rows to explain.

Vertical trees are shown as one party sees them: its own splits only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.trees.fitting import LocalTree
from tequio.algorithms.vertical.trees.skeleton import Skeleton, Viewer, trees_seen
from tequio.errors import ConfigError, DataError, RunError
from tequio.experiments.api import gather
from tequio.experiments.config.complete import GIVEN_DATA
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import Scenario, make_scenario
from tequio.experiments.running.store import Plain, find_folder, read_checkpoint
from tequio.federation.evaluation import OwnModel
from tequio.federation.population import Party, state_name
from tequio.learners.trees.learner import model_from_payload
from tequio.learners.trees.tree import Tree
from tequio.learners.trees.votes import Ensemble, Panel, boosted_from_xgboost

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tequio.data.catalogue.entry import Rows
    from tequio.data.dataset import Dataset, Schema
    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.scenario import Scenario
    from tequio.federation.payload import Payload


Explainable = Tree | Ensemble

_KINDS = ("binary", "multiway", "mixed", "forest", "boosted", "xgboost")


@dataclass(frozen=True, eq=False)
class Source:
    """A finished run, opened. `model` is None where each party has a model of its own and there is no common one."""

    result: Result
    scenario: Scenario
    model: Explainable | None
    local: dict[int, Explainable]

    @property
    def schema(self) -> Schema:
        """The schema of the prepared rows, in whose words trees speak."""
        return self.scenario.population.schema

    def party(self, name: str | None) -> int | None:
        """The number of the party whose tree stands beside the global one: the named, else the first that has one."""
        if name is not None:
            return self.scenario.population.index(name)
        return min(self.local, default=None)

    def rows(self, party: str | None) -> Dataset | None:
        """The test rows of a party, or those that the coordinator holds; nothing where there are none."""
        population = self.scenario.population
        rows = self.scenario.test if party is None else population.view(population.index(party)).test
        return rows if rows is not None and len(rows) else None


def found_result(run: Result | str | Path) -> Result:
    """The result of a run that is given as such, by its folder or by its name."""
    return run if isinstance(run, Result) else Result(find_folder(run))


def open_run(run: Result | str | Path, data: object = None) -> Source:
    """Read what a finished run left behind; its rows are loaded and dealt again as the run did."""
    result = found_result(run)
    summary = result.summary
    payload = tree_payload(result.model)
    states = _local_payloads(result)
    if payload is None and (result.model or not states):
        raise ConfigError(f"the model of '{summary['algorithm']}' is not made of trees: there is nothing to explain",
                          remedy="explain a run whose learner is a tree (id3, cart), a random forest, or boosted trees")
    scenario = make_scenario(result.config, given_data(result.config, data))
    schema = scenario.population.schema
    local = {party: opened(state, schema, f"party '{scenario.population.name(party)}'")
             for party, state in states.items()}
    return Source(result, scenario, None if payload is None else opened(payload, schema, "the run"), local)


def tree_payload(model: Payload) -> Payload | None:
    """The tree, forest or ensemble in a run's result, which may hold other things beside it."""
    inner = model.get("tree")
    if isinstance(inner, dict):
        return tree_payload(inner)
    members = model.get("members")
    is_panel = isinstance(members, list) and members and all(tree_payload(member["model"]) for member in members)
    return model if is_panel or model.get("kind") in _KINDS else None


def opened(payload: Payload, schema: Schema, whose: str) -> Explainable:
    """The model that a payload of a run's result or of a party's state holds."""
    if "members" in payload:
        members = [opened(member["model"], schema, f"party '{member['party']}'") for member in payload["members"]]
        return Panel(tuple(members), np.asarray(payload["weights"], dtype=np.float64))  # type: ignore[arg-type]
    if payload["kind"] == "xgboost":
        return boosted_from_xgboost(payload["document"], schema)
    model: Any = model_from_payload(payload, features=len(schema.features), classes=schema.target.size, whose=whose)
    return model  # type: ignore[no-any-return]


def _local_payloads(result: Result) -> dict[int, Payload]:
    """Models that the parties keep for themselves: in this run, else in the baseline that trained them alone."""
    for source in (result, *(found for name, found in result.baselines.items() if name == "alone")):
        checkpoint = read_checkpoint(source.folder)
        states = checkpoint.parties if checkpoint else {}
        found = {party: kept for party, state in states.items() if (kept := _own_tree(state)) is not None}
        if found:
            return found
    return {}


def _own_tree(state: Payload) -> Payload | None:
    """What a party made of its own rows: its local tree, or else the model that it keeps for itself."""
    local: LocalTree = state.get(state_name(LocalTree), {})
    own: OwnModel = state.get(state_name(OwnModel), {})
    model = local.get("tree") or own.get("model")
    return None if model is None else tree_payload(model)


def given_data(config: Config, data: object) -> Rows | None:
    """The dataset that was handed over, if it is the one that the run was made with."""
    if data is None and config.data.name == GIVEN_DATA:
        raise ConfigError("this run was made with a dataset that was handed over as an object",
                          remedy="hand it over again: tequio.explain(run, row=..., data=...)")
    if data is None:
        return None
    if config.data.name != GIVEN_DATA:
        raise ConfigError(f"the run reads its data '{config.data.name}' by itself", remedy="leave data out")
    given, dataset = gather(None, {"data": data})
    if dataset is None or given["data"]["sha256"] != config.data.parameters["sha256"]:
        raise DataError("this is not the data that the run was made with", remedy="hand over the same rows again")
    return dataset


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
    trees: tuple[list[Plain], ...]
    hidden: Mapping[str, int]

    @cached_property
    def columns(self) -> dict[str, int]:
        """The viewer's own columns by how many splits look at them."""
        counts = Counter(node["title"] for tree in self.trees for node in tree if node["label"] == "own split")
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))

    def to_plain(self) -> Plain:
        """Everything as JSON knows it."""
        return {"run": self.run, "algorithm": self.algorithm, "party": self.party, "role": self.role,
                "columns": self.columns, "hidden": dict(self.hidden), "trees": [list(tree) for tree in self.trees]}

    def save_tree(self, path: str | Path) -> None:
        """Draw the trees as an `.html` page to explore."""
        from tequio.experiments.showing.trees import save_party_page

        save_party_page(self, path)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        from tequio.experiments.showing.trees import party_text

        return party_text(self)


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


def _viewer(scenario: Scenario, party: int | None, states: Mapping[int, Payload]) -> Viewer:
    """One party with its own state and column names, and nothing of the others."""
    if party is None:
        return Viewer(-1)
    columns = scenario.population.view(party).train.schema.names
    return Viewer.of(Party(party, 0, states.get(party, {}), scenario.population), columns)
