"""FedRF is the parties' own forests in one, and its trees are those that scikit-learn grows at each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rivals import CONTINUE, blobs, federation, replies_changed, run, spoilt_at, with_columns_of

from parts import Parts
from tequio.algorithms.trees.fedrf import FedRF, grow_trees
from tequio.errors import ConfigError, PartyError
from tequio.federation.federation import Rules
from tequio.federation.rng import stream
from tequio.learners.trees.forest import Forest, RandomForest

PARTIES = [np.arange(0, 100), np.arange(100, 180), np.arange(180, 240)]


def algorithm(drawn: int = 4, pooled: bool = False, **settings: Any) -> FedRF:
    return FedRF(trees=drawn, pooled=pooled, **Parts(learner=RandomForest(**settings)))


def forest_of(model: dict[str, Any], classes: int = 2, features: int = 4) -> Forest:
    return Forest.from_payload(model, features=features, classes=classes)


def grown_by_sklearn(data: Any, rows: np.ndarray, party: int, trees: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    seed = int(stream(3, "fit", 1, party).integers(2**31))
    forest = RandomForestClassifier(trees, max_depth=5, random_state=seed)
    return forest.fit(data.features[rows].astype(np.float32), data.target[rows])


@pytest.mark.parametrize("voting", ["mean", "majority"])
def test_it_votes_as_the_parties_forests_of_scikit_learn_do(voting: str) -> None:
    data = blobs(classes=3)
    state = run(algorithm(voting=voting), federation(data, PARTIES, seed=3))
    trees = [tree for party, rows in enumerate(PARTIES) for tree in grown_by_sklearn(data, rows, party, 4).estimators_]
    shares = np.stack([tree.predict_proba(data.features.astype(np.float32)) for tree in trees])
    if voting == "majority":
        shares = np.eye(3)[shares.argmax(axis=2)]
    assert len(forest_of(state.model, classes=3)) == 12
    np.testing.assert_allclose(forest_of(state.model, classes=3).predict(data.features), shares.mean(axis=0))


def test_a_party_without_a_class_votes_for_the_others() -> None:
    data = blobs(classes=3)
    few, alike = np.flatnonzero(data.target == 2)[:5], np.flatnonzero(data.target == 1)
    state = run(algorithm(drawn=1), federation(data, [few, alike]))
    first, second = forest_of(state.model, classes=3).trees
    assert first.counts.tolist() == [[0, 0, 5]]
    assert second.counts.tolist() == [[0, len(alike), 0]]
    np.testing.assert_allclose(forest_of(state.model, classes=3).predict(data.features[:2]), [[0, 0.5, 0.5]] * 2)


def test_pooled_draws_as_many_trees_in_all_but_not_from_each() -> None:
    data, drawn = blobs(), []
    for seed in range(12):
        asking = federation(data, 4, seed=seed)
        counts = []
        with replies_changed(grow_trees, lambda party, reply, counts=counts: counts.append(len(reply["model"]["sizes"]))
                             or reply):
            assert len(forest_of(run(algorithm(3, pooled=True, trees=5, depth=1), asking).model)) == 12
        assert max(counts) <= 5
        drawn += counts
    assert len(set(drawn)) > 2


def test_all_of_a_pool_of_forests_are_all_trees_of_each() -> None:
    asking = federation(blobs(), 4)
    counts: list[int] = []
    with replies_changed(grow_trees, lambda party, reply: counts.append(len(reply["model"]["sizes"])) or reply):
        run(algorithm(5, pooled=True, trees=5, depth=1), asking)
    assert counts == [5, 5, 5, 5]


def broken(change: dict[str, Any]) -> dict[str, Any]:
    data = blobs(60)
    sound = RandomForest(trees=4, depth=2).fit(data, np.random.default_rng(0)).to_payload()
    return {"model": {**sound, **change}}


CYCLE = np.array([[1, 2], [0, 2], [-1, -1]], dtype=np.int32)
WRONG = {
    "no forest": {"model": "a tree"}, "nothing": {"model": {}},
    "too many trees": {"model": RandomForest(trees=5, depth=1).fit(blobs(60), np.random.default_rng(0)).to_payload()},
    "another number of classes": broken({"counts": np.ones((60, 7))}),
    "another vote": broken({"voting": "loudest"}),
    "a cycle": {"model": {"kind": "forest", "of": "binary", "voting": "mean", "sizes": np.array([3] * 4),
                          "feature": np.tile(np.array([0, 0, -1], np.int32), 4), "threshold": np.zeros(12),
                          "children": np.tile(CYCLE, (4, 1)), "counts": np.ones((12, 2))}},
    "NaN": broken({"threshold": np.full(60, np.nan)}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_corrupted_forest_is_named_or_left_out(wrong: str) -> None:
    data = blobs()
    with replies_changed(grow_trees, spoilt_at(1, WRONG[wrong])):
        with pytest.raises(PartyError, match=r"party '1' failed in round 1 at task 'fedrf: grow trees'"):
            run(algorithm(depth=2), federation(data, 3))
        assert len(forest_of(run(algorithm(depth=2), federation(data, 3, rules=CONTINUE)).model)) == 8


def test_another_order_of_columns_is_named_or_left_out() -> None:
    asking = federation(blobs(), 3)
    with_columns_of(asking, 2, [0, 1, 3, 2])
    with pytest.raises(PartyError, match=r"column 2 is 'x3' instead of 'x2'"):
        run(algorithm(), asking)
    asking.rules = CONTINUE
    assert len(forest_of(run(algorithm(), asking).model)) == 8


def test_parties_that_drop_out_give_no_trees() -> None:
    asking, how = federation(blobs(), 3, rules=Rules(dropout=1.0, quorum=0.0)), algorithm()
    state = run(how, asking)
    assert state.model == {}
    asking.rules = Rules()
    asking.round += 1
    assert len(forest_of(how.round(asking, state).model)) == 12


def test_what_cannot_work_is_said_before_work_starts() -> None:
    with pytest.raises(ConfigError, match=r"cannot draw 20 trees from forests of 10; raise learner\.trees"):
        algorithm(20, trees=10).start(federation(blobs(), 2))
