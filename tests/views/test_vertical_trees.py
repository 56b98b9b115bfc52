"""Vertical trees as one party sees them: own splits shown, those of others hidden, in text, page and JSON."""

from __future__ import annotations

import json
import re

import pytest

import tequio
from tequio.errors import ConfigError
from tequio.experiments.explaining.sources import PartyTrees

CONFIG = {"name": "hospital-and-laboratory", "rounds": 2,
          "data": {"name": "breast-cancer", "test": 0.0, "split": {"validation": 0.0, "test": 0.25},
                   "partition": {"name": "columns", "counts": [15, 15]}},
          "engine": {"workers": 1}}
BOOSTED = {"learner": {"name": "boosted-trees", "depth": 2, "bins": 16},
           "algorithm": {"name": "secureboost", "encryption": "plain", "alignment": "agreed"}}
FOREST = {"learner": {"name": "random-forest", "depth": 2, "trees": 4},
          "algorithm": {"name": "vertical-forest", "encryption": "plain", "alignment": "agreed", "together": 2}}


@pytest.fixture(scope="module", params=["boosted", "forest"])
def result(request, tmp_path_factory):
    own = BOOSTED if request.param == "boosted" else FOREST
    return tequio.run({**CONFIG, **own, "output": {"folder": str(tmp_path_factory.mktemp("runs"))}}, progress=False)


@pytest.fixture(scope="module")
def names(result):
    """The columns of each party, in the words of the data."""
    from tequio.experiments.running.scenario import make_scenario

    population = make_scenario(result.config).population
    return [population.view(party).train.schema.names for party in (0, 1)]


@pytest.mark.parametrize("party", [0, 1])
def test_a_party_sees_its_own_splits_and_nothing_of_the_others(result, names, party, tmp_path):
    seen = tequio.explain(result, party=party)
    assert isinstance(seen, PartyTrees)
    seen.save_tree(tmp_path / "trees.html")
    page = (tmp_path / "trees.html").read_text()
    for shown in (str(seen), json.dumps(seen.to_plain()), page):
        assert f"hidden at party {1 - party}" in shown
        assert any(name in shown for name in names[party])
        assert not any(name in shown for name in names[1 - party])
    inner = [node for tree in seen.trees for node in tree if node["children"]]
    assert sum(seen.columns.values()) == sum(not node["hidden"] for node in inner)
    assert seen.hidden == {str(1 - party): sum(node["hidden"] for node in inner)}


def test_only_the_label_holder_sees_what_leaves_say(result):
    leaves = {party: [node for tree in tequio.explain(result, party=party).trees for node in tree
                      if not node["children"]] for party in (0, 1)}
    assert not any(leaf["hidden"] for leaf in leaves[0])
    assert all(leaf["hidden"] and leaf["label"] == "hidden at party 0" for leaf in leaves[1])
    assert all(re.fullmatch(r"\d+ rows", leaf["support"]) for leaf in leaves[0])


def test_the_coordinator_sees_the_shape_and_whose_each_split_is(result, names):
    seen = tequio.explain(result)
    text = str(seen)
    assert "as the coordinator sees them" in text
    assert not any(name in text for owner in names for name in owner)
    assert seen.columns == {}
    assert set(seen.hidden) == {"0", "1"}


def test_a_rows_decision_has_no_single_place_that_could_explain_it(result):
    with pytest.raises(ConfigError, match="spread over parties"):
        tequio.explain(result, row=3)


def test_trees_are_drawn_as_a_page_only(result, tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.html"):
        tequio.explain(result, party=1).save_tree(tmp_path / "trees.svg")


def test_the_command_shows_a_partys_view(result, tmp_path, capsys, monkeypatch):
    from tequio.cli.main import call

    monkeypatch.setenv("COLUMNS", "120")
    assert call(["explain", str(result.folder), "--party", "1", "--html", str(tmp_path / "one.html")]) == 0
    out = capsys.readouterr().out
    assert "as party 1 (feature party) sees them" in out
    assert "hidden at party 0" in out
    assert call(["explain", str(result.folder), "--party", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["role"] == "feature party"
    assert call(["explain", str(result.folder), "--svg", str(tmp_path / "one.svg")]) != 0
