"""`tequio ask`: tables on the screen, JSON, and refusals that say what to type."""

import json

import numpy as np
import pytest


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    lines = ["age,sex,ill,hospital", *(f"{rng.integers(18, 95)},{rng.choice(['F', 'M'])},{rng.choice(['no', 'yes'])},"
                                       f"{'nsew'[index % 4]}" for index in range(400))]
    (tmp_path / "patients.csv").write_text("\n".join(lines))
    (tmp_path / "train.toml").write_text("""
rounds = 30
[data]
name = "csv"
path = "patients.csv"
target = "ill"
group = "hospital"
partition = "natural"
test = 0.0
[learner]
name = "logistic"
[local]
epochs = 3
""")
    return "train.toml"


def test_a_training_config_says_whose_rows_are_asked(config, tequio):
    code, shown, _ = tequio("ask", "count, mean(age) by sex", "--parties", config, "-q")
    assert code == 0
    assert "count, mean(age) by sex" in shown
    assert shown.count("\n") > 5
    _, printed, _ = tequio("ask", "count by party", "count where age < 40", "--parties", "last", "--scale",
                           "age=0:100:5", "--json", "-q")
    found = json.loads(printed)
    assert [row["count"] for row in found["answers"][0]["rows"]] == [100] * 4
    assert found["revealed"]["q1.n"] == "1 (count)"
    assert 0 < found["answers"][1]["rows"][0]["count"] < 400


@pytest.mark.parametrize(("arguments", "said"), [
    (["count where age < 37", "--scale", "age=0:100:5"], "use 35 or 40"),
    (["count", "--scale", "age"], "such as --scale age=0:100:5"), (["count wher sex = 'F'"], "expected ','")])
def test_refusals_say_what_to_type(config, tequio, arguments, said):
    code, _, refused = tequio("ask", *arguments, "--parties", config, "-q")
    assert code == 2
    assert said in " ".join(refused.replace("│", " ").split())
