"""Which modules are dense stacks."""

from __future__ import annotations

import pytest
from torch import nn

from tequio.learners.batched_layers import DenseStack, stack_of


def test_layers_and_activations_are_found_by_name():
    found = stack_of(nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 2)))
    assert found == DenseStack((6, 5, 4, 2), ("tanh", "identity"),
                               (("1.weight", "1.bias"), ("3.weight", "3.bias"), ("4.weight", "4.bias")))
    assert found.parameters == 35 + 24 + 10
    assert found.shapes["3.weight"] == (4, 5)


def frozen():
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    return layer


@pytest.mark.parametrize("module", [
    nn.Linear(3, 2),
    nn.Sequential(nn.Linear(3, 2, bias=False)),
    nn.Sequential(frozen()),
    nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
    nn.Sequential(nn.ReLU(), nn.Linear(3, 2)),
    nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.ReLU(), nn.Linear(2, 2)),
    nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.1), nn.Linear(2, 2)),
    nn.Sequential(nn.Linear(3, 2), nn.GELU(), nn.Linear(2, 2)),
    nn.Sequential(nn.Flatten()),
])
def test_anything_else_is_none(module):
    assert stack_of(module) is None
