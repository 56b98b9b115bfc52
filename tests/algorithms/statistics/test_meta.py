"""`meta` over parties: each party's own fit is that of statsmodels, and the pooled one that of its estimates."""

import numpy as np
import pytest
from pooled import SECURE, dealt

from tequio.algorithms.statistics.meta import Meta, powers_here, powers_layout
from tequio.algorithms.statistics.meta_analysis import Study, meta_analysis
from tequio.errors import ConfigError, DataError, TequioError


def fair():
    import statsmodels.api as sm

    rows = sm.datasets.fair.load_pandas().data
    return {"affair": (rows.affairs > 0).astype(float).to_numpy(), "age": rows.age.to_numpy(),
            "religious": rows.religious.to_numpy()}


def outcome(table, parties, stages=(), cells=None, **more):
    sums = dealt(table, parties, stages, cells=cells, what="meta")
    algorithm = Meta(stages=stages, **{"formula": "affair ~ age + religious", "family": "binomial", **more})
    return algorithm.round(sums.federation, algorithm.start(sums.federation)).model


def own_fits(table, parties):
    import statsmodels.api as sm

    design = sm.add_constant(np.column_stack([table["age"], table["religious"]]))
    fits = [sm.Logit(table["affair"][party::parties], design[party::parties]).fit(disp=0, tol=1e-12)
            for party in range(parties)]
    return [[Study(str(party), fit.params[term], fit.bse[term] ** 2) for party, fit in enumerate(fits)]
            for term in range(3)]


@pytest.mark.parametrize("method", ["fixed", "dl", "reml"])
def test_statsmodels_at_each_party_gives_the_same(method):
    table = fair()
    found = outcome(table, 6, method=method, hartung_knapp=method == "reml")
    assert [row["term"] for row in found["estimates"]] == ["const", "age", "religious"]
    for row, studies in zip(found["estimates"], own_fits(table, 6), strict=True):
        wanted = meta_analysis(studies, method, hartung_knapp=method == "reml")
        assert [row["estimate"], row["std.error"], row["Q"]] == pytest.approx(
            [wanted.estimate, wanted.std_error, wanted.q], rel=1e-5)
        assert row["tau2"] == pytest.approx(wanted.tau2, rel=1e-3, abs=1e-7)
    assert len(found["studies"]) == 18


@pytest.mark.parametrize("method", ["fixed", "dl"])
def test_a_hidden_sum_gives_the_same_pooled_estimate_and_no_study(method):
    one, other = outcome(fair(), 5, method=method), outcome(fair(), 5, SECURE, method=method)
    assert other["studies"] == []
    for open_row, hidden_row in zip(one["estimates"], other["estimates"], strict=True):
        assert open_row.pop("term") == hidden_row.pop("term")
        assert {key: open_row[key] for key in hidden_row} == pytest.approx(hidden_row, rel=1e-6, abs=1e-9)
    assert "single estimates were not seen" in other["notes"][-1]


def test_a_party_at_which_the_model_cannot_be_fitted_is_named_and_left_out():
    table = fair()
    parties = [np.arange(0, 6000, 2), np.arange(1, 6000, 2), np.flatnonzero(table["affair"] == 1)[-40:]]
    found = outcome(table, parties)
    assert found["notes"] == ["not fitted, and left out: 2"]
    assert {row["study"] for row in found["studies"]} == {"0", "1"}
    with pytest.raises(DataError, match="one study is no meta-analysis"):
        outcome(table, parties[1:])


def test_small_parties_keep_their_owners_rules():
    table = fair()
    parties = [np.arange(0, 6000, 2), np.arange(1, 6000, 2), np.arange(1900, 1930)]
    found = outcome(table, parties, cells={"minimum_rows": 50})
    assert found["notes"] == ["not fitted, and left out: 2"]


def test_what_does_not_go_together_is_refused():
    for more, said in (({"stages": SECURE}, "set algorithm.method = 'dl'"), ({"adhoc": True}, "adhoc would do nothing"),
                       ({"formula": "affair ~ C(religious)"}, "declare its categories")):
        with pytest.raises(ConfigError, match=said):
            outcome(fair(), 4, **more)


def test_a_coordinator_that_asks_about_many_variances_is_refused():
    sums = dealt(fair(), 4, SECURE, what="meta")
    settings = Meta(formula="affair ~ age", family="binomial")._settings()
    for tau2 in (0.0, 0.5):
        sums.ask(powers_here, powers_layout(2), {"tau2": np.full(2, tau2)}, settings)
    with pytest.raises(TequioError, match="asks about 2 variances between parties at most"):
        sums.ask(powers_here, powers_layout(2), {"tau2": np.full(2, 0.7)}, settings)
