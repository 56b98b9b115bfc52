"""Arithmetic on models, against numpy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import DataError, PayloadError
from tequio.federation import aggregation as models

seeds = st.integers(0, 2**32 - 1)


def model(seed: int, kind: str = "float32") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"w": rng.standard_normal((3, 4)).astype(kind), "b": rng.standard_normal(4).astype(kind),
            "scale": np.array(rng.standard_normal(), dtype=kind)}


def test_hand_worked_numbers() -> None:
    one, other = {"w": np.array([1.0, 2.0])}, {"w": np.array([5.0, 0.0])}
    assert models.difference(other, one)["w"].tolist() == [4.0, -2.0]
    assert models.shifted(one, other)["w"].tolist() == [6.0, 2.0]
    assert models.shifted(one, other, -0.5)["w"].tolist() == [-1.5, 2.0]
    assert models.mixed(one, other, 0.25)["w"].tolist() == [2.0, 1.5]
    assert models.weighted_mean([one, other], [3, 1])["w"].tolist() == [2.0, 1.5]
    assert models.squared_norm(one) == 5.0
    assert models.zeros(one)["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_types_and_shapes_are_kept(kind: str) -> None:
    one, other = model(1, kind), model(2, kind)
    for result in (models.difference(other, one), models.shifted(one, other), models.mixed(one, other, 0.3),
                   models.weighted_mean([one, other], np.array([1.0, 2.0])), models.zeros(one)):
        assert {name: (values.shape, values.dtype) for name, values in result.items()} == \
            {name: (values.shape, values.dtype) for name, values in one.items()}


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(1, 12))
def test_the_weighted_mean_is_summed_in_doubles(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    given_models, weights = [model(seed + index) for index in range(count)], rng.integers(1, 1000, count)
    mean = models.weighted_mean(given_models, weights)
    for name in mean:
        stacked = np.stack([one[name].astype(np.float64) for one in given_models])
        expected = np.average(stacked, axis=0, weights=weights).astype(np.float32)
        np.testing.assert_allclose(mean[name], expected, rtol=2e-7, atol=1e-9)


def test_the_mean_of_many_small_steps_is_not_lost_to_rounding() -> None:
    """Added up one by one in single precision, a million's small neighbours would vanish."""
    parts = [{"w": np.array([1e8], np.float32)}] + [{"w": np.array([1.0], np.float32)}] * 99
    exact = (1e8 + 99) / 100
    assert models.weighted_mean(parts, np.ones(100))["w"][0] == np.float32(exact)


def test_whole_numbers_have_a_mean_too() -> None:
    mean = models.weighted_mean([{"n": np.array([1])}, {"n": np.array([2])}], [1, 1])
    assert mean["n"].tolist() == [1.5]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [0, 0], [float("nan"), 1.0], [1.0, -1.0]])
def test_weights_that_sum_to_nothing_are_refused(weights: list[float]) -> None:
    with pytest.raises(DataError, match="weights"):
        models.weighted_mean([model(0), model(1)], weights)


def test_a_party_without_weight_does_not_count() -> None:
    mean = models.weighted_mean([model(0), model(1)], [0.0, 7.0])
    for name, values in model(1).items():
        np.testing.assert_array_equal(mean[name], values)


def test_local_update_policy() -> None:
    """Feature 13: (1 - share) * local + share * global; share 1 replaces, share 0 keeps."""
    local, received = model(0, "float64"), model(1, "float64")
    assert models.mixed(local, received, 1.0) is received
    kept, half = models.mixed(local, received, 0.0), models.mixed(local, received, 0.4)
    for name in local:
        np.testing.assert_array_equal(kept[name], local[name])
        np.testing.assert_allclose(half[name], 0.6 * local[name] + 0.4 * received[name], rtol=1e-12, atol=1e-15)


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_a_flat_model_can_be_cut_back(seed: int) -> None:
    one = model(seed)
    vector = models.flatten(one)
    assert (vector.dtype, vector.shape) == (np.float64, (17,))
    again = models.unflatten(vector, one)
    assert list(again) == list(one)
    for name, values in one.items():
        assert again[name].dtype == values.dtype
        np.testing.assert_array_equal(again[name], values)
    assert models.squared_norm(one) == pytest.approx(vector @ vector, rel=1e-12)


def test_inputs_are_left_alone() -> None:
    one, other = model(1), model(2)
    models.shifted(one, other)
    models.mixed(one, other, 0.5)
    models.weighted_mean([one, other], [1, 2])
    for name in one:
        np.testing.assert_array_equal(one[name], model(1)[name])
        np.testing.assert_array_equal(other[name], model(2)[name])


def test_several_models_upon_another_give_their_changes_in_their_own_memory() -> None:
    after = {"w": np.array([[1.0, 2.0], [5.0, 7.0]])}
    changes = models.take_off({"w": np.array([1.0, 1.0])}, after)
    assert changes["w"].tolist() == [[0.0, 1.0], [4.0, 6.0]]
    assert changes["w"] is after["w"]


@pytest.mark.parametrize("size", [1, 32_768, 70_001])
def test_a_mean_of_long_arrays_is_summed_in_party_order(size: int) -> None:
    rng = np.random.default_rng(size)
    arrays, weights = [rng.standard_normal((1, size), dtype=np.float32) for _ in range(5)], rng.random(5)
    expected = np.zeros((1, size))
    for values, share in zip(arrays, weights / weights.sum(), strict=True):
        expected += values.astype(np.float64) * share
    mean = models.weighted_mean([{"w": values} for values in arrays], weights)["w"]
    np.testing.assert_array_equal(mean, expected.astype(np.float32))


@pytest.mark.parametrize(("update", "place"), [
    ({"w": np.zeros((3, 4)), "b": np.zeros(3), "scale": np.array(0.0)}, r"'b': \(3,\) instead of \(4,\)"),
    ({"w": np.zeros((3, 4)), "b": np.zeros(4)}, r"'scale': None instead of \(\)"),
    ({**model(1), "x": np.zeros(1)}, r"'x': \(1,\) instead of None"),
    ({"w": "text", "b": np.zeros(4), "scale": np.array(0.0)}, r"'w': None instead of \(3, 4\)"),
    (3, "int instead of named arrays"),
    (None, "NoneType instead of named arrays"),
])
def test_an_update_that_does_not_fit_is_refused_by_name(update: object, place: str) -> None:
    models.check_shapes(model(1), model(0), "party 'ana'")
    with pytest.raises(PayloadError, match=f"party 'ana' sent an update that does not fit the model.*{place}"):
        models.check_shapes(update, model(0), "party 'ana'")  # type: ignore[arg-type]
