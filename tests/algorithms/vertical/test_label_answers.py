"""Labels that are randomised once, and noise on the sums of offers: both act, and change nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from boosting import PAILLIER, assert_same_model, boosting, classes, grown
from joint import dealt, kept, people

from parts import Parts
from tequio.algorithms.vertical.rows import CommonRows, LabelAnswers, common_rows
from tequio.algorithms.vertical.split_nn import SplitNN
from tequio.algorithms.vertical.trees.sums import Form
from tequio.errors import ConfigError
from tequio.federation.population import Party
from tequio.learners.learner import LocalTraining
from tequio.privacy.labels import truth_chance

HOW = LocalTraining(batch=32, learning_rate=0.1)


def answers_of(federation):
    """What the label holder says, and the truth."""
    states = federation.engine.states()
    holder = list(federation.population.partition.holds_target).index(True)
    common = kept(states[holder], CommonRows)
    rows = federation.population.whole(holder).take(common["rows"][common["part"] == 0])
    return kept(states[holder], LabelAnswers)["labels"], np.asarray(rows.target)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_answers_are_true_as_often_as_epsilon_says_and_stay_the_same(epsilon):
    data = dealt(people(900, columns=4), overlap=1.0)
    said = []
    for rounds in (1, 3):
        federation, _ = grown(boosting(label_epsilon=epsilon), data, rounds)
        answers, truth = answers_of(federation)
        said.append(answers)
    np.testing.assert_array_equal(*said)
    expected = truth_chance(epsilon, 2)
    assert abs((answers == truth).mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / len(truth))


def test_training_rows_alone_come_with_the_answers_and_nothing_else_changes():
    federation, _ = grown(boosting(label_epsilon=0.3), dealt(people(300, columns=4), overlap=1.0), rounds=1)
    states = federation.engine.states()
    holder = list(federation.population.partition.holds_target).index(True)
    party = Party(holder, 1, states[holder], federation.population)
    answers, truth = answers_of(federation)
    np.testing.assert_array_equal(common_rows(party, "train").target, answers)
    assert (answers != truth).any()
    kept_rows = kept(states[holder], CommonRows)
    tested = federation.population.whole(holder).take(kept_rows["rows"][kept_rows["part"] == 2])
    np.testing.assert_array_equal(common_rows(party, "test").target, tested.target)
    np.testing.assert_array_equal(common_rows(party, "test").features, tested.features)


@pytest.mark.parametrize("algorithm", [boosting(label_epsilon=0.2),
                                       SplitNN(**Parts(local=HOW), bottom=(4,), cut=(2,), top=(4,), label_epsilon=0.2)],
                         ids=["secureboost", "split-nn"])
def test_the_loss_that_is_reported_is_that_of_the_answers(algorithm):
    """Half of the labels are wrong: no model fits them, and none is reported to."""
    federation, _ = grown(algorithm, dealt(people(400, columns=4), overlap=1.0), rounds=4)
    losses = [message[3]["loss"] for message in federation.engine.messages if "loss" in message[3]]
    assert losses[-1] > 0.5


def test_offers_with_noise_are_the_same_encrypted_and_hide_single_rows():
    pytest.importorskip("gmpy2")
    data = dealt(classes(120, columns=5), overlap=1.0)
    noised = [grown(boosting(encryption, offer_noise=0.5), data) for encryption in ("plain", PAILLIER)]
    assert_same_model(*noised)
    plain = grown(boosting(), data)
    with pytest.raises(AssertionError):
        assert_same_model(plain, noised[0])


def test_noise_on_a_bin_has_the_deviation_that_was_asked_for():
    """Places come in a secret order that is the same in both runs; left of the k-th place lie k bins, each noised."""
    def sums(noise):
        federation, _ = grown(boosting(learner={"bins": 16}, offer_noise=noise),
                              dealt(people(400, columns=40), overlap=1.0), rounds=1)
        first = next(message[3] for message in federation.engine.messages if "blocks" in message[3])
        form = Form.of_gradients(len(answers_rows(federation)), 1.0, noise, 16)
        return np.ldexp(first["blocks"][0]["sums"].astype(np.float64), -form.fraction)

    added = sums(2.0) - sums(0.0)
    assert added.shape == (20 * 15, 2)
    assert np.mean(added**2) == pytest.approx(2.0**2 * np.mean(np.arange(1, 16)), rel=0.35)


def answers_rows(federation):
    common = kept(federation.engine.states()[0], CommonRows)
    return common["rows"][common["part"] == 0]


@pytest.mark.parametrize(("algorithm", "key"), [
    (boosting(offer_noise=1.0), "offer_noise"), (boosting(label_epsilon=1.0), "label_epsilon")])
def test_neither_is_for_numbers(algorithm, key):
    with pytest.raises(ConfigError, match="number") as caught:
        grown(algorithm, dealt(people(80, columns=4, target="number")))
    assert f"algorithm.{key} = 0" in caught.value.remedy
