"""Parties alone, with their patience; and mlfedavg-plus, with its two phases and what parties keep."""

from __future__ import annotations

import numpy as np
import pytest
from cases import LOCAL, dataset, federation, names_in, parts, play, population, states

from tequio.algorithms.multilabel.heads import scores_of
from tequio.algorithms.multilabel.mlfedavg import MLFedAvg, MLFedAvgAlone, MLFedAvgPlus
from tequio.algorithms.multilabel.scoring import labels_of, score_rows
from tequio.data.partition import Split
from tequio.federation.population import Party
from tequio.learners.metrics import summarise
from tequio.learners.zoo import MLP


def test_nothing_but_numbers_crosses_where_parties_are_alone():
    who = federation()
    play(MLFedAvgAlone(**parts()), who, 3)
    assert not any(isinstance(value, np.ndarray) for payload in who.engine.crossed for value in payload.values())
    assert names_in(who.engine.crossed) <= {"rows", "steps", "loss", "finished"}


def test_a_party_alone_is_one_network_trained_on():
    who = federation()
    play(MLFedAvgAlone(**parts()), who, 2)
    learner, data = MLP(hidden=(9, 5)), who.population.view(0).train
    first, second = (Party(0, number, {}, who.population) for number in (1, 2))
    core = {name: values for name, values in learner.initial(data.schema, first.rng("initial model")).items()
            if not name.startswith("output")}
    head = {name: values for name, values in learner.initial(data.schema, first.rng("head")).items()
            if name.startswith("output")}
    model = learner.train({**core, **head}, data, LOCAL, first.rng("train")).model
    model = learner.train(model, data, LOCAL, second.rng("train")).model
    kept = {**states(who)[0]["core"], **states(who)[0]["head"]}
    for name, values in model.items():
        np.testing.assert_allclose(kept[name], values, rtol=2e-3, atol=2e-5)


def test_parties_stop_one_by_one_when_their_patience_ends():
    who = federation()
    algorithm = MLFedAvgAlone(**parts(), patience=3)
    state, done = algorithm.start(who), []
    for _ in range(400):
        who.round += 1
        state = algorithm.round(who, state)
        done.append(len(state.memory["done"]))
        if algorithm.finished(state):
            break
    assert algorithm.finished(state) == "patience"
    assert done == sorted(done)
    assert done[-1] == 3
    assert all(kept["waited"] == 3 for kept in states(who).values())


def test_without_patience_it_never_ends_by_itself_and_restore_judges_the_best_network():
    who = federation()
    last = MLFedAvgAlone(**parts())
    state = play(last, who, 40)
    assert last.finished(state) == ""
    best = MLFedAvgAlone(**parts(), restore=True)
    losses = [summarise(dataset().schema.target, _joined(algorithm.evaluate(who, state, "validation",
                                                                            who.everyone())))["loss"]
              for algorithm in (last, best)]
    assert losses[1] < losses[0]


def _joined(tallies):
    from tequio.learners.label_metrics import at_labels
    from tequio.learners.metrics import merge

    sets = {0: (0, 1, 2), 1: (3,), 2: (4, 5)}
    return merge(at_labels(tally, np.array(sets[party]), 6) for party, tally in tallies.items())


def test_without_validation_rows_a_party_keeps_its_last_network():
    who = federation(population(split=Split(validation=0.0, test=0.2)))
    play(MLFedAvgAlone(**parts(), patience=2), who, 4)
    for kept in states(who).values():
        assert kept["waited"] == 0
        assert all(np.array_equal(kept["best"]["core"][name], kept["core"][name]) for name in kept["core"])


def test_the_federated_phase_of_plus_is_mlfedavg_when_its_switches_are_off():
    plain, plus = (play(algorithm, federation(), 4).model for algorithm in (
        MLFedAvg(**parts(), stopping="off"), MLFedAvgPlus(**parts(), stopping="off", balance=0.0)))
    for name in plain:
        np.testing.assert_array_equal(plain[name], plus[name])


