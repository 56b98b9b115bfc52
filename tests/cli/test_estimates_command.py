"""`tequio estimates`: the tables and pictures of finished runs."""

import csv
import json

import numpy as np
import pytest

CONFIG = """
rounds = 1
[algorithm]
name = "{}"
{}
[data]
name = "csv"
path = "patients.csv"
target = "ill"
group = "hospital"
partition = "natural"
test = 0.0
split = {{validation = 0.0, test = 0.0}}
prepare = []
"""
MODEL = 'formula = "ill ~ age + sex"\nfamily = "binomial"'


@pytest.fixture
def finished(tmp_path, monkeypatch, tequio):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    lines = ["age,sex,ill,hospital", *(f"{rng.integers(18, 95)},{rng.choice(['F', 'M'])},{rng.choice(['no', 'yes'])},"
                                       f"{'nsew'[index % 4]}" for index in range(400))]
    (tmp_path / "patients.csv").write_text("\n".join(lines))

    def run(name, settings):
        (tmp_path / "one.toml").write_text(CONFIG.format(name, settings))
        assert tequio("run", "one.toml", "-q")[0] == 0

    return run


def test_a_regression_a_meta_analysis_and_tests(finished, tequio, tmp_path):
    tests = 'tests = ["welch(age by ill)", "chi2(sex, ill)"]'
    for name, settings in (("glm", MODEL), ("meta", MODEL), ("test", tests)):
        finished(name, settings)
        code, shown, _ = tequio("estimates", "last", "--save", "t.html", "--save", "t.csv", "--picture", "t.png")
        assert code == 0
        assert "95% CI" in shown
        rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
        assert [row["term"] for row in rows] == (["const", "age", "sex[M]"] if name != "test" else
                                                 ["welch(age by ill)", "chi2(sex, ill)"])
        assert (tmp_path / "t.png").stat().st_size > 3000
        paragraph = tequio("estimates", "last", "--methods")[1]
        assert "Data were held by 4 sites" in paragraph
        assert ("equal those of the pooled rows" in paragraph) == (name != "meta")
        assert "sha256" in paragraph
        found = json.loads(tequio("estimates", "last", "--json")[1])
        assert found["format"] == "tequio-tidy-1"
    code, _, refused = tequio("estimates", "last", "--picture", "f.png", "--kind", "funnel")
    assert code == 2
    assert "a funnel plot is of a meta-analysis" in refused


def test_other_runs_have_no_estimates(finished, tequio):
    finished("ask", "")
    code, _, refused = tequio("estimates", "last")
    assert code == 2
    assert "has no table of estimates" in refused
