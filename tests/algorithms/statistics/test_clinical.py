"""The clinical example: what five hospitals find together equals what one table would say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tequio
from tequio.data.catalogue.clinical import MadeUpPatients
from tequio.errors import ConfigError
from tequio.views.estimates import printed
from tequio.views.report import report_page
from tequio.views.run_estimates import PICTURES, estimates_of, methods_of

smf = pytest.importorskip("statsmodels.formula.api")
SURVIVAL = "Surv(months, died) ~ treatment"
EXAMPLE = Path(__file__).parents[3] / "examples" / "clinical.toml"


def patients(**parameters):
    """The made-up patients as one table."""
    rows = MadeUpPatients(**parameters).load().train
    table = pd.DataFrame(rows.features, columns=list(rows.schema.names))
    return table.assign(hospital=rows.groups, readmitted=rows.target)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return tequio.run(EXAMPLE, output={"folder": str(tmp_path_factory.mktemp("runs"))})


def test_five_hospitals_find_what_one_table_with_an_intercept_for_each_would_say(found):
    table = patients()
    pooled = smf.logit("readmitted ~ treatment + age + sex + C(stage) + np.log(crp) + C(hospital)", table).fit(
        disp=0, tol=1e-12)
    names = ["treatment", "age", "sex", *(f"C(stage)[T.{stage}.0]" for stage in (1, 2, 3)), "np.log(crp)"]
    rows = found.model["tables"]["coefficients"]
    assert [row["term"] for row in rows] == ["treatment[new]", "age", "sex[male]", "stage[II]", "stage[III]",
                                             "stage[IV]", "log(crp)"]
    np.testing.assert_allclose([row["estimate"] for row in rows], pooled.params[names], rtol=1e-7)
    np.testing.assert_allclose([row["se"] for row in rows], pooled.bse[names], rtol=1e-7)
    facts = {row["quantity"]: row["value"] for row in found.model["tables"]["fit"]}
    assert (facts["rows"], facts["rows left out"]) == (table["crp"].notna().sum(), table["crp"].isna().sum())


def test_variance_inflation_beside_intercepts_of_sites_is_that_of_the_columns(found):
    table = patients().dropna()
    columns = np.column_stack([table["treatment"], table["age"], table["sex"], *(table["stage"] == stage for stage
                               in (1, 2, 3)), np.log(table["crp"])])
    pooled = np.diag(np.linalg.inv(np.corrcoef(columns, rowvar=False)))
    factors = {row["term"]: row["factor"] for row in found.model["tables"]["variance inflation"]}
    assert [factors[name] for name in ("treatment", "age", "sex", "log(crp)")] == pytest.approx(
        pooled[[0, 1, 2, 6]], rel=1e-9)


def test_made_up_patients_are_what_their_description_says():
    table, again, other = patients(), patients(), patients(seed=1)
    pd.testing.assert_frame_equal(table, again)
    assert not table["age"].equals(other["age"])
    assert list(table["hospital"].value_counts().index) == MadeUpPatients().hospitals
    many = patients(patients=60_000, missing=0.0)
    truth = smf.logit("readmitted ~ treatment + age + sex + stage + np.log(crp) + C(hospital)", many).fit(disp=0)
    assert abs(truth.params["treatment"] + 0.6) < 3 * truth.bse["treatment"]
    assert set(table["months"]) <= set(range(1, 61))
    assert table["crp"].isna().mean() == pytest.approx(0.05, abs=0.015)


def test_a_report_shows_odds_ratios_first_with_their_forest_plot_and_the_words_for_a_paper(found):
    page = report_page([found.folder])
    assert page.index("Odds ratio (95% CI)") < page.index("data:image/svg+xml;base64,") < page.index("All numbers")
    row = next(row for row in found.model["tables"]["coefficients"] if row["term"] == "stage[IV]")
    assert f"{row['odds ratio']:.2f} ({row['odds ratio low']:.2f} to {row['odds ratio high']:.2f})" in page
    assert "totals over all sites only (secure aggregation)" in page
    assert ">Northfield (" in page  # names of hospitals are not cut


def test_survival_and_effects_have_tables_pictures_and_words_too(tmp_path):
    def run(**algorithm):
        return tequio.run(EXAMPLE, algorithm=algorithm, output={"folder": str(tmp_path)})

    curves = run(name="kaplan-meier", formula=SURVIVAL, step=6, horizon=60)
    first = estimates_of(curves).rows[0]
    assert printed(estimates_of(curves))[0] == ["", "Estimate (95% CI)"]  # no p-value where nothing is tested
    row = curves.model["tables"]["survival"][0]
    assert (first["strata"], first["estimate"], first["n.risk"]) == ("standard", row["survival"], row["at risk"])
    assert PICTURES["survival"](curves, "").axes[0].get_xlabel() == "Months"
    assert "data:image/svg+xml;base64," in report_page([curves.folder])
    with pytest.raises(ConfigError, match="no forest plot"):
        PICTURES["forest"](curves, "")
    hazards = run(name="cox", formula=SURVIVAL + " + age + sex + stage + log(crp)")
    found = estimates_of(hazards)
    assert (found.ratio, found.rows[0]["term"]) == ("Hazard ratio", "treatment[new]")
    assert found.glance["nevent"] == sum(patients().dropna()["died"])
    assert "stratified by site" in methods_of(hazards)
    effect = run(name="effect", formula="readmitted ~ age + sex + stage + log(crp)", treatment="treatment")
    assert [row["term"] for row in estimates_of(effect).rows] == ["mean if treated", "mean if not", "difference"]
    with pytest.raises(ConfigError, match="survival curves are of 'kaplan-meier'"):
        PICTURES["survival"](effect, "")
