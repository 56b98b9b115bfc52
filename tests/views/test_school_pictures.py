"""Pictures of runs party by party, and of how alike clusters are: they show the numbers of the runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tequio.experiments.running.table import Table
from tequio.studies.comparisons import Agreement
from tequio.views.clusters import draw_agreement
from tequio.views.parties import draw_schools, party_means, save_schools


def of_seed(**accuracies: float) -> Any:
    """What a run left of its parties; the school called north has rows of one class, so no AUC."""
    table = Table()
    for name, accuracy in accuracies.items():
        table.add({"party": name, "category": "low" if name == "north" else "high", "rows": 10,
                   "accuracy": accuracy, "auc": float("nan") if name == "north" else 0.5})
    return SimpleNamespace(parties=table)


RUNS = {"alone": [of_seed(north=0.5, south=0.7), of_seed(north=0.7, south=0.9)],
        "federated": [of_seed(north=0.8, south=0.6), of_seed(north=0.8, south=0.8)]}


def test_a_row_a_school_with_means_over_seeds() -> None:
    north, south = party_means(RUNS)
    assert north["party"] == "north"
    assert (north["category"], north["rows"]) == ("low", 10)
    assert (north["alone.accuracy"], north["federated.accuracy"]) == pytest.approx((0.6, 0.8))
    assert (south["alone.accuracy"], south["federated.accuracy"]) == pytest.approx((0.8, 0.7))
    assert north["alone.auc"] is None
    assert south["alone.auc"] == 0.5


def test_a_school_that_a_run_lacks_is_left_out() -> None:
    assert [row["party"] for row in party_means({**RUNS, "other": [of_seed(south=0.5)]})] == ["south"]


def test_runs_are_drawn_against_each_other_by_category(tmp_path: Any) -> None:
    figure = draw_schools(party_means(RUNS), list(RUNS), "accuracy", title="schools")
    across = figure.axes[1]  # federated across, alone below
    assert [line.get_label() for line in across.lines[:2]] == ["low", "high"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in across.lines[:2]] == [
        (pytest.approx([0.8]), pytest.approx([0.6])), (pytest.approx([0.7]), pytest.approx([0.8]))]
    assert list(across.lines[2].get_xdata()) == pytest.approx([0.6, 0.8])  # where both are alike
    picture, table = save_schools(RUNS, tmp_path / "new" / "schools.png", metric="accuracy")
    assert picture.stat().st_size > 5000
    assert table.read_text().splitlines()[0] == \
        "party,category,rows,alone.accuracy,federated.accuracy,alone.auc,federated.auc"


def test_agreement_over_rounds() -> None:
    curves = {"5 a round": Agreement((1, 2), (0.5, 0.9), (0.4, 0.8)), "all": Agreement((1, 2), (0.7, 1.0), (0.6, 1.0))}
    matched, pairs = draw_agreement(curves, title="clusters").axes[:2]
    assert [list(line.get_ydata()) for line in matched.lines] == [[0.5, 0.9], [0.7, 1.0]]
    assert [list(line.get_ydata()) for line in pairs.lines] == [[0.4, 0.8], [0.6, 1.0]]
    assert matched.get_ylabel() == "Jaccard index"
