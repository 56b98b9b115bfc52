"""Robust aggregators against plain numpy forms of their definitions, written anew and slowly here."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from tequio.errors import ConfigError, DataError
from tequio.federation.aggregation import Updates
from tequio.federation.aggregators import distances
from tequio.federation.aggregators.distances import columns_in_blocks, hostile_count
from tequio.registry import build

SHAPES = {"w": (4, 3), "b": (5,)}
rows_and_seeds = pytest.mark.parametrize(("count", "seed"), [(11, 0), (12, 1), (23, 2), (7, 3)])


def updates(matrix: Any, weights: Any = None, root: Any = None) -> Updates:
    def cut(row: Any) -> dict[str, Any]:
        return {"w": row[:12].reshape(4, 3), "b": row[12:]}

    return Updates(np.arange(len(matrix)), [cut(row) for row in matrix],
                   np.ones(len(matrix)) if weights is None else weights, None if root is None else cut(root))


def random_matrix(count: int, seed: int, hostile: int = 2) -> Any:
    draw = np.random.default_rng(seed)
    matrix = draw.standard_normal((count, 17)) + 0.5
    matrix[draw.choice(count, hostile, replace=False)] *= -20
    return matrix


def aggregate(name: str, matrix: Any, weights: Any = None, root: Any = None, **parameters: Any) -> Any:
    combined = build("aggregator", name, parameters).combine(updates(matrix, weights, root), {})
    return np.concatenate([combined.update["w"].ravel(), combined.update["b"]])


@rows_and_seeds
def test_median(count: int, seed: int) -> None:
    matrix = random_matrix(count, seed)
    np.testing.assert_allclose(aggregate("median", matrix), np.median(matrix, axis=0), rtol=1e-14)


@rows_and_seeds
def test_trimmed_mean(count: int, seed: int) -> None:
    from scipy.stats import trim_mean

    matrix = random_matrix(count, seed)
    expected = trim_mean(matrix, 0.25, axis=0)
    np.testing.assert_allclose(aggregate("trimmed-mean", matrix, trim=0.25), expected, rtol=1e-12)
    np.testing.assert_allclose(aggregate("trimmed-mean", matrix, trim=0.0), matrix.mean(axis=0), rtol=1e-12)


def test_columns_come_in_blocks_of_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "_BLOCK_NUMBERS", 8)
    for shape, widths in (((3, 5), [2, 2, 1]), ((9, 2), [1, 1]), ((0, 3), [3])):
        matrix = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        blocks = [block for _, block in columns_in_blocks(matrix)]
        assert [block.shape[1] for block in blocks] == widths
        np.testing.assert_array_equal(np.concatenate(blocks, axis=1), matrix)


def test_as_many_may_be_hostile_as_the_share_says_and_the_rule_can_stand() -> None:
    assert [hostile_count(0.2, parties, 9) for parties in (4, 5, 9, 10)] == [0, 1, 1, 2]
    assert hostile_count(0.3, 10, 9) == 3  # 0.3 x 10 is a little less in binary
    assert hostile_count(0.4, 3, -1) == 0
    # (7 - 3) // 2 = 2 although 0.45 x 7 = 3.15, and (8 - 3) // 2 = 2 as well
    for parties, kept in ((7, 5), (8, 6), (9, 6)):
        aggregator = build("aggregator", "multi-krum", {"hostile": 0.45})
        assert len(aggregator.combine(updates(random_matrix(parties, 0)), {}).notes["chosen"]) == kept


def plain_krum_scores(matrix: Any, hostile: int) -> Any:
    scores = []
    for i, row in enumerate(matrix):
        distances = sorted(np.sum((row - other) ** 2) for j, other in enumerate(matrix) if j != i)
        scores.append(sum(distances[:len(matrix) - hostile - 2]))
    return np.array(scores)


@rows_and_seeds
def test_krum_and_multi_krum(count: int, seed: int) -> None:
    matrix = random_matrix(count, seed)
    hostile = int(0.2 * count)
    scores = plain_krum_scores(matrix, hostile)
    np.testing.assert_array_equal(aggregate("krum", matrix), matrix[np.argmin(scores)])
    best = np.argsort(scores)
    np.testing.assert_allclose(aggregate("multi-krum", matrix), matrix[best[:count - hostile]].mean(0), rtol=1e-12)
    np.testing.assert_allclose(aggregate("multi-krum", matrix, keep=3), matrix[best[:3]].mean(axis=0), rtol=1e-12)


@rows_and_seeds
def test_bulyan(count: int, seed: int) -> None:
    matrix = random_matrix(count, seed, hostile=1)
    hostile = min(int(0.2 * count), (count - 3) // 4)
    left, chosen = list(range(count)), []
    while len(chosen) < count - 2 * hostile:
        scores = [sum(sorted(np.sum((matrix[i] - matrix[j]) ** 2) for j in left if j != i)
                      [:max(len(left) - hostile - 2, 1)]) for i in left]
        spread = [sum(np.sum((matrix[i] - matrix[j]) ** 2) for j in left) for i in left]
        best = min(range(len(left)), key=lambda place: (round(scores[place], 9), spread[place]))
        chosen.append(left.pop(best))
    expected = []
    for column in matrix[chosen].T:
        near = column[np.argsort(np.abs(column - np.median(column)))]
        expected.append(near[:len(chosen) - 2 * hostile].mean())
    np.testing.assert_allclose(aggregate("bulyan", matrix), expected, rtol=1e-9)


@rows_and_seeds
def test_the_geometric_median_is_where_an_optimizer_finds_it(count: int, seed: int) -> None:
    matrix = random_matrix(count, seed)
    weights = np.random.default_rng(seed).integers(1, 5, count).astype(float)

    def cost(point: Any) -> float:
        return float(weights @ np.linalg.norm(matrix - point, axis=1))

    found = aggregate("geometric-median", matrix, weights, steps=2000, tolerance=1e-14)
    expected = minimize(cost, np.median(matrix, axis=0), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    assert cost(found) <= expected.fun * (1 + 1e-9)
    np.testing.assert_allclose(found, expected.x, atol=1e-3)


def test_the_geometric_median_of_a_line_is_its_middle_point() -> None:
    matrix = np.zeros((5, 17))
    matrix[:, 0] = [0, 1, 2, 10, 1000]
    np.testing.assert_allclose(aggregate("geometric-median", matrix, steps=10_000, smoothing=1e-9)[0], 2, atol=1e-2)


def test_the_geometric_median_does_not_depend_on_the_unit_and_stops_when_little_moves() -> None:
    matrix = np.zeros((3, 17))
    matrix[1:, 0] = 4.0, 10.0
    aggregator = build("aggregator", "geometric-median", {"smoothing": 0.01, "steps": 3})
    shares = aggregator.combine(updates(matrix), {}).notes["shares"]
    for unit in (1e-6, 1e6):
        assert aggregator.combine(updates(unit * matrix), {}).notes["shares"] == pytest.approx(shares)
    # One step from the mean 14/3: over the distances 14/3, 2/3 and 16/3, no share moves by a half.
    once = build("aggregator", "geometric-median", {"tolerance": 0.5}).combine(updates(matrix), {}).notes["shares"]
    pull = np.array([3 / 14, 3 / 2, 3 / 16])
    assert once == pytest.approx(pull / pull.sum())


@rows_and_seeds
def test_centred_clipping_over_two_rounds(count: int, seed: int) -> None:
    first, second = random_matrix(count, seed), random_matrix(count, seed + 50)
    aggregator, memory, centre = build("aggregator", "centred-clipping", {"radius": 1.5, "steps": 2}), {}, np.zeros(17)
    for matrix in (first, second):
        combined = aggregator.combine(updates(matrix), memory)
        memory = combined.memory
        for _ in range(2):
            away = matrix - centre
            centre = centre + (away * np.minimum(1, 1.5 / np.linalg.norm(away, axis=1))[:, None]).mean(axis=0)
        np.testing.assert_allclose(memory["centre"], centre, rtol=1e-9)


@rows_and_seeds
def test_norm_bounding(count: int, seed: int) -> None:
    matrix, weights = random_matrix(count, seed), np.arange(1.0, count + 1)
    norms = np.linalg.norm(matrix, axis=1)
    for given, bound in ((2.0, 2.0), (0.0, np.median(norms))):
        short = matrix * np.minimum(1, bound / norms)[:, None]
        np.testing.assert_allclose(aggregate("norm-bounding", matrix, weights, bound=given),
                                   np.average(short, axis=0, weights=weights), rtol=1e-10)


def plain_foolsgold(history: Any) -> Any:
    """Line by line as the paper's algorithm 1."""
    count = len(history)
    similarity = np.array([[history[i] @ history[j] / np.linalg.norm(history[i]) / np.linalg.norm(history[j])
                            if i != j else 0.0 for j in range(count)] for i in range(count)])
    v = similarity.max(axis=1)
    for i in range(count):
        for j in range(count):
            if i != j and v[j] > v[i]:
                similarity[i, j] *= v[i] / v[j]
    alpha = np.clip(1 - similarity.max(axis=1), 0, 1)
    alpha = alpha / alpha.max()
    alpha[alpha == 1] = 0.99
    return np.clip(np.log(alpha / (1 - alpha)) + 0.5, 0, 1)


