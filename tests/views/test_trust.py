"""Trust scores are read from events and drawn a party at a time."""

from __future__ import annotations

import pytest

from tequio.experiments.config.complete import complete
from tequio.experiments.running.participation import odd_parties, trust_series
from tequio.experiments.running.runner import run_config
from tequio.views.timelines import draw_trust, save_trust

CONFIG = {"name": "judged", "rounds": 4, "engine": {"workers": 1},
          "data": {"name": "digits", "partition": {"name": "iid", "parties": 4}}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    given = {**CONFIG, "output": {"folder": str(tmp_path_factory.mktemp("runs"))}}
    return {"judged": run_config(complete({**given, "aggregator": "consistency",
                                           "attack": {"name": "mean", "parties": ["2"]}})),
            "plain": run_config(complete(given))}


def test_every_party_has_its_trust_of_every_round(runs):
    series = trust_series(runs["judged"])
    assert list(series) == ["0", "1", "2", "3"]
    assert all(rounds == [1, 2, 3, 4] for rounds, _ in series.values())
    for place in range(4):
        assert sum(values[place] for _, values in series.values()) == pytest.approx(1.0)
    assert trust_series(runs["plain"]) == {}


def test_the_hostile_party_stands_out(runs):
    assert odd_parties(runs["judged"]) == ["2"]
    assert odd_parties(runs["plain"]) == []


def test_lines_and_boxes_show_the_series(runs, tmp_path):
    figure = draw_trust({"judged": runs["judged"]})
    lines, boxes = figure.axes
    assert [line.get_ydata().tolist() for line in lines.lines] == [
        values for _, values in trust_series(runs["judged"]).values()]
    assert [label.get_text() for label in boxes.get_xticklabels()] == ["0", "1", "2", "3"]
    assert save_trust(runs, tmp_path / "trust.png")
    assert not save_trust({"plain": runs["plain"]}, tmp_path / "nothing.png")
    assert not (tmp_path / "nothing.png").exists()
