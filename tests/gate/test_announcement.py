"""What a party hears of a run is bounded, and a person approves all of it that decides what is done with rows."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from tequio.errors import PermissionDenied
from tequio.gate.announcement import MOST_PARTIES, MOST_ROUNDS, hash_of, read_announcement, roster_of
from tequio.registry import COMPONENT_KEY


def test_it_says_what_was_announced(facts):
    found = read_announcement(facts(work={"local": {"epochs": 2}}, preparation={"steps": ["standardise"]}))
    assert (found.name, found.algorithm, found.rounds, found.index, found.parties) == ("toy", "fedavg", 10, 0, 5)
    assert found.split.test == 0.1
    assert (found.preparation.steps, found.preparation.statistics) == (["standardise"], [])
    assert found.asked["local"] == {"epochs": 2}


TOP_K = {COMPONENT_KEY: ["stage", "top-k"], "parameters": {"fraction": 0.1}}

BAD = [
    ("name", "x" * 201), ("name", None), ("algorithm", ["fedavg"]), ("rounds", -1), ("rounds", MOST_ROUNDS + 1),
    ("rounds", 1.5), ("rounds", float("inf")), ("parties", 0), ("parties", MOST_PARTIES + 1), ("parties", float("inf")),
    ("index", -1), ("index", 1 << 40), ("index", 5), ("seed", -1), ("seed", 1 << 63), ("seed", "one"),
    ("split", {"validation": -0.1, "test": 0.1, "stratify": True}), ("split", {"validation": 0.1}), ("split", 0.2),
    ("split", {"validation": 0.5, "test": 0.5, "stratify": True}),
    ("split", {"validation": float("nan"), "test": 0.1, "stratify": True}),
    ("split", {"validation": 0.1, "test": 0.1, "stratify": "yes"}),
    ("stages", [{}] * 51), ("stages", ["secure-sum"]), ("components", [TOP_K] * 201), ("components", {"a": 1}),
    ("components", [{}]),
    ("overrides", []), ("learner", "mlp"), ("roster", ["x"] * 1_001), ("roster", [1]), ("columns", ["x"] * 100_001),
    ("columns", "abc"), ("schema", "x" * ((1 << 24) + 1)), ("share", "x" * 201), ("tell", 1), ("predicts", {}),
    ("preparation", [1]), ("preparation", {"steps": [1]}), ("preparation", {"steps": "standardise"}),
    ("preparation", {"steps": ["standardise"] * 101}), ("preparation", {"steps": [], "statistics": [1]}),
    ("preparation", {"steps": [], "statistics": [{}]}), ("preparation", {"steps": ["standardise"], "surplus": 1}),
    ("work", {"notes": "x" * (1 << 20)}), ("work", {1: 2}), ("surplus", 1)]


@pytest.mark.parametrize(("key", "value"), BAD, ids=[f"{key} {str(value)[:30]}" for key, value in BAD])
def test_what_is_out_of_bounds_is_refused(facts, key, value):
    with pytest.raises(PermissionDenied, match="announced badly") as error:
        read_announcement(facts(**{key: value}))
    assert error.value.remedy


@pytest.mark.parametrize("key", ["name", "algorithm", "rounds", "index", "parties", "seed", "split"])
def test_nothing_that_is_needed_may_be_missing(facts, key):
    with pytest.raises(PermissionDenied, match=f"missing required field `{key}`"):
        read_announcement({name: value for name, value in facts().items() if name != key})


def test_tables_in_tables_without_end_are_refused(facts):
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(PermissionDenied, match="announced badly"):
        read_announcement(facts(work=deep))


def test_the_largest_that_is_allowed_is_allowed(facts):
    found = read_announcement(facts(
        rounds=MOST_ROUNDS, parties=MOST_PARTIES, index=MOST_PARTIES - 1, seed=(1 << 63) - 1, roster=["x"] * 1_000,
        stages=[{}] * 50, components=[TOP_K] * 200))
    assert found.index == (1 << 20) - 1


def test_the_order_of_keys_does_not_change_the_hash(facts):
    work = {"local": {"epochs": 2, "batch": 8}, "evaluation": {"every": 1, "at": ["parties"]}}
    turned = {"evaluation": {"at": ["parties"], "every": 1}, "local": {"batch": 8, "epochs": 2}}
    given = facts(work=work, overrides={"local": {"epochs": 3, "batch": 4}})
    other = facts(work=turned, overrides={"local": {"batch": 4, "epochs": 3}})
    assert read_announcement(given).hash == read_announcement(dict(reversed(other.items()))).hash


def test_the_hash_is_that_of_its_content_as_json():
    text = b'{"a":[1,{"b":2.5}],"c":null}'
    assert hash_of({"c": None, "a": [1, {"b": 2.5}]}) == sha256(text).hexdigest()
    assert json.loads(text) == {"c": None, "a": [1, {"b": 2.5}]}


CHANGES = {
    "name": "other", "algorithm": "fedprox", "rounds": 11, "parties": 6, "seed": 2,
    "split": {"validation": 0.1, "test": 0.2, "stratify": True}, "overrides": {"local": {"epochs": 9}},
    "learner": {"name": "mlp"}, "stages": [{"name": "secure-sum"}], "work": {"local": {"epochs": 3}},
    "roster": ["north", "south"], "schema": "{}", "share": "0123", "columns": ["a"],
    "preparation": {"steps": ["standardise"]}}


@pytest.mark.parametrize("key", CHANGES)
def test_whatever_decides_what_is_done_with_rows_changes_the_hash(facts, key):
    assert read_announcement(facts(**{key: CHANGES[key]})).hash != read_announcement(facts()).hash


def test_what_is_filled_in_later_does_not_change_it(facts):
    """A party's own number, and what all parties together find for a preparation once the run has begun."""
    before = read_announcement(facts(preparation={"steps": ["standardise"]}))
    filled = {"steps": ["standardise"], "statistics": [{"mean": [0.5]}]}
    assert read_announcement(facts(index=3, preparation=filled)).hash == before.hash


def test_many_names_are_announced_by_their_hash():
    assert roster_of(["north", "south"]) == ["north", "south"]
    names = [str(number) for number in range(1_001)]
    assert roster_of(names[:1_000]) == names[:1_000]
    assert roster_of(names) == sha256("\n".join(names).encode()).hexdigest()
