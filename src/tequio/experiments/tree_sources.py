"""What a run left behind that can be explained: the global model, the parties' own models, and rows to explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError
from tequio.experiments.api import gather
from tequio.experiments.checkpoint import read_checkpoint
from tequio.experiments.config import GIVEN_DATA
from tequio.experiments.results import Result
from tequio.experiments.scenario import Scenario, make_scenario
from tequio.experiments.store import find_folder
from tequio.learners.trees.boosted import objective_for
from tequio.learners.trees.learner import model_from_payload
from tequio.learners.trees.tree import Tree
from tequio.learners.trees.votes import Ensemble, Panel, boosted_from_xgboost

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.experiments.tables import Config

Explainable = Tree | Ensemble

LOCAL_MODELS = ("local_tree", "own_model")
"""Names under which a party's state holds the model of its own rows; the first that is there counts."""

_KINDS = ("binary", "multiway", "forest", "boosted", "xgboost")


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


def open_run(run: Result | str | Path, data: Any = None) -> Source:
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


def tree_payload(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The tree, forest or ensemble in a run's result, which may hold other things beside it."""
    inner = model.get("tree")
    if isinstance(inner, Mapping):
        return tree_payload(inner)
    members = model.get("members")
    is_panel = isinstance(members, list) and members and all(tree_payload(member["model"]) for member in members)
    return model if is_panel or model.get("kind") in _KINDS else None


def opened(payload: Mapping[str, Any], schema: Schema, whose: str) -> Explainable:
    """The model that a payload of a run's result or of a party's state holds."""
    if "members" in payload:
        members = [opened(member["model"], schema, f"party '{member['party']}'") for member in payload["members"]]
        return Panel(tuple(members), np.asarray(payload["weights"], dtype=np.float64))  # type: ignore[arg-type]
    if payload["kind"] == "xgboost":
        return boosted_from_xgboost(payload["document"], objective_for(schema.target))
    model: Any = model_from_payload(payload, features=len(schema.features), classes=schema.target.size, whose=whose)
    return model  # type: ignore[no-any-return]


def _local_payloads(result: Result) -> dict[int, Mapping[str, Any]]:
    """Models that the parties keep for themselves: in this run, else in the baseline that trained them alone."""
    for source in (result, *(found for name, found in result.baselines.items() if name == "alone")):
        checkpoint = read_checkpoint(source.folder)
        states = checkpoint.parties if checkpoint else {}
        found = {party: kept for party, state in states.items() if (kept := _kept(state)) is not None}
        if found:
            return found
    return {}


def _kept(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kept = next((state[name] for name in LOCAL_MODELS if name in state), None)
    return tree_payload(kept) if isinstance(kept, Mapping) else None


def given_data(config: Config, data: Any) -> Dataset | None:
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
