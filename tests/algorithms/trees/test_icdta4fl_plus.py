"""ICDTA4FL-plus: as many leaves as asked for, near the vote, the same four exchanges, and noise where asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rivals import blobs, federation, kept, replies_changed, run, spoilt_at

from parts import Parts
from tequio.algorithms.trees.fitting import LocalTree
from tequio.algorithms.trees.icdta4fl import cross_evaluate
from tequio.data.partition import Split
from tequio.errors import ConfigError, DataError, PartyError
from tequio.learners.trees.tree import Tree, with_noisy_counts
from tequio.noise.coins import Coins
from tequio.registry import build

SPLIT = Split(validation=0.25)


def algorithm(name: str = "icdta4fl-plus", **parameters: Any) -> Any:
    return build("algorithm", name, parameters, parts=Parts(learner=build("learner", "cart")))


def tree_of(model: dict[str, Any]) -> Tree:
    return Tree.from_payload(model["tree"], features=4, classes=3)


def local_trees(group: Any) -> list[Tree]:
    return [Tree.from_payload(local["tree"], features=4, classes=3) for local in kept(group, LocalTree).values()]


def test_more_leaves_come_nearer_to_the_vote() -> None:
    data = blobs(600, classes=3)
    agreement = []
    for leaves in (4, 16, 64, 10**6):
        group = federation(data, 5, split=SPLIT)
        tree = tree_of(run(algorithm(filter="none", leaves=leaves), group).model)
        assert len(tree.leaves) <= leaves
        vote = sum(local.predict(data.features) for local in local_trees(group)).argmax(axis=1)  # type: ignore[union-attr]
        agreement.append(np.mean(tree.predict(data.features).argmax(axis=1) == vote))
    assert agreement == sorted(agreement)
    assert agreement[-1] > 0.98  # what is said of places where nobody is thought to have rows may differ


def test_it_keeps_the_better_half_by_the_mean_of_both_metrics() -> None:
    group = federation(blobs(600, classes=3), 6, split=SPLIT)
    facts: list[dict[str, Any]] = []
    group.record = lambda kind, fact: facts.append(fact) if kind == "fusion" else None
    run(algorithm(), group)
    total = np.array(facts[0]["scores"]).mean(axis=1)
    assert [int(name) for name in facts[0]["kept"]] == np.argsort(-total, kind="stable")[:3].tolist()


def test_the_support_of_rules_is_that_of_all_parties_rows() -> None:
    data = blobs(600, classes=3)
    group = federation(data, 4, split=SPLIT)
    model = run(algorithm(leaves=8), group).model
    train = sum(len(group.population.view(party).train) for party in range(4))
    assert model["rules"]["support"].sum() == pytest.approx(train)


def test_a_count_that_no_party_can_have_is_refused() -> None:
    def boast(party: Any, reply: Any) -> Any:
        return {**reply, "leaves": [np.full_like(counts, 1e300) for counts in reply["leaves"]]}

    with replies_changed(cross_evaluate, boast), pytest.raises(PartyError, match="leaf"):
        run(algorithm(), federation(blobs(240, classes=3), 3, split=SPLIT))


def test_a_party_that_counts_more_rows_than_it_has_weighs_no_more_for_it() -> None:
    data = blobs(600, classes=3)

    def boast(party: Any, reply: Any) -> Any:
        more = [1e12 * (counts + 1.0) for counts in reply["leaves"]]
        return {**reply, "leaves": more} if party.index == 1 else reply

    group = federation(data, 4, split=SPLIT)
    with replies_changed(cross_evaluate, boast):
        model = run(algorithm(leaves=8), group).model
    assert model["rules"]["support"].sum() <= 600
    honest = tree_of(run(algorithm(leaves=8), federation(data, 4, split=SPLIT)).model)
    agreement = np.mean(tree_of(model).predict(data.features).argmax(axis=1) ==
                        honest.predict(data.features).argmax(axis=1))
    assert agreement > 0.8


def test_noise_has_the_spread_that_epsilon_asks_for() -> None:
    """Neighbours are exp(epsilon) times as likely. Counts in the thousands, so that none is cut off at nought."""
    epsilon, counts = 0.5, np.full((1, 200_000), 5000.0)
    leaf = Tree("binary", np.array([-1]), np.array([np.nan]), np.array([[-1, -1]]), counts)
    drawn = with_noisy_counts(leaf, epsilon, Coins.derived(0)).counts[0] - 5000
    alpha = np.exp(-epsilon)
    assert drawn.mean() == pytest.approx(0, abs=0.03)
    assert drawn.var() == pytest.approx(2 * alpha / (1 - alpha) ** 2, rel=0.02)
    for k in (1, 2, 3):
        assert np.mean(drawn == k - 1) / np.mean(drawn == k) == pytest.approx(np.exp(epsilon), rel=0.05)


def test_with_epsilon_no_exact_count_leaves_a_party() -> None:
    group = federation(blobs(600, classes=3), 3, split=SPLIT)
    sent: list[dict[str, Any]] = []
    carry = group.engine.submit
    group.engine.submit = lambda order: (sent.append(order.payload), carry(order))[1]  # type: ignore[method-assign]
    told: list[dict[str, Any]] = []
    with replies_changed(cross_evaluate, lambda party, reply: told.append(reply) or reply):
        run(algorithm(epsilon=1.0), group)
    assert all("leaves" not in reply for reply in told)
    published = next(payload["trees"] for payload in sent if "trees" in payload)
    for noisy, exact in zip(published, local_trees(group), strict=True):
        np.testing.assert_array_equal(noisy["feature"], exact.feature)
        assert not np.array_equal(noisy["counts"], exact.counts)
        leaves = exact.leaves
        assert noisy["counts"][0].tolist() == noisy["counts"][leaves].sum(axis=0).tolist()


def test_noise_that_leaves_nothing_is_an_error() -> None:
    tree = build("learner", "cart").fit(blobs(12, classes=2), np.random.default_rng(0))
    none = Tree(tree.kind, tree.feature, tree.threshold, tree.children, np.zeros_like(tree.counts))
    with pytest.raises(DataError, match="leaves nothing"):
        with_noisy_counts(none, 50.0, Coins.derived(1))


@pytest.mark.parametrize("leaves", [[np.ones((1, 3))], "many", None])
def test_counts_that_do_not_fit_the_trees_are_refused(leaves: Any) -> None:
    group = federation(blobs(240, classes=3), 3, split=SPLIT)
    with replies_changed(cross_evaluate, spoilt_at(1, {"leaves": leaves})), \
            pytest.raises(PartyError, match=r"leaf|'leaves' of its reply"):
        run(algorithm(), group)


def test_private_counts_are_refused_where_leaves_hold_means() -> None:
    group = federation(blobs(120, classes=None), 3, split=SPLIT)
    with pytest.raises(ConfigError, match=r"exact means; set algorithm\.epsilon = 0"):
        algorithm(epsilon=1.0).start(group)
    algorithm().start(group)
