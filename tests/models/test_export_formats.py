"""Rules, torch weights, safetensors and scikit-learn: each is enough to answer rows, or says why it cannot be."""

from __future__ import annotations

import copy
import json
import os
import re

import numpy as np
import pytest
from exported_models import (
    TREES,
    answer_by_rules,
    edges,
    of_learner,
    rows_of,
    rules_of,
    run,
    session_of,
    table,
    trained,
    write,
)
from safetensors import safe_open
from sklearn.base import is_classifier

from contracts import runs
from tequio.cli.main import call
from tequio.errors import ConfigError
from tequio.learners.zoo import MLP, TextClassifier
from tequio.learners.zoo_images import CifarCNN, ComplexCNN

LINEAR = ["logistic", "two classes", "logistic-regression", "sgd-classifier"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    known = {}

    def model(kind):
        if kind not in known:
            known[kind] = trained(tmp_path_factory.mktemp("run"), kind)
        return known[kind]

    return model


@pytest.mark.parametrize("kind", [*TREES, *LINEAR])
def test_a_file_of_rules_alone_answers_every_row(models, kind, tmp_path):
    model, columns = models(kind), table()
    document = rules_of(model, tmp_path)
    del columns["y"]
    for rows in (columns, edges(document, columns)) if kind in TREES else (columns,):
        answers = np.array([answer_by_rules(document, row) for row in rows_of(rows)])
        np.testing.assert_allclose(answers, model.predict_proba(rows), rtol=0, atol=1e-6)
        assert [document["target"]["classes"][place] for place in answers.argmax(axis=1)] == \
            model.predict(rows).tolist()


def test_rules_speak_of_raw_columns_and_of_training_rows(models, tmp_path):
    document = rules_of(models("id3"), tmp_path)
    [rules] = document["trees"]
    assert {part["column"] for rule in rules for part in rule["if"]} <= {"age", "income", "city", "kind"}
    assert sum(rule["rows"] for rule in rules) == models("id3").common.model["counts"][0].sum() > 50
    assert {rule["then"] for rule in rules} <= {"low", "mid", "high"}
    for column in document["columns"]:
        assert (column["kind"] == "category") == ("categories" in column)
        assert "missing" in column


def test_rules_of_numbers_and_of_labels(tmp_path):
    columns = runs.rows(60, number=True)
    for learner in ("sgd-regressor", "logistic", "boosted-trees"):
        algorithm = "histogram-gbdt" if learner == "boosted-trees" else "fedavg"
        model = run(tmp_path, algorithm, learner, ["minmax", "standardise"], columns).trained
        rows = {name: values.astype(str).astype(object) for name, values in columns.items() if name != "y"}
        answers = [answer_by_rules(rules_of(model, tmp_path), row)[0] for row in rows_of(rows)]
        np.testing.assert_allclose(answers, model.predict(rows), rtol=0, atol=1e-5)
    columns = runs.labelled_rows(60)
    model = run(tmp_path, "fedavg", "logistic", ["log1p", "standardise"],
                {name: np.abs(values) for name, values in columns.items()}, target=list("vwxyz"),
                target_kind="multilabel").trained
    rows = {name: np.abs(columns[name]).astype(str).astype(object) for name in "abcd"}
    answers = [answer_by_rules(rules_of(model, tmp_path), row) for row in rows_of(rows)]
    np.testing.assert_allclose(answers, model.predict_proba(rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "voting"])
def test_what_has_no_rules_says_so(models, kind, tmp_path):
    with pytest.raises(ConfigError, match=r"rules.*--to onnx"):
        models(kind).export("rules", tmp_path / "rules.json")


@pytest.mark.parametrize("kind", ["logistic", "two classes", "mlp", "logistic-regression", "sgd-classifier",
                                  "cart", "forest", "majority"])
def test_a_pipeline_of_scikit_learn_answers_raw_rows(models, kind, tmp_path):
    model, columns = models(kind), table()
    del columns["y"]
    pipeline = model.export("sklearn")
    assert is_classifier(pipeline[-1])
    assert pipeline[-1].__module__.startswith("sklearn.")
    np.testing.assert_allclose(pipeline.predict_proba(columns), model.predict_proba(columns), rtol=0, atol=1e-6)
    assert pipeline.predict(columns).tolist() == model.predict(columns).tolist()
    assert pipeline.classes_.tolist() == model.classes.tolist()
    assert copy.deepcopy(pipeline).predict(write(tmp_path / "new.csv", columns)).tolist() == \
        model.predict(columns).tolist()


def test_scikit_learn_for_numbers_and_clusters(tmp_path):
    columns = runs.rows(60, number=True)
    rows = np.stack([columns[name] for name in "abcd"], axis=1).astype(np.float64)
    for learner in ("sgd-regressor", "logistic", {"name": "mlp", "hidden": [4]}):
        result = run(tmp_path, "fedavg", learner, ["standardise"], columns)
        np.testing.assert_allclose(result.export("sklearn").predict(rows), result.predict(rows), rtol=1e-5, atol=1e-6)
    result = run(tmp_path, {"name": "kmeans", "clusters": 3}, None, ["minmax"], columns)
    assert result.export("sklearn").predict(rows).tolist() == result.predict(rows).tolist()


@pytest.mark.parametrize(("kind", "why"), [("boosted", "boosted trees"), ("xgboost", "boosted trees"),
                                           ("id3", "multiway"), ("voting", "several models"),
                                           ("batch normalisation", "no form for a model of the learner 'torch'")])
def test_what_scikit_learn_has_no_form_for(models, kind, why):
    with pytest.raises(ConfigError, match=why):
        models(kind).export("sklearn")


def test_scikit_learn_is_not_written_as_a_pickle(models, tmp_path):
    with pytest.raises(ConfigError, match="runs code when it is read"):
        models("cart").export("sklearn", tmp_path / "model.pkl")
    assert not os.listdir(tmp_path)


def test_torch_weights_come_back_as_their_readme_says(models, tmp_path, monkeypatch):
    import torch

    images = np.random.default_rng(0).random((5, 3, 16, 16), dtype=np.float32)
    cases = [(models("mlp"), np.zeros((4, 8), np.float32)), (models("logistic-regression"), np.ones((4, 8))),
             (models("batch normalisation"), np.ones((4, 4), np.float32)),
             (of_learner(ComplexCNN(), images), images), (of_learner(CifarCNN(), images), images),
             (of_learner(MLP(hidden=(3,)), images), images)]
    for number, (model, rows) in enumerate(cases):
        folder = model.export("torch", tmp_path / str(number))
        assert sorted(os.listdir(folder)) == ["README.md", "description.json", "weights.safetensors"]
        [code] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
        monkeypatch.chdir(folder)
        made = {}
        exec(code, made)
        tensor = torch.from_numpy(rows)
        with torch.inference_mode():
            torch.testing.assert_close(made["module"](tensor), model.module()(tensor), rtol=0, atol=1e-6)
        assert all(torch.equal(made["module"].state_dict()[name], values)
                   for name, values in model.module().state_dict().items())
        description = json.loads((folder / "description.json").read_text())
        assert description["target"]["classes"] == model.classes.tolist()
        assert len(description["prepared_columns"]) == int(np.prod(description["shape"]))


def test_a_tree_is_no_torch_module(models, tmp_path):
    with pytest.raises(ConfigError, match="'random-forest' is no torch module"):
        models("forest").export("torch", tmp_path / "model")
    assert not os.listdir(tmp_path)


def test_word_vectors_cannot_go_into_onnx_but_into_safetensors(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 20, (6, 5)).astype(np.float32)
    model = of_learner(TextClassifier(vocabulary=20, dimension=4), tokens)
    with pytest.raises(ConfigError, match="layer 'EmbeddingBag'"):
        model.export("onnx", tmp_path / "model.onnx")
    with safe_open(model.export("safetensors", tmp_path / "model.safetensors"), "np") as file:
        assert "answer/model/embedding.weight" in file.keys()  # noqa: SIM118 - it is no dict


def test_safetensors_hold_every_array_by_name(models, tmp_path):
    with safe_open(models("logistic").export("safetensors", tmp_path / "model.safetensors"), "np") as file:
        assert np.array_equal(file.get_tensor("answer/model/output.weight"),
                              models("logistic").common.model["output.weight"])
        document = json.loads(file.metadata()["tequio"])
    assert document["classes"] == models("logistic").classes.tolist()
    assert document["answer"]["answer"] == "one"
    steps = [step["name"] for step in document["reading"]["preparation"]["steps"]]
    assert steps == ["impute", "standardise", "one-hot"]


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result = run(tmp_path, {"name": "ditto"}, "logistic", ["one-hot"])
    place, party = str(result.folder), result.trained.parties[1]
    assert call(["export", place, "--to", "onnx"]) == 2
    assert "--party NAME" in " ".join(capsys.readouterr().err.split())
    assert call(["export", place, "--to", "onnx", "--party", party]) == 0
    assert capsys.readouterr().out.startswith(f"written   small-{party}.onnx (")
    assert len(session_of(tmp_path / f"small-{party}.onnx").get_inputs()) == 4
    assert call(["export", place, "--to", "torch", "--party", "coordinator", "--out", "sub/dir", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][2] == "sub/dir/weights.safetensors"
    for wrong, told in ((["--to", "pmml"], "there is no format 'pmml'"), (["--to", "sklearn"], "In Python"),
                        (["--to", "rules", "--out", "rows.csv/x"], "cannot be written")):
        assert call(["export", place, "--party", party, *wrong]) != 0
        assert told.lower() in " ".join(capsys.readouterr().err.split()).lower()
    assert call(["export", "rows.csv", "--to", "onnx"]) != 0


def test_an_export_without_a_path_names_one(models):
    with pytest.raises(ConfigError, match=re.escape("model.export('rules', 'model.json')")):
        models("cart").export("rules")
