"""Numbers that are kept beside the studies come out again, digit by digit, when their runs are made again."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from tequio import registry
from tequio.studies.answers import answer
from tequio.studies.description import load_study, study_names
from tequio.studies.keeping import read_kept, stale_lines
from tequio.studies.missing import missing_runs, run_all
from tequio.studies.plans import make_plan, store_of

SHIPPED = Path(__file__).parents[2] / "studies"
OF_A_CLOCK = {"seconds", "mean(seconds)", "fusion_seconds"}


@cache
def kept_cells():
    """Study, cell, what is kept of it, and whether its data come with tequio; of today's configs only."""
    found = []
    for name in study_names(SHIPPED):
        study, kept = load_study(name, SHIPPED), read_kept(SHIPPED / name)
        plan = make_plan(study, seeds=1, out=Path("runs"))
        stale = stale_lines(plan, kept)
        for cell in study.cells:
            numbers = kept.cells.get(cell.name, {})
            if {"by_seed", "seconds"} <= numbers.keys() and cell.name not in stale and cell.metric not in OF_A_CLOCK:
                bundled = all(registry.find("dataset", run.config.data.name).component.facts.files == ()
                              for run in plan.of_cell(cell)[0])
                found.append((study, cell, numbers, bundled))
    return found


def again(study, cell, seed, folder):
    """The number of one seed, from runs that are made now."""
    alone = study.model_copy(update={"cells": [cell], "means": [], "contests": [], "claims": [], "orders": [],
                                     "figure": None, "curves": None})
    plan, problems = make_plan(alone, seeds=seed + 1, out=folder, workers=1), {}
    store = store_of(plan, folder)
    run_all([one for one in missing_runs(plan, store) if one.planned.seed == seed], problems)
    assert not problems
    return answer(plan, store)[0].values[seed]


def check(cells, draw, folder):
    for number, (study, cell, kept, _) in enumerate(cells):
        seed = int(draw.choice(sorted(kept["by_seed"])))
        found = again(study, cell, seed, folder / str(number))
        expected = kept["by_seed"][str(seed)]
        assert expected is None or float(f"{found:.10g}") == expected, f"{study.name}: {cell.name}, seed {seed}"


def test_two_cells_on_data_that_come_with_tequio(tmp_path):
    cheap = [one for one in kept_cells() if one[3] and one[2]["seconds"] <= 1]
    if not cheap:
        pytest.skip("no cheap cell on data that come with tequio is kept by seed")
    draw = random.Random(6)
    check(draw.sample(cheap, 2), draw, tmp_path)


@pytest.mark.data
@pytest.mark.slow
def test_ten_cells_drawn_by_the_date(tmp_path):
    draw = random.Random(datetime.now(UTC).strftime("%Y-%m-%d"))
    check(draw.sample([one for one in kept_cells() if one[2]["seconds"] <= 20], 10), draw, tmp_path)
