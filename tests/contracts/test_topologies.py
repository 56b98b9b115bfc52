"""Every topology that aggregates gives, for a mean, what a flat aggregation gives."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.errors import PermissionDenied
from tequio.federation.aggregation import Mean, Updates
from tequio.registry import build

from .subjects import every


@every("topology")
def test_a_mean_is_the_flat_mean(name):
    draw = np.random.default_rng(0)
    updates = Updates(np.arange(9), [{"w": draw.standard_normal(4)} for _ in range(9)], draw.random(9) + 0.1)
    topology = build("topology", name)
    flat = Mean().combine(updates, {}).update["w"]
    try:
        combined = topology.combine(updates, Mean(), {}).update["w"]
    except PermissionDenied as refusal:  # where nobody receives everything, that is said, with what to use instead
        assert "gossip" in str(refusal)
        return
    np.testing.assert_allclose(combined, flat, rtol=1e-12)
    one = updates.part(np.array([4]))
    assert topology.combine(one, Mean(), {}).update["w"] == pytest.approx(one.arrays[0]["w"], rel=1e-12)
