"""What is run first: what open claims rest on, then numbers without a run, then those that cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tequio.studies.answers import row_of
from tequio.studies.description import Cell, Claim, Mean, load_study
from tequio.studies.keeping import keep_results, read_kept
from tequio.studies.missing import BudgetSpent, run_all, wanted_first
from tequio.studies.plans import make_plan, store_of
from tequio.studies.verdicts import sample_of

STUDIES = Path(__file__).parent / "toy_studies"
NAMES = ("unpublished", "told", "untold", "not run", "claimed", "averaged")


@pytest.fixture
def study():
    """Six cells with runs of their own, two seeds each."""
    toy = load_study("flowers", STUDIES)
    cells = [Cell(name=name, run=name, published=None if name == "unpublished" else 0.5) for name in NAMES]
    runs = {name: {"rounds": number} for number, name in enumerate(NAMES, start=1)}
    claims = [Claim(says=statement, where="y", holds=[statement]) for statement in ("claimed > the mean", "told > 0.1")]
    return toy.model_copy(update={"cells": cells, "runs": runs, "claims": claims,
                                  "means": [Mean(name="the mean", cells="averaged")]})


def wanted(study, tmp_path, kept, **options):
    """Names and seeds in order, with these values by cell kept."""
    plan = make_plan(study, out=tmp_path / "runs")
    rows = [row_of(study, cell, sample_of(dict(enumerate(kept.get(cell.name, ()))))) for cell in study.cells]
    keep_results(plan, rows, [], tmp_path)
    found = wanted_first([(plan, store_of(plan, tmp_path / "runs"), read_kept(tmp_path))], **options)
    return [(one.planned.run, one.planned.seed) for one in found]


def test_open_claims_come_first_then_what_has_no_run_then_what_cannot_be_told(study, tmp_path):
    kept = {"told": [0.5, 0.5], "untold": [0.9], "averaged": [0.5]}
    assert wanted(study, tmp_path, kept) == [
        ("claimed", 0), ("claimed", 1), ("averaged", 1), ("not run", 0), ("not run", 1), ("untold", 1),
        ("unpublished", 0), ("unpublished", 1)]
    assert wanted(study, tmp_path, kept, pattern="un*") == [("untold", 1), ("unpublished", 0), ("unpublished", 1)]


def test_numbers_of_an_earlier_config_are_made_again(study, tmp_path):
    wanted(study, tmp_path, {name: [0.5, 0.5] for name in NAMES})
    moved = study.model_copy(update={"runs": {**study.runs, "told": {"rounds": 9}}})
    plan = make_plan(moved, out=tmp_path / "runs")
    found = wanted_first([(plan, store_of(plan, tmp_path / "runs"), read_kept(tmp_path))])
    assert [(one.planned.run, one.planned.seed) for one in found] == [("told", 0), ("told", 1)]


def test_a_run_that_the_budget_stops_goes_on_from_its_round(study, tmp_path, monkeypatch):
    plan = make_plan(study, out=tmp_path / "runs", seeds=1, workers=1)
    found = wanted_first([(plan, store_of(plan, tmp_path / "runs"), read_kept(tmp_path))], "averaged")
    now, heard = [0.0], []

    def listen(kind, facts):
        heard.append((kind, facts.get("round")))
        now[0] = 4.0 if heard[-1] == ("round", 4) else now[0]

    monkeypatch.setattr("tequio.studies.missing.time.monotonic", lambda: now[0])
    with pytest.raises(BudgetSpent):
        run_all(found, {}, until=4.0, listen=listen)
    assert [round for kind, round in heard if kind == "round"] == [1, 2, 3, 4]
    heard.clear()
    run_all(found, {}, listen=listen)
    assert [round for kind, round in heard if kind == "round"] == [4, 5, 6]  # what it stopped in is not saved yet
