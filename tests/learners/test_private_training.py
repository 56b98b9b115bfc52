"""Steps that hide single rows: each row's gradient is clipped, the noise is as calibrated, batches are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError
from tequio.learners.private_training import PrivateTraining, batch_chance
from tequio.registry import build

pytest.importorskip("opacus")

ONE_STEP = PrivateTraining(epochs=1, batch=0, learning_rate=1.0, noise=0.0, row_clip=0.1)


def rows(count=12):
    draw = np.random.default_rng(0)
    return Dataset.of(Schema.of_numbers("abc", Target("classes", ("x", "y", "z"))),
                      draw.standard_normal((count, 3)).astype(np.float32), draw.integers(0, 3, count))


def fresh(name="mlp", **settings):
    learner = build("learner", name, settings or {"hidden": [4]})
    return learner, learner.initial(rows().schema, np.random.default_rng(1))


def moved(learner, model, how, data=None, seed=0):
    after = learner.train(model, data or rows(), how, np.random.default_rng(seed)).model
    return {name: after[name] - model[name] for name in model}


def test_a_step_is_the_mean_of_the_rows_clipped_gradients():
    learner, model = fresh()
    expected = {name: np.zeros_like(values) for name, values in model.items()}
    for row in range(12):
        gradient, _ = learner.gradient(model, rows().take(np.array([row])))
        length = np.sqrt(sum((values**2).sum() for values in gradient.values()))
        for name in model:
            expected[name] -= gradient[name] * min(1.0, 0.1 / length) / 12
    step = moved(learner, model, ONE_STEP)
    for name in model:
        np.testing.assert_allclose(step[name], expected[name], atol=1e-6)


def test_a_wide_clip_without_noise_is_plain_descent():
    learner, model = fresh("logistic", device="cpu")
    plain = build("training", "minibatch", {"batch": 0, "learning_rate": 1.0})
    wide = moved(learner, model, replace(ONE_STEP, row_clip=1e6))
    for name, values in moved(learner, model, plain).items():
        np.testing.assert_allclose(wide[name], values, atol=1e-6)


def test_the_noise_of_a_step_has_the_standard_deviation_that_was_asked_for():
    learner, model = fresh(hidden=[3000])
    how = replace(ONE_STEP, noise=5.0, row_clip=1e-3)
    noise = np.concatenate([values.ravel() for values in moved(learner, model, how).values()])
    assert noise.std() == pytest.approx(5.0 * 1e-3 / 12, rel=0.02)


def test_batches_are_drawn_row_by_row():
    learner, model = fresh()
    how = replace(ONE_STEP, batch=3, epochs=2)
    assert batch_chance(12, how) == 0.25
    trained = learner.train(model, rows(), how, np.random.default_rng(0))
    assert trained.steps == 8
    assert np.isnan(trained.loss)


def test_the_module_is_left_as_it_was_found():
    learner, model = fresh()
    before, _ = learner.gradient(model, rows())
    moved(learner, model, ONE_STEP)
    after, _ = learner.gradient(model, rows())
    assert all(np.array_equal(before[name], after[name]) for name in model)


def test_learners_without_gradients_of_rows_refuse():
    learner = build("learner", "logistic-regression")
    model = learner.initial(rows().schema, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="has no gradients of single rows"):
        learner.train(model, rows(), ONE_STEP, np.random.default_rng(0))


def test_private_training_is_never_batched_over_parties():
    learner, _ = fresh()
    assert not learner.trains_together(rows().schema, ONE_STEP)


def test_noise_that_nobody_gave_is_asked_for():
    learner, model = fresh()
    with pytest.raises(ConfigError, match=r"set local\.noise"):
        moved(learner, model, replace(ONE_STEP, noise=None))


def test_a_row_whose_gradient_is_not_finite_counts_for_noughts():
    """Whatever the other rows do, and it must not show by spoiling the model. Twenty rows are three blocks of them."""
    learner, model = fresh()
    spoilt = rows(20)
    features = np.array(spoilt.features)
    features[13] = 3e38
    data = Dataset.of(spoilt.schema, features, np.array(spoilt.target))
    others = data.take(np.delete(np.arange(20), 13))
    step, expected = moved(learner, model, ONE_STEP, data), moved(learner, model, ONE_STEP, others)
    for name in model:
        assert np.isfinite(step[name]).all()
        np.testing.assert_allclose(step[name] * 20, expected[name] * 19, atol=1e-5)
