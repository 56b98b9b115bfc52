"""Contests of a study, baselines as methods, what studies share, and the studies of the multi-label thesis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tequio.errors import ConfigError
from tequio.experiments.running.table import Table
from tequio.experiments.showing.comparison import save_critical_differences
from tequio.studies.answered import from_runs
from tequio.studies.answers import answer, decide
from tequio.studies.description import Contest, load_study
from tequio.studies.plans import make_plan, store_of
from tequio.views.studies import contests_table

SHIPPED = Path(__file__).parents[2] / "studies"
STUDY = """
include = "../shared.toml"
title = "Which is better"
cells = [{name = "one, baseline", run = "one a: alone", metric = "test.f1_macro", published = 0.5}]
[[contests]]
name = "a against b"
metric = "test.f1_macro"
published = 0.01
[contests.methods]
a = ["one a: alone", "two a"]
b = ["one b", "two b"]
"""
SHARED = """
source = "nobody"
store = "together"
seeds = 3
[runs."one a"]
rounds = 1
baselines = ["alone"]
[runs."one b"]
rounds = 2
[runs."two a"]
rounds = 3
[runs."two b"]
rounds = 4
[quick]
note = "quick"
config = {}
"""


@pytest.fixture
def plan(tmp_path):
    folder = tmp_path / "studies"
    (folder / "duel").mkdir(parents=True)
    (folder / "shared.toml").write_text(SHARED)
    (folder / "duel" / "study.toml").write_text(STUDY)
    return make_plan(load_study("duel", folder), out=tmp_path / "runs", workers=1)


def put(store, planned, value, baseline=None):
    place = store.place_for(planned)
    for where, found in ((place, value), (place / "baselines" / "alone", baseline)):
        if found is not None:
            where.mkdir(parents=True, exist_ok=True)
            summary = {"config_hash": planned.hash, "seconds": 1.0, "metrics": {"test.f1_macro": found}}
            (where / "summary.json").write_text(json.dumps(summary))


def test_runs_lie_in_the_store_that_studies_share(plan, tmp_path):
    assert store_of(plan, tmp_path / "runs").folder == tmp_path / "runs" / "together"
    assert {planned.run for planned in plan.wanted()} == {"one a", "one b", "two a", "two b"}


def test_a_run_counts_as_finished_with_its_baselines_only(plan, tmp_path):
    store = store_of(plan, tmp_path / "runs")
    first = plan.runs["one a"][0]
    put(store, first, 0.3)
    assert store.finished(first) is None
    put(store, first, 0.3, baseline=0.7)
    assert store.finished(first) is not None
    row, = answer(plan, store)
    assert (row.ours, row.verdict) == (0.7, "cannot tell")


def test_ranks_are_over_problems_and_seeds_for_which_all_methods_are_finished(plan, tmp_path):
    store = store_of(plan, tmp_path / "runs")
    for seed in range(3):
        put(store, plan.runs["one a"][seed], 0.1, baseline=0.9)
        put(store, plan.runs["one b"][seed], 0.5)
    put(store, plan.runs["two a"][0], 0.6)
    put(store, plan.runs["two b"][0], 0.2)
    put(store, plan.runs["two a"][1], 0.6)  # without its opponent
    decided, = decide(plan, store)
    assert decided.ranking.ranks == (1.0, 2.0)
    assert (decided.ranking.problems, decided.by_means.problems) == (4, 2)
    assert decided.wins == {"a": 4, "b": 0}
    assert decided.ranking.p == pytest.approx(0.0455, abs=1e-4)
    whole = from_runs(plan, store).document()
    assert json.loads(json.dumps(whole))["contests"][0]["ranking"]["critical_difference"] > 0


def test_curves_are_compared_and_never_counts_as_last(tmp_path):
    folder = tmp_path / "studies" / "race"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text("""
