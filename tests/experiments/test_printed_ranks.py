"""The p-values that tables 5.9 and 5.14 are given in the studies follow from the mean ranks that stand beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import chi2

from tequio.models.statistics import rank_methods
from tequio.studies.answers import Decided
from tequio.studies.description import load_study
from tequio.views.results_page import _contest
from tequio.views.studies import contests_table

SHIPPED = Path(__file__).parents[2] / "studies"
ROWS = 179
"""Seeds of all data sets in the source."""

CONTESTS = [contest for table in ("5.9", "5.14")
            for contest in load_study(f"multilabel/table-{table}", SHIPPED).contests]


@pytest.mark.parametrize("contest", CONTESTS, ids=lambda contest: f"{contest.name} {len(contest.methods)}")
def test_a_printed_p_is_that_of_its_ranks(contest):
    methods = len(contest.methods)
    q = 12 * ROWS / (methods * (methods + 1)) * sum((rank - (methods + 1) / 2) ** 2 for rank in contest.ranks)
    assert float(chi2.sf(q, methods - 1)) == pytest.approx(contest.published, rel=0.05)
    assert f"Q = {q:.1f}"[:-1] in contest.note  # ranks are printed with four digits


def test_printed_ranks_stand_beside_ours():
    ranking = rank_methods([[0.9, 0.8], [0.7, 0.6]], ["a", "b"])
    decided = Decided("c", "accuracy", 0.05, (1.25, 1.75), ranking, ranking, None, {}, "a note")
    assert "a 1.000 (published 1.250), b 2.000 (published 1.750)" in _contest(decided)[4]
    assert "a 1.000 (published 1.250)" in str(list(contests_table("", [decided]).columns[4].cells))
