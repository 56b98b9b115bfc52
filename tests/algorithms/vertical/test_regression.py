"""Regression under encryption is the same descent in one place and in clear, for any number of parties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from encrypted import PACKAGES, SCHEMES, central, holders, regression, rows_in_clear, trained, weights_of
from joint import dealt, federation_of, kept, play

from tequio.algorithms.vertical.quadratic import QUADRATICS, constants
from tequio.algorithms.vertical.regression_tasks import KeptByLabels
from tequio.data.partition import Split
from tequio.errors import ConfigError
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining

# Rounded columns, times residuals, over the mean of a batch; CKKS adds its own noise.
NEAR = {"plain": 2e-5, "paillier": 2e-5, "ckks": 1e-4}


@pytest.fixture(params=SCHEMES)
def scheme(request):
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    return request.param


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_the_opened_gradient_is_that_of_the_plain_rows(scheme, kind):
    who = holders(40, target="classes" if kind == "logistic" else "number")
    _, federation, _ = trained(scheme, who, 1, kind=kind)
    # From weights of zero, one step at rate 1/2 on all rows leaves half the gradient, turned round.
    rows, targets = rows_in_clear(federation)
    gradient = -QUADRATICS[kind].pull * rows.T @ targets / len(rows)
    assert -2 * weights_of(federation) == pytest.approx(gradient, abs=NEAR[scheme])


def test_training_is_the_same_descent_in_one_place(scheme):
    _, federation, _ = trained(scheme, holders(40), 4)
    rows, targets = rows_in_clear(federation)
    assert weights_of(federation) == pytest.approx(central(rows, targets, 4), abs=4 * NEAR[scheme])


@pytest.mark.parametrize("parties", [1, 2, 3, 5])
def test_any_number_of_parties_makes_the_same_model(parties):
    _, federation, _ = trained("plain", holders(50, parties=parties, columns=6), 3)
    rows, targets = rows_in_clear(federation)
    assert weights_of(federation) == pytest.approx(central(rows, targets, 3), abs=1e-4)


def test_batches_decay_and_weight_decay_are_those_of_the_config():
    local = LocalTraining(epochs=2, batch=15, learning_rate=0.2, weight_decay=0.05, momentum=0.0)
    _, federation, _ = trained("plain", holders(50), 2, local=local)
    rows, targets = rows_in_clear(federation)

    def batches(turn):
        rng = stream(federation.seed, "batches", turn + 1)
        for _ in range(2):
            yield from np.split(rng.permutation(50), [15, 30, 45])

    assert weights_of(federation) == pytest.approx(
        central(rows, targets, 2, rate=0.2, decay=0.05, batches=batches), abs=1e-4)


def test_momentum_goes_on_through_rounds_where_its_memory_is_kept():
    local = LocalTraining(batch=0, learning_rate=0.2, momentum=0.9)
    fresh, kept_on = (weights_of(trained("plain", holders(40), 3, local=replace(local, optimizer_memory=memory))[1])
                      for memory in ("fresh", "kept"))
    one_round = weights_of(trained("plain", holders(40), 1, local=replace(local, epochs=3))[1])
    np.testing.assert_allclose(kept_on, one_round, atol=1e-6)
    assert np.abs(fresh - one_round).max() > 0.01


def test_a_last_batch_that_would_tell_labels_joins_the_one_before():
    algorithm = regression(local=LocalTraining(batch=16))
    federation = federation_of(holders(50))
    state = play(algorithm, federation, 1)
    assert [len(batch) for batch in algorithm._batches(federation, state)] == [16, 16, 18]


def test_paillier_and_its_twin_in_clear_agree_bit_for_bit():
    pytest.importorskip("gmpy2")
    results = [trained(name, holders(40), 3, local=LocalTraining(batch=16)) for name in ("plain", "paillier")]
    first, second = (weights_of(federation) for _, federation, _ in results)
    assert first.tobytes() == second.tobytes()
    assert results[0][2].model == results[1][2].model


def test_the_loss_under_encryption_is_that_of_the_plain_rows(scheme):
    for kind, target in (("logistic", "classes"), ("linear", "number")):
        who = holders(40, target=target, split=Split(validation=0.25, test=0.0))
        _, federation, state = trained(scheme, who, 1, kind=kind, patience=3)
        rows, targets = rows_in_clear(federation, part=1)
        form, scores = QUADRATICS[kind], rows @ weights_of(federation)
        each = scores * (form.curve / 2 * scores - form.pull * targets) + constants(kind, targets)
        scale = kept(federation.engine.states()[0], KeptByLabels)["target"]
        unit = 1.0 if kind == "logistic" else scale["deviation"] ** 2
        # What CKKS opens carries noise on purpose: six deviations of it on the sum over the rows, in the target's unit.
        noise = 6 * 2.0 ** -14 / len(rows) if scheme == "ckks" else 0.0
        assert state.memory["losses"] == pytest.approx([unit * each.mean()], abs=unit * (1e-5 + noise))


def test_training_stops_when_the_loss_no_longer_falls():
    algorithm, _, state = trained("plain", holders(40), 3, patience=2)
    assert algorithm.finished(state) == ""
    stuck = state.next(losses=[0.5, 0.4, 0.41, 0.40])
    assert algorithm.finished(stuck) == "the loss has not gone below 0.4 for 2 rounds"
    assert algorithm.finished(state.next(losses=[0.5, 0.4, 0.41, 0.39])) == ""
    assert regression(patience=0).finished(stuck) == ""


def test_the_label_holder_predicts_what_the_plain_model_would(scheme):
    who = holders(60, split=Split(validation=0.0, test=0.3))
    algorithm, federation, state = trained(scheme, who, 5, calibrate=False)
    rows, targets = rows_in_clear(federation, part=2)
    right = ((rows @ weights_of(federation) > 0) == (targets > 0)).sum()
    tally = algorithm.evaluate(federation, state, "test", federation.everyone())
    assert tally.keys() == {0}
    assert np.trace(np.asarray(tally[0]["confusion"])) == right


def test_calibration_moves_the_threshold_to_where_the_classes_part():
    from sklearn.linear_model import LogisticRegression

    who = holders(200, split=Split(validation=0.0, test=0.3))
    algorithm, federation, state = trained("plain", who, 2)
    algorithm.evaluate(federation, state, "test", federation.everyone())
    rows, targets = rows_in_clear(federation)
    scores = rows @ weights_of(federation)
    fitted = LogisticRegression(C=1e6).fit(scores[:, None], targets)
    found = kept(federation.engine.states()[0], KeptByLabels)["calibration"]
    assert (found["slope"], found["shift"]) == pytest.approx((fitted.coef_[0, 0], fitted.intercept_[0]), rel=0.05)


def logistic_descent(rows, targets, rounds, rate=0.5, decay=0.05):
    """Descent on the logistic loss itself; the first round's scores are zero, as those of the series."""
    weights = np.zeros(rows.shape[1])
    for _ in range(rounds):
        residual = 1 / (1 + np.exp(-rows @ weights)) - (targets + 1) / 2
        weights = weights - rate * (rows.T @ residual / len(rows) + decay * weights)
    return weights


