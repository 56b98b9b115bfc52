"""`ask` over parties: equal to pandas, the same bits under a hidden sum, and no way around the floor."""

import numpy as np
import pandas as pd
import pytest

import tequio
from tequio.errors import ConfigError, PermissionDenied, TequioError

SCALES = {"age": [0, 100, 5], "bmi": [10, 60, 0.5]}
CITIES = np.array(["Oaxaca", "Puebla", "Tuxtla"])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(5)
    size = 1200
    found = pd.DataFrame({"age": rng.integers(18, 95, size), "bmi": (rng.normal(27, 4, size) * 2).round() / 2,
                          "sex": rng.choice(["F", "M"], size), "city": rng.choice(CITIES, size, p=[0.6, 0.3, 0.1]),
                          "hospital": rng.choice(["north", "south", "east", "west"], size),
                          "ill": rng.choice(["no", "yes"], size, p=[0.8, 0.2])})
    found.loc[rng.random(size) < 0.15, "bmi"] = np.nan
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    found.to_csv(path, index=False)
    return path, found


def ask(table, *questions, out=None, scales=SCALES, stages=(), **more):
    algorithm = {"name": "ask", "questions": list(questions), "scales": scales, **more.pop("algorithm", {})}
    return tequio.run(algorithm=algorithm, rounds=1, stages=list(stages), engine={"name": "local", "workers": 1},
                      data={"name": "csv", "path": str(table[0]), "target": "ill", "group": "hospital",
                            "missing": "keep", "partition": "natural", "test": 0.0,
                            "split": {"validation": 0.0, "test": 0.0}},
                      output={"folder": str(out or table[0].parent / "runs")}, **more).model


def test_pandas_gives_the_same(table):
    model = ask(table, "count, mean(age), sd(bmi), sum(bmi), share(ill = 'yes') by sex where age >= 40",
                algorithm={"floor": 1})
    rows, pooled = model["answers"][0]["rows"], table[1][table[1].age >= 40]
    for row in rows:
        mine = pooled[pooled.sex == row["sex"]]
        assert row["count"] == len(mine)
        assert [row["mean(age)"], row["sd(bmi)"], row["sum(bmi)"], row["share(ill = 'yes')"]] == pytest.approx(
            [mine.age.mean(), mine.bmi.std(), mine.bmi.sum(), (mine.ill == "yes").mean()], rel=1e-12)
    assert model["revealed"]["q0.sum_1"] == "2 (real)"


def test_a_hidden_sum_gives_the_same_bits(table):
    question = "count, mean(age), sd(bmi), median(bmi) by sex, city where age < 70"
    one, other = ask(table, question), ask(table, question, stages=["secure-sum"])
    assert one["answers"] == other["answers"]
    assert ask(table, "count by party")["answers"][0]["rows"][0] == {"party": "east", "count": int(
        (table[1].hospital == "east").sum())}
    with pytest.raises(ConfigError, match="'by party' would show each party's own sums"):
        ask(table, "count by party", stages=["secure-sum"])


def test_a_median_is_within_a_step_and_its_groups(table):
    for question, wanted, step in (("median(age)", table[1].age.median(), 5),
                                   ("quantile(bmi, 0.9)", table[1].bmi.quantile(0.9), 0.6)):
        answer = ask(table, question)["answers"][0]
        assert answer["rows"][0][question] == pytest.approx(wanted, abs=step)
        assert "are known to a step of" in answer["notes"][-1]
    with pytest.raises(PermissionDenied, match="single out"):  # bins of one crossed with those of the other
        ask(table, "median(age), quantile(bmi, 0.9)")


def test_small_cells_are_suppressed_and_never_0(table):
    answer = ask(table, "count, mean(bmi) by city, sex, bin(age, 20, 25, 90)")["answers"][0]
    pooled = table[1].assign(band=np.searchsorted([20, 25, 90], table[1].age, side="right"))
    few = 0
    for row in answer["rows"]:
        band = ["< 20", "20 to < 25", "25 to < 90", ">= 90"].index(row["bin(age)"])
        mine = pooled[(pooled.city == row["city"]) & (pooled.sex == row["sex"]) & (pooled.band == band)]
        if row["count"] == "suppressed":
            few += 1
        else:
            assert 10 <= row["count"] <= len(mine)
    assert few >= 10
    assert "4 parties left out cells of few rows" in answer["notes"][0]
    assert "suppressed, which is not to say 0" in answer["notes"][1]


