"""Every registered algorithm and stage under a policy: one that allows all changes nothing, and a careful one refuses
what is written down here, at the task and for the reason that is written down here.

What a party builds from what others send, and which tasks a run may ask for, hold for components to come as well.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

import tequio
from tequio import registry
from tequio.engines.inline import InlineEngine
from tequio.errors import PartyError, PermissionDenied
from tequio.federation.task import Reveals, Sums, find_task
from tequio.gate.components import FUNCTIONS, HARMLESS, KINDS, WITH_FUNCTIONS, check_components
from tequio.gate.policy import Policy
from tequio.gate.simulated import GatedEngine
from tequio.gate.tasks import PREPARING, tasks_of
from tequio.privacy.updates import PROTOCOL_TASKS
from tequio.registry import COMPONENT_KEY, parameter_model, parameters_of

from .runs import config_of
from .subjects import every

MODULES = ["contracts.normalised:build"]
POLICIES: dict[str, dict[str, Any]] = {
    "open": {"functions": MODULES},
    "careful": {"functions": MODULES, "minimum_rows": 5, "minimum_batch": 2, "minimum_count": 5},
    "budget": {"functions": MODULES, "budget": {"epsilon": 4.0, "delta": 1e-5}}}

FEW = "may stand for fewer than 5 rows"
EACH_ROW = "has a value for each single row"
REFUSED_BY_THE_CAREFUL = {
    "federated-id3": ("federated-id3: count", FEW), "flprotector-plus": ("flprotector.describe rows", FEW),
    "histogram-gbdt": ("boosting: total targets", FEW), "simfl": ("boosting: total targets", FEW),
    "fedgbdt": ("boosting: total targets", FEW), "icdta4fl-own": ("icdta4fl: fit tree", FEW),
    "kmeans": ("statistics: summary", FEW), "statistics": ("statistics: summary", FEW),
    "fedrf": ("fedrf: grow trees", FEW), "icdta4fl": ("icdta4fl: fit tree", FEW),
    "icdta4fl-plus": ("icdta4fl: fit tree", FEW), "xgboost-bagging": ("xgboost: boost", FEW),
    "xgboost-cyclic": ("xgboost: boost", FEW), "secureboost": ("secureboost: derive", EACH_ROW),
    "split-nn": ("split-nn.step", EACH_ROW), "transfer": ("transfer.represent", EACH_ROW),
    "vertical-forest": ("vertical-forest: hide classes", EACH_ROW)}
"""The first task that a party refuses which wants five rows behind everything. All other algorithms run."""

CHOOSING_BY_METRICS = {"icdta4fl", "icdta4fl-plus", "icdta4fl-own"}
"""Algorithms whose model depends on metrics of the parties, which leave rounded under that policy."""

FOLDED = {"penalised-glm", "effect"}
"""Algorithms that deal rows to folds, which a careful party does not where one would be too small."""

METRICS = "the metrics in the reply of task"
ASKED_FIRST_UNDER_A_BUDGET = {
    "glm": "glm: totals", "penalised-glm": "glm: totals", "effect": "glm: totals", "cox": "glm: totals",
    "log-rank": "survival: totals",
    "kaplan-meier": "survival: totals",
    "agnostic": "fair.train", "q-fedavg": "fair.train", "gossip": "gossip: train", "voting": "voting: train",
    "fedbn": "own part.train", "fedper": "own part.train", "fedrep": "fedrep.train",
    "federated-id3": "federated-id3: count", "fedrf": "fedrf: grow trees",
    "histogram-gbdt": "boosting: total targets", "simfl": "boosting: total targets",
    "fedgbdt": "boosting: total targets", "icdta4fl-own": "icdta4fl: fit tree",
    "icdta4fl": "icdta4fl: fit tree", "icdta4fl-plus": "icdta4fl: fit tree",
    "kmeans": "statistics: summary", "statistics": "statistics: summary", "ask": "ask: table",
    "test": "test: products", "meta": "meta: own fit",
    "mlfedavg": "multilabel.train", "mlfedavg-plus": "multilabel.train",
    "secureboost": "secureboost: derive", "split-nn": "split-nn.step", "transfer": "transfer.sum up",
    "vertical-forest": "vertical-forest: hide classes",
    "xgboost-bagging": "xgboost: boost", "xgboost-cyclic": "xgboost: boost",
    "alone": "train own model", "mlfedavg-alone": "multilabel.train own network",
    "vertical-linear": "regression.loss", "vertical-logistic": "regression.loss",
    "vertical-poisson": "regression.exact loss"}
"""The first task that a party with a budget refuses, as no noise was added. Others have 'train', or '<name>.train'."""


@dataclass
class Played:
    """How a small run ended: the hash of its model, which tasks it asked for, what its gates refused, and why."""

    model: str = ""
    tasks: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    covered: dict[str, str] = field(default_factory=dict)
    error: str = ""


@pytest.fixture(autouse=True, scope="module")
def _quick_files():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def play(config, policy=None) -> Played:
    """Run it, with a look at what reaches the parties and at what their gates say."""
    found, gates = Played(), []
    submit, opened = InlineEngine.submit, GatedEngine.open

    def submitted(engine, order):
        found.tasks.add(order.task)
        submit(engine, order)

    def open_gates(engine, population):
        gates.append(engine)
        opened(engine, population)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(InlineEngine, "submit", submitted)
        patch.setattr(GatedEngine, "open", open_gates)
        more = {} if policy is None else {"policy": policy}
        try:
            found.model = tequio.run(**config, **more, output={"folder": folder}).summary["model_sha256"]
        except (PartyError, PermissionDenied) as cause:
            found.error = f"{cause.message}; {cause.remedy}"
    assert len(gates) == (policy is not None)
    for seen in gates[0].seen.values() if gates else ():
        found.covered[seen.task] = seen.covered
        if seen.refused:
            found.refused[seen.task] = seen.cause
    return found


@cache
def small_run(name, policy=""):
    config = config_of(name)
    if "local" in config:  # a careful party has no last batch of one row, and would train otherwise than without
        config["local"] |= {"batch": 0}
    return play(config, POLICIES[policy] if policy else None)


@every("algorithm")
def test_a_policy_that_allows_all_changes_nothing(name):
    plain, gated = small_run(name), small_run(name, "open")
    assert not plain.error
    assert gated == Played(plain.model, plain.tasks, {}, gated.covered)
    assert plain.tasks == set(gated.covered)


@every("algorithm")
def test_what_a_careful_policy_refuses_is_what_is_written_down(name):
    found = small_run(name, "careful")
    if name not in REFUSED_BY_THE_CAREFUL:
        assert (found.refused, found.error) == ({}, "")
        assert found.model == small_run(name).model or name in CHOOSING_BY_METRICS | FOLDED
        return
    task, reason = REFUSED_BY_THE_CAREFUL[name]
    assert set(found.refused) == {task}
    assert found.refused[task].endswith(reason)
    assert reason in found.error  # the coordinator reads the same


@pytest.mark.parametrize("name", ["fedrf", "icdta4fl", "icdta4fl-plus"])
def test_trees_with_leaves_of_enough_rows_pass_a_careful_policy(name):
    config = config_of(name)
    config["learner"]["min_leaf"] = 5
    found = play(config, POLICIES["careful"])
    assert (found.refused, found.error) == ({}, "")
    assert found.tasks == small_run(name).tasks


@every("algorithm")
def test_a_budget_lets_nothing_out_without_noise(name):
    found = small_run(name, "budget")
    if name == "timing":  # parties do nothing
        assert found.model == small_run(name).model
        assert not found.refused
        return
    task, = found.refused
    assert task == ASKED_FIRST_UNDER_A_BUDGET.get(name, "train" if "train" in small_run(name).tasks else
                                                  f"{name}.train")
    metrics = find_task(task).reveals is Reveals.METRICS
    assert (f"{METRICS} '{task}' cannot leave" if metrics else f"no noise of the party's own is on what the task "
            f"'{task}' reveals") in found.refused[task]
    let_in = {find_task(name).reveals for name, covered in found.covered.items() if covered}
    assert let_in <= {Reveals.NOTHING, Reveals.COUNTS}


def test_what_is_written_down_is_of_algorithms_that_there_are():
    assert REFUSED_BY_THE_CAREFUL.keys() | ASKED_FIRST_UNDER_A_BUDGET.keys() <= set(registry.names("algorithm"))


NOISED = {"central-dp", "distributed-dp", "dp-ftrl", "dp-mf", "local-dp"}


def run_with_stage(name):
    """Two rounds under a stage as the users of it have it; two stages have no table of their own in a config."""
    config = config_of("kmeans" if name == "dp-sums" else "fedavg")
    config |= {"evaluation": {"every": 2, "at": ["coordinator"]}}
    if name == "attack":
        return config | {"attack": {"name": "sign-flip", "scale": 3.0, "fraction": 0.5}}
    if name == "silent-training":
        return config | {"local": {"name": "dp-sgd", "steps": 2, "batch": 8, "noise": 1.0, "row_clip": 1.0,
                                   "learning_rate": 0.05}}
    if name in NOISED:
        config["algorithm"]["weights"] = "uniform"
    if name in ("dp-ftrl", "dp-mf"):
        config["selector"] = {"name": "in-turn", "count": 3}
    if name == "dp-sums":
        config["algorithm"].update(radius=1.0, centroids=[[0, 0, 0, 0], [1, 1, 1, 1]])
    stages = [{"name": name, **({"noise": 1.0} if name in {*NOISED, "dp-sums"} else {})}]
    return config | {"stages": [*stages, {"name": "secure-sum"}] if name == "distributed-dp" else stages}


@every("stage")
def test_stages_work_as_before_under_a_policy_that_allows_all(name):
    plain, gated = play(run_with_stage(name)), play(run_with_stage(name), POLICIES["open"])
    assert plain.model
    assert (gated.model, gated.tasks, gated.refused) == (plain.model, plain.tasks, {})


PAYING = {"dp-sums", "local-dp", "silent-training"}
"""Stages that add noise at the party to all that a task reveals; the noise of others is added elsewhere, or to less."""


@every("stage")
def test_a_budget_lets_out_what_has_noise_of_the_party_on_it_and_nothing_else(name):
    plain, paid = run_with_stage(name), {"budget": {"epsilon": 50.0, "delta": 1e-5}}
    found = play(plain, paid)
    assert bool(found.model) == (name in PAYING), found.error
    if name in PAYING:
        assert f"noise of this party: {name}" in found.covered.values()
        assert found.model == play(plain).model
    else:
        assert set(found.refused) == {"train"}


@every("algorithm")
def test_a_run_may_ask_for_the_tasks_of_its_algorithm_and_for_no_others(name):
    """Those that it does ask for, and besides them only tasks of modules in which no other algorithm is at home."""
    named = tasks_of(frozenset({("algorithm", name)}))
    assert small_run(name).tasks <= named
    own = {base.__module__ for base in registry.find("algorithm", name).component.__mro__}
    foreign = {registry.find("algorithm", other).component.__module__ for other in registry.names("algorithm")} - own
    at_home = {task: find_task(task).run.__module__ for task in named - small_run(name).tasks}
    assert {task: module for task, module in at_home.items() if module in foreign} == {}
    assert not named & ({PREPARING} | PROTOCOL_TASKS)  # come with preparations and stages, where a run has them


@pytest.mark.parametrize(("name", "tasks"), [
    ("fedavg", {"train", "evaluate"}), ("kmeans", {"statistics: summary", "statistics: brackets", "statistics: moments",
                                         "kmeans: move centroids", "evaluate"}),
    ("no-such-algorithm", set())])
def test_the_tasks_of_some_algorithms_are_exactly_these(name, tasks):
    assert tasks_of(frozenset({("algorithm", name)})) == tasks


def test_every_task_says_what_it_reveals():
    for name in {task for algorithm in registry.names("algorithm")
                 for task in tasks_of(frozenset({("algorithm", algorithm)}))}:
        assert isinstance(find_task(name).reveals, Reveals | Sums), name


def sendable():
    """Every parameter of every component that tasks come with, and whether it is known to be harmless."""
    return [(entry.kind, entry.name, parameter.name) for kind in sorted(KINDS) for entry in registry.entries(kind)
            if entry.component.__module__.startswith("tequio.") for parameter in parameters_of(entry.component)]


TELLTALE = "/etc/passwd:a_file"
KNOWN = HARMLESS | FUNCTIONS | WITH_FUNCTIONS


@pytest.mark.parametrize("place", sendable(), ids=" ".join)
def test_no_text_that_could_name_a_file_is_taken_from_others(place):
    """Refused by the gate, or by the type of the parameter (which knows the few texts that it takes), or harmless."""
    kind, name, parameter = place
    if takes_any_text(registry.find(kind, name).component, parameter):
        refused = refuses({COMPONENT_KEY: [kind, name], "parameters": {parameter: TELLTALE}})
        assert refused == (place not in HARMLESS)
    else:
        assert place not in HARMLESS | FUNCTIONS


def test_functions_are_taken_where_the_policy_lists_them():
    for kind, name, parameter in FUNCTIONS:
        spec = {COMPONENT_KEY: [kind, name], "parameters": {parameter: "os:system"}}
        assert refuses(spec)
        assert not refuses(spec, Policy(functions=("os:system",)))
    torch = {COMPONENT_KEY: ["learner", "torch"], "parameters": {"module": "a:b", "arguments": {"path": TELLTALE}}}
    assert refuses(torch, Policy(functions=("os:system",)))
    assert not refuses(torch, Policy(functions=("a:b",)))


def test_what_is_said_to_be_known_is_there():
    places = set(sendable())
    assert places >= KNOWN


@dataclass(frozen=True)
class Recorder:
    """A component to come, which writes updates down.

    Parameters:
        rate: how many of them
        path: where to
        notes: what else to write down
    """

    rate: float = 1.0
    path: str = ""
    notes: dict[str, list[str]] = field(default_factory=dict)


@pytest.mark.parametrize(("parameters", "refused"), [
    ({"path": "/etc/passwd"}, True), ({"notes": {"x": ["y"]}}, True), ({"rate": 2.0, "path": "", "notes": {}}, False)])
def test_a_component_to_come_is_refused_until_somebody_has_looked_at_it(parameters, refused, monkeypatch):
    monkeypatch.setattr(registry, "find", lambda kind, name: registry.Entry(kind, name, Recorder))
    assert refuses({COMPONENT_KEY: ["stage", "recorder"], "parameters": parameters}) == refused


@pytest.mark.parametrize("kind", sorted(set(registry.KINDS) - KINDS))
def test_kinds_that_no_task_comes_with_are_never_built_for_others(kind):
    for name in registry.names(kind):
        assert refuses({COMPONENT_KEY: [kind, name], "parameters": {}})


def refuses(spec, policy=Policy()):  # noqa: B008 - frozen
    """Whether the gate refuses a component, as deep inside of a setting as may be."""
    try:
        check_components({"settings": [{"deep": spec}]}, policy, "a task")
    except PermissionDenied:
        return True
    return False


def takes_any_text(component, parameter):
    """Whether its type lets any text in, bare or inside of a list or a table."""
    return any(accepts(component, parameter, value)
               for value in (TELLTALE, [TELLTALE], {"x": TELLTALE}, {"x": [TELLTALE]}, {TELLTALE: 1.0},
                             {TELLTALE: [1.0]}, {"x": {TELLTALE: ["y"]}}))


def accepts(component, parameter, value):
    try:
        parameter_model(component).model_validate({parameter: value})
    except ValidationError as cause:
        return all(error["loc"][0] != parameter for error in cause.errors())
    return True