def test_foolsgold_over_two_rounds() -> None:
    draw = np.random.default_rng(4)
    purpose = draw.standard_normal(17)
    aggregator, memory, history = build("aggregator", "foolsgold"), {}, np.zeros((8, 17))
    for _ in range(2):
        matrix = draw.standard_normal((8, 17)) + 0.2
        matrix[[2, 5, 6]] = purpose + 0.05 * draw.standard_normal((3, 17))
        history += matrix
        combined = aggregator.combine(updates(matrix), memory)
        memory, trust = combined.memory, plain_foolsgold(history)
        np.testing.assert_allclose(memory["sums"], history)
        np.testing.assert_allclose(combined.notes["trust"], trust, atol=1e-9)
        np.testing.assert_allclose(combined.update["b"], np.average(matrix, axis=0, weights=trust)[12:], rtol=1e-9)
    trust = np.array(combined.notes["trust"])
    assert trust[[2, 5, 6]].max() < 0.05 < trust[[0, 1, 3]].min()


def test_foolsgold_remembers_parties_that_are_absent() -> None:
    matrix = random_matrix(7, 0)
    aggregator = build("aggregator", "foolsgold")
    memory = aggregator.combine(updates(matrix).part(np.array([1, 4, 5])), {}).memory
    memory = aggregator.combine(updates(matrix).part(np.array([0, 4])), memory).memory
    assert memory["parties"].tolist() == [0, 1, 4, 5]
    np.testing.assert_allclose(memory["sums"][2], 2 * matrix[4])


