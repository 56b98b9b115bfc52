"""Selectors in real rounds: values are refreshed lazily, and contributions add up to what the round gained."""

from __future__ import annotations

import numpy as np
import pytest

import tequio
from parts import Parts
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, PartyError
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining
from tequio.registry import build


def rows(count, seed, noise=0.0):
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(count, 3)).astype(np.float32)
    truth = (features @ [2.0, -1.0, 0.5] > 0) ^ (draw.random(count) < noise)
    return Dataset.of(Schema.of_numbers("abc", Target("classes", ("no", "yes"))), features, truth.astype(int))


class Play:
    def __init__(self, selector, parameters=None, *, parties=6, validation=True, algorithm="fedavg", **parts):
        data = rows(20 * parties, 0)
        people = Population(data, Partition.of(np.array_split(np.arange(len(data)), parties)), Split(0.0, 0.0), 1)
        engine = InlineEngine()
        engine.open(people)
        self.events = []
        self.federation = Federation(people, engine, seed=3, record=lambda *event: self.events.append(event),
                                     validation=rows(60, 9) if validation else None)
        made = Parts(build("learner", "logistic"), LocalTraining(batch=5, learning_rate=0.3),
                     build("selector", selector, parameters), **parts)
        self.algorithm = build("algorithm", algorithm, parts=made)
        self.state = self.algorithm.start(self.federation)

    def round(self):
        self.federation.round += 1
        self.state = self.algorithm.round(self.federation, self.state)
        return self

    def utility(self):
        learner = self.algorithm.learner
        tally = learner.evaluate(self.state.model, self.federation.validation)
        return -tally["loss_sum"] / tally["rows"]

    def of(self, kind):
        return [facts for name, facts in self.events if name == kind]


def test_afl_asks_everybody_once_and_later_only_those_who_took_part():
    play = Play("afl", {"count": 2})
    before = play.round().state.memory["selector"]["values"]
    assert np.isfinite(before).all()
    after = play.round().state.memory["selector"]["values"]
    chosen = play.of("selection")[-1]["parties"]
    assert np.flatnonzero(before != after).tolist() == chosen
    assert [facts["asked"] for facts in play.of("exchange") if facts["task"] == "evaluate"] == [6]


def test_afl_can_measure_the_received_model_afresh():
    play = Play("afl", {"count": 2, "measured": "fresh", "loss": "sum"})
    received = play.state.model
    values = play.round().state.memory["selector"]["values"]
    for party in play.of("selection")[0]["parties"]:
        data = play.federation.population.view(party).train
        expected = play.algorithm.learner.evaluate(received, data)["loss_sum"] / np.sqrt(len(data))
        assert values[party] == pytest.approx(expected)


def test_oort_as_published_takes_the_root_mean_square_of_losses_under_the_received_model():
    published, ours = Play("oort-rms", {"count": 2}), Play("oort", {"count": 2})
    received = published.state.model
    known = published.round().state.memory["selector"]
    for party, utility in zip(known["parties"], known["utility"], strict=True):
        data = published.federation.population.view(int(party)).train
        scores = published.algorithm.learner.predict(received, data).astype(float)
        losses = -np.log(scores[np.arange(len(data)), data.target])
        assert utility == pytest.approx(len(data) * np.sqrt(np.mean(losses ** 2)), rel=1e-6)
        assert utility > losses.sum()  # a mean square is at least the square of the mean
    assert [facts["asked"] for facts in published.of("exchange") if facts["task"] == "select.squared losses"] == [2]
    assert ours.round().of("exchange")[-1]["task"] != "select.squared losses"
    assert ours.state.memory["selector"]["parties"].tolist() == known["parties"].tolist()


def test_a_policy_that_lets_no_model_be_judged_by_training_rows_refuses_squared_losses(tmp_path):
    config = {"data": {"name": "synthetic", "rows": 120, "features": 3, "partition": {"name": "iid", "parties": 4}},
              "rounds": 1, "engine": {"workers": 1}, "output": {"folder": str(tmp_path)}, "policy": {"minimum_rows": 5}}
    with pytest.raises(PartyError, match=r"'select\.squared losses' judges a model by the rows that this party trains"):
        tequio.run(**config, selector={"name": "oort-rms", "count": 2})
    assert tequio.run(**config, selector={"name": "oort", "count": 2}).summary["rounds"] == 1


