"""Members of an overfitted model are told by their loss; those of a noise-drowned one are not."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.privacy.inference import by_shadows, by_threshold, class_losses, flat, told
from tequio.attacks.privacy.inversion import representatives
from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError
from tequio.learners.learner import LocalTraining
from tequio.learners.linear import SGDClassifier
from tequio.learners.zoo import MLP, Logistic

SCHEMA = Schema.of_numbers((f"x{column}" for column in range(20)), Target("classes", ("no", "yes", "maybe")))
LEARNER = MLP((64,))


def random_rows(count: int, seed: int) -> Dataset:
    draw = np.random.default_rng(seed)
    return Dataset.of(SCHEMA, draw.standard_normal((count, 20)).astype(np.float32), draw.integers(0, 3, count))


def overfitted(rows: Dataset, seed: int = 0):
    rng = np.random.default_rng(seed)
    how = LocalTraining(epochs=60, batch=16, learning_rate=0.2)
    return LEARNER.train(LEARNER.initial(SCHEMA, rng), rows, how, rng).model


def losses(model, rows):
    return class_losses(LEARNER.predict(model, rows), rows.target)


def test_losses_are_those_of_the_true_class():
    assert class_losses(np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([1, 0])) == pytest.approx([-np.log(0.75), 0.0])


def test_labels_learned_by_heart_betray_members_and_noise_hides_them():
    members, others = random_rows(100, 1), random_rows(100, 2)
    model = overfitted(members)
    clear = by_threshold(losses(model, members), losses(model, others))
    assert clear["advantage"] > 0.5
    assert clear["area"] > 0.8
    draw = np.random.default_rng(3)
    noised = {name: part + 10 * draw.standard_normal(part.shape).astype(np.float32) for name, part in model.items()}
    hidden = by_threshold(losses(noised, members), losses(noised, others))
    assert abs(hidden["advantage"]) < 0.2
    assert abs(hidden["area"] - 0.5) < 0.1


def test_shadow_models_find_members_too():
    members, others, known = random_rows(100, 1), random_rows(100, 2), random_rows(300, 4)
    model = overfitted(members)
    shadows = []
    for seed in range(4):
        shadow = overfitted(known.take(np.random.default_rng(seed).permutation(300)[:100]), seed)
        shadows.append(np.concatenate([losses(shadow, members), losses(shadow, others)]))
    found = by_shadows(losses(model, members), losses(model, others), shadows)
    assert found["shadow_area"] > 0.8


def test_beside_shadow_models_hard_members_no_longer_pass_for_others():
    draw = np.random.default_rng(7)
    odds = draw.normal(0, 5, 400)
    is_member = np.arange(400) < 200

    def as_losses(log_odds):
        return np.log1p(np.exp(-log_odds))

    seen = as_losses(odds + 2 * is_member)
    shadows = [as_losses(odds + draw.normal(0, 0.5, 400)) for _ in range(8)]
    assert by_threshold(seen[:200], seen[200:])["area"] < 0.7
    found = by_shadows(seen[:200], seen[200:], shadows)
    assert found["shadow_area"] > 0.99
    assert found["shadow_found_at_1_percent"] > 0.9


def test_a_property_that_shifts_updates_is_told_and_one_that_does_not_is_not():
    draw = np.random.default_rng(0)
    had, have = np.arange(100) % 2 == 0, np.arange(60) % 3 == 0

    def made(marks, shift):
        return flat([{"a": draw.standard_normal((2, 3)) + shift * mark, "b": draw.standard_normal(2)}
                     for mark in marks])

    assert (((told(made(had, 3.0), had, made(have, 3.0)) > 0.5) == have).mean()) > 0.95
    blind = told(made(had, 0.0), had, made(have, 0.0))
    assert abs(blind[have].mean() - blind[~have].mean()) < 0.2


def test_representatives_of_a_linear_model_raise_what_the_class_likes():
    schema = Schema.of_numbers("xyz", Target("classes", ("a", "b", "c")))
    model = {"output.weight": 5 * np.eye(3, dtype=np.float32), "output.bias": np.zeros(3, np.float32)}
    made = representatives(Logistic(), schema, model, (0.0, 1.0))
    assert (np.argmax(made, axis=1) == [0, 1, 2]).all()
    assert made.min() >= 0
    assert made.max() <= 1
    with pytest.raises(ConfigError, match="no gradient to follow"):
        representatives(SGDClassifier(), schema, model, (0.0, 1.0))
