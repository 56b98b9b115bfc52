"""An exported ONNX file answers raw rows as the model does, in onnxruntime, which knows nothing of tequio."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from exported_models import (
    KINDS,
    TREES,
    edges,
    inputs_of,
    of_learner,
    rules_of,
    run,
    session_of,
    table,
    trained,
)
from scipy import sparse

from contracts import runs
from tequio.algorithms.personal.flprotector import Routed
from tequio.algorithms.vertical.answering import Part
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.preprocessing import fit_and_prepare, preparations
from tequio.errors import ConfigError, MissingExtra
from tequio.learners.own_modules import FromFactory
from tequio.learners.routers.router import Own, fit_router
from tequio.learners.zoo import MLP, Logistic
from tequio.learners.zoo_images import CifarCNN, ComplexCNN, SimpleCNN
from tequio.models.exporting.plan import plan_of
from tequio.models.model import Model
from tequio.models.rows import Reading
from tequio.registry import build


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    known = {}

    def model(kind):
        if kind not in known:
            known[kind] = trained(tmp_path_factory.mktemp("run"), kind)
        return known[kind]

    return model


def same(model, path, columns=None, feed=None, atol=1e-6):
    """The session's answers, once they are known to be those of the model."""
    session = session_of(path)
    label, *rest = session.run(None, inputs_of(session, columns) if feed is None else {"rows": feed})
    rows = {name: values for name, values in columns.items() if name != "y"} if feed is None else feed
    expected = model.predict(rows)
    if rest:
        np.testing.assert_allclose(rest[0], model.predict_proba(rows), rtol=0, atol=atol)
    assert label.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(label, expected, rtol=1e-6, atol=1e-6)
    else:
        assert (label == expected).all()
    return label, *rest


@pytest.mark.parametrize("kind", KINDS)
def test_raw_rows_get_the_same_classes_and_probabilities(models, kind, tmp_path):
    model = models(kind)
    path = model.export("onnx", tmp_path / "model.onnx")
    columns = table()
    label, probabilities = same(model, path, columns, atol=1e-12 if kind in TREES else 1e-6)
    assert len(np.unique(label)) > 1
    assert probabilities.dtype == np.float64
    if kind in TREES:
        same(model, path, edges(rules_of(model, tmp_path), columns), atol=1e-12)


def test_classes_that_are_whole_numbers_are_so_in_the_file(models, tmp_path):
    columns = table()
    label, _ = same(models("two classes"), models("two classes").export("onnx", tmp_path / "m.onnx"), columns)
    assert label.dtype == np.int64
    assert set(label) == {-1, 1}


def test_a_row_that_cannot_be_answered_says_so_and_harms_no_other(models, tmp_path):
    """The graph cannot refuse: such rows get NaN and an empty class, as `unseen="skip"` leaves them empty."""
    columns = {name: values[:6].copy() for name, values in table().items()}
    columns["city"][0], columns["income"][1], columns["income"][2], columns["age"][3] = "paris", "", "inf", ""
    for kind, empty in (("forest", ""), ("logistic", ""), ("id3", "")):
        session = session_of(models(kind).export("onnx", tmp_path / "model.onnx"))
        label, probabilities = session.run(None, inputs_of(session, columns))
        assert [text == empty for text in label] == [True, False, True, False, False, False]  # income is filled in too
        assert np.isnan(probabilities).all(axis=1).tolist() == [True, False, True, False, False, False]
        kept = {name: values[3:] for name, values in columns.items() if name != "y"}
        assert label[3:].tolist() == models(kind).predict(kept).tolist()
    columns["income"][4] = "-1"  # has no logarithm
    session = session_of(models("logistic-regression").export("onnx", tmp_path / "model.onnx"))
    assert np.isnan(session.run(None, inputs_of(session, columns))[1]).all(axis=1).tolist() == \
        [True, False, True, False, True, False]


def test_an_empty_class_is_no_class_where_these_are_numbers(tmp_path):
    columns = table()
    columns["y"] = np.where(columns["y"] == "high", "-1", "3").astype(object)
    model = run(tmp_path, "icdta4fl", "cart", ["ordinal"], columns).trained
    session = session_of(model.export("onnx", tmp_path / "model.onnx"))
    columns["city"][:] = "atlantis"
    assert set(session.run(["label"], inputs_of(session, columns))[0]) == {-2}


def test_columns_may_be_called_as_the_outputs_are(tmp_path):
    columns = table()
    columns = {"label": columns["city"], "probabilities": columns["age"], "y": columns["y"]}
    model = run(tmp_path, "fedavg", "logistic", ["one-hot", "standardise"], columns).trained
    session = session_of(model.export("onnx", tmp_path / "model.onnx"))
    assert [given.name for given in session.get_inputs()] == ["column label", "column probabilities"]
    label = session.run(["label"], inputs_of(session, {f"column {name}": part for name, part in columns.items()}))[0]
    assert label.tolist() == model.predict({name: columns[name] for name in ("label", "probabilities")}).tolist()


