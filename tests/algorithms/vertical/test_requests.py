"""Predictions on their way to the party that asks: sealed, and refused where they were tampered with."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.algorithms.vertical.requests import Answers, give_key, open_answers, seal_answers
from tequio.algorithms.vertical.rows import KeptScores, QueryRows
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.errors import PayloadError
from tequio.federation.population import Party, alone
from tequio.federation.task import NoSettings

SCORES = np.array([[0.25, 0.75], [0.5, 0.5]])


def party(index):
    rows = Dataset.of(Schema.of_numbers(["x"], Target("none")), np.zeros((3, 1)), ids=["a", "b", "c"])
    made = Party(index, 4, {}, alone(rows, index, str(index), Split(), 0, {}))
    made.keep(QueryRows, {"rows": np.array([2, 0])})
    return made


def ask(task, party, **payload):
    return task(party, payload, NoSettings())


@pytest.fixture
def ends():
    """The label holder with scores, the party that asks with a key, and what the first sealed for the second."""
    holder, asking = party(0), party(1)
    holder.keep(KeptScores, {"scores": SCORES})
    return holder, asking, ask(seal_answers, holder, **ask(give_key, asking))


def test_the_party_that_asks_opens_what_was_sealed_for_it(ends):
    holder, asking, sealed = ends
    assert SCORES.tobytes() not in sealed["box"]
    assert not holder.recall(KeptScores)
    assert ask(open_answers, asking, **sealed) == {}
    np.testing.assert_array_equal(asking.recall(Answers)["scores"], SCORES)
    assert asking.recall(Answers)["rows"].tolist() == [2, 0]
    assert [name for name in asking.state if "Key" in name] == []


def test_nobody_else_can_open_it_or_put_something_else_in_its_place(ends):
    _, asking, sealed = ends
    other = party(2)
    ask(give_key, other)
    with pytest.raises(PayloadError, match="forged, replayed or altered"):
        ask(open_answers, other, **sealed)
    altered = sealed["box"][:-1] + bytes([sealed["box"][-1] ^ 1])
    with pytest.raises(PayloadError, match="forged, replayed or altered"):
        ask(open_answers, asking, key=sealed["key"], box=altered)
    assert not asking.recall(Answers)


def test_answers_of_another_number_of_rows_are_refused(ends):
    _, asking, sealed = ends
    asking.keep(QueryRows, {"rows": np.arange(3)})
    with pytest.raises(PayloadError, match="asked about 3 rows and was told of 2"):
        ask(open_answers, asking, **sealed)
