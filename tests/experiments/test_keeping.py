"""Numbers of studies that are kept in the checkout: what is kept, what replaces what, and the page made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tequio.errors import ConfigError, RunError
from tequio.models.statistics import rank_methods
from tequio.studies.answered import answered
from tequio.studies.answers import Decided, row_of
from tequio.studies.description import Contest, load_study
from tequio.studies.fingerprints import fingerprint, keys_of
from tequio.studies.keeping import FILE, Kept, keep_results, kept_contests, kept_rows, read_kept, stale_lines
from tequio.studies.plans import make_plan
from tequio.studies.verdicts import Sample, sample_of
from tequio.views.results_page import study_part, summary_part
from tequio.views.studies import remark

STUDIES = Path(__file__).parent / "toy_studies"


@pytest.fixture
def study():
    return load_study("flowers", STUDIES)


def results(study, *values, **more):
    """All cells with these numbers for seeds 0, 1, ..., or for the seeds given."""
    by_seed = values[0] if values and isinstance(values[0], dict) else dict(enumerate(values))
    return [row_of(study, cell, sample_of(by_seed), **more) for cell in study.cells]


def plan_of(study, **options):
    return make_plan(study, out=Path("runs"), **options)


def test_numbers_come_back_by_seed_with_the_verdict_of_the_study(study, tmp_path):
    assert keep_results(plan_of(study), results(study, 0.375, 0.5, 0.625, seconds=1.2345), [], tmp_path) == 3
    kept = read_kept(tmp_path)
    rows = kept_rows(study, kept, stale_lines(plan_of(study), kept))
    assert [(row.cell, row.ours, row.sd, row.values, row.seconds, row.note) for row in rows] == [
        (cell.name, 0.5, 0.125, {0: 0.375, 1: 0.5, 2: 0.625}, 1.23, cell.note) for cell in study.cells]
    higher = study.model_copy(update={"cells": [cell.model_copy(update={"published": 0.9, "metric": "test.accuracy"})
                                                for cell in study.cells]})
    assert {row.verdict for row in kept_rows(higher, kept)} == {"worse"}
    assert {row.verdict for row in kept_rows(study, read_kept(tmp_path / "none"))} == {"not run"}


def test_numbers_without_seeds_of_their_own_are_read_too(study, tmp_path):
    """As results.json had them before it held numbers by seed."""
    name = study.cells[0].name
    (tmp_path / FILE).write_text(json.dumps({"cells": {name: {
        "metric": "test.accuracy", "ours": 0.5, "sd": 0.01, "seeds": 10, "config": "0"}}, "contests": {}}))
    first = kept_rows(study, read_kept(tmp_path))[0]
    assert (first.sample, first.verdict) == (Sample(0.5, 0.01, 10), "agrees")


def test_seeds_of_one_config_join_and_the_newest_number_of_a_seed_counts(study, tmp_path):
    plan = plan_of(study)
    keep_results(plan, results(study, 0.5, 0.6), [], tmp_path)
    assert keep_results(plan, results(study, 0.5, seconds=9.0), [], tmp_path) == 0
    assert keep_results(plan, results(study), [], tmp_path) == 0
    assert keep_results(plan, results(study, {1: 0.7, 4: 0.9}), [], tmp_path) == len(study.cells)
    kept = read_kept(tmp_path).cells[study.cells[0].name]
    assert (kept["by_seed"], kept["seeds"], kept["ours"]) == ({"0": 0.5, "1": 0.7, "4": 0.9}, 3, 0.7)


def test_numbers_of_an_earlier_config_are_marked_give_way_and_those_of_cells_that_are_gone_go(study, tmp_path):
    plan = plan_of(study)
    keep_results(plan, results(study, 0.5, 0.6), [], tmp_path)
    name = study.cells[0].name
    kept = read_kept(tmp_path)
    kept.cells[name]["config"] = "another"
    (tmp_path / FILE).write_text(json.dumps({"cells": kept.cells, "contests": {}, "keys": kept.keys}))
    notes = [row.note for row in kept_rows(study, read_kept(tmp_path), stale_lines(plan, read_kept(tmp_path)))]
    assert ["of an earlier config" in note for note in notes] == [True, False, False]
    keep_results(plan, results(study, 0.1), [], tmp_path)
    assert read_kept(tmp_path).cells[name]["by_seed"] == {"0": 0.1}
    assert read_kept(tmp_path).cells[study.cells[1].name]["by_seed"] == {"0": 0.1, "1": 0.6}

    fewer = study.model_copy(update={"cells": study.cells[1:], "means": []})
    keep_results(plan_of(fewer), results(fewer, 0.1), [], tmp_path)
    assert set(read_kept(tmp_path).cells) == {cell.name for cell in fewer.cells}


def test_a_new_key_at_its_default_leaves_numbers_as_they_are_and_another_value_does_not(study, tmp_path):
    plan = plan_of(study)
    keep_results(plan, results(study, 0.5), [], tmp_path)
    kept, cell = read_kept(tmp_path), study.cells[2]
    older = [key for key in keys_of(plan) if key not in ("local.momentum", "selector.fraction", "stop.patience")]
    assert len(older) == len(kept.keys) - 3
    before = Kept({name: value | {"config": fingerprint(plan, study.cells[0] if name != cell.name else cell, older)}
                   for name, value in kept.cells.items()}, {}, older)
    assert stale_lines(plan, before) == set()
    moved = study.model_copy(update={"config": {**study.config, "local": {**study.config["local"], "momentum": 0.5}}})
    assert stale_lines(plan_of(moved), before) == {cell.name for cell in study.cells}
    other_rate = {**study.config, "local": {**study.config["local"], "learning_rate": 0.2}}
    assert stale_lines(plan_of(study.model_copy(update={"config": other_rate})), before) == set(before.cells)
    # What is kept anew is fingerprinted by today's keys, what was not stale before included.
    (tmp_path / FILE).write_text(json.dumps({"cells": before.cells, "contests": {}, "keys": before.keys}))
    keep_results(plan, results(study, {7: 0.5})[:1], [], tmp_path)
    assert read_kept(tmp_path).keys == keys_of(plan)
    assert stale_lines(plan, read_kept(tmp_path)) == set()


def test_a_seed_that_never_got_there_is_worse_whatever_the_mean(study, tmp_path):
    keep_results(plan_of(study), results(study, 0.5, inf), [], tmp_path)
    rows = kept_rows(study, read_kept(tmp_path))
    assert {row.verdict for row in rows if row.published is not None} == {"worse"}
    assert {row.never for row in rows} == {1}
    assert rows[0].values == {0: 0.5, 1: inf}


def test_contests_come_back(study, tmp_path):
    contest = Contest(name="who", metric="test.accuracy", methods={"a": ["x"], "b": ["y"]}, published=0.01)
    with_contest = study.model_copy(update={"contests": [contest]})
    ranking = rank_methods([[0.5, 0.4], [0.6, 0.3], [0.2, 0.3]], ["a", "b"])
    decided = Decided("who", "test.accuracy", 0.01, (), ranking, ranking, 0.25, {"a": 2, "b": 1}, "")
    keep_results(plan_of(study), [], [decided], tmp_path)
    assert kept_contests(with_contest, read_kept(tmp_path)) == [decided]
    kept = read_kept(tmp_path)
    page = study_part(answered(with_contest, [], kept_contests(with_contest, kept)), kept)
    assert "| who | 0.01 | 0.564 (n = 3) | 0.25 (n = 3) | a 1.333, b 1.667; CD 1.1316 | no difference shown |" in page


def test_the_file_has_a_line_a_number_and_damage_is_reported(study, tmp_path):
    keep_results(plan_of(study), results(study, 0.5), [], tmp_path)
    text = (tmp_path / FILE).read_text()
    assert sum('"ours": 0.5' in line for line in text.splitlines()) == len(study.cells)
    assert json.loads(text)["cells"].keys() == {cell.name for cell in study.cells}
    (tmp_path / FILE).write_text(text[:-20])
    with pytest.raises(RunError, match="damaged"):
        read_kept(tmp_path)


def test_quick_numbers_are_not_kept(study, tmp_path):
    with pytest.raises(ConfigError, match="quick"):
        keep_results(plan_of(study, quick=True), results(study, 0.5), [], tmp_path)


def test_what_the_page_says_of_a_disagreement(study):
    cell = study.cells[0].model_copy(update={"published": 0.9, "note": "a *note*"})
    row = row_of(study, cell, Sample(0.8, 0.01, 4))
    assert (row.verdict, remark(row)) == ("worse", "0.1 under; a *note*")
    assert remark(row_of(study, cell, Sample(0.9, 0.01, 4))) == "a *note*"
    assert remark(replace(row, never=2, note="")) == "not reached in 2 of 4 seeds"
    assert remark(replace(row, repeats="b", note="")) == "0.1 under; counted as b, worse"


def test_a_line_a_study_with_its_verdicts_each_number_once(study):
    cells = [study.cells[0].model_copy(update={"name": name, **changes}) for name, changes in (
        ("a", {"published": 0.5}), ("b", {"published": 0.9}), ("c", {"published": None}),
        ("d", {"published": 0.5, "repeats": "a"}), ("e", {"published": None, "required": 0.4}))]
    samples = [Sample(0.5, 0.01, 9), Sample(), Sample(0.5, None, 1), Sample(0.5, 0.01, 9), Sample(0.5, 0.01, 9)]
    rows = [row_of(study, *pair) for pair in zip(cells, samples, strict=True)]
    lines = summary_part([answered(study, rows, [])]).splitlines()
    assert lines[0] == "| study | published numbers | agrees | better | worse | differs | cannot tell | other data " \
                       "| not run |"
    assert lines[2] == "| flowers | 2 | 1 |  |  |  |  |  | 1 |"
    assert lines[3] == "| all | 2 | 1 |  |  |  |  |  | 1 |"
