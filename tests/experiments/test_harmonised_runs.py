"""Three hospitals with names, units and codes of their own: with a mapping each, the model of hand-cleaned tables."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import tequio
from engines.flower.village import Village, living_at
from tequio.data.inputs import harmonised, read
from tequio.data.sharing import save_schema, shareable
from tequio.engines.flower import engine as flower_engine
from tequio.engines.network.homes import PartyHome
from tequio.errors import DataError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.flower_coordinator import lead
from tequio.experiments.deploying.holdings import new_rows, open_holding

NAMES = ("north", "south", "east")
COLUMNS = ("weight", "height", "temperature", "sex", "smokes", "seen", "risk")
LEARNING = """
name = "three"
rounds = 3
[data]
{data}
prepare = ["one-hot", "standardise"]
[learner]
name = "sgd-classifier"
[engine]
{engine}
"""
MAPPINGS = {"south": """
encoding = "latin-1"
decimal = ","
ignore = ["Patient"]
[rename]
Gewicht = "weight"
"Körpergröße" = "height"
Temperatur = "temperature"
Geschlecht = "sex"
Raucher = "smokes"
Aufnahme = "seen"
Risiko = "risk"
[dates]
seen = "%d.%m.%Y"
[codes]
sex = {m = "male", w = "female"}
smokes = {ja = "yes", nein = "no"}
risk = {niedrig = "low", hoch = "high"}
""", "east": """
missing = ["unk"]
[rename]
WT_LB = "weight"
HT_IN = "height"
TEMP_F = "temperature"
SEX = "sex"
SMK = "smokes"
ADM = "seen"
RISK = "risk"
[units]
weight = {convert = "lb->kg", digits = 1}
height = {convert = "inch->cm", digits = 0}
temperature = {convert = "F->C", digits = 1}
[dates]
seen = "%m/%d/%Y"
[codes]
sex = {"1" = "male", "2" = "female"}
smokes = {Y = "yes", N = "no"}
risk = {"0" = "low", "1" = "high"}
"""}


def clean_rows(rng):
    for _ in range(60):
        weight, height, heat = rng.integers(450, 1200) / 10, rng.integers(150, 200), rng.integers(355, 400) / 10
        risk = "high" if weight / height + heat / 100 + rng.normal() / 20 > 0.84 else "low"
        yield {"weight": weight, "height": height, "temperature": heat, "sex": str(rng.choice(["male", "female"])),
               "smokes": str(rng.choice(["yes", "no"])), "risk": risk,
               "seen": f"202{rng.integers(0, 5)}-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}"}


def in_german(rows):
    words = {"male": "m", "female": "w", "yes": "ja", "no": "nein", "low": "niedrig", "high": "hoch"}
    for number, row in enumerate(rows):
        yield {"Patient": f"p{number}", "Gewicht": f"{row['weight']:.1f}".replace(".", ","),
               "Körpergröße": row["height"], "Temperatur": f"{row['temperature']:.1f}".replace(".", ","),
               "Geschlecht": words[row["sex"]], "Raucher": words[row["smokes"]],
               "Aufnahme": ".".join(reversed(row["seen"].split("-"))), "Risiko": words[row["risk"]]}


def in_american(rows):
    codes = {"male": 1, "female": 2, "yes": "Y", "no": "N", "low": 0, "high": 1}
    for row in rows:
        year, month, day = row["seen"].split("-")
        yield {"WT_LB": f"{row['weight'] / 0.45359237:.2f}", "HT_IN": f"{row['height'] / 2.54:.1f}",
               "TEMP_F": f"{row['temperature'] * 1.8 + 32:.2f}", "SEX": codes[row["sex"]], "SMK": codes[row["smokes"]],
               "ADM": f"{month}/{day}/{year}", "RISK": codes[row["risk"]]}


def write(path, rows, encoding="utf-8", delimiter=","):
    rows = list(rows)
    with path.open("w", newline="", encoding=encoding) as file:
        out = csv.DictWriter(file, rows[0], delimiter=delimiter)
        out.writeheader()
        out.writerows(rows)


@pytest.fixture
def hospitals(tmp_path):
    rng = np.random.default_rng(5)
    for name in NAMES:
        rows = list(clean_rows(rng))
        write(tmp_path / f"clean-{name}.csv", rows)
        if name == "south":
            write(tmp_path / f"{name}.csv", in_german(rows), "latin-1", ";")
        else:
            write(tmp_path / f"{name}.csv", in_american(rows) if name == "east" else rows)
    for name, text in MAPPINGS.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    shared = shareable(read(tmp_path / "clean-north.csv", target="risk", minimum_count=10), 10)
    save_schema(shared, tmp_path / "schema.json")
    return tmp_path


def test_in_simulation_mapped_tables_give_the_model_of_clean_ones(hospitals):
    clean = {name: str(hospitals / f"clean-{name}.csv") for name in NAMES}
    own = {name: harmonised(hospitals / f"{name}.csv", hospitals / f"{name}.toml") if name in MAPPINGS else
           str(hospitals / f"{name}.csv") for name in NAMES}
    said = {"target": "risk", "learner": {"name": "sgd-classifier"}, "rounds": 3, "engine": {"workers": 1},
            "data": {"prepare": ["one-hot", "standardise"]}, "output": {"folder": str(hospitals / "runs")}}
    one, other = tequio.run(clean, **said), tequio.run(own, **said)
    assert one.summary["model_sha256"] == other.summary["model_sha256"]


def test_a_config_reads_its_table_through_a_mapping(hospitals):
    found = {}
    for name, extra in (("clean-east", ""), ("east", f'mapping_path = "{hospitals / "east.toml"}"')):
        data = (f'name = "csv"\npath = "{hospitals / name}.csv"\ntarget = "risk"\n{extra}\n'
                f'schema_path = "{hospitals / "schema.json"}"\npartition = {{name = "iid", parties = 3}}')
        (hospitals / "own.toml").write_text(LEARNING.format(data=data, engine='name = "local"\nworkers = 1'))
        made = tequio.run(hospitals / "own.toml", output={"folder": str(hospitals / "runs")})
        found[name] = made.summary["model_sha256"]
    assert found["clean-east"] == found["east"]


def federated(folder, clean):
    homes = [folder / f"{'clean-' if clean else ''}{name}-home" for name in NAMES]
    for name, home in zip(NAMES, homes, strict=True):
        facts = {"path": str(folder / f"{'clean-' if clean else ''}{name}.csv"), "target": "risk",
                 "schema_path": str(folder / "schema.json")}
        if not clean and name in MAPPINGS:
            facts["mapping_path"] = str(folder / f"{name}.toml")
        PartyHome.create(home, name, {"data": facts})
        (home / "policy.toml").write_text("private_randomness = false\n")
    data = 'name = "parties"\nparties = ["north", "south", "east"]'
    (folder / "real.toml").write_text(LEARNING.format(data=data, engine='name = "flower"\nwait = 60'))
    config = load_config(folder / "real.toml", [f"output.folder={folder / 'runs'}"])
    made = lead(config, Village(**{str(70 + party): living_at(home) for party, home in enumerate(homes)}),
                "clean" if clean else "own")
    return made.summary["model_sha256"]


def test_between_machines_mapped_tables_give_the_model_of_clean_ones(hospitals, monkeypatch):
    for name in ("POLL", "ASK_AGAIN", "LOOK_FOR_NODES"):
        monkeypatch.setattr(flower_engine, name, 0.001)
    assert federated(hospitals, clean=True) == federated(hospitals, clean=False)


def test_new_rows_of_a_party_are_mapped_as_its_table_was(hospitals):
    facts = {"path": str(hospitals / "east.csv"), "target": "risk", "schema_path": str(hospitals / "schema.json"),
             "mapping_path": str(hospitals / "east.toml")}
    (hospitals / "new.csv").write_text("WT_LB,HT_IN,TEMP_F,SEX,SMK,ADM\n220.46,70.9,98.6,1,N,07/04/2021\n")
    rows = new_rows("east", facts, str(hospitals / "new.csv"))
    day = float(np.datetime64("2021-07-04").astype(int))
    assert rows.dataset.features.tolist() == [[100.0, 180.0, 37.0, 1.0, 0.0, day]]


def test_without_its_mapping_a_party_cannot_join(hospitals):
    facts = {"path": str(hospitals / "east.csv"), "target": "risk", "schema_path": str(hospitals / "schema.json")}
    with pytest.raises(DataError, match="'weight' of the schema is missing"):
        open_holding("east", facts)
