"""Small runs of every algorithm, and of FedAvg with every selector and aggregator, end with the numbers written
down here, and defaults are what they were, as is what components say of themselves.

Where a change of these is meant: `cd tests && python -m contracts.test_numbers` writes them down anew.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from pathlib import Path

import pytest

import tequio
from tequio import registry
from tequio.federation.algorithm import Algorithm
from tequio.registry import parameters_of, to_plain

from .runs import config_of
from .subjects import make, table

NUMBERS = Path(__file__).with_name("numbers.json")
CONTINUOUS = re.compile(r"(train|validation|test)\.(loss|inertia|rmse)|parties\.(loss|inertia)\.(mean|sd)")
"""A rounding error changes these a little; it may change an accuracy by a whole row."""


def entries():
    """What comes with tequio, without what other tests register."""
    return [entry for entry in registry.entries() if entry.component.__module__.startswith("tequio.")]


def kinds():
    return sorted({entry.kind for entry in entries()})


RUNS = [(kind, name) for kind in ("algorithm", "selector", "aggregator") for name in registry.names(kind)]
DECLARING = ("algorithm", "selector", "aggregator", "stage")
"""Kinds of components by whose words others decide what goes together, and what the accounting of privacy bounds."""

PARAMETERS = {"fixed": {"parties": ["1", "3"]}, "fltrust": {"root_rows": 20}}


def written_down(what):
    return json.loads(NUMBERS.read_text(encoding="utf-8"))[what]


@pytest.mark.parametrize(("kind", "name"), RUNS, ids=[" ".join(pair) for pair in RUNS])
def test_a_run_gives_the_numbers_it_gave(kind, name, tmp_path):
    assert numbers_of(kind, name, tmp_path) == pytest.approx(written_down("runs")[f"{kind} {name}"], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", kinds())
def test_defaults_are_what_they_were(kind):
    assert defaults_of(kind) == written_down("defaults")[kind]


@pytest.mark.parametrize("kind", DECLARING)
def test_components_say_of_themselves_what_they_said(kind):
    assert declared_by(kind) == written_down("declared")[kind]


def numbers_of(kind, name, folder):
    metrics = tequio.run(**config_with(kind, name), output={"folder": str(folder)}).summary["metrics"]
    return {key: value for key, value in metrics.items() if CONTINUOUS.fullmatch(key) and value is not None}


def config_with(kind, name):
    """An algorithm's own run, or five rounds of FedAvg on the virtual clock with a selector or an aggregator."""
    if kind == "algorithm":
        return config_of(name)
    config, own = config_of("fedavg"), dict(PARAMETERS.get(name, {}))
    if "count" in {field.name for field in parameters_of(registry.find(kind, name).component)}:
        own["count"] = 2
    return {**config, "data": {**config["data"], "validation": 0.1}, "rounds": 5, "devices": "mobile",
            "evaluation": {"every": 5}, kind: {"name": name, **own}}


def defaults_of(kind):
    """By component its parameters and their defaults, as JSON has them."""
    found = {entry.name: {field.name: _default(field) for field in parameters_of(entry.component)}
             for entry in entries() if entry.kind == kind}
    return json.loads(json.dumps(found, default=str))


def _default(field):
    if field.default_factory is not dataclasses.MISSING:
        return to_plain(field.default_factory())
    return "needed" if field.default is dataclasses.MISSING else to_plain(field.default)


def declared_by(kind):
    """By component what its class says, what an algorithm discloses, and what a stage needs and gives."""
    found = {}
    for entry in entries():
        if entry.kind != kind:
            continue
        said = {name: getattr(entry.component, name) for base in reversed(entry.component.__mro__)
                for name, annotation in vars(base).get("__annotations__", {}).items() if "ClassVar" in str(annotation)}
        if kind == "algorithm" and entry.component.disclosure is not Algorithm.disclosure:
            said["disclosure"] = make(kind, entry.name).disclosure(table().schema)
        if kind == "stage":
            said["spec"] = make(kind, entry.name).spec
        found[entry.name] = {name: value for name, value in said.items() if not isinstance(value, dict)}
    return json.loads(json.dumps(found, default=_plain))


def _plain(value):
    if isinstance(value, frozenset):
        return sorted(value)
    return value.__name__ if isinstance(value, type) else vars(value)


def record():
    runs = {}
    for kind, name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            found = numbers_of(kind, name, folder)
        runs[f"{kind} {name}"] = {key: float(f"{value:.7g}") for key, value in found.items()}
    defaults = {kind: defaults_of(kind) for kind in kinds()}
    declared = {kind: declared_by(kind) for kind in DECLARING}
    tables = {"runs": lines(runs), **{name: ",\n".join(f'"{kind}": {{\n{lines(own)}\n}}' for kind, own in found.items())
                                      for name, found in {"defaults": defaults, "declared": declared}.items()}}
    NUMBERS.write_text("{" + ",\n".join(f'"{name}": {{\n{text}\n}}' for name, text in tables.items()) + "}\n",
                       encoding="utf-8")


def lines(found):
    """One line per component, so that changes to two of them rarely meet in one."""
    return ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in found.items())


if __name__ == "__main__":
    record()