def test_the_personal_phase_follows_and_shares_nothing():
    who = federation()
    algorithm = MLFedAvgPlus(**parts(), federated_rounds=3, personal_rounds=4, second_rounds=0, patience=0)
    state = play(algorithm, who, 3)
    assert (state.memory["phase"], state.memory["begun"]) == ("personal", 3)
    who.engine.crossed.clear()
    for _ in range(4):
        who.round += 1
        after = algorithm.round(who, state)
        assert all(np.array_equal(after.model[name], state.model[name]) for name in state.model)
        state = after
    assert algorithm.finished(state) == "personal phase done"
    assert not {name for payload in who.engine.crossed for name in names_in(payload)} & {"update", "model", "head"}
    assert {name for kept in states(who).values() for name in kept} == {"head", "core", "best", "waited"}


def test_a_second_network_begins_from_nothing_and_both_predict_by_their_mean():
    who = federation()
    algorithm = MLFedAvgPlus(**parts(), federated_rounds=2, personal_rounds=2, second_rounds=3, patience=0,
                             calibrate=False)
    state = play(algorithm, who, 4)
    first = {party: kept["best"] for party, kept in states(who).items()}
    for _ in range(3):
        who.round += 1
        state = algorithm.round(who, state)
    assert algorithm.finished(state) == "personal phase done"
    judging = algorithm.evaluation_settings(who)
    rows = dataset(40)
    together = score_rows(who, state.model, rows, judging)
    for party, kept in states(who).items():
        assert all(np.array_equal(kept["aside"]["core"][name], first[party]["core"][name]) for name in state.model)
        mine = rows.select_labels(list(labels_of(who, party)))
        apart = [scores_of(algorithm.learner, network["core"], network["head"], mine, judging.width)
                 for network in (kept["aside"], kept["best"])]
        np.testing.assert_allclose(together[party], np.mean(apart, axis=0), rtol=1e-5)
        assert not np.allclose(*apart)


def test_without_a_personal_phase_it_ends_with_the_federated_one():
    who = federation()
    algorithm = MLFedAvgPlus(**parts(), federated_rounds=2, personal_rounds=0, second_rounds=0)
    assert algorithm.finished(play(algorithm, who, 2)) == "personal phase done"


def test_a_party_keeps_the_federated_network_if_its_own_never_gets_better():
    who = federation()
    algorithm = MLFedAvgPlus(**parts(), federated_rounds=3, chosen_by="loss", personal_rounds=5)
    state = play(algorithm, who, 3)
    for kept in states(who).values():
        assert all(np.array_equal(kept["best"]["core"][name], state.model[name]) for name in state.model)
    scores = {party: kept["best"]["score"] for party, kept in states(who).items()}
    for _ in range(5):
        who.round += 1
        state = algorithm.round(who, state)
    assert all(kept["best"]["score"] <= scores[party] for party, kept in states(who).items())


def test_weighed_labels_and_borders_find_rare_labels():
    """One label in twelve rows: plain averaging never predicts it, plus does, and its F1 is higher."""
    draw = np.random.default_rng(2)
    data = dataset(600, labels=4)
    labels = (data.features @ draw.standard_normal((7, 4)) > 3.2).astype(np.int8)
    import dataclasses

    data = dataclasses.replace(data, source=dataclasses.replace(data.source, target=labels))
    who = lambda: federation(population(((0, 1), (2, 3)), (300, 300), data))  # noqa: E731
    found = {}
    for name, algorithm in (("plain", MLFedAvg(**parts(), stopping="off")),
                            ("plus", MLFedAvgPlus(**parts(), federated_rounds=15, personal_rounds=15))):
        here = who()
        tallies = algorithm.evaluate(here, play(algorithm, here, 30), "test", here.everyone())
        found[name] = np.mean([summarise(data.schema.target.select([0, 1]), tally)["recall_macro"]
                               for tally in tallies.values()])
    assert found["plus"] > found["plain"]


@pytest.mark.parametrize("algorithm", [MLFedAvgAlone(**parts()), MLFedAvgPlus(**parts(), federated_rounds=2)])
def test_before_a_party_has_trained_there_is_nothing_to_judge(algorithm):
    who = federation()
    state = algorithm.start(who)
    assert algorithm.evaluate(who, state, "test", who.everyone()) == {}
    assert algorithm.score(who, state, dataset(10)) is None
