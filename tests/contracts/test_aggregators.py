"""Every aggregator: order of parties does not matter, one or equal updates come out as they went in."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.federation import payload as payloads
from tequio.federation.aggregation import Updates

from .subjects import every, make

every_aggregator = every("aggregator")


def updates(count, seed=0):
    draw = np.random.default_rng(seed)
    arrays = [{"w": draw.standard_normal((3, 2)).astype(np.float32), "b": draw.standard_normal(2).astype(np.float32)}
              for _ in range(count)]
    return Updates(np.arange(count), arrays, draw.integers(1, 9, count).astype(np.float64), root=arrays[0])


@every_aggregator
def test_the_order_of_parties_does_not_matter(name):
    given = updates(7)
    aggregator = make("aggregator", name)
    straight = aggregator.combine(given, {}).update
    shuffled = aggregator.combine(given.part(np.array([3, 0, 6, 2, 5, 1, 4])), {}).update
    for key in straight:
        np.testing.assert_allclose(shuffled[key], straight[key], rtol=1e-6, atol=1e-7)


@every_aggregator
def test_one_party_gets_its_own_update_back(name):
    given = updates(1)
    combined = make("aggregator", name).combine(given, {}).update
    for key, values in given.arrays[0].items():
        np.testing.assert_array_equal(combined[key], values)


@every_aggregator
def test_identical_updates_come_out_unchanged(name):
    one = updates(1).arrays[0]
    combined = make("aggregator", name).combine(Updates(np.arange(6), [one] * 6, np.ones(6), root=one), {}).update
    for key, values in one.items():
        np.testing.assert_allclose(combined[key], values, rtol=1e-6)


@every_aggregator
def test_shapes_types_and_inputs_are_kept(name):
    given = updates(5)
    before = [{key: values.copy() for key, values in update.items()} for update in given.arrays]
    combined = make("aggregator", name).combine(given, {}).update
    assert {key: (values.shape, values.dtype) for key, values in combined.items()} == \
        {key: (values.shape, values.dtype) for key, values in before[0].items()}
    for update, copy in zip(given.arrays, before, strict=True):
        for key in copy:
            np.testing.assert_array_equal(update[key], copy[key])


@every_aggregator
def test_its_memory_can_be_saved(name):
    memory = make("aggregator", name).combine(updates(5), {}).memory
    assert payloads.decode(payloads.encode(memory)).keys() == memory.keys()


@every_aggregator
def test_linear_means_linear(name):
    aggregator = make("aggregator", name)
    if not aggregator.linear:
        pytest.skip("does not claim to be linear")
    first, second = updates(5, seed=1), updates(5, seed=2)
    both = Updates(first.parties, [{key: a[key] + b[key] for key in a} for a, b in
                                   zip(first.arrays, second.arrays, strict=True)], first.weights)
    second = Updates(second.parties, second.arrays, first.weights)
    for key in "wb":
        np.testing.assert_allclose(
            aggregator.combine(both, {}).update[key],
            aggregator.combine(first, {}).update[key] + aggregator.combine(second, {}).update[key],
            rtol=1e-4, atol=1e-5)
