"""`tequio.inspect` and the config it writes: it reads back, says what was found, and holds no private value."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tequio
from patients import LEAK, patients, write
from tequio.data.inputs import read
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.draft import draft_config

SECRET = "Quitzow"  # begins every value that nobody but its owner may see


def rows_by(config, folder):
    """The table as a run with this config reads it."""
    data = tomllib.loads(config)["data"]
    own = {key: value for key, value in data.items() if key not in (
        "name", "path", "prepare", "partition", "one_class", "test")}
    return read(folder / data["path"], **own)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tables") / "patients.csv", patients())


def test_the_config_of_a_newcomers_table_in_full(table):
    found = tequio.inspect(table, target="readmitted", party="Hospital")
    given = tomllib.loads(found.config(table.with_name("first.toml")))
    assert given == {
        "name": "first", "rounds": 20, "baselines": ["alone", "centralised"],
        "data": {"name": "csv", "path": "patients.csv", "target": "readmitted", "group": "Hospital",
                 "id": "Patient Nr.", "missing": "keep",
                 "ignore": ["Pat ID", LEAK, "house.code", "country", "Alter", "empty"], "prepare": ["auto"],
                 "columns": {"admitted on": "date", "Arztbrief (frei)": "text",
                             "severity": {"kind": "ordered", "order": ["low", "medium", "high"]}},
                 "partition": {"name": "natural"}},
        "evaluation": {"headline": "balanced_accuracy"},
        "learner": {"name": "logistic"}, "local": {"epochs": 5}}
    assert found.keys == {key: value for key, value in given["data"].items() if key not in ("name", "path")}


def test_the_config_reads_the_table_without_what_it_leaves_out(table):
    dataset = rows_by(tequio.inspect(table, target="readmitted", party="Hospital").config(table.with_suffix(".toml")),
                      table.parent)
    kinds = {feature.column: feature.kind for feature in dataset.schema.features}
    assert kinds == {"admitted on": "date", "Arztbrief (frei)": "text", "Größe [cm]": "number", 'CRP "mg/l"': "number",
                     "age": "number", "severity": "ordered", "smoker?": "category", "name": "category"}
    assert sorted(np.unique(dataset.groups)) == ["Lakeside", "North", "St. Anna", "Süd"]
    assert len(np.unique(dataset.ids)) == 1200


def test_every_column_left_out_stands_with_its_reason(table):
    config = tequio.inspect(table, target="readmitted", party="Hospital").config(table.with_suffix(".toml"))
    for line in ('"Pat ID",  # tells rows apart', f'"{LEAK}",  # leak? AUC 1.000 alone',
                 '"house.code",  # says which party it is', '"country",  # always the same value',
                 '"Alter",  # the same as age', '"empty",  # holds no values'):
        assert f"    {line}\n" in config
    assert max(map(len, config.splitlines())) <= 100


KEYS = ["name", "path", "kind", "columns", "ignore", "order", "partition", "a.b", "a = 1", '"', "'", "#", "[x]",
        "Straße", "two\nlines", "\x7f", " ", "\\", "seed"]


@given(st.lists(st.one_of(st.sampled_from(KEYS), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)),
                min_size=2, max_size=6, unique_by=str.strip))
@settings(max_examples=60, deadline=None)
def test_any_name_of_a_column_reads_back(names):
    """Also those of keys of configs, and those with quotes, dots, line breaks and control characters."""
    rng = np.random.default_rng(0)
    table = {f"y{names[0]}": ["a", "b"] * 60}
    for place, name in enumerate(names):
        table[f"{name}"] = [f"{word} {row % 50}/2020" if place % 2 else "2020-01-02" for row, word in enumerate(
            rng.choice(["w", "v"], 120))] if place else [f"K{row}" for row in range(120)]
    found = tequio.inspect(table, target=f"y{names[0]}")
    given = tomllib.loads(draft_config(found.facts, name="x", source={"name": "csv", "path": "x.csv"}, command="x"))
    assert {**found.keys, "name": "csv", "path": "x.csv"} == given["data"]
    assert all(line.isprintable() for line in str(found).split("\n"))


def test_a_table_of_ids_texts_and_rare_categories_shows_none_of_their_values(tmp_path):
    rng = np.random.default_rng(0)
    rare = [f"{SECRET}rare{row % 5}" if row < 25 else "usual" for row in range(300)]
    table = {"case": [f"{SECRET}{row}" for row in range(300)], "diagnosis": rare,
             "notes": [f"{SECRET}{row} was seen again today" for row in range(300)],
             "plz": [f"{SECRET}{row % 90}" for row in range(300)],
             "size": [f"{rng.normal():.2f}" if row % 40 else SECRET for row in range(300)],
             "site": rng.choice(["north", "south"], 300),
             "y": ["a" if row % 2 else "b" for row in range(297)] + [f"{SECRET}class"] * 3}
    found = tequio.inspect(table, target="y", party="site")
    found.plot(tmp_path / "picture.svg")
    picture = (tmp_path / "picture.svg").read_text()
    config = draft_config(found.facts, name="x", source={"name": "csv", "path": "x.csv"}, command="x")
    shown = [str(found), repr(found), found._repr_html_(), json.dumps(found.to_dict()), config, picture]
    assert [SECRET in text for text in shown] == [False] * 6
    assert "fewer than 10" in json.dumps(found.to_dict())


def test_small_parties_are_dropped_and_one_class_is_allowed_by_the_config():
    party = ["north"] * 100 + ["south"] * 100 + ["tiny"] * 6
    table = {"site": party, "x": np.random.default_rng(0).normal(size=206), "y": ["a"] * 60 + ["b"] * 40 + ["a"] * 106}
    keys = tequio.inspect(table, target="y", party="site").keys
    assert keys["partition"] == {"name": "natural", "small": "drop", "minimum_rows": 8}
    assert keys["one_class"] == "allow"


def test_without_a_party_rows_are_dealt_at_random():
    table = {"x": np.random.default_rng(0).normal(size=120), "y": ["a", "b"] * 60}
    assert tequio.inspect(table, target="y").keys["partition"] == {"name": "iid", "parties": 2, "stratified": True}


def test_rows_that_were_not_looked_at_may_have_gaps():
    table = {"x": np.random.default_rng(0).normal(size=120), "y": ["a", "b"] * 60}
    assert "missing" not in tequio.inspect(table, target="y").keys
    assert tequio.inspect(table, target="y", most_rows=100).keys["missing"] == "keep"


def test_rows_without_a_target_are_dropped():
    table = {"x": [1.5, None] * 60, "y": ["a", "b", "b", ""] * 30}
    assert tequio.inspect(table, target="y").keys["missing"] == "drop"


def test_one_and_zero_as_numbers_are_said_to_be_classes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{row / 3:.2f},{row % 2}.0\n" for row in range(100)))
    dataset = rows_by(tequio.inspect(path, target="y").config(tmp_path / "t.toml"), tmp_path)
    assert dataset.schema.target.names == ("0", "1")


def test_several_targets_are_labels():
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=100), "ill": rng.integers(0, 2, 100), "old": rng.integers(0, 2, 100)}
    assert tequio.inspect(table, target=["ill", "old"]).keys["target"] == ["ill", "old"]


def test_a_file_elsewhere_is_named_in_full(table, tmp_path):
    config = tequio.inspect(table, target="readmitted").config(tmp_path / "elsewhere" / "x.toml")
    assert tomllib.loads(config)["data"]["path"] == str(table)


def test_a_config_is_not_written_over(table, tmp_path):
    found, path = tequio.inspect(table, target="readmitted"), tmp_path / "x.toml"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is there already; type --force"):
        found.write(path)
    assert path.read_text() == "mine"
    found.write(path, force=True)
    assert tomllib.loads(path.read_text())["name"] == "x"


FRAME = {"when": ["2020-01-02", "2021-03-04"] * 60, "x": np.random.default_rng(0).normal(size=120), "z": ["c"] * 120,
         "y": ["a", "b", "b"] * 40}


@pytest.mark.parametrize("shape", [
    lambda frame: (frame, "y"), lambda frame: ({"north": frame[:70], "south": frame[70:]}, "y"),
    lambda frame: ([frame[:70], frame[70:]], "y"), lambda frame: ((frame.drop(columns="y"), frame["y"]), None),
    lambda frame: ((frame[["x"]].to_numpy(), np.tile([0, 1], 60)), None)],
    ids=["frame", "dict of tables", "list of tables", "frame and series", "arrays"])
def test_the_keys_fit_the_shape_that_the_rows_came_in(shape):
    import pandas as pd

    data, target = shape(pd.DataFrame(FRAME))
    keys = dict(tequio.inspect(data, target=target).keys)
    own = {key: value for key, value in keys.items() if key not in ("prepare", "partition", "one_class")}
    assert len(read(data, **own)) == 120
    assert keys["partition"]["name"] == ("natural" if isinstance(data, dict | list) else "iid")


def test_objects_have_keys_and_no_config():
    table = {"x": np.arange(100) / 3, "y": ["a", "b"] * 50}
    found = tequio.inspect(table, target="y")
    with pytest.raises(ConfigError, match="only a file can be named"):
        found.config()
    with pytest.raises(DataError, match=r"not said; type --target 'y' \(in Python: target='y'\)"):
        _ = tequio.inspect(table).keys


def test_a_wide_table_is_cut_for_the_eye_and_whole_as_data():
    rng = np.random.default_rng(0)
    table = {f"x{column}": rng.normal(size=60) for column in range(1000)} | {"y": ["a", "b"] * 30}
    table["x7"] = np.tile([0.0, 1.0], 30)
    found = tequio.inspect(table, target="y")
    lines = str(found).splitlines()
    assert len(lines) < 60
    assert "... and 961 more columns (--json lists all)" in lines
    assert any(line.startswith("x7 ") and "leak?" in line for line in lines)
    assert len(found.to_dict()["columns"]) == 1001


def test_the_console_shows_it_in_80_columns(table):
    text = str(tequio.inspect(table, target="readmitted", party="Hospital"))
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[:4] == [
        "patients.csv: 1,200 rows, 17 columns", "", "target   readmitted: 2 classes: no 93.0%, yes 7.0%",
        "parties  4 by Hospital; rows: North 420, St. Anna 330, Süd 270, Lakeside 180"]
    assert 'CRP "mg/l"         number        328     12.8%   0.521' in text


def test_a_notebook_shows_it_with_names_escaped():
    table = {"<b>x</b>": np.arange(100) / 3, "y": ["a", "b"] * 50}
    html = tequio.inspect(table, target="y")._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "<b>x" not in html
    assert "<svg" in html


def test_the_same_table_gives_the_same_picture(table, tmp_path):
    found = tequio.inspect(table, target="readmitted", party="Hospital")
    for name in ("a.svg", "b.svg"):
        found.plot(tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    for word in ("readmission ward", "leak?", "St. Anna", "12.8%"):
        assert word in (tmp_path / "a.svg").read_text()
