"""Several classes and counts under encryption: the descents of their losses in one place, and scikit-learn's models."""

from __future__ import annotations

import numpy as np
import pytest
from encrypted import central, dealt, kept, rows_in_clear, trained, weights_of, weights_of_class
from joint import Transcript, assert_no_ids, assert_no_labels

from tequio.algorithms.vertical.regression_tasks import KeptByLabels
from tequio.algorithms.vertical.rows import CommonRows
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.errors import ConfigError, PartyError
from tequio.learners.learner import LocalTraining

NEAR = {"plain": 1e-5, "paillier": 1e-5, "ckks": 1e-3}
WHOLE = LocalTraining(batch=0, learning_rate=0.5)


@pytest.fixture(params=["plain", "paillier", "ckks"])
def scheme(request):
    if request.param != "plain":
        pytest.importorskip({"paillier": "gmpy2", "ckks": "tenseal"}[request.param])
    return request.param


def of_classes(rows=60, seed=0, split=None):
    """Three classes that four columns tell apart."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((rows, 4))
    scores = features @ np.array([[2.0, -1, 0], [0, 1, -2], [-1, 0, 1], [0.5, -1, 1]])
    labels = (scores + 0.5 * draw.standard_normal((rows, 3))).argmax(axis=1)
    schema = Schema.of_numbers([f"c{place}" for place in range(4)], Target("classes", ("low", "middle", "high")))
    dataset = Dataset.of(schema, features, labels, ids=draw.choice(10**9, rows, replace=False) + 10**12)
    return dealt(dataset, overlap=1.0, split=split or Split(0.0, 0.0), key_holder=True, seed=seed)


def of_counts(rows=60, seed=0, split=None, factor=1.0):
    """Counts whose rate depends on four columns."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((rows, 4))
    counts = factor * draw.poisson(np.exp(0.8 + features @ np.array([0.4, -0.3, 0.2, 0.0])))
    schema = Schema.of_numbers([f"c{place}" for place in range(4)], Target("number"))
    dataset = Dataset.of(schema, features, counts.astype(float),
                         ids=draw.choice(10**9, rows, replace=False) + 10**12)
    return dealt(dataset, overlap=1.0, split=split or Split(0.0, 0.0), key_holder=True, seed=seed)


def labels_in_clear(federation, part=0):
    """The labels of the common rows of a part, in the agreed order."""
    common = kept(federation.engine.states()[0], CommonRows)
    return federation.population.whole(0).take(common["rows"][common["part"] == part]).target


def test_each_class_goes_down_as_it_would_alone(scheme):
    _, federation, _ = trained(scheme, of_classes(), 3, local=WHOLE)
    rows, _ = rows_in_clear(federation)
    for label in range(3):
        signs = np.where(labels_in_clear(federation) == label, 1.0, -1.0)
        assert weights_of_class(federation, label) == pytest.approx(central(rows, signs, 3), abs=NEAR[scheme])


def test_paillier_and_its_twin_in_clear_agree_bit_for_bit_for_several_classes_and_for_counts():
    pytest.importorskip("gmpy2")
    for population, how in ((of_classes, {"recentre": 1}), (of_counts, {"kind": "poisson"})):
        models = [trained(name, population(40), 2, local=WHOLE, **how)[2].model for name in ("plain", "paillier")]
        assert models[0] == models[1]


@pytest.mark.parametrize("memory", ["fresh", "kept"])
def test_classes_share_no_momentum(memory):
    local = LocalTraining(batch=0, learning_rate=0.2, momentum=0.9, steps=2, optimizer_memory=memory)
    _, federation, _ = trained("plain", of_classes(), 3, local=local)
    rows, _ = rows_in_clear(federation)
    for label in range(3):
        signs, weights, speed = np.where(labels_in_clear(federation) == label, 1.0, -1.0), np.zeros(5), np.zeros(5)
        for step in range(6):
            speed = np.zeros(5) if memory == "fresh" and step % 2 == 0 else speed
            speed = 0.9 * speed + rows.T @ (0.25 * (rows @ weights) - 0.5 * signs) / len(rows)
            weights = weights - 0.2 * speed
        assert weights_of_class(federation, label) == pytest.approx(weights, abs=1e-5)


def test_several_classes_end_where_scikit_learn_ends():
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    population = of_classes(300, split=Split(validation=0.0, test=0.3))
    local = LocalTraining(batch=0, learning_rate=3.0, weight_decay=0.05)
    algorithm, federation, state = trained("plain", population, 40, local=local, recentre=1, calibrate=False)
    rows, labels = rows_in_clear(federation)[0], labels_in_clear(federation)
    fitted = OneVsRestClassifier(LogisticRegression(C=1 / (0.05 * len(rows)), fit_intercept=False, tol=1e-8,
                                                    max_iter=1000)).fit(rows, labels)
    for label, each in enumerate(fitted.estimators_):
        assert weights_of_class(federation, label) == pytest.approx(each.coef_[0], abs=2e-3)
    asked, wanted = rows_in_clear(federation, part=2)[0], labels_in_clear(federation, part=2)
    tally = algorithm.evaluate(federation, state, "test", federation.everyone())[0]
    assert np.trace(np.asarray(tally["confusion"])) == (fitted.predict(asked) == wanted).sum()
    told = fitted.predict_proba(asked)[np.arange(len(wanted)), wanted]
    assert tally["loss_sum"] == pytest.approx(-np.log(told).sum(), rel=5e-3)


