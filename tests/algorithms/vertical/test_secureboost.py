"""SecureBoost: encrypted equals plain, plain equals one place, as good as XGBoost, and what crosses says nothing."""

from __future__ import annotations

import numpy as np
import pytest
from boosting import PAILLIER, assert_same_model, boosting, classes, grown, same_rows, train_rows
from joint import (
    assert_no_ids,
    assert_no_labels,
    assert_no_rows,
    dealt,
    federation_of,
    kept,
    people,
    play,
    said,
)

from tequio.algorithms.vertical.rows import CommonRows
from tequio.algorithms.vertical.trees.labels import GrowingGrove
from tequio.algorithms.vertical.trees.offering import BinnedColumns, Growing
from tequio.algorithms.vertical.trees.secureboost import SecureBoost, Start
from tequio.algorithms.vertical.trees.skeleton import OwnSplits, OwnTrees
from tequio.algorithms.vertical.trees.sums import OwnKey
from tequio.data.dataset import Dataset
from tequio.errors import ConfigError
from tequio.federation.algorithm import part_types
from tequio.learners.metrics import summarise
from tequio.learners.trees.boosted import gradients
from tequio.learners.trees.boosting import Boosting
from tequio.registry import build


@pytest.mark.parametrize("data", [people(160, columns=6), classes(), people(120, columns=5, target="number")],
                         ids=["two classes", "three classes", "numbers"])
@pytest.mark.parametrize("parties", [2, 3])
def test_encrypted_trees_are_those_of_the_twin_split_for_split(data, parties):
    pytest.importorskip("gmpy2")
    runs = [grown(boosting(encryption), dealt(data, overlap=0.8, parties=parties))
            for encryption in ("plain", PAILLIER)]
    assert_same_model(*runs)


def test_classes_that_do_not_fit_into_one_ciphertext_go_into_several():
    pytest.importorskip("gmpy2")
    data = classes(150, count=14, columns=4)
    runs = [grown(boosting(encryption, {"depth": 2}), dealt(data, overlap=1.0), rounds=1)
            for encryption in ("plain", PAILLIER)]
    assert_same_model(*runs)
    hidden = [message for message in runs[1][0].engine.messages if message[0] == "secureboost: derive"][-1][3]["hidden"]
    assert len(hidden) == 2


@pytest.mark.parametrize("data", [people(200, columns=6), classes(), people(120, columns=5, target="number")],
                         ids=["two classes", "three classes", "numbers"])
def test_the_twin_grows_the_trees_of_all_columns_in_one_place(data):
    population = same_rows(data, parties=3)
    federation, state = grown(boosting(), population, rounds=3)
    together = data.take(population.partition.party_rows(0)).take(_train_places(federation))
    centre = Boosting(trees=3, depth=3, bins=8, learning_rate=0.3).fit(together, np.random.default_rng(0))
    margins = kept(federation.engine.states()[0], OwnTrees)["margins"]
    np.testing.assert_allclose(margins, centre.margins(np.asarray(together.features)), atol=1e-7)
    assert state.model["sizes"].tolist() == [len(tree) for tree in centre.trees]
    # Nodes of a level are numbered in another order, so the splits of a tree are compared sorted.
    assert _splits_of(federation, state, population) == [
        sorted((int(column), float(threshold)) for column, threshold in zip(tree.feature, tree.threshold, strict=True)
               if column >= 0) for tree in centre.trees]


def _train_places(federation):
    common = kept(federation.engine.states()[0], CommonRows)
    return common["rows"][common["part"] == 0]


def _splits_of(federation, state, population):
    """(column of the whole table, threshold) of every split, tree by tree."""
    records = {party: kept(own, OwnSplits)["records"] for party, own in federation.engine.states().items()}
    model, found, start = state.model, [], 0
    for size in model["sizes"]:
        nodes = [node for node in range(start, start + size) if model["owner"][node] >= 0]
        found.append(sorted((int(population.partition.columns[model["owner"][node]][
            records[model["owner"][node]]["column"][model["record"][node]]]),
            float(records[model["owner"][node]]["threshold"][model["record"][node]])) for node in nodes))
        start += size
    return found


def _auc_of_both(dataset, rounds, **learner):
    """Our AUC on test rows and XGBoost's on the same, from the same training rows and settings."""
    xgboost = pytest.importorskip("xgboost")
    from sklearn.metrics import roc_auc_score

    population = same_rows(dataset)
    algorithm = boosting(learner={"bins": 32, **learner}, alignment="agreed")
    federation, state = grown(algorithm, population, rounds)
    scores = algorithm.predict(federation, state)
    part = kept(federation.engine.states()[0], CommonRows)
    test = part["rows"][part["part"] == 2]
    ours = dict(zip(scores["rows"].tolist(), scores["scores"][:, 1].tolist(), strict=True))
    train = _train_places(federation)
    rival = xgboost.XGBClassifier(n_estimators=rounds, max_depth=3, learning_rate=0.3, reg_lambda=1.0, max_bin=32,
                                  tree_method="hist", n_jobs=1)
    rival.fit(np.asarray(dataset.features)[train], dataset.target[train])
    rows, target = np.asarray(dataset.features)[test], dataset.target[test]
    return (roc_auc_score(target, [ours[row] for row in test.tolist()]),
            roc_auc_score(target, rival.predict_proba(rows)[:, 1]))


def test_it_is_as_good_as_xgboost_on_breast_cancer():
    loaded = build("dataset", "breast-cancer").load().train
    ours, rival = _auc_of_both(loaded, rounds=10)
    assert ours > 0.95
    assert ours > rival - 0.01


