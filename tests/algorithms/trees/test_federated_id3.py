"""Federated-ID3 is ID3 on the pooled rows, node for node, however the rows are dealt."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rivals import (
    CONTINUE,
    blobs,
    categories,
    exchanges,
    federation,
    replies_changed,
    run,
    same_payload,
    spoilt_at,
    with_columns_of,
)

from parts import Parts
from tequio.algorithms.trees.federated_id3 import FederatedID3, count
from tequio.errors import ConfigError, DataError, PartyError
from tequio.experiments.config.complete import complete
from tequio.federation.federation import Rules
from tequio.learners.metrics import summarise
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.tree import LEAF, Tree

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset


def algorithm(**settings: Any) -> FederatedID3:
    return FederatedID3(**Parts(learner=ID3(**settings)))


def pooled(data: Dataset, **settings: Any) -> dict[str, Any]:
    return ID3(**settings).fit(data, np.random.default_rng(0)).to_payload()


@st.composite
def dealt_rows(draw: Any) -> tuple[Dataset, list[np.ndarray]]:
    """Rows with few categories, dealt to parties of any size, so that many hold one class or a handful of rows."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    classes, rows, parties = draw(st.integers(1, 4)), draw(st.integers(1, 60)), draw(st.integers(1, 6))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))
    codes = np.stack([numbers.integers(0, size, rows) for size in sizes], axis=1)
    labels = (codes.sum(axis=1) + (numbers.random(rows) < 0.2)) % classes
    owners = numbers.integers(0, parties, rows)
    return categories(codes, labels, sizes=sizes, classes=classes), [
        part for party in range(parties) if len(part := np.flatnonzero(owners == party))]


@given(dealt=dealt_rows(), depth=st.integers(0, 5), children=st.sampled_from(["domain", "observed"]),
       min_split=st.sampled_from([2, 5, 0.1]))
@settings(max_examples=150, deadline=None)
def test_it_is_id3_on_the_pooled_rows(dealt: Any, depth: int, children: str, min_split: float) -> None:
    data, parts = dealt
    how = {"depth": depth, "children": children, "min_split": min_split}
    state = run(algorithm(**how), federation(data, parts))
    assert same_payload(state.model, pooled(data, **how))


def entropy(labels: list[int]) -> float:
    return -sum(n / len(labels) * math.log2(n / len(labels)) for n in Counter(labels).values())


def grown_by_hand(rows: list[tuple[list[int], int]], columns: list[int], sizes: list[int], depth: int,
                  above: list[int]) -> Any:
    """ID3 as textbooks write it: a class, or a column with a subtree a category."""
    labels = [label for _, label in rows]
    if not rows:
        return Counter(above).most_common(1)[0][0]
    if depth == 0 or not columns or len(set(labels)) == 1:
        return min(Counter(labels).items(), key=lambda item: (-item[1], item[0]))[0]

    def gain(column: int) -> float:
        groups = [[label for row, label in rows if row[column] == value] for value in range(sizes[column])]
        return entropy(labels) - sum(len(group) / len(labels) * entropy(group) for group in groups if group)

    best = max(columns, key=lambda column: round(gain(column), 9))
    rest = [column for column in columns if column != best]
    return best, [grown_by_hand([(row, label) for row, label in rows if row[best] == value], rest, sizes, depth - 1,
                                labels) for value in range(sizes[best])]


def as_nested(tree: Tree, node: int = 0) -> Any:
    if tree.feature[node] == LEAF:
        return int(tree.probabilities[node].argmax())
    return int(tree.feature[node]), [as_nested(tree, child) for child in tree.children[node] if child != LEAF]


def test_it_is_the_tree_of_a_textbook() -> None:
    numbers = np.random.default_rng(3)
    sizes = [3, 2, 4, 2, 3, 2]
    codes = np.stack([numbers.integers(0, size, 400) for size in sizes], axis=1)
    codes[(codes[:, 0] == 1) & (codes[:, 2] == 3), 2] = 0  # so that a child of the domain stays empty
    labels = (codes[:, 0] * codes[:, 2] + codes[:, 1] + (numbers.random(400) < 0.1)) % 3
    data = categories(codes, labels, sizes=sizes)
    model = run(algorithm(), federation(data, 7)).model
    rows = list(zip(codes.tolist(), labels.tolist(), strict=True))
    assert as_nested(Tree.from_payload(model, features=6, classes=3)) == \
        grown_by_hand(rows, list(range(6)), sizes, 3, [])


