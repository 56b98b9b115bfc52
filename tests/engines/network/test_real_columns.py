"""A bank, an insurer and a key holder, each with a file of its own: vertical learning as if one simulated it."""

from __future__ import annotations

import csv
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import tequio
from tequio.data.dataset import Schema, Target, schema_to_json
from tequio.data.partition import Split
from tequio.engines.network.telemetry import Telemetry
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import serving
from tequio.experiments.deploying.holdings import open_holding, population_of_columns
from tequio.experiments.deploying.remote import run_with_parties
from tequio.experiments.running.scenario import make_scenario

from .fleet import Parties, enrol, make_coordinator

TABLE = Path(__file__).parents[3] / "examples" / "bank-and-insurer.csv"
COMMON = """
name = "loans"
rounds = 2
evaluation = {every = 2}
[algorithm]
name = "vertical-logistic"
encryption = "plain"
[local]
batch = 128
learning_rate = 0.3
"""
SIMULATED = COMMON + f"""
[data]
name = "csv"
path = "{TABLE}"
id = "customer"
target = "repays"
[data.partition]
name = "columns"
called = ["bank", "insurer"]
names = [["income", "debt", "account_years", "missed_payments"],
         ["age", "claims", "car_value", "premium", "late_premiums"]]
overlap = 0.8
key_holder = true
"""
REAL = COMMON + """
[data]
name = "parties"
parties = ["bank", "insurer", "key holder"]
columns = true
"""

SPLIT_NN = "algorithm={name = 'split-nn', cut = [4]}"


def write_table(path, population, party, columns):
    """A party's rows and columns as it would keep them itself."""
    wanted = {str(id) for id in population.whole(party).ids}
    with TABLE.open() as source, path.open("w", newline="") as file:
        out = csv.DictWriter(file, columns, extrasaction="ignore")
        out.writeheader()
        out.writerows(row for row in csv.DictReader(source) if row["customer"] in wanted)


@pytest.mark.network
def test_parties_with_files_of_their_own_learn_what_a_simulation_learns(tmp_path):
    simulated, real = tmp_path / "simulated.toml", tmp_path / "real.toml"
    simulated.write_text(SIMULATED)
    real.write_text(REAL)
    population = make_scenario(load_config(simulated)).population
    home = make_coordinator(tmp_path / "coordinator")
    homes = []
    for party, name in enumerate(("bank", "insurer", "key holder")):
        columns = [population.schema.features[column].name for column in population.partition.columns[party]]
        path = tmp_path / f"{name}.csv"
        facts = {"path": "none"}
        if columns:
            write_table(path, population, party, ["customer", *columns, *(["repays"] if name == "bank" else [])])
            facts = {"path": str(path), "id": "customer", "target": "repays" if name == "bank" else None}
        place = enrol(home, tmp_path / name, name, facts).folder
        (place / "policy.toml").write_text("private_randomness = false\n")
        homes.append(place)
    with serving(home.folder, Telemetry()) as service, closing(Parties(homes)):
        for settings in ([], [SPLIT_NN]):
            here = tequio.run(load_config(simulated, [*settings, "engine.workers=1",
                                                      f"output.folder={tmp_path / 'own'}"]))
            there = run_with_parties(load_config(real, [*settings, f"output.folder={tmp_path / 'runs'}",
                                                        "engine.name=network", f"engine.home={home.folder}"]), service)
            assert_same(here, there)


def assert_same(here, there):
    wanted = {name: value for name, value in here.summary["metrics"].items() if name.startswith("parties.")}
    assert wanted
    assert {name: there.summary["metrics"][name] for name in wanted} == wanted
    aligned = [[event["rows"] for event in run.events if event["event"] == "aligned"] for run in (here, there)]
    assert aligned[0] == aligned[1]


def hello(schema, rows=5):
    return SimpleNamespace(schema=schema_to_json(schema), rows=rows)


def numbers(*names, target=None):
    return Schema.of_numbers(list(names), target or Target("none"))


YES_NO = Target("classes", ("no", "yes"), "repays")


def together(**schemas):
    roster = {name: hello(schema) for name, schema in schemas.items()}
    return population_of_columns(roster, Split(), 0)


def test_columns_are_put_side_by_side():
    population = together(a=numbers("x", target=YES_NO), keys=numbers(), b=numbers("y", "z"))
    assert population.schema.names == ("x", "y", "z")
    assert population.schema.target == YES_NO
    assert [columns.tolist() for columns in population.partition.columns] == [[0], [], [1, 2]]
    assert population.partition.holds_target == (True, False, False)
    assert population.partition.key_holder == 1


@pytest.mark.parametrize(("schemas", "told"), [
    ({"a": numbers("x"), "b": numbers("y")}, "no party holds a target"),
    ({"a": numbers("x", target=YES_NO), "b": numbers("y", target=YES_NO)}, "parties 'a', 'b' all hold a target"),
    ({"a": numbers("x", target=YES_NO), "b": numbers("x")}, "'a' and 'b' both hold a column 'x'"),
    ({"a": numbers("x", target=YES_NO), "b": numbers(), "c": numbers()}, "one key holder is enough"),
])
def test_columns_that_make_no_federation_are_refused(schemas, told):
    with pytest.raises(DataError, match=told):
        together(**schemas)


def test_a_party_takes_part_with_the_columns_that_it_has_and_no_others(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,x,y\nA,1.5,2\nB,2.5,3\n")
    holding = open_holding("b", {"path": str(path), "id": "id", "target": None})
    whole = schema_to_json(Schema((*numbers("w").features, *numbers("x", "y").features), YES_NO))
    facts = {"schema": whole, "columns": ["x", "y"], "index": 1, "split": {}, "seed": 0, "overrides": {}}
    population = holding.population(facts)
    assert population.whole(1).ids.tolist() == ["A", "B"]
    for wrong in (["x"], ["y", "x"], ["w", "x"]):
        with pytest.raises(ConfigError, match="other columns"):
            holding.population({**facts, "columns": wrong})


def test_steps_over_columns_of_several_parties_are_refused(tmp_path):
    from tequio.experiments.deploying.holdings import refuse_common_preparation

    file = tmp_path / "real.toml"
    file.write_text(REAL.replace("columns = true", 'columns = true\nprepare = ["standardise"]'))
    with pytest.raises(ConfigError, match="no step can be fitted"):
        refuse_common_preparation(load_config(file, ["engine.name=network", "engine.home=x"]))
