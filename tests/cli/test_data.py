"""`tequio data`: what it prints, as text and as JSON, and what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tequio.cli.data import app
from tequio.data import fetch
from tequio.data.catalogue.manifest import FILES
from tequio.errors import ConfigError, TequioError

CONFIG = """
seed = 3
[data]
name = "digits"
[data.partition]
name = "dirichlet"
parties = 6
alpha = 0.3
"""


@pytest.fixture(autouse=True)
def no_data_at_hand(monkeypatch, tmp_path):
    monkeypatch.delenv("TEQUIO_DATA", raising=False)
    monkeypatch.setenv("TEQUIO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(CONFIG)
    return path


def output(*words) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def document(*words):
    return json.loads(output(*words, "--json"))


def test_list_has_the_embedded_sets_and_what_is_to_fetch():
    found = {one["name"]: one for one in document("list")["datasets"]}
    assert (found["digits"]["rows"], found["digits"]["features"], found["digits"]["where"]) == (1797, 64, "embedded")
    assert found["mnist"]["where"] == "to fetch"
    assert found["diabetes"]["target"] == "a number"
    assert found["csv"]["where"] == "a CSV file"


def test_list_as_text_has_a_line_a_dataset():
    lines = [line.split() for line in output("list").splitlines() if line.strip()]
    assert lines[0] == ["name", "rows", "features", "target", "where"]
    assert ["iris", "150", "4", "3", "classes", "embedded"] in lines


def test_a_file_with_wrong_content_is_listed_as_damaged(monkeypatch, tmp_path):
    monkeypatch.setenv("TEQUIO_DATA", str(tmp_path))
    for path in FILES:
        if path.startswith("mnist/"):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(b"not what it should be")
    found = {one["name"]: one["where"] for one in document("list")["datasets"]}
    assert found["mnist"] == "damaged"


def test_describe_counts_the_classes_and_names_the_columns():
    described = document("describe", "iris")
    assert described["class_counts"] == {"setosa": 50, "versicolor": 50, "virginica": 50}
    assert described["columns"][0] == {"name": "sepal length (cm)", "domain": None}
    assert described["licence"]
    assert "Fisher" in described["citation"]
    text = output("describe", "iris")
    assert "150 rows, 4 features" in text
    assert ["setosa", "50", "33.3%"] in [line.split() for line in text.splitlines()]


def test_describe_takes_parameters_of_the_dataset():
    assert document("describe", "digits")["shape"] == [1, 8, 8]
    assert document("describe", "digits", "--set", "flatten=true")["shape"] == [64]


def test_describe_a_numeric_target_gives_its_range():
    assert document("describe", "diabetes")["target_range"] == [25, 346]


def test_describe_a_set_that_is_not_here_says_how_to_get_it():
    assert "type: tequio data fetch mnist" in output("describe", "mnist")
    assert "class_counts" not in document("describe", "mnist")


def test_fetch_gives_the_places_of_all_files(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "find", lambda file: tmp_path / file.path)
    files = document("fetch", "mnist")["files"]
    assert len(files) == 4
    assert str(tmp_path / "mnist/train-images-idx3-ubyte.gz") in files
    assert output("fetch", "iris") == "'iris' needs no files\n"


def test_an_unknown_dataset_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no dataset called 'digit'; did you mean 'digits'"):
        output("describe", "digit")


def test_partition_deals_the_training_rows_and_measures_the_skew(config):
    dealt = document("partition", config)
    assert len(dealt["parties"]) == dealt["skew"]["parties"] == 6
    assert sum(party["rows"] for party in dealt["parties"]) == dealt["skew"]["rows"] == 1438
    assert all(sum(party["counts"]) == party["rows"] for party in dealt["parties"])
    assert dealt["skew"]["total_variation_mean"] > 0.3
    assert dealt == document("partition", config)


def test_partition_takes_settings(config):
    alike = document("partition", config, "--set", "data.partition.alpha=1000", "--set", "data.partition.parties=3")
    assert len(alike["parties"]) == 3
    assert alike["skew"]["total_variation_mean"] < 0.1


def test_partition_prints_the_heat_map_and_draws_it(config, tmp_path):
    text = output("partition", config, "--out", tmp_path / "who.png")
    assert "digits dealt to 6 parties: dirichlet" in text
    assert ["party", *"0123456789", "rows"] in [line.split() for line in text.splitlines()]
    assert "label entropy" in text
    assert "earth mover" in text
    assert (tmp_path / "who.png").read_bytes().startswith(b"\x89PNG")


def test_ordered_classes_move_further_than_unordered_ones(config):
    plain, ordered = document("partition", config), document("partition", config, "--ordered")
    assert plain["skew"]["earth_mover_mean"] == plain["skew"]["total_variation_mean"]
    assert ordered["skew"]["earth_mover_mean"] > plain["skew"]["earth_mover_mean"]


def test_a_vertical_partition_says_who_holds_which_columns_and_the_target(tmp_path):
    path = tmp_path / "wine.toml"
    path.write_text('[data]\nname = "wine"\n[data.partition]\nname = "columns"\ncounts = [5, 8]\ntarget_party = 1\n')
    parties = document("partition", path)["parties"]
    assert [len(party["columns"]) for party in parties] == [5, 8]
    assert [party["holds_target"] for party in parties] == [False, True]
    assert "alcohol, malic_acid" in output("partition", path)


@pytest.mark.parametrize(("setting", "message"), [
    ("data.partition.alpha=-1", "alpha"),
    ("data.partition.partys=4", "did you mean 'parties'"),
    ("data.partition.parties=2000", "1438 rows, but 2000 parties"),
])
def test_what_cannot_be_dealt_is_refused(config, setting, message):
    with pytest.raises(TequioError, match=message):
        output("partition", config, "--set", setting)