def test_the_file_says_what_it_wants(models, tmp_path):
    path = models("forest").export("onnx", tmp_path / "model.onnx")
    said = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(said["columns"]) == ["age", "income", "city", "kind"]
    assert json.loads(said["classes"]) == models("forest").classes.tolist()
    assert json.loads(said["categories"])["kind"] == ["a", "b"]
    assert json.loads(said["filled"])["city"] in ("leon", "oslo", "rome", "bergen")
    assert json.loads(said["facts"])["algorithm"] == "fedrf"


@pytest.mark.parametrize("learner", ["sgd-regressor", "logistic", {"name": "mlp", "hidden": [4]},
                                     {"name": "boosted-trees", "depth": 2}, {"name": "xgboost", "depth": 2}])
def test_numbers_and_a_table_without_categories(learner, tmp_path):
    """Rows of numbers are one matrix."""
    columns = {name: values for name, values in runs.rows(60, number=True).items() if name != "d"}
    name = learner if isinstance(learner, str) else learner["name"]
    algorithm = {"boosted-trees": "histogram-gbdt", "xgboost": "xgboost-bagging"}.get(name, "fedavg")
    model = run(tmp_path, algorithm, learner, ["standardise"], columns).trained
    path = model.export("onnx", tmp_path / "model.onnx")
    rows = np.stack([columns[name] for name in "abc"], axis=1).astype(np.float64)
    (label,) = same(model, path, feed=rows)
    assert label.shape == (60,)
    assert np.isnan(session_of(path).run(None, {"rows": rows + np.inf})[0]).all()


def test_clusters(tmp_path):
    columns = runs.rows(80)
    model = run(tmp_path, {"name": "kmeans", "clusters": 3}, None, ["minmax"], columns).trained
    path = model.export("onnx", tmp_path / "model.onnx")
    rows = np.stack([columns[name] for name in "abcd"], axis=1).astype(np.float64)
    (label,) = same(model, path, feed=rows)
    assert label.dtype == np.int64
    rows[1, 2] = np.inf
    assert session_of(path).run(None, {"rows": rows})[0][:2].tolist() == [label[0], -1]


@pytest.mark.parametrize("algorithm", ["fedavg", "mlfedavg", "mlfedavg-plus"])
def test_labels_of_one_network_and_of_all_parties_heads(algorithm, tmp_path):
    columns = runs.labelled_rows(90)
    partition = {"name": "iid", "parties": 3} if algorithm == "fedavg" else \
        {"name": "label-sets", "sizes": [1, 1, 1, 2]}
    result = run(tmp_path, {"name": algorithm, **runs.SETTINGS.get(algorithm, {})}, {"name": "mlp", "hidden": [5]},
                 ["standardise"], columns,
                 target=list("vwxyz"), target_kind="multilabel", partition=partition,
                 split={"validation": 0.1, "test": 0.2})
    model, rows = result.trained, np.stack([columns[name] for name in "abcd"], axis=1).astype(np.float64)
    label, probabilities = same(model, model.export("onnx", tmp_path / "model.onnx"), feed=rows)
    assert label.shape == probabilities.shape == (90, 5)
    if algorithm != "fedavg":
        party = model.of(model.parties[-1])
        label, _ = same(party, result.export("onnx", tmp_path / "own.onnx", party=model.parties[-1]), feed=rows)
        assert label.shape == (90, 2)


def test_a_partys_own_model(tmp_path):
    result = run(tmp_path, {"name": "ditto"}, "logistic", ["one-hot", "standardise"])
    with pytest.raises(ConfigError, match=r"own here.*--party NAME"):
        result.export("onnx", tmp_path / "model.onnx")
    answers = [same(result.trained.of(name), result.export("onnx", tmp_path / f"{name}.onnx", party=name), table())[1]
               for name in result.trained.parties[:2]]
    assert not np.allclose(*answers)


IMAGES = np.random.default_rng(2).random((40, 3, 12, 12), dtype=np.float32)


@pytest.mark.parametrize("learner", [SimpleCNN(), ComplexCNN(), CifarCNN(), MLP(hidden=(6,), activation="sigmoid")])
def test_images_through_networks(learner, tmp_path):
    model = of_learner(learner, IMAGES)
    draw = np.random.default_rng(3)
    weights = {name: np.abs(values + 0.05 * draw.standard_normal(values.shape, np.float32)) if "running_var" in name
               else values + 0.05 * draw.standard_normal(values.shape, np.float32)
               for name, values in model.common.model.items()}
    model = replace(model, common=replace(model.common, model=weights))
    same(model, model.export("onnx", tmp_path / "model.onnx"), feed=IMAGES)
    assert session_of(tmp_path / "model.onnx").get_inputs()[0].shape == ["rows", 3, 12, 12]


