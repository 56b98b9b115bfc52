from __future__ import annotations

import pytest

from tequio.data.dataset import Schema, Target
from tequio.gate.announcement import read_announcement
from tequio.gate.gate import Gate, PartyRows
from tequio.learners.learner import LocalTraining
from tequio.registry import COMPONENT_KEY, build, to_plain


def component(kind, name, **parameters):
    """A component as it is sent."""
    return {COMPONENT_KEY: [kind, name], "parameters": parameters}


@pytest.fixture
def facts():
    """What a coordinator announces of a run, with changes."""
    def make(**changes):
        return {"name": "toy", "algorithm": "fedavg", "rounds": 10, "index": 0, "parties": 5, "seed": 1,
                "split": {"validation": 0.1, "test": 0.1, "stratify": True}} | changes

    return make


@pytest.fixture
def gate(facts):
    """A party's gate, 100 of whose rows are for training."""
    def make(policy, rows=100, ledger=None, run="a run", by="here", **changes):
        schema = Schema.of_numbers("ab", Target("classes", ("no", "yes")))
        return Gate(policy, read_announcement(facts(**changes)), PartyRows(rows, 10, 10), schema, ledger=ledger,
                    run=run, by=by)

    return make


@pytest.fixture
def training():
    """The settings of the task 'train', as they are sent."""
    def make(**local):
        return {"learner": to_plain(build("learner", "logistic")), "local": to_plain(LocalTraining(**local))}

    return make