@rows_and_seeds
def test_fltrust(count: int, seed: int) -> None:
    matrix, root = random_matrix(count, seed), np.full(17, 0.3)
    norms = np.linalg.norm(matrix, axis=1)
    trust = np.maximum(matrix @ root / norms / np.linalg.norm(root), 0)
    scaled = matrix / norms[:, None] * np.linalg.norm(root)
    np.testing.assert_allclose(aggregate("fltrust", matrix, root=root), trust @ scaled / trust.sum(), rtol=1e-9)


def test_fltrust_moves_nothing_when_nobody_is_trusted_and_needs_its_root() -> None:
    matrix = -np.ones((5, 17))
    np.testing.assert_array_equal(aggregate("fltrust", matrix, root=np.ones(17)), 0)
    np.testing.assert_array_equal(aggregate("fltrust", matrix[:1], root=np.ones(17)), 0)
    with pytest.raises(ConfigError, match="own"):
        aggregate("fltrust", matrix)


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum", "multi-krum", "bulyan", "geometric-median",
                                  "centred-clipping", "fltrust"])
def test_two_of_eleven_cannot_drag_it_away(name: str) -> None:
    draw = np.random.default_rng(8)
    matrix = draw.standard_normal((11, 17)) * 0.1 + 1
    matrix[[3, 7]] = -1e6
    found = aggregate(name, matrix, root=np.ones(17))
    assert np.linalg.norm(found - 1) < 2.0


@pytest.mark.parametrize("name", ["geometric-median", "norm-bounding"])
def test_no_weight_at_all_is_an_error(name: str) -> None:
    with pytest.raises(DataError, match="sum to 0"):
        aggregate(name, random_matrix(4, 0), np.zeros(4))


@pytest.fixture
def byzfl(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The aggregators of ByzFL (MIT). Its `__init__` is skipped: it imports torchvision, whose wheels only load beside
    the very build of torch they were made for."""
    spec = find_spec("byzfl")
    assert spec is not None, "byzfl is missing; it is part of the extra `dev`"
    monkeypatch.setitem(sys.modules, "byzfl", module_from_spec(spec))
    return import_module("byzfl.aggregators")


@rows_and_seeds
def test_byzfl_gives_the_same(byzfl: Any, count: int, seed: int) -> None:
    matrix = random_matrix(count, seed)
    hostile = int(0.2 * count)
    for found, theirs in ((aggregate("median", matrix), byzfl.Median()),
                          (aggregate("trimmed-mean", matrix, trim=0.2), byzfl.TrMean(hostile)),
                          (aggregate("centred-clipping", matrix, radius=1.5, steps=2),
                           byzfl.CenteredClipping(L=2, tau=1.5))):
        np.testing.assert_allclose(found, theirs(matrix), rtol=1e-9)
    # Both come to the point itself only in the limit, from different starts.
    np.testing.assert_allclose(aggregate("geometric-median", matrix, steps=2000, tolerance=1e-14),
                               byzfl.GeometricMedian(nu=1e-6, T=2000)(matrix), atol=1e-6)


@rows_and_seeds
def test_byzfl_gives_the_same_for_krum_with_one_more_hostile_party(byzfl: Any, count: int, seed: int) -> None:
    # Krum's paper, and we, score an update by its n - f - 2 nearest others. ByzFL takes the n - f nearest including the
    # update itself, so one more: its f + 1 is our f. Its Multi-Krum keeps n - f updates, thus one fewer there.
    matrix = random_matrix(count, seed)
    hostile = int(0.2 * count)
    np.testing.assert_array_equal(aggregate("krum", matrix), byzfl.Krum(hostile + 1)(matrix))
    np.testing.assert_allclose(aggregate("multi-krum", matrix, keep=count - hostile - 1),
                               byzfl.MultiKrum(hostile + 1)(matrix), rtol=1e-12)
