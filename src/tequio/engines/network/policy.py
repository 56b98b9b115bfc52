"""What a party's owner allows: a TOML file that every run and every task is held against.

Where it asks for approval, a person decides about each run; there is one file per run, with what was asked and decided.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import msgspec

from tequio import registry
from tequio.engines.network.files import is_plain_name, private_folder, write_private
from tequio.errors import ConfigError, PermissionDenied, nearest
from tequio.federation.task import Task, find_task
from tequio.privacy.updates import PROTOCOL_TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tequio.engines.network.files import Document
    from tequio.federation.payload import Payload


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ALWAYS_REACHABLE = ("tequio.federation.evaluation", "tequio.algorithms.adoption",
                     "tequio.engines.network.holding")
_OUR_LAYERS = ("tequio.algorithms", "tequio.federation", "tequio.privacy", "tequio.engines.network")


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage that updates have to pass through, with bounds on its parameters."""

    stage: str
    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much privacy loss the party accepts over all runs together."""

    epsilon: float
    delta: float


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the party's owner allows. An empty list allows all that is installed.

    `coordinators` are fingerprints of authorities. `functions` are the 'module:function' names that settings may hold:
    none are allowed unless they are listed, because importing one runs code. `exempt_tasks` need not pass the required
    stages. `tell_rows` is what the coordinator hears of the number of rows. With `private_randomness` the party's
    random numbers follow from a secret of its own, so that nobody else can take noise off again.
    """

    coordinators: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    minimum_rows: int = 0
    minimum_parties: int = 1
    require: tuple[Requirement, ...] = ()
    exempt_tasks: tuple[str, ...] = ("evaluate", "evaluate own model", "look for own model", "adopt if better")
    budget: Budget | None = None
    maximum_reply_megabytes: float = 1024.0
    approval: Literal["none", "run"] = "none"
    tell_rows: Literal["exact", "hundreds", "no"] = "exact"
    share_rows: bool = False
    private_randomness: bool = True

    def judge_run(self, facts: Payload, authority: str, rows: int) -> None:
        """Refuse a run that the policy does not allow."""
        if self.coordinators and not authority:
            raise _refused("it lists 'coordinators', and this one shows no certificate of its own",
                           "leave 'coordinators' out where the link is made by others, as in a Flower federation")
        if self.coordinators and authority not in self.coordinators:
            raise _refused("it is not among the policy's 'coordinators'", f"add '{authority}' there")
        _check_listed(str(facts.get("algorithm")), self.algorithms, "algorithm", "algorithms")
        if rows < self.minimum_rows:
            raise _refused(f"it wants at least {self.minimum_rows} rows behind anything that this party sends, and "
                           "there are fewer", "lower 'minimum_rows' if that is too strict")
        if int(facts.get("parties", 0)) < self.minimum_parties:
            raise _refused(f"the run has {facts.get('parties')} parties, the policy wants at least "
                           f"{self.minimum_parties}", "lower 'minimum_parties' if that is too strict")
        self._check_functions([facts.get("learner"), facts.get("stages")])

    def judge_task(self, task: str, about: Payload, facts: Payload) -> None:
        """Refuse a task that the policy does not allow."""
        if self.tasks:
            _check_listed(task, self.tasks, "task", "tasks")
        elif self.algorithms and task not in PROTOCOL_TASKS | tasks_of(str(facts.get("algorithm"))):
            raise _refused(f"the task '{task}' is no part of the algorithm '{facts.get('algorithm')}'",
                           "list it under 'tasks' if it is wanted")
        self._check_functions([about.get("settings"), about.get("stages")])
        if task not in PROTOCOL_TASKS.union(self.exempt_tasks):
            for requirement in self.require:
                _check_stage(requirement, about.get("stages") or [], task)

    def told_rows(self, rows: int) -> int:
        """The number of rows as the coordinator may hear it."""
        return {"exact": rows, "hundreds": max(rows // 100 * 100, 1), "no": 1}[self.tell_rows]

    def _check_functions(self, value: object) -> None:
        for name in _functions_in(value):
            if name not in self.functions:
                raise _refused(f"a setting names the function '{name}', and importing it would run code",
                               "list it under 'functions' if its code is trusted")


def read_policy(path: Path) -> Policy:
    """The policy file; where there is none, everything that is installed is allowed and nothing else."""
    if not path.exists():
        return Policy()
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Policy)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as cause:
        unknown = re.search(r"unknown field `(\w+)`", str(cause))
        hint = nearest(unknown[1], Policy.__struct_fields__) if unknown else "see the policy reference in the docs"
        raise ConfigError(f"the policy '{path}' cannot be used: {cause}", remedy=hint) from None


@lru_cache(maxsize=64)
def tasks_of(algorithm: str) -> frozenset[str]:
    """The tasks that an installed algorithm's code can name: those of its module and of what that imports."""
    start = registry.find("algorithm", algorithm).component.__module__
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [start, *_ALWAYS_REACHABLE]
    while waiting:
        module = sys.modules.get(name := waiting.pop())
        if module is None or name in seen:
            continue
        seen.add(name)
        for value in vars(module).values():
            if isinstance(value, Task):
                found.add(value.name)
            home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(home, str) and home.startswith(_OUR_LAYERS):
                waiting.append(home)
    return frozenset(found)


def check_installed(task: str) -> None:
    """Refuse a task that this party does not have."""
    find_task(task)


def _check_listed(name: str, allowed: tuple[str, ...], what: str, key: str) -> None:
    if allowed and name not in allowed:
        raise _refused(f"the {what} '{name}' is not among the policy's '{key}'", f"list it there if it is wanted "
                                                                                 f"({nearest(name, allowed)})")


def _check_stage(requirement: Requirement, stages: list[object], task: str) -> None:
    for stage in stages:
        if isinstance(stage, Mapping) and stage.get("$component") == ["stage", requirement.stage]:
            parameters = stage.get("parameters", {})
            for bounds, fits, word in ((requirement.at_least, float.__ge__, "at least"),
                                       (requirement.at_most, float.__le__, "at most")):
                for key, bound in bounds.items():
                    if not fits(float(parameters.get(key, "nan")), float(bound)):
                        raise _refused(f"the stage '{requirement.stage}' comes with {key} = {parameters.get(key)}, the "
                                       f"policy wants {word} {bound}", "change the config's [[stages]]")
            return
    raise _refused(f"the policy wants the reply of task '{task}' to pass the stage '{requirement.stage}', and the run "
                   "has none", "add it to the config's [[stages]], or to 'exempt_tasks' of the policy")


def _functions_in(value: object) -> Iterator[str]:
    if isinstance(value, str) and _FUNCTION.fullmatch(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _functions_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _functions_in(item)


def _refused(cause: str, remedy: str) -> PermissionDenied:
    return PermissionDenied(f"the party's policy refuses: {cause}", remedy=f"the party's owner decides: {remedy}")


_TOLD = ("algorithm", "learner", "stages", "rounds", "parties", "name")


@dataclass(frozen=True)
class Approvals:
    """The decisions of the party's people."""

    folder: Path

    def verdict(self, run: str, facts: Payload) -> str:
        """Why the run still has to wait; empty if it was approved. One that was denied is refused."""
        path = self._path(run)
        asked = {key: facts.get(key) for key in _TOLD}
        known = json.loads(path.read_bytes()) if path.exists() else {}
        # What was approved is this description: a run that comes back as something else is asked about again.
        if known.get("asked") != json.loads(json.dumps(asked, default=str)):
            write_private(path, json.dumps({"asked": asked, "decision": ""}, indent=1, default=str).encode())
            known = {}
        if known.get("decision") == "denied":
            raise PermissionDenied("a person at the party denied this run", remedy="talk to the party's owner")
        return "" if known.get("decision") == "approved" else "a person at the party has to approve the run"

    def decide(self, run: str, *, approved: bool) -> None:
        """Note what a person decided."""
        path = self._path(run)
        if not path.exists():
            raise ConfigError(f"no run '{run}' waits for approval", remedy="see: tequio party runs")
        known = json.loads(path.read_bytes())
        write_private(path, json.dumps({**known, "decision": "approved" if approved else "denied"}, indent=1).encode())

    def all(self) -> dict[str, Document]:
        """What was asked and decided so far, by run."""
        return {path.stem: json.loads(path.read_bytes())
                for path in sorted(private_folder(self.folder).glob("*.json"))}

    def _path(self, run: str) -> Path:
        if not is_plain_name(run):
            raise ConfigError(f"a run cannot be called {run[:80]!r}", remedy="see: tequio party runs")
        return private_folder(self.folder) / f"{run}.json"
