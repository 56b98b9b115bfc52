"""Every algorithm whose parties hold different columns: what crosses is described, and holds nothing private."""

from __future__ import annotations

import pytest

from tequio import registry
from tequio.algorithms.vertical.conversation import UNKNOWN, meaning_of

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