def test_oort_as_published_prefers_losses_that_differ_between_rows():
    from tequio.learners.metrics import row_losses

    two = Target("classes", ("no", "yes"))
    alike, uneven = (np.exp(-np.array(losses)) for losses in ([1.0, 1.0], [0.25, 1.75]))
    utilities = [len(chances) * np.sqrt(np.mean(row_losses(two, np.stack([1 - chances, chances], 1), [1, 1]) ** 2))
                 for chances in (alike, uneven)]
    np.testing.assert_allclose(utilities, [2.0, 2.5])  # the same mean loss of 1


def test_greedyfed_samples_permutations_of_a_small_cohort_where_it_is_asked_to():
    play = Play("greedyfed", {"count": 3, "enumerate": False, "permutations": 2})
    for _ in range(2):
        before = play.utility()
        play.round()
        scored = play.of("contribution")[-1]
        assert not scored["converged"]  # six permutations are no window of twenty
        assert sum(scored["scores"]) == pytest.approx(play.utility() - before, abs=1e-3)


def test_power_of_choice_takes_the_worst_fitted_of_all():
    play = Play("power-of-choice", {"count": 2, "candidates": 6})
    play.round()
    evaluate, model, people = play.algorithm.learner.evaluate, play.state.model, play.federation.population
    losses = [evaluate(model, people.view(party).train)["loss_sum"] for party in range(6)]
    play.round()
    assert sorted(play.of("selection")[-1]["parties"]) == sorted(np.argsort(losses)[-2:].tolist())


@pytest.mark.parametrize("selector", ["greedyfed", "ucb", "s-fedavg"])
def test_scores_of_a_round_add_up_to_what_it_gained(selector):
    play = Play(selector, {"count": 3})
    for _ in range(3):
        before = play.utility()
        play.round()
        scored = play.of("contribution")[-1]
        assert scored["parties"] == sorted(play.of("selection")[-1]["parties"])
        assert sum(scored["scores"]) == pytest.approx(play.utility() - before, abs=1e-6)
        assert scored["evaluations"] == 8


def test_greedyfed_keeps_running_means_over_a_partys_own_rounds():
    play = Play("greedyfed", {"count": 3})
    for _ in range(6):
        play.round()
    by_party = {}
    for facts in play.of("contribution"):
        for party, score in zip(facts["parties"], facts["scores"], strict=True):
            by_party.setdefault(party, []).append(score)
    memory = play.state.memory["selector"]
    assert memory["rounds"].tolist() == [len(by_party[party]) for party in range(6)]
    assert memory["means"] == pytest.approx([np.mean(by_party[party]) for party in range(6)])


def test_greedyfed_can_value_updates_by_their_share_in_what_the_round_gained():
    play = Play("greedyfed", {"count": 3, "relative": True}).round()
    scored, values = play.of("contribution")[0], play.state.memory["selector"]["means"]
    assert values[scored["parties"]] == pytest.approx(np.array(scored["scores"]) / abs(scored["gain"]))
    assert values.sum() == pytest.approx(np.sign(scored["gain"]))


def test_s_fedavg_moves_the_relevance_of_those_who_answered_towards_their_scores():
    play = Play("s-fedavg", {"count": 2, "keep": 0.75}).round()
    scored, expected = play.of("contribution")[0], np.full(6, 1 / 6)
    expected[scored["parties"]] = 0.75 / 6 + 0.25 * np.array(scored["scores"])
    assert play.state.memory["selector"]["relevance"] == pytest.approx(expected)
    assert np.count_nonzero(expected != 1 / 6) == 2


def test_a_round_is_scored_with_any_selector_where_the_config_asks_for_it():
    play = Play("all", contribution=build("contribution", "leave-one-out"))
    play.round()
    (facts,) = play.of("contribution")
    assert facts["method"] == "leave-one-out"
    assert len(facts["scores"]) == 6


def test_without_validation_rows_it_says_what_is_missing():
    with pytest.raises(ConfigError, match="it has none") as error:
        Play("greedyfed", {"count": 2}, validation=False).round()
    assert "data.validation" in error.value.remedy


def test_an_algorithm_without_updates_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\[contribution\] would do nothing: the algorithm 'statistics' has no such"):
        tequio.run(algorithm="statistics", contribution="shapley", data="iris", output={"folder": str(tmp_path)})
    assert not any(tmp_path.iterdir())
