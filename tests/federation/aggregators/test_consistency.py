"""Consistency weighting: the quasi-Newton product against explicit BFGS, scores by hand, the mean at X = 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.federation import payload as payloads
from tequio.federation.aggregation import Mean, Updates
from tequio.federation.aggregators.consistency import Consistency, has_clusters, inverted_softmax, splitting_point
from tequio.federation.aggregators.trajectory import Trajectory, hessian_product
from tequio.registry import build


def pairs(count: int, size: int = 30, seed: int = 0) -> tuple[Any, Any]:
    """Steps and changes of gradient on a random quadratic."""
    draw = np.random.default_rng(seed)
    root = draw.standard_normal((size, size))
    steps = draw.standard_normal((count, size))
    return steps, steps @ (root @ root.T / size + np.eye(size))


def explicit_bfgs(steps: Any, changes: Any) -> Any:
    matrix = (changes[-1] @ steps[-1]) / (steps[-1] @ steps[-1]) * np.eye(steps.shape[1])
    for s, y in zip(steps, changes, strict=True):
        moved = matrix @ s
        matrix = matrix - np.outer(moved, moved) / (s @ moved) + np.outer(y, y) / (y @ s)
    return matrix


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_product_is_that_of_explicit_bfgs(count: int) -> None:
    steps, changes = pairs(count)
    vector = np.random.default_rng(9).standard_normal(30)
    np.testing.assert_allclose(hessian_product(steps, changes, vector), explicit_bfgs(steps, changes) @ vector,
                               rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_secant_equation_holds_for_either_sign_of_curvature(sign: float) -> None:
    steps, changes = pairs(6)
    product = hessian_product(steps, sign * changes, steps[-1])
    assert np.linalg.norm(product - sign * changes[-1]) <= 1e-8 * np.linalg.norm(changes[-1])


def test_changes_proportional_to_steps_make_a_multiple_of_the_vector() -> None:
    steps, _ = pairs(4)
    vector = np.arange(30.0)
    np.testing.assert_allclose(hessian_product(steps, 2.5 * steps, vector), 2.5 * vector, rtol=1e-8, atol=1e-12)


def test_directions_that_were_never_gone_are_only_scaled() -> None:
    steps, changes = np.zeros((2, 30)), np.zeros((2, 30))
    steps[:, :10], changes[:, :10] = (values[:, :10] for values in pairs(2))
    scale = changes[-1] @ steps[-1] / (steps[-1] @ steps[-1])
    np.testing.assert_allclose(hessian_product(steps, changes, np.eye(30)[20]), scale * np.eye(30)[20], atol=1e-12)


def test_repeated_pairs_are_no_problem() -> None:
    steps, changes = (np.repeat(values, 2, axis=0) for values in pairs(1))
    product = hessian_product(steps, changes, steps[0])
    np.testing.assert_allclose(product, changes[0], rtol=1e-6)


def updates(matrix: Any, weights: Any = None, parties: Any = None) -> Updates:
    count = len(matrix)
    return Updates(np.arange(count) if parties is None else np.asarray(parties),
                   [{"w": row.astype(np.float32)} for row in matrix], np.ones(count) if weights is None else weights)


def play(rounds: list[Any], weights: Any = None, **parameters: Any) -> list[Any]:
    aggregator, memory, results = build("aggregator", "consistency", parameters), {}, []
    for matrix in rounds:
        combined = aggregator.combine(updates(matrix, weights), memory)
        memory = payloads.decode(payloads.encode(combined.memory))
        results.append(combined)
    return results


def some_rounds(count: int = 5, parties: int = 5, seed: int = 3) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((parties, 12)) * 0.3 + 1 / (1 + number) for number in range(count)]


def test_the_first_two_rounds_weigh_all_alike() -> None:
    for combined in play(some_rounds())[:2]:
        assert combined.notes["trust"] == [0.2] * 5
        assert "discrepancy" not in combined.notes
    assert play(some_rounds())[2].notes["trust"] != [0.2] * 5


def test_a_bounded_beginning_shortens_what_is_longer_than_the_median() -> None:
    rounds = some_rounds(3)
    rounds[0][2] *= 40
    lengths = np.linalg.norm(rounds[0], axis=1)
    shortened = rounds[0] * np.minimum(1.0, np.median(lengths) / lengths)[:, None]
    alike, bounded = play(rounds), play(rounds, beginning="bounded")
    np.testing.assert_allclose(bounded[0].update["w"], shortened.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(alike[0].update["w"], rounds[0].mean(axis=0), rtol=1e-5)
    # The second round has no discrepancies either.
    rounds[1][3] *= 40
    lengths = np.linalg.norm(rounds[1], axis=1)
    shortened = rounds[1] * np.minimum(1.0, np.median(lengths) / lengths)[:, None]
    np.testing.assert_allclose(play(rounds, beginning="bounded")[1].update["w"], shortened.mean(axis=0), rtol=1e-5)
    # With a history it is the trust that decides, and updates keep their length.
    trust = np.array(bounded[2].notes["trust"])
    np.testing.assert_allclose(bounded[2].update["w"], trust @ rounds[2], rtol=1e-4)
    nothing = play([np.zeros((3, 12))], beginning="bounded")[0]
    assert not nothing.update["w"].any()


def test_discrepancies_and_weights_by_hand() -> None:
    rounds = [np.float32(matrix).astype(float) for matrix in some_rounds(4)]
    played = play(rounds)
    aggregates = [combined.update["w"].astype(float) for combined in played]
    means = [matrix.mean(axis=0) for matrix in rounds]
    steps = np.array([aggregates[0], aggregates[1]])
    changes = np.array([means[1] - means[0], means[2] - means[1]])
    bend = explicit_bfgs(steps, changes) @ aggregates[2]
    gaps = np.linalg.norm(rounds[2] + bend - rounds[3], axis=1)
    np.testing.assert_allclose(played[3].notes["discrepancy"], gaps, rtol=1e-5)
    weights = np.exp(-gaps) / np.exp(-gaps).sum()
    np.testing.assert_allclose(played[3].notes["trust"], weights, rtol=1e-5)
    np.testing.assert_allclose(aggregates[3], weights @ rounds[3], rtol=1e-5)
    shares = [np.array(combined.notes["discrepancy"]) for combined in played[2:]]
    windowed = np.mean([gap / gap.sum() for gap in shares], axis=0)
    np.testing.assert_allclose(played[3].notes["score"], windowed, rtol=1e-9)


def test_a_blend_of_one_is_the_mean_bit_for_bit() -> None:
    weights = np.array([3.0, 7.0, 1.0, 13.0, 5.0])
    for matrix, combined in zip(some_rounds(), play(some_rounds(), weights, blend=1.0), strict=True):
        expected = Mean().combine(updates(matrix, weights), {}).update
        assert combined.update["w"].tobytes() == expected["w"].tobytes()


def test_a_blend_of_a_half_is_half_rows_and_half_trust() -> None:
    # Before there is a history all are trusted alike: 0.5 (1, 3) + 0.5 (2, 2) = (1.5, 2.5) of 4.
    combined = play([np.array([[0.0], [8.0]])], np.array([1.0, 3.0]), blend=0.5)[0]
    assert combined.update["w"].tolist() == [5.0]


def test_what_is_weighed_is_what_the_score_says() -> None:
    rounds = [matrix / 50 for matrix in some_rounds(4)]  # so that discrepancies are below 1
    for score in ("raw", "normalised", "windowed", "relative"):
        played = play(rounds, score=score, window=2)
        gaps = [np.array(combined.notes["discrepancy"]) for combined in played[2:]]
        expected = {"raw": gaps[1], "normalised": gaps[1] / gaps[1].sum(), "relative": gaps[1] / np.median(gaps[1]),
                    "windowed": (gaps[0] / gaps[0].sum() + gaps[1] / gaps[1].sum()) / 2}[score]
        weights = np.exp(-expected)
        np.testing.assert_allclose(played[3].notes["trust"], weights / weights.sum(), rtol=1e-9)
    still = Consistency(score="relative")._scores(np.array([0.0, 0.0, 3.0]), updates(rounds[0][:3]), {})
    assert still.tolist() == [0.0, 0.0, 3.0]


def test_discrepancies_grow_with_the_updates() -> None:
    rounds = some_rounds(3)
    large = play([1e5 * matrix for matrix in rounds])[2].notes["discrepancy"]
    np.testing.assert_allclose(large, 1e5 * np.array(play(rounds)[2].notes["discrepancy"]), rtol=1e-4)


def test_strangeness_of_three_parties_by_hand() -> None:
    # They have changed by 0, 1 and 10: medians of the distances 1 and 10, 1 and 9, 10 and 9.
    none = np.zeros((0, 1))
    before = Trajectory(np.arange(3), np.ones((3, 1)), np.zeros(1), np.zeros(1), none, none)
    now = np.array([[1.0], [2.0], [11.0]])
    np.testing.assert_allclose(before.strangeness(updates(now), now), np.array([5.5, 5.0, 9.5]) / 5.5)
    assert before.strangeness(updates(now[1:]), now[1:]).tolist() == [1.0, 1.0]
    # Where most stand still, one that moves at all is strange without measure.
    before, now = Trajectory(np.arange(4), np.ones((4, 1)), np.zeros(1), np.zeros(1), none, none), np.ones((4, 1))
    now[3] = 1.5
    assert before.strangeness(updates(now), now).tolist() == [1.0, 1.0, 1.0, np.inf]


@pytest.mark.parametrize("score", ["raw", "normalised", "windowed", "relative"])
def test_a_party_that_turns_around_loses_its_weight(score: str) -> None:
    rounds = some_rounds(6)
    for matrix in rounds[2:]:
        matrix[1] *= -8
    trust = play(rounds, score=score)[-1].notes["trust"]
    assert trust[1] == min(trust)
    assert sum(trust) == pytest.approx(1)
    if score == "raw":
        assert trust[1] < 0.005


def test_a_party_whose_changes_are_out_of_the_common_run_is_left_out_from_the_second_round() -> None:
    """Four honest parties that wander alike and one four times as far, as scaled updates do, whatever all share."""
    draw = np.random.default_rng(4)
    common = draw.standard_normal((6, 1, 400)) * np.array([1, 30, 1, 50, 2, 1])[:, None, None]
    rounds = list(common + draw.standard_normal((6, 5, 400)) * np.array([4, 1, 1, 1.3, 0.6])[None, :, None])
    played = play(rounds, score="outlying", temperature=0.1)
    assert played[0].notes["trust"] == [0.2] * 5
    for number, combined in enumerate(played[1:], start=1):
        assert combined.notes["trust"][0] < 0.01
        np.testing.assert_allclose(combined.notes["trust"][1:], 0.25, atol=0.003)
        changes = rounds[number] - rounds[number - 1]
        apart = np.linalg.norm(changes[:, None] - changes[None], axis=2)
        typical = np.median([np.delete(row, place) for place, row in enumerate(apart)], axis=1)
        weights = np.exp(-np.maximum(typical / np.median(typical) - 2, 0) / 0.1)
        np.testing.assert_allclose(combined.notes["trust"], weights / weights.sum(), atol=1e-4)


def test_one_who_moves_while_all_others_stand_still_is_left_out() -> None:
    aggregator = build("aggregator", "consistency-plus")
    still = np.ones((5, 6))
    memory = aggregator.combine(updates(still), {}).memory
    moved = still.copy()
    moved[3] *= -50
    combined = aggregator.combine(updates(moved), memory)
    assert combined.notes["trust"] == [0.25, 0.25, 0.25, 0.0, 0.25]
    np.testing.assert_array_equal(combined.update["w"], np.ones(6))


def test_who_comes_and_goes_cannot_pull_farther_than_others() -> None:
    aggregator = build("aggregator", "consistency", {"score": "outlying", "beginning": "bounded"})
    matrix = np.random.default_rng(1).standard_normal((4, 6))
    memory = aggregator.combine(updates(matrix), {}).memory
    far = np.concatenate([matrix, 100 * matrix[:1]])
    lengths = np.linalg.norm(far, axis=1)
    expected = far.copy()
    expected[4] *= np.median(lengths) / lengths[4]
    np.testing.assert_allclose(aggregator.combine(updates(far), memory).update["w"], expected.mean(axis=0), rtol=1e-5)


def test_newcomers_and_small_cohorts_are_never_strange() -> None:
    aggregator = build("aggregator", "consistency", {"score": "outlying"})
    matrix = np.random.default_rng(1).standard_normal((4, 6))
    memory = aggregator.combine(updates(matrix), {}).memory
    far = np.concatenate([matrix, 100 * matrix[:1]])
    assert aggregator.combine(updates(far), memory).notes["trust"] == pytest.approx([0.2] * 5)
    pair = aggregator.combine(updates(matrix[:2]), {}).memory
    assert aggregator.combine(updates(50 * matrix[:2]), pair).notes["trust"] == [0.5, 0.5]
    assert aggregator.combine(updates(matrix), memory).notes["trust"] == [0.25] * 4, "nobody moved"


def test_permuting_the_parties_permutes_the_trust() -> None:
    rounds, order = some_rounds(), np.array([4, 2, 0, 1, 3])
    straight, memory, aggregator = play(rounds)[-1], {}, build("aggregator", "consistency")
    for matrix in rounds:
        combined = aggregator.combine(updates(matrix[order], parties=order), memory)
        memory = combined.memory
    np.testing.assert_allclose(np.array(straight.notes["trust"])[order], combined.notes["trust"], rtol=1e-6)


def test_a_party_that_was_absent_gets_the_median_discrepancy() -> None:
    rounds, aggregator = some_rounds(4), build("aggregator", "consistency")
    memory: Any = {}
    for number, matrix in enumerate(rounds):
        who = np.array([0, 1, 3, 4]) if number == 2 else np.arange(5)
        combined = aggregator.combine(updates(matrix[who], parties=who), memory)
        memory = combined.memory
    gaps = combined.notes["discrepancy"]
    assert gaps[2] == pytest.approx(np.median([gaps[place] for place in (0, 1, 3, 4)]))


def test_the_history_is_bounded() -> None:
    memory = play(some_rounds(9), history=3)[-1].memory["trajectory"]
    assert memory["steps"].shape == memory["changes"].shape == (3, 12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12))
def test_trust_is_positive_for_the_best_sums_to_one_and_falls(scores: list[float]) -> None:
    trust = inverted_softmax(np.array(scores))
    assert trust.sum() == pytest.approx(1)
    assert (np.diff(trust[np.argsort(scores, kind="stable")]) <= 1e-15).all()
    assert trust[int(np.argmin(scores))] > 0


def test_fldetector_leaves_out_the_party_that_keeps_departing_and_nobody_else() -> None:
    draw, aggregator, memory = np.random.default_rng(1), build("aggregator", "fldetector", {"window": 3}), {}
    for number in range(8):
        matrix = 1.0 + 0.01 * draw.standard_normal((7, 12))
        matrix[4] = 3 * draw.standard_normal(12)
        combined = aggregator.combine(updates(matrix), memory)
        memory = payloads.decode(payloads.encode(combined.memory))
        assert combined.notes["removed"] == ([4] if number >= 4 else [])
    np.testing.assert_allclose(combined.update["w"], np.delete(np.float32(matrix), 4, axis=0).mean(axis=0), rtol=1e-6)


def test_fldetector_is_the_mean_among_equals() -> None:
    draw, aggregator, memory = np.random.default_rng(2), build("aggregator", "fldetector", {"window": 5}), {}
    for _ in range(9):
        given = updates(1.0 + 0.1 * draw.standard_normal((30, 12)), np.arange(1.0, 31.0))
        combined = aggregator.combine(given, memory)
        memory = combined.memory
        np.testing.assert_array_equal(combined.update["w"], Mean().combine(given, {}).update["w"])


def test_two_means_and_the_gap_statistic() -> None:
    assert splitting_point(np.array([0.1, 5.0, 0.2, 4.0])) == 4.0
    assert has_clusters(np.array([0.1, 0.11, 0.12, 0.1, 0.9, 0.91]))
    assert not has_clusters(np.linspace(0.1, 0.2, 10))
    assert not has_clusters(np.full(5, 0.2))


@pytest.mark.parametrize(("count", "distance"), [(4, 3.167458), (5, 2.629130), (6, 1.575238)])
def test_two_groups_are_clusters_from_a_distance_on(count: int, distance: float) -> None:
    """Scores from 3 to 4 and a pair above: distances are those of a gap statistic in plain numpy on the same draws."""
    def scores(apart: float) -> Any:
        return 3 + np.concatenate([np.linspace(0, 1, count - 2), [1 + apart, 1.3 + apart]])

    assert has_clusters(scores(distance + 1e-5))
    assert not has_clusters(scores(distance - 1e-5))


def test_fldetector_judges_three_parties_or_more_and_moves_nothing_when_all_are_left_out() -> None:
    aggregator, given = build("aggregator", "fldetector", {"window": 1}), updates(np.ones((3, 2)))
    assert aggregator._suspects(given, {"0": [0.1], "1": [0.1], "2": [0.8]}).tolist() == [2]
    assert aggregator._suspects(given, {"0": [0.1], "1": [0.9]}).tolist() == []  # who is right, of two?
    alone = aggregator.combine(updates(np.ones((1, 2))), {"removed": np.array([0])})
    assert alone.update["w"].tolist() == [0.0, 0.0]
