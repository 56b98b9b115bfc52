"""ICDTA4FL: four exchanges, no row among them; the tree is what the source describes; parties may fail or lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rivals import CONTINUE, blobs, categories, federation, kept, replies_changed, run, spoilt_at, with_columns_of

from parts import Parts
from tequio.algorithms.trees.fitting import LocalTree
from tequio.algorithms.trees.icdta4fl import cross_evaluate, fit_tree, receive
from tequio.data.partition import Split
from tequio.errors import ConfigError, DataError, PartyError
from tequio.experiments.config.complete import complete
from tequio.federation.evaluation import OwnModel
from tequio.federation.federation import Rules as FailureRules
from tequio.learners.trees.rules import Rules, are_disjoint
from tequio.learners.trees.tree import Tree
from tequio.registry import build

SPLIT = Split(validation=0.25)


def algorithm(learner: str = "cart", settings: dict[str, Any] | None = None, **parameters: Any) -> Any:
    return build("algorithm", "icdta4fl", parameters, parts=Parts(learner=build("learner", learner,
                                                                                          settings or {})))


def tree_of(model: dict[str, Any], data: Any) -> Tree:
    return Tree.from_payload(model["tree"], features=len(data.schema.features), classes=data.schema.target.size)


def table(learner: str, rows: int = 240) -> Any:
    if learner == "cart":
        return blobs(rows, classes=3)
    draw = np.random.default_rng(4)
    codes = draw.integers(0, 3, (rows, 4))
    return categories(codes, np.clip(codes[:, 0] + codes[:, 1] - codes[:, 2] + draw.integers(0, 2, rows), 0, 2))


def recorded(group: Any) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    group.record = lambda kind, facts: found.append((kind, facts))
    return found


@pytest.mark.parametrize("learner", ["cart", "id3"])
def test_exactly_four_exchanges_and_no_more_in_later_rounds(learner: str) -> None:
    group = federation(table(learner), 4, split=SPLIT)
    events = recorded(group)
    state = run(algorithm(learner), group)
    told = [facts for kind, facts in events if kind == "method exchange"]
    assert [(facts["number"], facts["direction"]) for facts in told] == [(1, "up"), (2, "down"), (3, "up"), (4, "down")]
    assert all(facts["parties"] == 4 and facts["bytes"] > 0 for facts in told)
    assert sum(kind == "exchange" for kind, _ in events) == 3  # 2 and 3 are one question and its answer
    before = len(events)
    assert algorithm(learner).round(group, state) is state
    assert len(events) == before


@pytest.mark.parametrize("learner", ["cart", "id3"])
def test_no_payload_holds_a_row(learner: str) -> None:
    data = table(learner)
    group = federation(data, 4, split=SPLIT)
    sent: list[Any] = []
    carry = group.engine.submit

    def watched(order: Any) -> None:
        sent.append(order.payload)
        carry(order)

    group.engine.submit = watched  # type: ignore[method-assign]
    for task in (fit_tree, cross_evaluate, receive):
        with replies_changed(task, lambda party, reply: sent.append(reply) or reply):
            run(algorithm(learner), group)
    rows = {row.tobytes() for row in np.asarray(data.features, dtype=np.float64)}
    assert sent
    for array in _arrays(sent):
        for line in np.atleast_2d(np.asarray(array, dtype=np.float64)):
            assert line.tobytes() not in rows or len(line) != data.features.shape[1] or not line.any()


def _arrays(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _arrays(part)


@pytest.mark.parametrize("learner", ["cart", "id3"])
def test_without_caps_the_tree_is_the_soft_vote_of_the_kept_trees(learner: str) -> None:
    data = table(learner)
    group = federation(data, 3, split=SPLIT)
    events = recorded(group)
    state = run(algorithm(learner, {"depth": 3}, filter="none", depth="none", budget=10**6), group)
    local = [Tree.from_payload(kept(group, LocalTree)[party]["tree"], features=4, classes=3)
             for party in range(3)]
    vote = sum(tree.predict(data.features) for tree in local)
    clear = np.diff(np.sort(vote, axis=1)[:, -2:], axis=1)[:, 0] > 1e-9
    decided = tree_of(state.model, data).predict(data.features).argmax(axis=1)
    assert (decided[clear] == vote.argmax(axis=1)[clear]).all()
    assert are_disjoint(Rules.from_payload(state.model["rules"]))
    assert next(facts for kind, facts in events if kind == "fusion")["losses"]["coverage"] == 1.0


@pytest.mark.parametrize("learner", ["cart", "id3"])
def test_one_party_gets_its_own_tree_back(learner: str) -> None:
    data = table(learner)
    group = federation(data, 1, split=SPLIT)
    state = run(algorithm(learner, depth="none"), group)
    own = Tree.from_payload(kept(group, LocalTree)[0]["tree"], features=4, classes=3)
    np.testing.assert_array_equal(tree_of(state.model, data).predict(data.features).argmax(axis=1),
                                  own.predict(data.features).argmax(axis=1))


def test_the_scores_are_those_of_scikit_learn_on_the_parties_validation_rows() -> None:
    from sklearn.metrics import accuracy_score, f1_score

    data = table("cart")
    group = federation(data, 3, split=SPLIT)
    events = recorded(group)
    run(algorithm(), group)
    trees = [Tree.from_payload(kept(group, LocalTree)[party]["tree"], features=4, classes=3)
             for party in range(3)]
    views = [group.population.view(party).validation for party in range(3)]
    expected = [[np.mean([score(view.target, tree.predict(view.features).argmax(axis=1)) for view in views])
                 for score in (accuracy_score, lambda a, b: f1_score(a, b, average="macro"))] for tree in trees]
    fusion = next(facts for kind, facts in events if kind == "fusion")
    np.testing.assert_allclose(fusion["scores"], expected, atol=1e-6)


def test_a_party_adopts_the_tree_only_where_it_is_better_than_its_own() -> None:
    group = federation(table("cart"), 6, split=SPLIT)
    state = run(algorithm(), group)
    received = tree_of(state.model, table("cart"))
    adopted = []
    for party, local in kept(group, LocalTree).items():
        rows = group.population.view(party).validation
        own, used = (Tree.from_payload(tree, features=4, classes=3)
                     for tree in (local["tree"], kept(group, OwnModel)[party]["model"]))
        right = [np.mean(tree.predict(rows.features).argmax(axis=1) == rows.target) for tree in (received, own, used)]
        assert right[2] == max(right[:2])
        adopted.append(right[0] > right[1])
    assert 0 < sum(adopted) < 6


def test_parties_that_vanish_after_the_first_upload_leave_their_trees() -> None:
    group = federation(table("cart"), 5, split=SPLIT, rules=CONTINUE)
    events = recorded(group)

    def gone(party: Any, reply: Any) -> Any:
        if party.index in (1, 3):
            raise ConnectionError("the line is dead")
        return reply

    with replies_changed(cross_evaluate, gone):
        state = run(algorithm(filter="none"), group)
    fusion = next(facts for kind, facts in events if kind == "fusion")
    assert len(fusion["kept"]) == 5
    assert [facts["parties"] for kind, facts in events if kind == "method exchange"] == [5, 3, 3, 3]
    assert state.model


@pytest.mark.parametrize(("change", "cause"), [
    (lambda tree: {**tree, "counts": tree["counts"][:, :2]}, "2 classes instead of 3"),
    (lambda tree: {**tree, "children": np.where(tree["children"] == 1, 0, tree["children"])}, "cycle"),
    (lambda tree: {**tree, "threshold": np.full(len(tree["threshold"]), np.nan)}, "not finite"),
    (lambda tree: {**tree, "counts": np.zeros_like(tree["counts"])}, "without any rows"),
    (lambda tree: {"kind": "multiway", **{key: tree[key] for key in tree if key != "kind"}}, "multiway"),
    (lambda tree: {}, "not a tree"),
    (lambda tree: {**tree, "feature": tree["feature"] + 50}, "column that does not exist|leaf has children")])
def test_a_corrupted_tree_is_refused_and_the_rest_goes_on(change: Any, cause: str) -> None:
    def spoil(party: Any, reply: Any) -> Any:
        return {"tree": change(reply["tree"])} if party.index == 2 else reply

    with replies_changed(fit_tree, spoil), pytest.raises(PartyError, match=cause):
        run(algorithm(), federation(table("cart"), 4, split=SPLIT))
    group = federation(table("cart"), 4, split=SPLIT, rules=CONTINUE)
    events = recorded(group)
    with replies_changed(fit_tree, spoil):
        state = run(algorithm(filter="none"), group)
    assert len(next(facts for kind, facts in events if kind == "fusion")["kept"]) == 3
    assert [facts["party"] for kind, facts in events if kind == "failure"] == ["2"]
    assert state.model


def test_a_tree_deeper_than_was_asked_for_is_refused() -> None:
    deep = build("learner", "cart", {"depth": 9}).fit(blobs(240, classes=3, seed=5), np.random.default_rng(0))
    assert deep.depths.max() > 5
    with replies_changed(fit_tree, spoilt_at(2, {"tree": deep.to_payload()})), \
            pytest.raises(PartyError, match=r"'2'.*at most 5 was asked for"):
        run(algorithm(), federation(table("cart"), 4, split=SPLIT))


@pytest.mark.parametrize("scores", [np.full((4, 2), 1.5), np.ones((3, 2)), None])
def test_scores_that_cannot_be_are_refused(scores: Any) -> None:
    group = federation(table("cart"), 4, split=SPLIT)
    with replies_changed(cross_evaluate, spoilt_at(1, {"scores": scores})), pytest.raises(PartyError, match="score"):
        run(algorithm(), group)


def test_a_party_with_other_columns_is_left_out_by_name() -> None:
    group = federation(table("cart"), 4, split=SPLIT)
    with_columns_of(group, 1, [1, 0, 2, 3])
    with pytest.raises(PartyError, match=r"'1'.*column 0 is 'x1' instead of 'x0'"):
        run(algorithm(), group)


@pytest.mark.parametrize("learner", ["cart", "id3"])
def test_small_and_one_class_parties_take_part(learner: str) -> None:
    data = table(learner)
    alike = np.flatnonzero(data.target == 1)
    parts = [np.arange(5), alike[:30], np.arange(100, 180), np.arange(180, 240)]
    state = run(algorithm(learner, filter="none"), federation(data, parts, split=SPLIT))
    assert tree_of(state.model, data).predict(data.features).shape == (240, 3)


def test_an_unseen_category_ends_at_an_inner_node_and_is_counted() -> None:
    data = categories([[0, 0], [1, 1], [0, 1], [1, 0]] * 10, [0, 1, 0, 1] * 10, sizes=(3, 2))
    state = run(algorithm("id3", {"children": "observed"}, filter="none"),
                federation(data, [np.arange(20), np.arange(20, 40)], split=SPLIT))
    tree, unseen = tree_of(state.model, data), np.array([[2, 0]])
    assert tree.stuck(unseen).tolist() == [True]
    np.testing.assert_allclose(tree.predict(unseen), tree.probabilities[[0]])


def test_without_validation_rows_nobody_can_judge() -> None:
    with pytest.raises(DataError, match="no party has validation rows"):
        run(algorithm(), federation(table("cart"), 3))
    assert run(algorithm(judged_on="train"), federation(table("cart"), 3)).model


def test_it_fuses_single_trees_only() -> None:
    with pytest.raises(ConfigError, match="icdta4fl works with the learner 'cart' or 'id3'"):
        complete({"algorithm": "icdta4fl", "learner": "random-forest"})
    with pytest.raises(ConfigError, match="filter"):
        run(algorithm(filter="best"), federation(table("cart"), 3, split=SPLIT))


def test_the_quorum_holds_for_every_exchange() -> None:
    group = federation(table("cart"), 4, split=SPLIT, rules=FailureRules(dropout=1.0, quorum=0.0))
    assert run(algorithm(), group).model == {}


def test_a_tree_of_more_leaves_than_rows_is_warned_of_and_can_be_limited() -> None:
    draw = np.random.default_rng(0)
    data = categories(draw.integers(0, 5, (40, 6)), draw.integers(0, 2, 40))
    deep = {"depth": 4, "min_split": 2}
    group = federation(data, 4, split=SPLIT)
    events = recorded(group)
    leaves = len(tree_of(run(algorithm("id3", deep, filter="none"), group).model, data).leaves)
    rows = int(group.sizes.sum())
    assert leaves > rows
    message = next(facts["message"] for kind, facts in events if kind == "warning")
    assert message.startswith(f"the global tree has {leaves:,} leaves, more than the {rows:,} rows")
    assert "set algorithm.leaves = 64" in message
    small = federation(data, 4, split=SPLIT)
    events = recorded(small)
    assert len(tree_of(run(algorithm("id3", deep, filter="none", leaves=12), small).model, data).leaves) <= 12
    assert not [facts for kind, facts in events if kind == "warning"]
    assert next(facts for kind, facts in events if kind == "fusion")["losses"]["unsplit_leaves"] > 0


def test_parties_prune_their_trees_on_their_validation_rows() -> None:
    group, pruned = (federation(blobs(400), 4, split=SPLIT) for _ in range(2))
    run(algorithm("cart", {"depth": 9}, filter="none"), group)
    run(algorithm("cart", {"depth": 9}, filter="none", prune=True), pruned)
    for party in range(4):
        held = group.population.view(party).validation
        before, after = (Tree.from_payload(kept(place, LocalTree)[party]["tree"], features=4, classes=2)
                         for place in (group, pruned))
        wrong = [(tree.predict(held.features).argmax(axis=1) != held.target).sum() for tree in (before, after)]
        assert wrong[1] <= wrong[0]
        assert len(after) < len(before)
