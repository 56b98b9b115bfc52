"""The baseline without a federation: own models, nothing shared, mean of the parties as its score."""

from __future__ import annotations

import numpy as np
import pytest
import toy

from contracts.transcripts import kept
from tequio.algorithms.baselines.unfederated import Alone, Centralised
from tequio.data.partition import Split
from tequio.federation import payload
from tequio.federation.evaluation import OwnModel
from tequio.federation.federation import Rules
from tequio.federation.rng import stream
from tequio.federation.selection import FixedParties
from tequio.learners.learner import LocalTraining
from tequio.learners.metrics import merge


def own_models(federation) -> dict[int, list[float]]:
    return {party: kept(state, OwnModel)["model"]["w"].tolist() for party, state in federation.engine.states().items()}


def test_each_party_goes_on_from_its_own_model() -> None:
    # Rate 0.5 halves the way to the target each round: 0, 4, 6 and 0, -1, -1.5.
    federation = toy.federation(toy.targets(8.0, -2.0))
    state = toy.run(Alone(**toy.parts()), federation, rounds=2)
    assert own_models(federation) == {0: [6.0], 1: [-1.5]}
    assert toy.weights(state) == [0.0]
    assert state.memory["trained"].tolist() == [0, 1]


def test_a_party_alone_is_what_it_would_be_centralised() -> None:
    rows = toy.random_parties([9])
    local = LocalTraining(epochs=2, batch=4, learning_rate=0.05, momentum=0.9, decay=0.9)
    federation = toy.federation(rows)
    toy.run(Alone(**toy.parts(local)), federation, rounds=3)
    pooled = toy.run(Centralised(**toy.parts(local)), toy.federation(rows), rounds=3)
    np.testing.assert_allclose(own_models(federation)[0], toy.weights(pooled), rtol=1e-12)


def test_only_the_first_round_sends_a_model_and_none_comes_back() -> None:
    events = []
    federation = toy.federation(toy.random_parties([4, 5], columns=1000))
    federation.record = lambda kind, facts: events.append(facts) if kind == "exchange" else None
    toy.run(Alone(**toy.parts()), federation, rounds=2)
    assert events[0]["bytes_down"] > 2 * 8000
    assert events[1]["bytes_down"] == 2 * payload.size({})
    assert all(facts["bytes_up"] < 200 for facts in events)


def test_a_party_that_missed_the_start_gets_the_initial_model_later() -> None:
    federation = toy.federation(toy.targets(8.0, 8.0))
    state = toy.run(Alone(**toy.parts(selector=FixedParties(("0",)))), federation)
    toy.one_more(Alone(**toy.parts()), federation, state)
    assert own_models(federation) == {0: [6.0], 1: [4.0]}


def test_parties_evaluate_their_own_models_or_the_initial_one() -> None:
    federation = toy.federation(toy.targets([8.0, 8.0], [4.0, 4.0]), split=Split(validation=0.0, test=0.5))
    algorithm = Alone(**toy.parts(selector=FixedParties(("1",))))
    before = algorithm.evaluate(federation, algorithm.start(federation), "test", federation.everyone())
    assert [tally["squared_error"] for tally in before.values()] == [64.0, 16.0]
    state = toy.run(algorithm, federation)
    after = algorithm.evaluate(federation, state, "test", federation.everyone())
    assert {party: tally["squared_error"] for party, tally in after.items()} == {0: 64.0, 1: 4.0}


def test_the_score_is_the_mean_over_the_parties_models() -> None:
    federation, algorithm = toy.federation(toy.targets(8.0, -2.0)), Alone(**toy.parts())
    held_out = toy.dataset([1.0, 1.0], [0.0, 1.0])
    start = algorithm.start(federation)
    assert algorithm.score(federation, start, held_out)["squared_error"] == 1.0
    state = toy.run(algorithm, federation)  # own models 4 and -1
    score = algorithm.score(federation, state, held_out)
    assert (score["rows"], score["squared_error"]) == (4, (16 + 9) + (1 + 4))


def test_no_more_parties_are_scored_than_asked_for_and_always_the_same() -> None:
    rows = toy.random_parties([3] * 30)
    federation, algorithm = toy.federation(rows, seed=4), Alone(scored_parties=3, **toy.parts())
    state = toy.run(algorithm, federation, rounds=2)
    drawn = sorted(stream(4, "scored parties").permutation(30)[:3])
    held_out = toy.dataset(*rows[0])
    models = own_models(federation)
    expected = merge(algorithm.learner.evaluate({"w": np.array(models[party])}, held_out) for party in drawn)
    assert algorithm.score(federation, state, held_out) == pytest.approx(expected)


def test_a_round_in_which_all_drop_out_changes_nothing() -> None:
    federation, algorithm = toy.federation(toy.targets(8.0, -2.0)), Alone(**toy.parts())
    state = toy.run(algorithm, federation)
    models = own_models(federation)
    federation.rules = Rules(dropout=1.0, quorum=0.0)
    after = toy.one_more(algorithm, federation, state)
    assert own_models(federation) == models
    assert algorithm.score(federation, after, toy.dataset([1.0], [0.0])) is None
    assert after.memory["trained"].tolist() == [0, 1]
