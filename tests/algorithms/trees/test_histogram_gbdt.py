"""Boosting from summed histograms gives the trees of the pooled rows, and survives parties that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rivals import CONTINUE, blobs, categories, exchanges, federation, kept, one_more, replies_changed, run, spoilt_at

from parts import Parts
from tequio.algorithms.trees.fitting import KnownMargins
from tequio.algorithms.trees.histogram_gbdt import HistogramGBDT, sum_gradients
from tequio.errors import DataError, PartyError
from tequio.federation.selection import FixedParties
from tequio.learners.trees.boosted import BoostedTrees
from tequio.learners.trees.boosting import Boosting

if TYPE_CHECKING:
    from tequio.federation.algorithm import State

KINDS = [2, 4, None]
"""Two classes, four classes, numbers."""


def algorithm(parties: tuple[str, ...] = (), **settings: Any) -> HistogramGBDT:
    how = {"depth": 3, "bins": 16, "learning_rate": 0.3, **settings}
    return HistogramGBDT(**Parts(learner=Boosting(**how), selector=FixedParties(parties) if parties else None))


def ensemble(state: State, classes: int | None = 2) -> BoostedTrees:
    return BoostedTrees.from_payload(state.model, features=4, classes=classes or 1)


def assert_same_trees(first: State, second: State) -> None:
    for name in ("sizes", "feature", "children", "threshold"):
        np.testing.assert_array_equal(first.model[name], second.model[name])
    for name in ("base", "value"):
        np.testing.assert_allclose(first.model[name], second.model[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("classes", KINDS)
def test_any_partition_gives_the_trees_of_the_pooled_rows(classes: int | None) -> None:
    data = blobs(300, classes)
    whole = run(algorithm(), federation(data, 1), rounds=4)
    order = np.random.default_rng(1).permutation(300)
    skewed = [order[:1], order[1:6], order[6:120], order[120:]]
    by_label = np.array_split(np.argsort(data.target, kind="stable"), 5)  # parties that hold one class
    for parts in (skewed, by_label):
        assert_same_trees(run(algorithm(), federation(data, parts), rounds=4), whole)


def boosted_by_hand(data: Any, cuts: list[Any], rounds: int, depth: int, rate: float) -> np.ndarray:
    """Margins by plain greedy boosting of the logistic loss over all cuts, one node and one row at a time."""
    features, target = data.features, data.target
    share = target.mean()
    margins = np.full(len(data), np.log(share / (1 - share)))

    def grow(rows: np.ndarray, left: int, gradient: np.ndarray, curvature: np.ndarray, step: np.ndarray) -> None:
        def strength(part: np.ndarray) -> float:
            return gradient[part].sum() ** 2 / (curvature[part].sum() + 1.0)

        best, chosen = 1e-12, None
        for column, own in enumerate(cuts):
            for cut in own if left else ():
                below, above = rows[features[rows, column] <= cut], rows[features[rows, column] > cut]
                if min(curvature[below].sum(), curvature[above].sum()) < 1.0:
                    continue
                gain = (strength(below) + strength(above) - strength(rows)) / 2
                if gain > best * (1 + 1e-9):
                    best, chosen = gain, (below, above)
        if chosen is None:
            step[rows] = -rate * gradient[rows].sum() / (curvature[rows].sum() + 1.0)
        else:
            for part in chosen:
                grow(part, left - 1, gradient, curvature, step)

    for _ in range(rounds):
        chance, step = 1 / (1 + np.exp(-margins)), np.zeros(len(data))
        grow(np.arange(len(data)), depth, chance - target, chance * (1 - chance), step)
        margins = margins + step
    return margins


def test_it_is_plain_greedy_boosting_over_the_common_cuts() -> None:
    data = blobs(200)
    state = run(algorithm(bins=8), federation(data, 3), rounds=3)
    by_hand = boosted_by_hand(data, state.memory["cuts"], rounds=3, depth=3, rate=0.3)
    np.testing.assert_allclose(ensemble(state).margins(data.features)[:, 0], by_hand, rtol=1e-9)


def test_cuts_lie_at_the_quantiles_of_all_rows() -> None:
    data = blobs(400)
    cuts = algorithm(bins=4).start(federation(data, 5)).memory["cuts"]
    exact = np.quantile(data.features, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf").T
    np.testing.assert_allclose(np.stack(cuts), exact, atol=1e-3 * np.ptp(data.features))


def test_a_party_that_missed_rounds_catches_up() -> None:
    data = blobs(200, classes=3)
    asking = federation(data, 2)
    state = run(algorithm(), asking)
    for parties in (("0",), ("0",), ("0", "1")):
        state = one_more(algorithm(parties), asking, state)
    before = BoostedTrees(*_first(ensemble(state, 3), trees=9))  # the last round's own trees are told in the next
    for party, known in kept(asking, KnownMargins).items():
        rows = asking.population.view(party).train.features
        np.testing.assert_allclose(known["margins"], before.margins(rows), rtol=1e-12)


def _first(model: BoostedTrees, trees: int) -> tuple[Any, ...]:
    return model.objective, model.base, model.trees[:trees]


def test_a_party_that_fails_within_a_tree_has_no_part_in_it() -> None:
    data = blobs(240)
    asking = federation(data, 3, rules=CONTINUE)
    start = algorithm().start(asking)
    asked = []

    def fail_later(party: Any, reply: dict[str, Any]) -> dict[str, Any]:
        asked.append(party.index)
        if party.index == 1 and len(reply["sums"]["gradient"]) > 1:
            raise OSError("the line is dead")
        return reply

    with replies_changed(sum_gradients, fail_later):
        survived = one_more(algorithm(), asking, start)
    assert asked[:6] == [0, 1, 2, 0, 1, 2]
    others = federation(data, 3)
    others.round = 1
    assert_same_trees(survived, algorithm(("0", "2")).round(others, start))


WRONG = {"no sums": {"sums": 3}, "a sum too few": {"sums": {"gradient": np.zeros((1, 3))}},
         "of another shape": {"sums": {"gradient": np.zeros((2, 9)), "curvature": np.zeros((2, 9))}}}


@pytest.mark.parametrize("wrong", WRONG)
def test_corrupted_sums_are_named_or_left_out(wrong: str) -> None:
    data = blobs(90)
    with replies_changed(sum_gradients, spoilt_at(2, WRONG[wrong])):
        with pytest.raises(PartyError, match=r"party '2' (sent 'gradient' of shape|sent other sums than|.*its reply)"):
            run(algorithm(), federation(data, 3))
        left = run(algorithm(), federation(data, 3, rules=CONTINUE))
    asking = federation(data, 3)
    assert_same_trees(left, one_more(algorithm(("0", "1")), asking, algorithm().start(asking)))


def test_what_comes_back_does_not_grow_with_the_rows() -> None:
    sizes = []
    for rows in (100, 1000):
        asking = federation(blobs(rows), 2)
        facts = exchanges(asking)
        run(algorithm(depth=1), asking)
        sizes.append([fact["bytes_up"] for fact in facts if fact["task"] == "histogram-gbdt: sum gradients"])
    assert sizes[0] == sizes[1]


def test_categories_are_refused_before_work_starts() -> None:
    with pytest.raises(DataError, match="column 'c0' is categorical, and 'histogram-gbdt' needs numbers"):
        algorithm().start(federation(categories([[0], [1]], [0, 1]), 2))
