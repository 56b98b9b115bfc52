"""Numbers of studies that are kept in the checkout: what is kept, what replaces what, and the page made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tequio.errors import ConfigError, RunError
from tequio.models.statistics import rank_methods
from tequio.studies.answers import Decided, Row
from tequio.studies.description import Contest, load_study
from tequio.studies.keeping import FILE, configs_of, keep_results, kept_contests, kept_rows, read_kept
from tequio.studies.plans import make_plan
from tequio.views.studies import remark, study_part, summary_part

STUDIES = Path(__file__).parent / "toy_studies"


@pytest.fixture
def study():
    return load_study("flowers", STUDIES)


def answered(study, **changes):
    """All cells, three seeds each."""
    rows = [Row(cell.name, cell.published, 0.5, 0.125, 3, "reached", cell.metric, cell.tolerance, 1.0, (), "", "")
            for cell in study.cells]
    return [replace(row, **changes) for row in rows]


def plan_of(study, **options):
    return make_plan(study, out=Path("runs"), **options)


def test_numbers_come_back_with_the_verdict_of_the_study(study, tmp_path):
    assert keep_results(plan_of(study), answered(study), [], tmp_path) == len(study.cells)
    kept = read_kept(tmp_path)
    rows = kept_rows(study, kept, configs_of(plan_of(study)))
    assert [(row.cell, row.ours, row.sd, row.seeds) for row in rows[:len(study.cells)]] == [
        (cell.name, 0.5, 0.125, 3) for cell in study.cells]
    higher = study.model_copy(update={"cells": [cell.model_copy(update={"published": 1e9, "metric": "test.accuracy"})
                                                for cell in study.cells], "means": []})
    assert {row.verdict for row in kept_rows(higher, kept)} == {"below"}
    assert {row.verdict for row in kept_rows(study, read_kept(tmp_path / "none"))} == {"not run"}


def test_more_seeds_replace_fewer_and_never_the_other_way_round(study, tmp_path):
    plan = plan_of(study)
    keep_results(plan, answered(study), [], tmp_path)
    assert keep_results(plan, answered(study, seeds=2, ours=0.1), [], tmp_path) == 0
    assert keep_results(plan, answered(study, seeds=0, ours=None), [], tmp_path) == 0
    assert keep_results(plan, answered(study), [], tmp_path) == 0
    assert keep_results(plan, answered(study, seeds=5, ours=0.7), [], tmp_path) == len(study.cells)
    assert read_kept(tmp_path).cells[study.cells[0].name]["ours"] == 0.7


def test_numbers_of_an_earlier_config_are_told_apart(study, tmp_path):
    keep_results(plan_of(study), answered(study), [], tmp_path)
    now = configs_of(plan_of(study)) | {study.cells[0].name: "another"}
    notes = [row.note for row in kept_rows(study, read_kept(tmp_path), now)]
    assert "of an earlier config" in notes[0]
    assert "of an earlier config" not in notes[1]


def test_numbers_of_another_config_give_way_and_those_of_cells_that_are_gone_go(study, tmp_path):
    keep_results(plan_of(study), answered(study), [], tmp_path)
    kept = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(kept.replace(configs_of(plan_of(study))[study.cells[0].name], "another"))
    keep_results(plan_of(study), answered(study, seeds=2, ours=0.1), [], tmp_path)
    assert read_kept(tmp_path).cells[study.cells[0].name]["seeds"] == 2

    fewer = study.model_copy(update={"cells": study.cells[1:], "means": []})
    keep_results(plan_of(fewer), answered(fewer), [], tmp_path)
    assert set(read_kept(tmp_path).cells) == {cell.name for cell in fewer.cells}


def test_a_seed_that_never_got_there_is_below_whatever_the_mean(study, tmp_path):
    keep_results(plan_of(study), answered(study, never=1), [], tmp_path)
    published = [row for row in kept_rows(study, read_kept(tmp_path)) if row.published is not None and row.seeds]
    assert {row.verdict for row in published} <= {"below", "differs", "not comparable"}
    assert all(row.never == 1 for row in published)


def test_contests_come_back(study, tmp_path):
    contest = Contest(name="who", metric="test.accuracy", methods={"a": ["x"], "b": ["y"]}, published=0.01)
    with_contest = study.model_copy(update={"contests": [contest]})
    ranking = rank_methods([[0.5, 0.4], [0.6, 0.3], [0.2, 0.3]], ["a", "b"])
    decided = Decided("who", "test.accuracy", 0.01, (), ranking, ranking, 0.25, {"a": 2, "b": 1}, "")
    keep_results(plan_of(study), [], [decided], tmp_path)
    assert kept_contests(with_contest, read_kept(tmp_path)) == [decided]
    page = study_part(with_contest, read_kept(tmp_path), [], kept_contests(with_contest, read_kept(tmp_path)))
    assert "| who | 0.01 | 0.564 (n = 3) | 0.25 (n = 3) | a 1.333, b 1.667; CD 1.1316 | no difference shown |" in page


def test_the_file_has_a_line_a_number_and_damage_is_told(study, tmp_path):
    keep_results(plan_of(study), answered(study), [], tmp_path)
    text = (tmp_path / FILE).read_text()
    assert sum('"ours": 0.5' in line for line in text.splitlines()) == len(study.cells)
    assert json.loads(text)["cells"].keys() == {cell.name for cell in study.cells}
    (tmp_path / FILE).write_text(text[:-20])
    with pytest.raises(RunError, match="damaged"):
        read_kept(tmp_path)


def test_quick_numbers_are_not_kept(study, tmp_path):
    with pytest.raises(ConfigError, match="quick"):
        keep_results(plan_of(study, quick=True), answered(study), [], tmp_path)


def test_what_the_page_says_of_a_disagreement():
    row = Row("cell | one", 0.9, 0.85, 0.1, 4, "below", "test.accuracy", 0.005, None, (), "a *note*", "")
    assert remark(row) == "0.05 under (tolerance 0.005), within two standard errors; a *note*"
    assert remark(replace(row, sd=0.01)) == "0.05 under (tolerance 0.005); a *note*"
    assert remark(replace(row, verdict="reached")) == "a *note*"
    assert remark(replace(row, never=2, note="")) == "not reached in 2 of 4 seeds"


def test_a_line_a_study_with_its_verdicts(study):
    rows = [Row("a", 0.9, 0.95, None, 1, "reached", "m", 0.0, None, (), "", ""),
            Row("b", 0.9, None, None, 0, "not run", "m", 0.0, None, (), "", ""),
            Row("c", None, 0.5, None, 1, "no published number", "m", 0.0, None, (), "", "")]
    lines = summary_part([(study, rows)]).splitlines()
    assert lines[2] == "| flowers | 2 | 1 |  |  |  | 1 |"
    assert lines[3] == "| all | 2 | 1 | 0 | 0 | 0 | 1 |"
