"""Batches are found from their gradients, in any order; labels and matchings are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.privacy.matching import Search, in_best_order, label_counts, matched_rows, nearest_of_all
from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError
from tequio.learners.learner import LocalTraining
from tequio.learners.linear import SGDClassifier
from tequio.learners.zoo import MLP

SCHEMA = Schema.of_images((1, 4, 4), ("a", "b", "c", "d"))
TABLE = Schema.of_numbers("uvwxyz", Target("classes", ("no", "yes")))
QUICK = Search(iterations=400, restarts=2)


def batch(schema, labels, seed=0):
    values = np.random.default_rng(seed).random((len(labels), *schema.shape)).astype(np.float32)
    return Dataset.of(schema, values, np.array(labels))


@pytest.mark.parametrize(("schema", "labels"), [(SCHEMA, [2]), (SCHEMA, [0, 3, 3]), (TABLE, [0, 1])],
                         ids=["one", "batch", "table"])
def test_rows_of_a_batch_are_found_at_any_length_of_the_gradient(schema, labels):
    learner, rows = MLP((24,), "tanh"), batch(schema, labels)
    model = learner.initial(schema, np.random.default_rng(1))
    gradient = {name: 0.01 * part for name, part in learner.gradient(model, rows)[0].items()}
    found = [matched_rows(learner, schema, model, [gradient, gradient], np.array([labels, labels]), (0.0, 1.0),
                          np.random.default_rng(3), QUICK) for _ in range(2)]
    for guess in found[0]:
        assert np.square(in_best_order(rows.features, guess) - rows.features).mean() < 2e-3
    np.testing.assert_array_equal(found[0], found[1])


def test_steps_are_replayed_as_the_learner_takes_them():
    """Three steps on the true rows, replayed, point exactly as the update does: the search ends where it begins."""
    learner, rows, rng = MLP((24,), "tanh"), batch(SCHEMA, [1, 2]), np.random.default_rng(1)
    model = learner.initial(SCHEMA, rng)
    trained = learner.train(model, rows, LocalTraining(epochs=3, batch=2, learning_rate=0.5), rng).model
    update = {name: model[name] - trained[name] for name in model}
    guess = matched_rows(learner, SCHEMA, model, [update], np.array([[1, 2]]), (0.0, 1.0), rng, QUICK, steps=3,
                         rate=0.5)[0]
    replayed = np.square(in_best_order(rows.features, guess) - rows.features).mean()
    guess = matched_rows(learner, SCHEMA, model, [update], np.array([[1, 2]]), (0.0, 1.0), rng, QUICK)[0]
    assert replayed < 1e-3
    assert replayed < np.square(in_best_order(rows.features, guess) - rows.features).mean() / 5


def test_labels_by_hand():
    expected = np.array([0.4, 0.3, 0.2, 0.1])
    two_of_b = expected - np.array([0, 2, 0, 0]) / 2
    for scale in (1.0, 0.001):  # more classes than rows: clipping hides nothing
        assert label_counts(scale * two_of_b, expected, 2).tolist() == [0, 2, 0, 0]
    full = expected - np.array([2, 0, 3, 1]) / 6
    assert label_counts(full, expected, 6).tolist() == [2, 0, 3, 1]
    assert label_counts(0.1 * full, expected, 6, scale=0.1).tolist() == [2, 0, 3, 1]
    one_output = np.array([0.5 - 3 / 4])
    assert label_counts(one_output, np.array([0.5, 0.5]), 4).tolist() == [1, 3]
    assert label_counts(np.zeros(4), expected, 5).sum() == 5


def test_matches_by_hand():
    truth = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    guess = np.array([[0.9, 0.9], [0.1, 0.6], [0.1, 0.1]])
    ordered = in_best_order(truth, guess)
    assert ordered.tolist() == [[0.1, 0.1], [0.9, 0.9], [0.1, 0.6]]
    assert nearest_of_all(truth, ordered, np.array([[0.1, 0.5]])).tolist() == [True, True, False]


def test_a_guess_that_knows_nothing_is_nearest_as_often_as_chance_says():
    draw, hits = np.random.default_rng(0), 0
    for _ in range(500):
        truth, decoys, guess = (draw.random((count, 6)) for count in (4, 36, 4))
        hits += nearest_of_all(truth, in_best_order(truth, guess), decoys).sum()
    assert hits / 2000 <= 4 / 40 + 0.02


def test_learners_without_a_gradient_are_refused():
    with pytest.raises(ConfigError, match="no gradient to match"):
        matched_rows(SGDClassifier(), SCHEMA, {}, [], np.zeros((1, 1), np.int64), (0.0, 1.0),
                     np.random.default_rng(0))
