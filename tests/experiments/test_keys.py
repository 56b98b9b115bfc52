"""The keys that editors complete are those of a config, no more and no fewer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from pydantic import BaseModel

from tequio.experiments import api
from tequio.experiments.config import keys
from tequio.experiments.config.tables import Config

SNIPPET = "\n\nfrom typing import Unpack\n\n\ndef run(**keys: Unpack[Keys]) -> None: ...\n\n\n"


def tables_of(config, typed, path=""):
    """Every table of a config with its typed form."""
    yield path or "config", config, typed
    hints = get_type_hints(typed)
    for name, field in config.model_fields.items():
        kind = next((one for one in (field.annotation, *get_args(field.annotation))
                     if isinstance(one, type) and issubclass(one, BaseModel)), None)
        if kind is not None:
            parts = (hints[name], *get_args(hints[name]))
            yield from tables_of(kind, next(part for part in parts if is_typeddict(part)), f"{path}.{name}".strip("."))


TABLES = {name: (config, typed) for name, config, typed in tables_of(Config, keys.Keys)}


def choices(kind):
    """The words among which a type lets one choose, however deep."""
    if get_origin(kind) is Literal:
        return set(get_args(kind))
    return set().union(*(choices(part) for part in get_args(kind))) if get_args(kind) else set()


@pytest.mark.parametrize("name", TABLES)
def test_typed_keys_are_the_keys_of_the_table(name):
    config, typed = TABLES[name]
    hints = get_type_hints(typed)
    assert list(hints) == list(config.model_fields)
    for key, field in config.model_fields.items():
        assert choices(hints[key]) >= choices(field.annotation), key
        if field.annotation in (int, float, str, bool):
            assert hints[key] in (field.annotation, object) or key == "name", key
        elif isinstance(field.annotation, UnionType) and key != "prepare":  # a list of what a table or a name says
            assert set(get_args(hints[key])) == set(get_args(field.annotation))


def test_there_are_typed_forms_of_all_tables():
    assert set(TABLES) == {"config", "data", "data.feature_noise", "data.split", "privacy", "evaluation", "stop",
                           "adoption", "output", "overrides"}


@pytest.mark.parametrize("function", [api.run, api.sweep])
def test_the_functions_take_these_keys(function):
    assert function.__annotations__["keys"] == "Unpack[RunKeys]"


def test_a_type_checker_takes_right_keys_and_refuses_wrong_ones(tmp_path):
    calls = {'run(rounds=3, learner="mlp", local={"epochs": 2}, data="digits")': "",
             'run(data={"name": "iris", "prepare": ["standardise"], "path": "x"}, stop={"target": 0.9})': "",
             'run(stages=["clip", {"name": "noise", "scale": 1}], baselines=["alone"], output={"folder": "r"})': "",
             'run(data=object(), overrides={"a": {"share_rows": True}}, privacy={"accountant": "rdp"})': "",
             "run(ronds=3)": 'Unexpected keyword argument "ronds"',
             'run(rounds="3")': 'incompatible type "str"',
             'run(stop={"pacience": 3})': '"pacience"',
             'run(privacy={"accountant": "moments"})': "moments",
             'run(baselines=["none"])': "none"}
    source = Path(keys.__file__).read_text() + SNIPPET
    first = source.count("\n") + 1
    (tmp_path / "calls.py").write_text(source + "\n".join(calls) + "\n")
    found = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"),
                            "--config-file", "", "calls.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    told = {}
    for line in found.stdout.splitlines():
        if ": error: " in line:
            told.setdefault(int(line.split(":")[1]) - first, line)
    assert set(told) == {place for place, message in enumerate(calls.values()) if message}, found.stdout
    for place, message in enumerate(calls.values()):
        assert message in told.get(place, "")