title = "Who is faster"
source = "nobody"
seeds = 6
[[contests]]
name = "rounds to 0.9"
metric = "rounds_to(test.accuracy, 0.9)"
methods = {quick = ["quick"], slow = ["slow"]}
[runs.quick]
rounds = 1
[runs.slow]
rounds = 2
[quick]
note = "quick"
config = {}
""")
    plan = make_plan(load_study("race", tmp_path / "studies"), out=tmp_path / "runs", workers=1)
    store = store_of(plan, tmp_path / "runs")
    for seed in range(6):
        for run, rounds in (("quick", seed + 1), ("slow", seed + 5 if seed else 99)):  # at seed 0 slow never gets there
            put(store, plan.runs[run][seed], 0.0)
            heights = [f"{number},{0.95 if number >= rounds else 0.5}" for number in range(1, 12)]
            table = "\n".join(["round,test.accuracy", *heights])
            (store.place_for(plan.runs[run][seed]) / "metrics.csv").write_text(table)
    decided, = decide(plan, store)
    assert decided.ranking.ranks == (1.0, 2.0)
    assert decided.wilcoxon == pytest.approx(2 / 2 ** 6)  # six pairs, all the same way
    assert "0.0312 (n = 6)" in str(list(contests_table("", [decided]).columns[3].cells))


def test_a_contest_without_runs_is_shown_as_not_run(plan, tmp_path):
    decided = decide(plan, store_of(plan, tmp_path / "runs"))
    assert decided[0].ranking is None
    assert contests_table("title", decided).row_count == 1


def test_a_problem_may_be_a_metric_of_the_same_runs():
    contest = Contest(name="c", metrics=["x", "y"], methods={"a": ["one"], "b": ["two"]})
    assert contest.problems() == [("x", ("one", "two")), ("y", ("one", "two"))]
    with pytest.raises(ValueError, match="either a metric or metrics"):
        Contest(name="c", methods={"a": ["one"], "b": ["two"]})
    with pytest.raises(ValueError, match="has 2 metrics"):
        Contest(name="c", metrics=["x", "y"], methods={"a": ["one"] * 3, "b": ["two"] * 3})


def test_methods_need_equally_many_runs():
    with pytest.raises(ValueError, match="equally many runs"):
        Contest(name="c", metric="m", methods={"a": ["x"], "b": ["x", "y"]})


def test_a_baseline_that_is_not_there_is_named(plan, tmp_path):
    store = store_of(plan, tmp_path / "runs")
    cell = plan.study.cells[0].model_copy(update={"run": "one b: alone"})
    put(store, plan.runs["one b"][0], 0.5)
    from tequio.studies.answers import metric_of

    with pytest.raises(ConfigError, match="no baseline 'alone' beside the run 'one b'"):
        metric_of(store.finished(plan.runs["one b"][0]), cell.run, cell.metric)


def test_the_diagram_is_drawn(plan, tmp_path):
    store = store_of(plan, tmp_path / "runs")
    for seed in range(3):
        put(store, plan.runs["one a"][seed], 0.1, baseline=0.9)
        put(store, plan.runs["one b"][seed], 0.5)
    path = tmp_path / "cd.png"
    save_critical_differences({"a against b": decide(plan, store)[0].ranking}, path)
    assert path.read_bytes().startswith(b"\x89PNG")


TABLES = [f"multilabel/table-5.{number}" for number in range(5, 15)]


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_thesis_share_their_runs(name, tmp_path):
    study = load_study(name, SHIPPED)
    assert study.store == "multilabel"
    assert len(study.cells) in (0, 16, 24)
    assert len(study.contests) == (4 if name.endswith((".9", ".14")) else 0)


def test_misprints_are_corrected_and_marked():
    cells = {cell.name: cell for cell in load_study("multilabel/table-5.8", SHIPPED).cells}
    corrected = cells["YahooEducation, aggregation 0"]
    assert corrected.published == 0.6849
    assert "misprint corrected: printed 0.5968" in corrected.note
    tests = load_study("multilabel/table-5.14", SHIPPED).contests
    assert tests[0].published == 2.23e-18
    assert "printed 7.654e-11" in tests[0].note


def test_published_ranks_give_the_published_p():
    from tequio.models.statistics import chi_squared_tail, friedman_statistic

    for table in ("multilabel/table-5.9", "multilabel/table-5.14"):
        for contest in load_study(table, SHIPPED).contests:
            # Ranks are printed with four digits, which is all that can be asked of the smallest p.
            p = chi_squared_tail(friedman_statistic(contest.ranks, 179), len(contest.ranks) - 1)
            assert p == pytest.approx(contest.published, rel=0.1)


def test_label_tables_and_heat_maps_come_from_the_run_folder(tmp_path):
    from rich.console import Console

    from tequio.views.parties import label_table, party_table, save_label_heatmap, scores_by_label

    class Stored:
        summary = {"name": "toy"}
        labels = Table()
        parties = Table()

    for party, label, score in (("ana", "x", 0.5), ("ana", "y", 1.0), ("ben", "y", 0.25)):
        Stored.labels.add({"party": party, "label": label, "parties.f1": score, "parties.positives": 4.0,
                           "common.f1": 0.75})
    for party in ("ana", "ben"):
        Stored.parties.add({"party": party, "rows": 9, "f1_macro": 0.5})
    labels, parties, scores = scores_by_label(Stored)
    assert (labels, parties) == (["x", "y"], ["ana", "ben"])
    assert scores[0, 0] == 0.5
    assert scores[0, 1] != scores[0, 1]  # ben does not know x
    console = Console(width=100, record=True)
    console.print(label_table(Stored), party_table(Stored))
    text = console.export_text()
    assert "0.500" in text
    assert "0.250" in text
    assert "8" in text  # positive rows of y at both parties
    save_label_heatmap(Stored, tmp_path / "labels.png")
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")
