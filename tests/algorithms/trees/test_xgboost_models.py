"""Federated XGBoost is what XGBoost itself does at the parties, and documents from others are read with care."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rivals import CONTINUE, blobs, federation, kept, one_more, replies_changed, run, spoilt_at

from parts import Parts
from tequio.algorithms.baselines.unfederated import Centralised
from tequio.algorithms.trees.xgboost_models import BoostedMargins, XGBoostBagging, XGBoostCyclic, boost
from tequio.errors import ConfigError, MissingExtra, PartyError, PayloadError
from tequio.experiments.config.complete import complete
from tequio.federation.selection import FixedParties
from tequio.learners.trees import xgboost_learner as xgboost_documents
from tequio.learners.trees.xgboost_learner import XGBoost, XGBoostModel

if TYPE_CHECKING:
    from tequio.federation.algorithm import Algorithm, State

xgboost = pytest.importorskip("xgboost")

LEARNER = XGBoost(trees=3, depth=3, learning_rate=0.3)
KINDS = {2: "binary:logistic", 3: "multi:softprob", None: "reg:squarederror"}


def parts(parties: tuple[str, ...] = ()) -> Parts:
    return Parts(learner=LEARNER, **({"selector": FixedParties(parties)} if parties else {}))


def margins(state: State, data: Any) -> np.ndarray:
    document, trees = LEARNER.opened(state.model, data.schema)
    return XGBoostModel.of(xgboost_documents.with_trees(document, trees), data.schema).margins(data.features)


def native(data: Any, classes: int | None, rounds: int, base: float, before: Any = None) -> Any:
    how = {"objective": KINDS[classes], "max_depth": 3, "eta": 0.3, "base_score": base, "nthread": 1, "seed": 1}
    how |= {"num_class": 3} if classes == 3 else {}
    return xgboost.train(how, xgboost.DMatrix(data.features, data.target), rounds, xgb_model=before)


def native_margins(booster: Any, data: Any) -> np.ndarray:
    scores = booster.predict(xgboost.DMatrix(data.features), output_margin=True)
    return scores if scores.ndim == 2 else scores[:, None]


def base_of(data: Any, classes: int | None) -> float:
    return 0.5 if classes else float(data.target.mean())


@pytest.mark.parametrize("classes", KINDS)
@pytest.mark.parametrize("algorithm", [XGBoostBagging, XGBoostCyclic])
def test_one_party_boosts_as_xgboost_does(algorithm: type[Algorithm], classes: int | None) -> None:
    data = blobs(200, classes)
    state = run(algorithm(**parts()), federation(data, 1), rounds=4)
    expected = native_margins(native(data, classes, 4, base_of(data, classes)), data)
    np.testing.assert_allclose(margins(state, data), expected, atol=1e-5)


@pytest.mark.parametrize("classes", KINDS)
def test_a_round_of_bagging_is_the_mean_step_of_the_parties(classes: int | None) -> None:
    data = blobs(200, classes)
    rows = [np.arange(50), np.arange(50, 200)]
    state = run(XGBoostBagging(trees=2, **parts()), federation(data, rows))
    base = base_of(data, classes)
    alone = [native_margins(native(data.take(part), classes, 2, base), data) for part in rows]
    np.testing.assert_allclose(margins(state, data), 0.25 * alone[0] + 0.75 * alone[1], atol=1e-5)
    uniform = run(XGBoostBagging(trees=2, weights="uniform", **parts()), federation(data, rows))
    np.testing.assert_allclose(margins(uniform, data), (alone[0] + alone[1]) / 2, atol=1e-5)


@pytest.mark.parametrize("classes", KINDS)
def test_cyclic_parties_go_on_from_each_others_model(classes: int | None) -> None:
    data = blobs(200, classes)
    asking = federation(data, 2)
    state = run(XGBoostCyclic(trees=2, **parts()), asking, rounds=3)
    booster = None
    for party in (0, 1, 0):
        rows = asking.population.view(party).train
        booster = native(rows, classes, 2, base_of(data, classes), booster)
    np.testing.assert_allclose(margins(state, data), native_margins(booster, data), atol=1e-5)


def test_a_party_that_missed_rounds_is_told_all_it_missed() -> None:
    data = blobs(200, classes=3)
    asking = federation(data, 2)
    state = run(XGBoostBagging(**parts()), asking)
    for parties in (("0",), ("0",)):
        state = one_more(XGBoostBagging(**parts(parties)), asking, state)
    one_more(XGBoostBagging(**parts()), asking, state)
    for party, known in kept(asking, BoostedMargins).items():
        rows = asking.population.view(party).train
        np.testing.assert_allclose(known["margins"], margins(state, rows), atol=1e-5)


@pytest.mark.parametrize("classes", KINDS)
def test_the_learner_is_xgboost(classes: int | None) -> None:
    data = blobs(200, classes)
    booster = native(data, classes, 3, base_of(data, classes))
    expected = booster.predict(xgboost.DMatrix(data.features))
    model = run(Centralised(**parts()), federation(data, 1)).model
    scores = LEARNER.predict(model, data)
    np.testing.assert_allclose(scores[:, 1] if classes == 2 else scores, expected, atol=1e-5)
    heavy = LEARNER.fit(data.take(np.arange(100)), np.random.default_rng(0), weights=np.full(100, 3.0))
    repeated = LEARNER.fit(data.take(np.tile(np.arange(100), 3)), np.random.default_rng(0))
    np.testing.assert_allclose(heavy.predict(data.features), repeated.predict(data.features), atol=1e-4)


def test_five_rows_and_one_class_are_enough() -> None:
    data = blobs(120, classes=3)
    five = np.flatnonzero(data.target == 2)[:5]
    rest = np.setdiff1d(np.arange(120), five)
    state = run(XGBoostBagging(**parts()), federation(data, [five, rest]), rounds=3)
    scores = LEARNER.predict(state.model, data)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0, atol=1e-6)
    assert (scores.argmax(axis=1) == data.target).mean() > 0.7


def document() -> dict[str, Any]:
    payload = LEARNER.fit(blobs(60), np.random.default_rng(0)).to_payload()
    one = xgboost_documents.without_first(xgboost_documents.from_bytes(payload["document"]), 2)
    return json.loads(json.dumps(one))


def changed(*path: Any, value: Any) -> np.ndarray:
    whole = document()
    place = whole["learner"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return xgboost_documents.to_bytes(whole)


TREE = ("gradient_booster", "model", "trees", 0)
WRONG: dict[str, Any] = {
    "nothing": None, "a list": [1, 2], "bytes that are no JSON": np.frombuffer(b"{", dtype=np.uint8),
    "a number": np.frombuffer(b"3", dtype=np.uint8), "deep": np.frombuffer(b"[" * 100_000, dtype=np.uint8),
    "numbers": np.zeros(8),
    "another objective": changed("objective", "name", value="reg:squarederror"),
    "another booster": changed("gradient_booster", "name", value="gblinear"),
    "another number of columns": changed("learner_model_param", "num_feature", value="5"),
    "another number of classes": changed("learner_model_param", "num_class", value="3"),
    "another start": changed("learner_model_param", "base_score", value="[9E-1]"),
    "two trees too few": changed("gradient_booster", "model", "trees", value=[]),
    "trees of other outputs": changed("gradient_booster", "model", "tree_info", value=[1]),
    "a child far away": changed(*TREE, "left_children", 0, value=10**6),
    "a cycle": changed(*TREE, "left_children", 1, value=0),
    "two parents": changed(*TREE, "right_children", 0, value=1),
    "a fraction of a child": changed(*TREE, "left_children", 0, value=1.5),
    "a huge child": changed(*TREE, "left_children", 0, value=10**30),
    "one child": changed(*TREE, "right_children", 0, value=-1),
    "a column that does not exist": changed(*TREE, "split_indices", 0, value=4),
    "a category": changed(*TREE, "split_type", 0, value=1),
    "an infinite leaf": changed(*TREE, "split_conditions", 0, value=float("inf")),
    "a leaf beyond single precision": changed(*TREE, "split_conditions", 0, value=1e39),
    "text for a number": changed(*TREE, "base_weights", 0, value="big"),
    "a short array": changed(*TREE, "loss_changes", value=[0.0]),
    "no nodes": changed(*TREE, value={name: [] for name in (
        "left_children", "right_children", "split_indices", "default_left", "split_type", "split_conditions",
        "base_weights", "loss_changes", "sum_hessian")}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_corrupted_document_is_named_or_left_out(wrong: str) -> None:
    data = blobs(90)
    with replies_changed(boost, spoilt_at(1, {"document": WRONG[wrong]})):
        with pytest.raises(PartyError, match=r"party '1' failed .* 'xgboost: boost': (party '1' sent|.*its reply)"):
            run(XGBoostBagging(**parts()), federation(data, 3))
        left = run(XGBoostBagging(**parts()), federation(data, 3, rules=CONTINUE))
    assert len(LEARNER.opened(left.model, data.schema)[1]) == 2


def test_only_trees_are_taken_from_a_document() -> None:
    sound = LEARNER.start(blobs(60).schema)
    whole = document()
    whole["learner"]["attributes"] = {"best_iteration": "0"}
    whole["learner"]["gradient_booster"]["model"]["trees"][0]["tree_param"]["num_nodes"] = "1000000"
    whole["learner"]["gradient_booster"]["model"]["iteration_indptr"] = [0, 500]
    start, trees = xgboost_documents.read_document(xgboost_documents.to_bytes(whole), sound)
    rebuilt = xgboost_documents.with_trees(start, trees)["learner"]
    assert rebuilt["attributes"] == {}
    assert rebuilt["gradient_booster"]["model"]["iteration_indptr"] == [0, 1]
    nodes = rebuilt["gradient_booster"]["model"]["trees"][0]
    assert nodes["tree_param"]["num_nodes"] == str(len(nodes["left_children"]))
    assert nodes["parents"] == document()["learner"]["gradient_booster"]["model"]["trees"][0]["parents"]


@given(place=st.integers(0, 10**6), byte=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_a_flipped_byte_never_does_more_than_be_refused(place: int, byte: int) -> None:
    data = LEARNER.fit(blobs(60), np.random.default_rng(0)).to_payload()["document"].copy()
    data[place % len(data)] = byte
    try:
        scores = LEARNER.predict({"document": data}, blobs(5))
    except PayloadError as error:
        assert "a party sent an XGBoost model that cannot be used" in str(error)
    else:
        assert np.isfinite(scores).all()


def test_a_document_that_is_too_long_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = LEARNER.fit(blobs(60), np.random.default_rng(0)).to_payload()
    monkeypatch.setattr(xgboost_documents, "MAXIMUM_BYTES", 100)
    with pytest.raises(PayloadError, match=r"bytes long, more than the 100 allowed"):
        LEARNER.opened(data, blobs(60).schema)


def test_what_cannot_work_is_said_before_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="xgboost-bagging works with the learner 'xgboost'"):
        complete({"algorithm": "xgboost-bagging", "learner": "boosted-trees"})
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtra, match=r"needs the package 'xgboost'.*pip install 'tequio\[trees\]'"):
        XGBoostBagging(**Parts(learner=XGBoost(depth=7))).start(federation(blobs(20), 2))