@pytest.mark.data
def test_it_is_as_good_as_xgboost_on_credit():
    loaded = build("dataset", "credit2").load().train
    ours, rival = _auc_of_both(loaded, rounds=10)
    assert abs(ours - rival) < 0.01


def test_messages_show_no_row_id_label_gradient_or_threshold():
    pytest.importorskip("gmpy2")
    population = dealt(people(160, columns=6), overlap=0.8, parties=3)
    federation, state = grown(boosting(PAILLIER), population)
    boosting(PAILLIER).evaluate(federation, state, "test", federation.everyone())
    engine, states = federation.engine, federation.engine.states()
    assert_no_ids(engine, population)
    assert_no_rows(engine, population)
    assert_no_labels(engine, population, states[0], skip=("vertical.keep", "vertical.choose order"))
    says = kept(states[0], OwnTrees)["trees"]["value"]
    secret = np.concatenate([kept(state, OwnSplits)["records"]["threshold"] for state in states.values()] +
                            [np.concatenate(kept(state, BinnedColumns)["cuts"]) for state in states.values()] +
                            [says[says != 0]])
    rows = train_rows(federation, population)
    first = gradients("logistic", np.repeat(kept(states[0], Start)["base"][None], len(rows), axis=0), rows.target)
    secret = np.concatenate([secret, *(values.ravel() for values in first)])
    whole = np.rint(np.ldexp(secret, 32))
    for name, _, _, value in said(engine):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert not np.isin(value, secret).any(), name
        elif isinstance(value, np.ndarray) and value.dtype.itemsize == 8:
            assert not np.isin(value, whole[np.abs(whole) > 1000]).any(), name


def test_only_the_label_holder_keeps_the_secret_key_and_what_leaves_say():
    pytest.importorskip("gmpy2")
    federation, _ = grown(boosting(PAILLIER), dealt(people(80), parties=3), rounds=1)
    states = federation.engine.states()
    assert [party for party, state in states.items() if kept(state, OwnKey)] == [0]
    assert [party for party, state in states.items() if kept(state, OwnTrees)] == [0]
    primes = [kept(states[0], OwnKey)["key"][name].tobytes() for name in ("p", "q")]
    for name, _, _, value in said(federation.engine):
        content = value.tobytes() if isinstance(value, np.ndarray) else value if isinstance(value, bytes) else b""
        assert not any(prime in content for prime in primes), name


def test_each_party_keeps_its_own_splits_and_forgets_the_rest():
    federation, state = grown(boosting(), dealt(people(120, columns=6), parties=3))
    states = federation.engine.states()
    for party, own in states.items():
        assert len(kept(own, OwnSplits)["records"]["column"]) == int((state.model["owner"] == party).sum())
        assert not kept(own, Growing) | kept(own, GrowingGrove)
    assert set(state.model) == {"rows", "kind", "sizes", "owner", "record", "children"}


def test_the_first_tree_may_be_the_label_holders_own():
    federation, state = grown(boosting(own_first_tree=True), dealt(people(120, columns=6), parties=3), rounds=2)
    trees = np.split(state.model["owner"], np.cumsum(state.model["sizes"])[:-1])
    assert set(trees[0].tolist()) == {-1, 0}
    assert set(trees[1].tolist()) & {1, 2}
    offers = [receiver for name, sender, receiver, _ in federation.engine.messages
              if name == "vertical trees: offer" and sender == "coordinator"]
    assert len(offers) == 2 * 3  # asked in the second round only: two parties, three levels


def test_one_party_alone_boosts_its_own_columns():
    population = same_rows(people(100), parties=1)
    federation, state = grown(boosting(), population)
    assert set(state.model["owner"].tolist()) == {-1, 0}
    found = boosting().evaluate(federation, state, "test", federation.everyone())[0]
    assert summarise(population.dataset.schema.target, found)["accuracy"] > 0.6


def test_a_label_holder_with_nothing_to_split_leaves_that_to_the_others():
    data = people(150, columns=4)
    constant = np.asarray(data.features).copy()
    constant[:, 0] = 1.0
    blind = Dataset.of(data.schema, constant, data.target, ids=data.ids)
    _, state = grown(boosting(), dealt(blind, overlap=1.0, names=(("c0",), ("c1", "c2", "c3"))))
    assert set(state.model["owner"].tolist()) == {-1, 1}


def test_gone_on_with_from_a_checkpoint_it_is_the_same():
    pytest.importorskip("gmpy2")
    from tequio.federation import payload as payloads

    population = dealt(people(100, columns=4))
    straight = grown(boosting(PAILLIER), population, rounds=3)
    stopped, state = grown(boosting(PAILLIER), population, rounds=1)
    saved = payloads.decode(payloads.encode({str(party): own for party, own in stopped.engine.states().items()}))
    again = federation_of(population)
    again.engine.restore({int(party): own for party, own in saved.items()})
    again.round = 1
    for _ in range(2):
        again.round += 1
        state = boosting(PAILLIER).round(again, state)
    assert_same_model(straight, (again, state))


def test_ckks_is_refused_because_sums_must_be_exact():
    if "ckks" not in __import__("tequio.registry", fromlist=["names"]).names("encryption"):
        pytest.skip("there is no CKKS")
    with pytest.raises(ConfigError, match="exact sums"):
        play(boosting("ckks"), federation_of(dealt()))


def test_only_boosted_trees_fit():
    assert part_types(SecureBoost) == {"learner": Boosting}