def test_calibrated_classes_are_told_as_well_as_by_scikit_learn():
    """The cut series alone, as in the paper: weights differ, and decisions hardly."""
    from sklearn.linear_model import LogisticRegression

    right = []
    for seed in range(3):
        population = of_classes(400, seed=seed, split=Split(validation=0.0, test=0.3))
        algorithm, federation, state = trained("plain", population, 15, local=WHOLE)
        rows, labels = rows_in_clear(federation)[0], labels_in_clear(federation)
        fitted = LogisticRegression(max_iter=1000).fit(rows, labels)
        tally = algorithm.evaluate(federation, state, "test", federation.everyone())[0]
        asked, wanted = rows_in_clear(federation, part=2)[0], labels_in_clear(federation, part=2)
        right.append((np.trace(np.asarray(tally["confusion"])) / len(wanted), fitted.score(asked, wanted)))
    ours, theirs = np.mean(right, axis=0)
    assert ours > theirs - 0.02


def poisson_descent(rows, counts, rounds, rate=0.2, decay=0.01):
    """Descent on the Poisson loss over the mean count; the first round's scores are zero, as those of the series."""
    weights, mean = np.zeros(rows.shape[1]), counts.mean()
    for _ in range(rounds):
        weights = weights - rate * (rows.T @ (np.exp(rows @ weights) - counts / mean) / len(rows) + decay * weights)
    return weights


def test_counts_go_down_as_poisson_regression_does(scheme):
    local = LocalTraining(batch=0, learning_rate=0.2, weight_decay=0.01)
    _, federation, state = trained(scheme, of_counts(40), 3, kind="poisson", local=local, patience=4)
    rows, counts = rows_in_clear(federation)[0], labels_in_clear(federation)
    weights = weights_of(federation)
    assert weights == pytest.approx(poisson_descent(rows, counts, 3), abs=2 * NEAR[scheme])
    rates = counts.mean() * np.exp(rows @ weights)
    assert state.memory["losses"][-1] == pytest.approx((rates - counts * np.log(rates)).mean(), abs=5 * NEAR[scheme])


def test_counts_end_where_scikit_learn_ends():
    from sklearn.linear_model import PoissonRegressor

    population = of_counts(300, split=Split(validation=0.0, test=0.3), factor=3.0)
    local = LocalTraining(batch=0, learning_rate=0.5)
    algorithm, federation, state = trained("plain", population, 40, kind="poisson", local=local, calibrate=False)
    rows, counts = rows_in_clear(federation)[0], labels_in_clear(federation)
    fitted = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(rows[:, 1:], counts)
    weights = weights_of(federation)
    assert weights[1:] == pytest.approx(fitted.coef_, abs=1e-3)
    assert weights[0] + np.log(counts.mean()) == pytest.approx(fitted.intercept_, abs=1e-3)
    asked, wanted = rows_in_clear(federation, part=2)[0], labels_in_clear(federation, part=2)
    tally = algorithm.evaluate(federation, state, "test", federation.everyone())[0]
    assert tally["squared_error"] == pytest.approx(np.square(fitted.predict(asked[:, 1:]) - wanted).sum(), rel=5e-3)


def test_the_cut_series_of_counts_is_that_of_rates_near_their_mean():
    """Without recentring: a least-squares descent, whose scores a calibration turns into rates."""
    population = of_counts(200)
    algorithm, federation, state = trained("plain", population, 3, kind="poisson", local=WHOLE, recentre=0)
    rows, counts = rows_in_clear(federation)[0], labels_in_clear(federation)
    assert weights_of(federation) == pytest.approx(central(rows, counts / counts.mean() - 1, 3, kind="poisson"),
                                                   abs=1e-5)
    algorithm.get_ready(talk_of(algorithm, federation), state)
    assert kept(federation.engine.states()[0], KeptByLabels)["calibration"]["slope"] > 0


def talk_of(algorithm, federation):
    from tequio.algorithms.vertical.conversation import Conversation, roles_of

    return Conversation(federation, roles_of(federation))


@pytest.mark.parametrize(("population", "how"), [(of_classes, {}), (of_counts, {"kind": "poisson"})])
def test_no_message_holds_a_row_an_id_or_a_label(population, how):
    who = population(60, split=Split(validation=0.2, test=0.2))
    algorithm, federation, state = trained("plain", who, 2, engine=Transcript(), local=WHOLE, patience=2, **how)
    algorithm.evaluate(federation, state, "test", federation.everyone())
    assert_no_ids(federation.engine, who)
    assert_no_labels(federation.engine, who, federation.engine.states()[0])


def test_counts_below_zero_are_refused_at_the_label_holder():
    with pytest.raises(PartyError, match="have a target below 0") as caught:
        trained("plain", of_counts(factor=-1.0), 1, kind="poisson", local=WHOLE)
    assert "vertical-linear" in caught.value.remedy


def test_a_batch_from_which_labels_follow_is_refused():
    """Of three classes the third follows from two: six rows are too few for four columns."""
    from encrypted import regression
    from joint import federation_of

    with pytest.raises(ConfigError, match="could work out each row's residual") as caught:
        regression(local=LocalTraining(batch=3)).start(federation_of(of_classes()))
    assert caught.value.remedy == "set local.batch above 3"