def test_totals_may_be_exact_and_the_coordinator_withholds(table):
    """Parties that leave nothing out, under a hidden sum: what is small in total is withheld with what shows it."""
    question = "count by city, bin(age, 20)"
    model = ask(table, question, stages=["secure-sum"], algorithm={"minimum_count": 1, "floor": 25})
    rows = model["answers"][0]["rows"]
    counts = table[1].assign(young=table[1].age < 20).groupby(["city", "young"]).size()
    shown = {(row["city"], row["bin(age)"] == "< 20"): row["count"] for row in rows}
    small = {cell for cell, count in counts.items() if count < 25}
    withheld = {cell for cell, value in shown.items() if value == "suppressed"}
    assert small
    assert small <= withheld
    assert counts[list(withheld)].sum() >= 25
    assert all(value == counts[cell] for cell, value in shown.items() if cell not in withheld)
    assert {cell for cell in counts.index if cell not in withheld} == set(shown) - withheld


def test_questions_of_one_run_are_held_against_each_other(table):
    with pytest.raises(PermissionDenied, match="together with earlier questions this one would single out"):
        ask(table, "count where age < 60", "count where age < 60 or (age < 65 and sex = 'F' and city = 'Tuxtla')")


def test_what_does_not_fit_is_refused_before_anybody_is_asked(table):
    for question, cause in (("count where age < 37", "use 35 or 40"), ("count by agee", "no column 'agee'"),
                            ("mean(sex)", "categories"), ("drop table", "expected count")):
        with pytest.raises(ConfigError, match=cause):
            ask(table, "count", question)
    with pytest.raises(ConfigError, match="minimum_count = 20 is above"):
        ask(table, "count", algorithm={"minimum_count": 20})


POLICY = {"minimum_rows": 20, "minimum_count": 10}


def test_under_a_policy_questions_of_all_runs_are_held_against_each_other(table, tmp_path):
    first = ask(table, "count where age < 60", out=tmp_path, policy=POLICY)
    again = ask(table, "count  where  age<60", out=tmp_path, policy=POLICY, seed=4)
    assert first["answers"][0]["rows"][0].items() == again["answers"][0]["rows"][0].items()
    for value in range(5):
        with pytest.raises(PermissionDenied, match="would single out fewer than 10 rows"):
            ask(table, f"count where age < 60 or (age < 65 and bmi < {27 + value / 2} and sex = 'F')", out=tmp_path,
                policy=POLICY)
    with pytest.raises(PermissionDenied, match="5 questions about these rows were refused, and no further ones"):
        ask(table, "count by sex", out=tmp_path, policy=POLICY)
    assert ask(table, "count where age < 60", out=tmp_path, policy=POLICY)["answers"] == first["answers"]
    files = sorted(file.name for file in (tmp_path / "ledgers").iterdir())
    assert len(files) == 4
    assert all(name.endswith(".atoms.jsonl") for name in files)


def test_a_policy_tightens_and_never_loosens(table, tmp_path):
    rows = ask(table, "count by city, sex, bin(age, 20)", out=tmp_path, algorithm={"floor": 40},
               policy={"minimum_count": 40})["answers"][0]["rows"]
    assert all(row["count"] == "suppressed" or row["count"] >= 40 for row in rows)
    with pytest.raises(TequioError, match="may stand for fewer than 40 rows"):
        ask(table, "count", out=tmp_path, algorithm={"floor": 10, "minimum_count": 1}, policy={"minimum_count": 40})


def test_noise_is_paid_for_and_errors_are_reported(table, tmp_path):
    noised = {"stages": [{"name": "dp-sums"}], "privacy": {"epsilon": 4.0}, "out": tmp_path}
    row = ask(table, "count, mean(age) where age >= 40", **noised)["answers"][0]["rows"][0]
    pooled = table[1][table[1].age >= 40]
    assert 0 < row["count_se"] < 20
    assert abs(row["count"] - len(pooled)) < 5 * row["count_se"]
    assert abs(row["mean(age)"] - pooled.age.mean()) < 5 * row["mean(age)_se"] < 10
    with pytest.raises(ConfigError, match="scales of 'ask'"):
        ask(table, "mean(age)", scales={}, **noised)