def test_a_layer_that_is_not_known_is_named(tmp_path):
    from torch import nn

    learner = FromFactory(lambda schema: nn.Sequential(nn.Linear(4, 3), nn.Hardswish()))
    strange = of_learner(learner, IMAGES[:, 0, 0, :4])
    with pytest.raises(ConfigError, match="layer 'Hardswish' that the export to ONNX does not know"):
        strange.export("onnx", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


ROUTERS = [{"name": "confidence", "sigmas": 0.0}, {"name": "energy", "sigmas": 0.0}, {"name": "pca", "components": 2},
           {"name": "mahalanobis", "sigmas": 0.5}, {"name": "one-class-svm", "sigmas": 0.0},
           {"name": "autoencoder", "epochs": 1, "sigmas": 0.0}, {"name": "statistics", "sigmas": 0.0},
           {"name": "likelihood-ratio", "sigmas": 0.0}]


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: router["name"])
@pytest.mark.parametrize("shape", [(6,), (1, 8, 8)], ids=str)
def test_routed_rows_go_the_same_way(router, shape, tmp_path):
    draw = np.random.default_rng(4)
    features = draw.random((60, *shape), dtype=np.float32)
    features[30:] = features[30:] ** 3 + 0.3
    model = of_learner(Logistic(), features)
    rows, learner = model.reading.rows_of(features[:30]), model.common.learner
    own = learner.initial(model.reading.schema, draw)
    made = build("router", router["name"], {key: value for key, value in router.items() if key != "name"})
    fitted = fit_router(made, rows, Own(learner, own), draw)
    if made.compares:
        fitted = made.meet(fitted, rows, [made.describe(model.reading.rows_of(features[30:]))])
    model = replace(model, common=Routed(learner, model.common.model, own, made, fitted))
    if len(shape) == 3 and router["name"] in ("statistics", "likelihood-ratio"):
        with pytest.raises(ConfigError, match=f"router '{router['name']}' cannot be exported"):
            model.export("onnx", tmp_path / "model.onnx")
        return
    mine = model.common.owned(model.reading.rows_of(features))
    assert 0 < mine.sum() < len(mine)
    same(model, model.export("onnx", tmp_path / "model.onnx"), feed=features)


STEPS = [["standardise"], ["minmax"], ["log1p", "standardise"], ["discretise", "ordinal"],
         [{"name": "discretise", "bins": 1}], ["standardise", "discretise", "one-hot", "minmax"],
         [{"name": "regroup", "groups": {"c": {"x": ["q", "r"]}}}, "one-hot", {"name": "drop", "columns": ["c=x"]}],
         ["ordinal", {"name": "discretise", "method": "cuts", "cuts": {"c": [0, 1]}}, "one-hot"]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_a_plan_prepares_as_the_training_did_to_the_last_bit(steps, dtype):
    draw = np.random.default_rng(6)
    schema = Schema((Feature("a"), Feature("b"), Feature("c", ("p", "q", "r", "s"))), Target("classes", ("n", "y")))
    values = np.column_stack([draw.normal(3, 1, 50) ** 2, draw.random(50), draw.integers(0, 4, 50)]).astype(dtype)
    values[:10, 0] = np.linspace(values[:, 0].min(), values[:, 0].max(), 10, dtype=dtype)
    rows = Dataset.of(schema, values, np.zeros(50, np.int64))
    fitted, [prepared] = fit_and_prepare(preparations(steps), [rows], [rows])
    plan = plan_of(Reading.of(rows, fitted))
    assert plan.schema == prepared.schema
    assert plan.apply(values).dtype == prepared.features.dtype
    assert np.array_equal(plan.apply(values), prepared.features)


@pytest.mark.parametrize("step", ["standardise", "minmax", "log1p"])
def test_sparse_rows_are_only_scaled(step, tmp_path):
    draw = np.random.default_rng(7)
    dense = np.where(draw.random((40, 6)) < 0.3, draw.random((40, 6)), 0).astype(np.float32)
    model = of_learner(Logistic(), dense)
    rows = Dataset.of(model.reading.schema, sparse.csr_matrix(dense), np.zeros(40, np.int64))
    fitted, [prepared] = fit_and_prepare(preparations([step]), [rows], [rows])
    model = replace(model, reading=Reading.of(rows, fitted))
    assert np.array_equal(plan_of(model.reading).apply(dense), prepared.features.toarray())
    session = session_of(model.export("onnx", tmp_path / "model.onnx"))
    np.testing.assert_allclose(session.run(None, {"rows": dense})[1], model.predict_proba(sparse.csr_matrix(dense)),
                               rtol=0, atol=1e-6)


def test_a_vertical_model_says_why_not(tmp_path):
    model = of_learner(Logistic(), IMAGES[:, 0, 0, :4])
    for to in ("onnx", "rules", "torch", "safetensors"):
        with pytest.raises(ConfigError, match="parties hold different columns"):
            Model(model.reading, Part("bank", {})).export(to, tmp_path / "model")


def test_onnx_is_named_where_it_is_missing_and_imported_by_nothing_else(monkeypatch, tmp_path):
    model = of_learner(Logistic(), IMAGES[:, 0, 0, :4])
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tequio\[export\]'"):
        model.export("onnx", tmp_path / "model.onnx")
    code = "import tequio.models.exporting.onnx_graph, sys; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
