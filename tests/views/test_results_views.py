from io import StringIO

import pytest
from rich.console import Console

import tequio
from tequio.errors import ConfigError
from tequio.experiments.showing.progress import headline
from tequio.experiments.showing.results import (
    headline_metric,
    in_bytes,
    in_time,
    plot_results,
    plus_minus,
    result_table,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return tequio.run(data="iris", learner="sgd-classifier", rounds=3, baselines=["alone", "centralised"],
                      engine={"workers": 1}, output={"folder": str(folder)}, **{"data.partition.parties": 3})


def test_the_figure_shows_every_run_with_its_own_numbers(result, tmp_path):
    figure = plot_results(result, path=tmp_path / "plot.svg")
    (axes,) = figure.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines["fedavg"] == result.metrics["test.accuracy"]
    assert lines["alone"] == result.baselines["alone"].metrics["test.accuracy"]
    assert lines["centralised"] == result.baselines["centralised"].metrics["test.accuracy"]
    assert axes.get_ylabel() == "test accuracy"
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")


def test_another_metric_may_be_drawn_and_a_wrong_one_is_named(result):
    assert result.plot("train.loss").axes[0].get_ylabel() == "train loss"
    with pytest.raises(ConfigError, match=r"no metric 'train\.los'; did you mean 'train\.loss'"):
        result.plot("train.los")
    with pytest.raises(ConfigError, match=r"cannot be saved as 'plot\.cake'"):
        result.plot(path="plot.cake")


def test_the_headline_metric_is_the_one_of_the_target(result):
    assert headline_metric(result) == "accuracy"
    assert headline({"round": 1, "train.loss": 0.5, "test.loss": 0.4, "test.accuracy": 0.25}) == "test accuracy 0.2500"
    assert headline({"round": 1, "seconds": 0.5}) == ""
    assert headline({"train.loss": 0.5}) == "train loss 0.5000"


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123456, "123 kB"),
                                             (1_390_000, "1.4 MB"), (2e13, "20.0 TB")])
def test_bytes_are_said_in_a_unit_that_fits(value, text):
    assert in_bytes(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.421, "0.42 s"), (12.04, "12.0 s"), (200, "3 min 20 s"),
                                               (7500, "2 h 05 min")])
def test_times_are_said_in_a_unit_that_fits(seconds, text):
    assert in_time(seconds) == text


def test_a_mean_comes_with_its_spread():
    assert plus_minus(0.9341, 0.0123) == "0.934 ± 0.012"
    assert plus_minus(0.9341, None) == "0.934"
    assert plus_minus(None, None) == ""


def test_long_names_are_broken_at_a_hyphen_only():
    from tequio.experiments.showing.results import _broken

    assert _broken("vertical-logistic") == "vertical-\nlogistic"
    assert _broken("fedavg") == "fedavg"
    assert _broken("split-nn") == "split-nn"


@pytest.mark.parametrize(("width", "left_out"), [(120, []), (80, ["worst", "bytes"])])
def test_the_table_of_an_attacked_run_fits_and_says_that_nobody_attacks_the_baselines(tmp_path, width, left_out):
    attacked = tequio.run(data="iris", rounds=1, baselines=["alone", "centralised"], engine={"workers": 1},
                          attack="backdoor", output={"folder": str(tmp_path)})
    console = Console(width=width, file=StringIO())
    console.print(result_table(attacked, width))
    text = console.file.getvalue()
    assert "Baselines are not attacked." in text
    assert ("Bytes are those of training, without evaluation." in " ".join(text.split())) == (not left_out)
    assert "moved by" in text
    assert "…" not in text
    assert "centralised" in text
    assert [word for word in ("worst", "bytes") if word not in text] == left_out
