"""Who took part: counts from events, evenness, bias towards sizes and categories, and what categories are served."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import kstest

import tequio
from tequio.experiments.running.participation import (
    Participation,
    by_group,
    jain_index,
    participation,
    participation_table,
    selection_metrics,
    uniformity,
)

TOWN, VILLAGE = 0, 1


def federation(groups=(TOWN, TOWN, VILLAGE, VILLAGE), sizes=(10, 10, 30, 50)):
    eligible = np.arange(len(groups))
    return SimpleNamespace(eligible=lambda: eligible, sizes=np.array(sizes), groups=np.array(groups),
                           group_names=["town", "village"], name=lambda party: f"p{party}",
                           schema=SimpleNamespace(target=SimpleNamespace(kind="number")))


def events(folder, *lines):
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(("values", "expected"), [([3, 3, 3], 1.0), ([6, 0, 0], 1 / 3), ([1, 2, 3], 36 / 42),
                                                  ([2, np.nan, 2], 1.0)])
def test_jain(values, expected):
    assert jain_index(values) == pytest.approx(expected)


def test_counts_and_scores_come_from_the_events(tmp_path):
    folder = events(tmp_path, {"event": "start"}, {"event": "selection", "round": 1, "parties": [0, 2]},
                    {"event": "contribution", "method": "shapley", "parties": [0, 2], "scores": [0.5, 0.25]},
                    {"event": "selection", "round": 2, "parties": [2]},
                    {"event": "contribution", "method": "shapley", "parties": [2], "scores": [0.5]})
    found = participation(folder, 4)
    assert found.chosen.tolist() == [1, 0, 2, 0]
    assert found.rounds == [2, 1]
    table = participation_table(federation(), found)
    assert table.rows == [{"party": "p0", "group": "town", "rows": 10, "chosen": 1, "contribution.shapley": 0.5},
                          {"party": "p2", "group": "village", "rows": 30, "chosen": 2, "contribution.shapley": 0.75}]


def test_bias_towards_sizes_and_categories():
    found = selection_metrics(federation(), Participation(np.array([1, 0, 1, 2]), [1, 1, 1, 1]))
    assert found["selection.coverage"] == 0.75
    assert found["selection.jain"] == pytest.approx(16 / (4 * 6))
    assert found["selection.size_bias"] == pytest.approx((10 + 30 + 50 + 50) / 4 / 25)
    assert found["selection.group_bias.town"] == pytest.approx(0.5)
    assert found["selection.group_bias.village"] == pytest.approx(1.5)


def test_rounds_whose_estimate_ran_into_its_limit_are_counted(tmp_path):
    scored = {"event": "contribution", "method": "gtg-shapley", "parties": [1], "scores": [0.5]}
    folder = events(tmp_path, *({"event": "selection", "round": number, "parties": [1]} for number in range(4)),
                    *({**scored, "converged": settled} for settled in (True, False, True, True)))
    assert selection_metrics(federation(), participation(folder, 4))["selection.converged"] == 0.75


def test_nothing_is_said_where_everybody_takes_part():
    assert selection_metrics(federation(), Participation(np.full(4, 3), [4, 4, 4])) == {}
    assert selection_metrics(federation(), Participation(np.zeros(4, int), [])) == {}


def test_the_test_of_equal_chances_is_fair_and_sees_favourites():
    draw = np.random.default_rng(0)
    values = []
    for _ in range(300):
        counts = sum(np.bincount(draw.choice(40, 8, replace=False), minlength=40) for _ in range(60))
        values.append(uniformity(counts.astype(float), Participation(counts, [8] * 60)))
    assert kstest(values, "uniform").pvalue > 0.001
    favourites = np.array([60.0] * 8 + [0.0] * 32)
    assert uniformity(favourites, Participation(favourites.astype(int), [8] * 60)) < 1e-12


def test_categories_are_compared_by_their_pooled_rows():
    tallies = {party: {"rows": rows, "loss_sum": rows * error, "squared_error": rows * error, "absolute_error": 0.0,
                       "target_sum": 0.0, "target_squares": 1.0}
               for party, (rows, error) in enumerate([(10, 1.0), (30, 2.0), (10, 4.0), (10, 4.0)])}
    assert by_group(federation(), tallies, "loss") == {
        "loss.town": pytest.approx(1.75), "loss.village": pytest.approx(4.0), "loss.worst": pytest.approx(4.0),
        "loss.gap": pytest.approx(2.25)}
    alone = federation()
    alone.group_names = [""]
    assert by_group(alone, tallies, "loss") == {}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return tequio.run(data={"name": "wine", "validation": 0.2, "split": {"validation": 0.0, "test": 0.2},
                            "prepare": ["standardise"]},
                      selector={"name": "greedyfed", "count": 3}, rounds=6, engine={"workers": 1},
                      contribution="leave-one-out", output={"folder": str(folder)})


def test_a_run_keeps_who_took_part_and_what_each_added(run):
    table = run.participation
    assert table.columns == ["party", "rows", "chosen", "contribution.gtg-shapley", "contribution.leave-one-out"]
    assert sum(table["chosen"]) == 18
    lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    gains = [line["gain"] for line in lines if line["event"] == "contribution" and line["method"] == "gtg-shapley"]
    assert sum(table["contribution.gtg-shapley"]) == pytest.approx(sum(gains), abs=6e-4)
    assert run.summary["metrics"]["selection.coverage"] == len(table) / 10
    # Where parties keep no validation rows, the coordinator's own are what the model is judged by.
    before, after = run.metrics["validation.loss"][0], run.metrics["validation.loss"][-1]
    assert sum(gains[1:]) == pytest.approx(before - after, abs=1e-5)


def test_no_party_holds_a_row_that_the_coordinator_keeps(run):
    from tequio.experiments.running.scenario import make_scenario

    scenario = make_scenario(run.config)
    parts = [scenario.test.ids, scenario.validation.ids,
             *(scenario.population.partition.view(scenario.population.dataset, party).ids for party in range(10))]
    together = np.concatenate(parts)
    assert len(together) == len(set(together.tolist())) == 178
    assert len(scenario.validation) == round(0.2 * (178 - len(scenario.test)))


def test_the_same_steps_prepare_the_rows_the_coordinator_keeps():
    from tequio.experiments.config.complete import complete
    from tequio.experiments.running.scenario import make_scenario

    given = {"name": "wine", "validation": 0.2}
    raw = make_scenario(complete({"data": given}))
    scenario = make_scenario(complete({"data": {**given, "prepare": ["standardise"]}}))
    slope = np.ptp(scenario.population.dataset.features[:, 0]) / np.ptp(raw.population.dataset.features[:, 0])
    kept, before = scenario.validation.features[:, 0], raw.validation.features[:, 0]
    assert np.diff(kept) == pytest.approx(slope * np.diff(before), rel=1e-3)


def test_participation_is_shown(run, capfd):
    from tequio.cli.main import call

    assert call(["participation", str(run.folder), "--top", "2"]) == 0
    out = capfd.readouterr().out
    assert "share of the parties that were chosen at all" in out
    assert "contribution.gtg-shapley first" in out
    assert call(["participation", str(run.folder), "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["parties"] == run.participation.rows
    assert document["metrics"]["selection.jain"] == run.summary["metrics"]["selection.jain"]
