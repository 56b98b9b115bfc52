"""ICDTA4FL-own: leaves read by a party's own mix of classes, worked by hand; six exchanges; who answers with what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rivals import blobs, federation, replies_changed, run

from parts import Parts
from tequio.algorithms.trees.icdta4fl import leaf_counts
from tequio.algorithms.trees.icdta4fl_own import count_rows, own_leaves
from tequio.data.partition import Split
from tequio.errors import ConfigError, PartyError
from tequio.learners.metrics import summarise
from tequio.learners.trees.tree import Tree
from tequio.registry import build

SPLIT = Split(validation=0.25, test=0.25)


def algorithm(name: str = "icdta4fl-own", **parameters: Any) -> Any:
    return build("algorithm", name, parameters, parts=Parts(learner=build("learner", "cart")))


def stump(left: list[float], right: list[float]) -> Tree:
    counts = np.array([np.add(left, right), left, right], dtype=float)
    return Tree("binary", np.array([0, -1, -1]), np.array([0.5, np.nan, np.nan]),
                np.array([[1, 2], [-1, -1], [-1, -1]]), counts)


def skewed(rows: int = 900) -> tuple[Any, list[Any]]:
    """Three parties; of each class one party holds four fifths."""
    data = blobs(rows, classes=3)
    draw = np.random.default_rng(3)
    party = np.where(draw.random(rows) < 0.8, data.target, draw.integers(0, 3, rows))
    return data, [np.flatnonzero(party == number) for number in range(3)]


def test_a_leaf_by_hand() -> None:
    """Everybody: 50 and 50 rows, the left leaf 30 to 10. The party has 8 rows of class 0 and 1 of class 1."""
    tree = own_leaves(stump([30, 10], [20, 40]), np.array([[3.0, 0.0], [5.0, 1.0]]), common_rows=10.0)
    mix = np.array([8.5, 1.5]) / 10  # its nine rows and one of everybody's
    left, right = np.array([0.75, 0.25]) * mix / 0.5, np.array([1 / 3, 2 / 3]) * mix / 0.5
    np.testing.assert_allclose(tree.counts[1], np.array([3, 0]) + 10 * left / left.sum())
    np.testing.assert_allclose(tree.counts[2], np.array([5, 1]) + 10 * right / right.sum())
    np.testing.assert_allclose(tree.counts[0], tree.counts[1] + tree.counts[2])


def test_a_party_like_all_others_reads_what_everybody_reads() -> None:
    common = stump([300, 100], [200, 400])
    own = own_leaves(common, np.zeros((2, 2)), common_rows=7.0)
    np.testing.assert_allclose(own.probabilities[1:], common.probabilities[1:])


def test_a_class_that_nobody_has_stays_without_a_share() -> None:
    tree = own_leaves(stump([30, 10, 0], [20, 40, 0]), np.array([[2.0, 0, 0], [0, 0, 0]]), common_rows=30.0)
    assert np.isfinite(tree.counts).all()
    assert (tree.counts[:, 2] == 0).all()


def test_leaves_count_the_rows_of_all_parties_and_one_of_the_vote() -> None:
    data, parts = skewed()
    group = federation(data, parts, split=SPLIT)
    model = run(algorithm(leaves=8), group).model
    vote = run(algorithm("icdta4fl-plus", leaves=8), federation(data, parts, split=SPLIT)).model
    tree, before = (Tree.from_payload(one["tree"], features=4, classes=3) for one in (model, vote))
    np.testing.assert_array_equal(tree.feature, before.feature)
    np.testing.assert_array_equal(tree.threshold, before.threshold)
    rows = sum(leaf_counts(before, group.population.view(party).train) for party in range(3))
    np.testing.assert_allclose(tree.counts[tree.leaves], rows + before.probabilities[before.leaves])
    np.testing.assert_allclose(model["rules"]["support"], tree.counts[tree.leaves].sum(axis=1))


def test_parties_are_judged_by_their_own_leaves() -> None:
    data, parts = skewed()
    group = federation(data, parts, split=SPLIT)
    method = algorithm(leaves=8, common_rows=5.0)
    state = run(method, group)
    tree = Tree.from_payload(state.model["tree"], features=4, classes=3)
    tallies = method.evaluate(group, state, "test", group.everyone())
    for party, tally in tallies.items():
        rows = group.population.view(party)
        own = own_leaves(tree, leaf_counts(tree, rows.train), 5.0)
        right = own.predict(rows.test.features).argmax(axis=1) == rows.test.target
        assert summarise(data.schema.target, tally)["accuracy"] == pytest.approx(right.mean())
    assert len(set(method.fingerprints(group, state))) == 3


def test_it_is_more_accurate_than_plus_where_classes_are_skewed() -> None:
    data, parts = skewed()
    means = []
    for name in ("icdta4fl-plus", "icdta4fl-own"):
        group, method = federation(data, parts, split=SPLIT), algorithm(name, leaves=12)
        tallies = method.evaluate(group, run(method, group), "test", group.everyone())
        means.append(np.mean([summarise(data.schema.target, tally)["accuracy"] for tally in tallies.values()]))
    assert means[1] > means[0] + 0.05


def test_there_are_six_exchanges() -> None:
    data, parts = skewed(300)
    group = federation(data, parts, split=SPLIT)
    facts: list[dict[str, Any]] = []
    group.record = lambda kind, fact: facts.append(fact) if kind == "method exchange" else None
    run(algorithm(), group)
    assert [(fact["number"], fact["direction"]) for fact in facts] == \
        [(1, "up"), (2, "down"), (3, "up"), (4, "down"), (5, "up"), (6, "down")]


@pytest.mark.parametrize(("wrong", "complaint"), [(-1.0, "negative or broken"), (0.5, "negative or broken"),
                                                  (1e9, "more rows than it has"), (np.nan, "'1'")])
def test_counts_that_no_rows_have_are_refused(wrong: float, complaint: str) -> None:
    data, parts = skewed(300)

    def spoil(party: Any, reply: Any) -> Any:
        return {"sums": {"counts": reply["sums"]["counts"] + wrong}} if party.index == 1 else reply

    with replies_changed(count_rows, spoil), pytest.raises(PartyError, match=complaint):
        run(algorithm(), federation(data, parts, split=SPLIT))


def test_numbers_have_no_mix_of_classes() -> None:
    with pytest.raises(ConfigError, match=r"numbers have none; set algorithm\.name = 'icdta4fl-plus'"):
        algorithm().start(federation(blobs(120, classes=None), 3, split=SPLIT))
