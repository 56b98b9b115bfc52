"""Every algorithm whose parties hold different columns: what crosses is described, and holds nothing private."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tequio import registry
from tequio.algorithms.vertical.answering import needed_of
from tequio.algorithms.vertical.conversation import UNKNOWN, meaning_of
from tequio.algorithms.vertical.requests import Answers, give_key, hold_answers, open_answers, seal_answers
from tequio.federation.population import state_name

from .test_algorithms import Play, is_vertical, people
from .transcripts import Transcript, assert_no_ids, assert_no_labels, assert_no_rows

every_vertical = pytest.mark.parametrize("name", [name for name in registry.names("algorithm") if is_vertical(name)])


@pytest.fixture(scope="module")
def played():
    """Two rounds, an evaluation and a prediction of each algorithm, played once."""
    known = {}

    def play(name):
        if name not in known:
            engine = Transcript()
            engine.open(people(name))
            run = known[name] = Play(name, engine).rounds(2)
            run.algorithm.evaluate(run.federation, run.state, "test", run.federation.everyone())
            run.algorithm.predict(run.federation, run.state)
            run.algorithm.predict_there(run.federation, run.state, "1")
        return known[name]

    return play


@every_vertical
def test_every_field_of_a_message_is_described(name, played):
    fields = {(task, field) for task, _, _, payload in played(name).engine.messages for field in payload}
    assert not [pair for pair in sorted(fields) if meaning_of(*pair) == UNKNOWN]


@every_vertical
def test_no_message_holds_an_id_a_row_or_the_labels(name, played):
    run = played(name)
    population = run.federation.population
    assert_no_ids(run.engine, population)
    assert_no_rows(run.engine, population)
    assert_no_labels(run.engine, population, run.engine.states()[0], skip=("vertical.hand out",))


@every_vertical
@pytest.mark.parametrize("tell", ["", "1"])
def test_a_prediction_asks_for_its_own_tasks_only_and_the_scores_stay_at_the_parties(name, tell, played):
    run = played(name)
    engine = Transcript()
    engine.open(run.federation.population)
    part = run.algorithm.kept_to_score
    engine.restore({party: needed_of(state, part) for party, state in run.engine.states().items()})
    federation = replace(run.federation, engine=engine)
    wanted = run.algorithm.predict(replace(run.federation), run.state)["scores"]
    told = run.algorithm.predict_there(federation, run.state, tell)
    assert told == (len(wanted), None)
    telling = (give_key, seal_answers, open_answers) if tell else (hold_answers,)
    allowed = {task.name for task in (*run.algorithm.tasks_of_prediction(), *telling)}
    asked = {task for task, *_ in engine.messages}
    assert {task.name for task in telling} <= asked <= allowed
    answers = {party: kept["scores"] for party, state in engine.states().items()
               if (kept := state.get(state_name(Answers)))}
    assert list(answers) == [int(tell or 0)]
    assert np.array_equal(answers[int(tell or 0)], wanted)
    assert not [task for task, _, _, payload in engine.messages if contains(payload, wanted)]
    assert_no_ids(engine, run.federation.population)


def contains(payload, scores):
    """Whether a message holds the scores, as an array or as bytes."""
    if isinstance(payload, dict):
        return any(contains(value, scores) for value in payload.values())
    if isinstance(payload, bytes):
        return scores.tobytes() in payload
    return isinstance(payload, np.ndarray) and payload.shape == scores.shape and np.array_equal(payload, scores)
