"""MixMatch as its paper has it, against numbers by hand and PyTorch's gradients; rows without labels help it."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.label_leakage import area_under_curve, completed_scores
from tequio.attacks.model_completion import MixMatch, deltas, sharpened


def test_guesses_are_sharpened_by_hand():
    np.testing.assert_allclose(sharpened(np.array([0.8, 0.5, 0.1, 0.0]), 0.5), [0.64 / 0.68, 0.5, 0.01 / 0.82, 0.0])
    np.testing.assert_allclose(sharpened(np.array([0.3]), 1.0), [0.3])


def test_rows_are_mixed_with_their_labels_and_stay_mostly_themselves():
    inputs = np.arange(1000.0)[:, None] * [1.0, -1.0]
    mixed, wanted = MixMatch().mixed(inputs, inputs[:, 0], np.random.default_rng(0))
    np.testing.assert_allclose(mixed, wanted[:, None] * [1.0, -1.0])  # one share and one other row for both
    share = np.abs(mixed[:, 0] - inputs[:, 0]) / np.maximum(np.abs(inputs[:, 0] - 499.5), 1)
    assert np.mean(share < 0.5) > 0.6
    assert not np.array_equal(mixed, inputs)


def test_the_step_is_along_the_gradient_of_both_losses():
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(1)
    outputs = torch.tensor(draw.standard_normal(30), requires_grad=True)
    wanted = torch.tensor(draw.random(30))
    chances = torch.sigmoid(outputs)
    both = torch.stack([1 - chances, chances], dim=1)[10:]
    guessed = torch.stack([1 - wanted, wanted], dim=1)[10:]
    loss = torch.nn.functional.binary_cross_entropy(chances[:10], wanted[:10]) + 7.0 * ((both - guessed) ** 2).mean()
    loss.backward()
    np.testing.assert_allclose(deltas(chances.detach().numpy(), wanted.numpy(), 10, 7.0), outputs.grad.numpy(),
                               rtol=1e-12)


def test_rows_without_labels_show_where_classes_part():
    """Two long clouds side by side: four labels alone mislead along their length."""
    areas = []
    for seed in range(4):
        draw = np.random.default_rng(seed)
        positive = np.arange(400) < 200
        rows = draw.standard_normal((400, 2)) * [4.0, 0.3] + np.where(positive, 0.8, -0.8)[:, None] * [0.0, 1.0]
        rows /= rows.std(axis=0)
        known = np.isin(np.arange(400), [*draw.choice(200, 2), *(200 + draw.choice(200, 2))])
        part = {"weight1": np.eye(2, dtype=np.float32), "bias1": np.zeros(2, np.float32)}
        found = MixMatch().scores(part, "identity", rows, positive, known, draw)
        areas.append([area_under_curve(scores[~known], positive[~known])
                      for scores in (found, completed_scores(rows, positive, known))])
    semi, alone = np.mean(areas, axis=0)
    assert semi > 0.99 > 0.98 > alone
