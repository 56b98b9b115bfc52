"""The faster dropout does what torch's does."""

from __future__ import annotations

import pytest
import torch

from tequio.learners.zoo_images import dropout


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_the_right_share_is_dropped_and_the_mean_kept(share):
    torch.manual_seed(0)
    values = torch.ones(100, 1_001)
    dropped = dropout(share).train()(values)
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=0.005)
    assert dropped.max().item() == pytest.approx(1 / (1 - share), rel=1e-4)
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)


def test_nothing_is_dropped_in_evaluation_or_at_share_nought():
    values = torch.randn(7, 5)
    assert torch.equal(dropout(0.5).eval()(values), values)
    assert torch.equal(dropout(0.0).train()(values), values)


def test_gradients_pass_where_values_passed():
    values = torch.randn(6, 4, 3, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    dropped = dropout(0.5).train()(values)
    (gradient,) = torch.autograd.grad(dropped.sum(), values)
    assert torch.equal(gradient != 0, dropped != 0)
    assert 0 < int((dropped == 0).sum()) < values.numel()
