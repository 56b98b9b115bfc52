import pytest

import tequio
from tequio.errors import ConfigError
from tequio.experiments.config.complete import with_key
from tequio.experiments.sweep import run_sweep, sweep_cells

SWEEP = {"local.learning_rate": [0.5, 1.0], "seeds": [0, 1, 2]}


@pytest.fixture
def swept(given):
    """A sweep whose cells differ by seed, because rows are held out by the seed."""
    return {**with_key(with_key(given, "data.copies", 3), "data.test", 0.15), "sweep": SWEEP}


def test_every_combination_is_a_cell_seeds_fastest(given):
    cells = sweep_cells({**given, "sweep": {"rounds": [1, 2], "local": {"epochs": [3]}, "seeds": [7, 8]}})
    assert [(cell.config.rounds, cell.config.local["epochs"], cell.config.seed) for cell in cells] == [
        (1, 3, 7), (1, 3, 8), (2, 3, 7), (2, 3, 8)]
    assert cells[0].label == "rounds=1-epochs=3-seed=7"


def test_a_whole_component_may_be_swept(given):
    algorithms = [{"name": "fedavg"}, {"name": "toy_stumble", "party": "ana"}]
    cells = sweep_cells({**given, "sweep": {"algorithm": algorithms}})
    assert [cell.config.algorithm["name"] for cell in cells] == ["fedavg", "toy_stumble"]
    assert "algorithm=toy_stumble_party=ana" in cells[1].label


@pytest.mark.parametrize(("sweep", "message"), [
    ({"local.epoch": [1]}, r"toy.toml with local.epoch = 1: \[local\] 'minibatch' has no parameter 'epoch'"),
    ({"aggregator.name": ["mean"], "algorithm.name": ["fedavg", "alone"]},
     r"toy.toml with aggregator.name = mean, algorithm.name = alone: \[aggregator\] would do nothing"),
    ({"rounds": 3}, r"toy.toml: \[sweep\] 'rounds' is not a list of values"),
    ({"rounds": []}, "is not a list of values"),
])
def test_every_cell_is_checked_before_the_first_runs(given, sweep, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run_sweep({**given, "sweep": sweep}, source="toy.toml")
    assert not (tmp_path / "runs").exists()


def test_the_table_has_means_and_deviations_over_seeds(swept):
    result = run_sweep(swept)
    assert len(result.results) == 6
    assert result.table["local.learning_rate"] == [0.5, 1.0]
    assert result.table["seeds"] == [3, 3]
    values = [one.summary["metrics"]["test.rmse"] for one in result.results[:3]]
    mean = sum(values) / 3
    deviation = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
    assert deviation > 0
    assert result.table["test.rmse"][0] == pytest.approx(mean)
    assert result.table["test.rmse sd"][0] == pytest.approx(deviation)


def test_a_finished_cell_is_kept_and_the_rest_goes_on(swept, monkeypatch):
    swept = with_key(swept, "algorithm", {"name": "toy_stumble", "killed_in": 2})
    whole = run_sweep(with_key(swept, "output.folder", "whole"))
    starts = []

    def listen(kind, facts):
        starts.extend([facts["folder"]] if kind in ("start", "resume") else [])
        if kind == "cell" and facts["number"] == 4:
            monkeypatch.setenv("TOY_INTERRUPT", "1")

    with pytest.raises(KeyboardInterrupt):
        run_sweep(swept, listen=listen)
    monkeypatch.delenv("TOY_INTERRUPT")
    assert len(starts) == 4
    again = []
    result = run_sweep(swept, listen=lambda kind, facts: again.append((kind, facts)))
    assert [kind for kind, _ in again if kind in ("start", "resume")] == ["resume", "start", "start"]
    assert [facts["finished"] for kind, facts in again if kind == "cell"] == [True] * 3 + [False] * 3
    assert [one.summary["model_sha256"] for one in result.results] == [
        one.summary["model_sha256"] for one in whole.results]
    assert result.table.to_dict() == whole.table.to_dict()


def test_a_wider_sweep_uses_the_cells_of_a_narrower_one(swept):
    run_sweep(with_key(swept, "sweep", {"rounds": [1], "seeds": [0]}))
    heard = []
    run_sweep(with_key(swept, "sweep", {"rounds": [1, 2], "seeds": [0]}),
              listen=lambda kind, facts: heard.append((kind, facts)))
    assert [facts["finished"] for kind, facts in heard if kind == "cell"] == [True, False]


def test_the_api_sweeps_and_run_says_so(swept, toy):
    result = tequio.sweep(toy, rounds=1, sweep={"learner.scale": [1.0, 2.0]})
    assert result.table["learner.scale"] == [1.0, 2.0]
    assert "<table>" in result._repr_html_()
    with pytest.raises(ConfigError, match=r"has a \[sweep\] table; use tequio.sweep"):
        tequio.run(toy, sweep={"rounds": [1]})
    with pytest.raises(ConfigError, match="a sweep has no baselines"):
        tequio.sweep(toy, baselines=["alone"], sweep={"rounds": [1]})
