"""Plots over virtual time show the numbers of the runs."""

from __future__ import annotations

import pytest

from tequio.errors import ConfigError
from tequio.experiments.comparing.pairing import curve_metric
from tequio.experiments.config.complete import complete
from tequio.experiments.running.runner import run_config
from tequio.experiments.showing.results import result_table
from tequio.views.timelines import draw_timelines, save_timelines

CONFIG = {"name": "phones", "rounds": 4, "engine": {"workers": 1}, "devices": "mobile",
          "data": {"name": "digits", "partition": {"name": "iid", "parties": 10}}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("runs"))
    given = {**CONFIG, "output": {"folder": folder}}
    return {"random": run_config(complete({**given, "selector": {"name": "random", "count": 4}})),
            "fedcs": run_config(complete({**given, "selector": {"name": "fedcs", "fraction": 0.8, "deadline": 9.0}})),
            "no clock": run_config(complete({**given, "devices": "instant"}))}


def test_every_panel_shows_the_runs_numbers(runs, tmp_path):
    figure = draw_timelines(runs, title="three runs")
    over_rounds, over_time, updates, lengths, coverage, chosen, counts = figure.axes[:7]
    assert [len(axes.lines) for axes in (over_rounds, over_time, updates, coverage)] == [3, 2, 2, 2]
    assert over_time.lines[1].get_xdata().tolist() == runs["fedcs"].metrics["clock.seconds"]
    assert over_time.lines[1].get_ydata().tolist() == runs["fedcs"].metrics["test.accuracy"]
    assert updates.lines[0].get_ydata().tolist() == [4.0] * 4
    assert lengths.lines[-1].get_ydata().tolist() == [9.0] * 4  # the deadline
    assert counts.get_xlabel() == "times chosen"
    # Whoever is chosen stays covered; those who are all chosen in every round are covered at once.
    for name, line in zip(runs, chosen.lines, strict=True):
        times = sorted(runs[name].participation["chosen"]) if runs[name].participation.rows else []
        assert line.get_ydata()[-1] == len(times) / 10
        assert list(line.get_ydata()) == sorted(line.get_ydata())
    only_rounds = draw_timelines({"no clock": runs["no clock"]})
    assert [axes.get_title(loc="left") for axes in only_rounds.axes] == [
        "learning over rounds", "parties that were chosen so far", "how often parties were chosen"]
    save_timelines(runs, tmp_path / "new" / "times.png")
    assert (tmp_path / "new" / "times.png").stat().st_size > 10_000


def test_a_metric_may_be_drawn_over_virtual_time(runs):
    axes, = runs["random"].plot(by="clock.seconds").axes
    assert axes.lines[0].get_xdata().tolist() == runs["random"].metrics["clock.seconds"]
    assert axes.get_xlabel() == "virtual seconds"
    with pytest.raises(ConfigError, match=r"no metric 'clock\.seconds'"):
        runs["no clock"].plot(by="clock.seconds")


def test_the_table_shows_virtual_time_where_there_is_a_clock(runs):
    titles = {name: [str(column.header) for column in result_table(run, 120).columns] for name, run in runs.items()}
    assert "virtual\ntime" in titles["random"]
    assert "virtual\ntime" not in titles["no clock"]


def test_the_time_to_a_target_is_cumulative(runs):
    accuracy, seconds = (runs["random"].metrics[name] for name in ("test.accuracy", "clock.seconds"))
    target = sorted(accuracy)[2]
    first = next(place for place, value in enumerate(accuracy) if value >= target)
    assert curve_metric(f"seconds_to(test.accuracy, {target})").of(runs["random"]) == seconds[first]
    assert curve_metric("seconds_to(test.accuracy, 2.0)").of(runs["random"]) == float("inf")
    with pytest.raises(ConfigError, match="has no virtual clock"):
        curve_metric("seconds_to(test.accuracy, 0.5)").of(runs["no clock"])