def test_a_category_that_nobody_met_gets_its_parents_majority() -> None:
    data = categories([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]], [0, 0, 1, 1, 1], sizes=[3, 2])
    state = run(algorithm(), federation(data, [[0, 2], [1, 3, 4]]))
    tree = Tree.from_payload(state.model, features=2, classes=2)
    assert tree.support.tolist() == [5, 2, 3, 0]
    np.testing.assert_allclose(tree.predict(np.array([[2, 0]])), [[0.4, 0.6]])


def test_one_exchange_a_level_and_only_counts_come_back() -> None:
    numbers = np.random.default_rng(0)
    data = categories(numbers.integers(0, 3, (500, 6)), numbers.integers(0, 2, 500))
    asking, seen = federation(data, 5), []
    facts = exchanges(asking)
    with replies_changed(count, lambda party, reply: seen.append(reply) or reply):
        tree = Tree.from_payload(run(algorithm(), asking).model, features=6, classes=2)
    assert tree.depths.max() == 3
    assert [fact["task"] for fact in facts] == ["federated-id3: count"] * 3
    shapes = [reply["sums"]["counts"].shape for reply in seen]
    assert all(reply.keys() == {"sums"} and reply["sums"].keys() == {"counts"} for reply in seen)
    assert shapes == [(1, 18, 2)] * 5 + [(3, 18, 2)] * 5 + [(9, 18, 2)] * 5


def test_further_rounds_change_nothing_and_cost_nothing() -> None:
    data = categories([[0, 1], [1, 0], [1, 1], [0, 0]], [0, 1, 1, 0])
    asking = federation(data, 2)
    state = run(algorithm(), asking)
    messages = asking.traffic.messages
    assert algorithm().round(asking, state) is state
    assert asking.traffic.messages == messages


def test_parties_and_coordinator_score_the_same_tree() -> None:
    data = categories([[0, 1], [1, 0], [1, 1], [0, 0]] * 5, [0, 1, 1, 0] * 5)
    asking, how = federation(data, 2), algorithm()
    state = run(how, asking)
    assert summarise(data.schema.target, how.score(asking, state, data))["accuracy"] == 1.0
    assert how.evaluate(asking, state, "train", asking.everyone())[1]["rows"] == 10


WRONG_COUNTS = {
    "negative": np.full((1, 4, 2), -1), "of another shape": np.zeros((2, 4, 2), dtype=np.int64),
    "fractions": np.full((1, 4, 2), 0.5), "that do not add up": np.array([[[1, 0], [0, 0], [0, 0], [0, 0]]]),
    "nothing": None}


@pytest.mark.parametrize("wrong", WRONG_COUNTS)
def test_a_party_with_corrupted_counts_is_named_or_left_out(wrong: str) -> None:
    data = categories([[0, 1], [1, 0], [1, 1], [0, 0], [0, 1]], [0, 1, 1, 0, 1])
    reply = {"sums": {"counts": WRONG_COUNTS[wrong]}}
    with replies_changed(count, spoilt_at(1, reply)):
        with pytest.raises(PartyError, match=r"party '1' failed in round 1 .* (party '1' sent|its reply)"):
            run(algorithm(), federation(data, [[0, 1], [2], [3, 4]]))
        state = run(algorithm(), federation(data, [[0, 1], [2], [3, 4]], rules=CONTINUE))
    assert same_payload(state.model, pooled(data.take([0, 1, 3, 4])))


def test_a_party_with_its_columns_in_another_order_is_named_or_left_out() -> None:
    data = categories([[0, 1], [1, 0], [1, 1], [0, 0], [0, 1]], [0, 1, 1, 0, 1])
    asking = federation(data, [[0, 1], [2], [3, 4]])
    with_columns_of(asking, 1, [1, 0])
    with pytest.raises(PartyError, match=r"party '1' does not fit the schema .*: column 0 is 'c1' instead of 'c0'"):
        run(algorithm(), asking)
    asking.rules = CONTINUE
    assert same_payload(run(algorithm(), asking).model, pooled(data.take([0, 1, 3, 4])))


def test_nobody_left_leaves_no_model() -> None:
    data = categories([[0, 1], [1, 0]], [0, 1])
    asking, how = federation(data, 2, rules=Rules(dropout=1.0, quorum=0.0)), algorithm()
    state = run(how, asking)
    assert state.model == {}
    assert how.evaluate(asking, state, "train", asking.everyone()) == {}
    assert how.score(asking, state, data) is None


def test_numbers_and_other_learners_are_refused_before_work_starts() -> None:
    with pytest.raises(DataError, match=r"column 'x0' is numeric.*discretise"):
        algorithm().start(federation(blobs(20), 2))
    with pytest.raises(ConfigError, match="federated-id3 works with the learner 'id3'"):
        complete({"algorithm": "federated-id3", "learner": "cart"})
