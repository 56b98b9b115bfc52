"""Every router: plain data in, one number a row out, own rows kept, far-away rows not, the same again for one seed."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.data.dataset import Dataset
from tequio.federation import payload as payloads
from tequio.learners.learner import LocalTraining
from tequio.learners.routers.router import Own, Router, fit_router, is_own
from tequio.registry import build

from .subjects import every, make, table

every_router = every("router")


@pytest.fixture(scope="module")
def own():
    learner, rows = build("learner", "logistic"), table(200)
    trained = learner.train(learner.initial(rows.schema, np.random.default_rng(0)), rows,
                            LocalTraining(epochs=3, learning_rate=0.5), np.random.default_rng(0))
    return Own(learner, trained.model)


def fitted(name, own, seed=0):
    router = make("router", name)
    return router, fit_router(router, table(200), own, np.random.default_rng(seed))


def far_away(rows):
    return Dataset.of(rows.schema, np.full_like(rows.features, 40.0) * np.array([1, 1, -1, 1]), rows.target)


@every_router
def test_what_it_learns_is_plain_data_and_the_same_for_the_same_seed(name, own):
    router, learned = fitted(name, own)
    assert isinstance(router, Router)
    assert payloads.encode(learned) == payloads.encode(fitted(name, own)[1])
    back = payloads.decode(payloads.encode(learned))
    np.testing.assert_array_equal(router.novelty(back, table(50), own), router.novelty(learned, table(50), own))


@every_router
def test_the_threshold_is_mean_plus_sigmas(name, own):
    router, learned = fitted(name, own)
    errors = router.novelty(learned, table(200), own)
    assert errors.shape == (200,)
    assert learned["threshold"] == pytest.approx(errors.mean() + router.sigmas * errors.std())


@every_router
def test_own_rows_are_mostly_kept(name, own):
    router, learned = fitted(name, own)
    assert is_own(router, learned, table(200, seed=1), own).mean() > 0.85


@every_router
def test_rows_far_away_are_foreign(name, own):
    if make("router", name).follows_model:
        pytest.skip("a linear model is only the surer far away")
    router, learned = fitted(name, own)
    assert not is_own(router, learned, far_away(table(50)), own).any()


@every_router
def test_it_decides_row_by_row(name, own):
    router, learned = fitted(name, own)
    near, far = table(30, seed=2), far_away(table(30))
    mixed = Dataset.of(near.schema, np.concatenate([near.features, far.features]), np.zeros(60, dtype=np.int64))
    apart = np.concatenate([is_own(router, learned, near, own), is_own(router, learned, far, own)])
    np.testing.assert_array_equal(is_own(router, learned, mixed, own), apart)
    assert is_own(router, learned, near.take([]), own).shape == (0,)


@every_router
def test_labels_are_not_looked_at(name, own):
    rows = table(200)
    flipped = Dataset.of(rows.schema, rows.features, 1 - rows.target)
    router = make("router", name)
    learned = [fit_router(router, data, own, np.random.default_rng(0)) for data in (rows, flipped)]
    assert payloads.encode(learned[0]) == payloads.encode(learned[1])