def test_expanded_anew_in_every_round_it_is_logistic_regression_itself(scheme):
    local = LocalTraining(batch=0, learning_rate=0.5, weight_decay=0.05)
    _, federation, state = trained(scheme, holders(40), 4, local=local, recentre=1, patience=4)
    rows, targets = rows_in_clear(federation)
    assert weights_of(federation) == pytest.approx(logistic_descent(rows, targets, 4), abs=2 * NEAR[scheme])
    exact = np.logaddexp(0, -targets * (rows @ weights_of(federation))).mean()
    assert state.memory["losses"][-1] == pytest.approx(exact, abs=1e-4)


def test_linear_regression_reaches_least_squares():
    local = LocalTraining(batch=0, learning_rate=0.5)
    _, federation, _ = trained("plain", holders(80, target="number"), 60, kind="linear", local=local)
    rows, targets = rows_in_clear(federation)
    assert weights_of(federation) == pytest.approx(np.linalg.lstsq(rows, targets, rcond=None)[0], abs=1e-3)


@pytest.mark.parametrize(("how", "population", "told"), [
    ({}, {"target": "number"}, "is for classes"),
    ({"kind": "poisson"}, {}, "is for a target of counts"),
    ({"kind": "poisson", "hide_matches": True}, {"target": "number"}, "cannot be opened"),
    ({"kind": "linear"}, {}, "is for a numeric target"),
    ({"local": LocalTraining(batch=2)}, {}, "could work out each row's residual"),
    ({"local": LocalTraining(batch=32, clip_norm=1.0)}, {}, "cannot be clipped"),
    ({"hide_matches": True, "recentre": 2}, {}, "cannot be opened"),
    ({"hide_matches": True, "alignment": "agreed"}, {}, "there are no matches to hide"),
    ({"encryption": {"name": "paillier", "bits": 512}}, {}, "algorithm.encryption 'paillier': 'bits'"),
])
def test_what_cannot_work_is_refused_before_anything_is_sent(how, population, told):
    federation = federation_of(holders(**population))
    with pytest.raises(ConfigError, match=told):
        regression(**how).start(federation)
    assert federation.engine.messages == []


def test_without_a_key_holder_it_is_told_how_to_have_one():
    with pytest.raises(ConfigError, match="key_holder = true"):
        regression().start(federation_of(dealt()))
