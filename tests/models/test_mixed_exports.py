"""Models of tables with categories and missing values, outside tequio: the same answers, gaps and all."""

from __future__ import annotations

import numpy as np
import pytest
from exported_models import holds, inputs_of, rules_of, run, session_of

from tequio.models.reasons import reason_for
from tequio.models.rows import asked

RUNS = {"icdta4fl": {"name": "cart", "depth": 4}, "fedrf": {"name": "random-forest", "trees": 10, "columns": 1.0},
        "icdta4fl-plus": {"name": "id3", "depth": 3}, "xgboost-bagging": {"name": "xgboost", "depth": 3}}


def gappy(rows=300, seed=0, number=False):
    """Columns as a CSV file holds them, with empty places; numbers of few digits, as single precision has them."""
    draw = np.random.default_rng(seed)
    age, city = draw.integers(20, 80, rows) / 2, draw.choice(["rome", "oslo", "bonn", "lima"], rows)
    size = draw.choice(["s", "m", "l"], rows)
    score = age / 10 + 2.0 * (city == "oslo") - 1.5 * (size == "s")
    columns = {"age": [f"{value:g}" for value in age], "city": city.tolist(), "size": size.tolist()}
    for values in columns.values():
        for place in np.flatnonzero(draw.random(rows) < 0.15).tolist():
            values[place] = ""
    columns["y"] = [f"{value:.3f}" if number else "high" if value > 2.5 else "low" for value in score]
    return {name: np.array(values, dtype=object) for name, values in columns.items()}


def model_of(folder, name, number=False):
    own = {"trees": 5} if name == "fedrf" else {}
    return run(folder, {"name": name, **own}, RUNS[name], [], gappy(number=number), missing="keep").trained


@pytest.mark.parametrize("number", [False, True], ids=["classes", "number"])
@pytest.mark.parametrize("name", RUNS)
def test_gaps_go_the_same_way_in_onnx_and_in_rules(name, number, tmp_path):
    if number and RUNS[name]["name"] == "id3":
        return
    model, fresh = model_of(tmp_path, name, number), gappy(200, seed=7)
    rows = {column: values for column, values in fresh.items() if column != "y"}
    scores = model.predict(rows) if number else model.predict_proba(rows)
    session = session_of(model.export("onnx", tmp_path / "model.onnx"))
    label, *rest = session.run(None, inputs_of(session, rows))
    np.testing.assert_allclose(rest[0] if rest else label, scores, rtol=1e-6, atol=1e-6)
    assert np.isfinite(scores).all()
    document = rules_of(model, tmp_path)
    kinds = {column["name"]: column["kind"] for column in document["columns"]}
    for place in range(60):
        row = {column: values[place] for column, values in rows.items()}
        sums = np.array(document["start"])
        for tree in document["trees"]:
            [rule] = [rule for rule in tree if all(met(part, row, kinds) for part in rule["if"])]
            sums = sums + rule["adds"]
        sums = sums / document["divide"]
        if document["link"] == "logistic":
            sums = np.array([1 / (1 + np.exp(sums[0])), 1 / (1 + np.exp(-sums[0]))])
        np.testing.assert_allclose(sums[0] if number else sums, scores[place], rtol=1e-5, atol=1e-6)


def met(part, row, kinds):
    """Whether a row meets a condition: a few lines that know nothing but the file."""
    text = row[part["column"]]
    if text == "":
        return part.get("or_missing", False)
    return holds(part, float(text) if kinds[part["column"]] == "number" else text)


def test_a_category_never_seen_is_not_taken_for_a_missing_one(tmp_path):
    model, rows = model_of(tmp_path, "icdta4fl"), gappy(4)
    rows["city"][0] = "paris"
    session = session_of(model.export("onnx", tmp_path / "model.onnx"))
    answers = session.run(None, inputs_of(session, rows))[1]
    assert np.isnan(answers).all(axis=1).tolist() == [True, False, False, False]


def test_a_reason_names_what_is_missing(tmp_path):
    model, rows = model_of(tmp_path, "icdta4fl"), gappy(50, seed=3)
    whole = {column: values for column, values in rows.items() if column != "y"}
    texts = reason_for(model)(asked(model.reading, whole).rows)
    assert len(texts) == 50
    assert all(" then " in text for text in texts)
    empty = [text for text, city in zip(texts, whole["city"], strict=True) if city == "" and "city" in text]
    assert empty
    assert all("missing" in text for text in empty)
