"""Parties whose updates are known beforehand, and a federation that asks them for these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import Averaging, aggregate
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.task import Reveals, record, task


@record
class TellSettings:
    size: int = 4
    control: bool = False
    rows: int = 1


@task("privacy tests: tell", settings=TellSettings, reply=dict, reveals=Reveals.UPDATE)
def tell(party, payload, settings):
    """Send a vector of ones, as long as asked, times the party's only number."""
    value = float(party.data.train.target[0])
    update = {"w": np.full(settings.size, value, dtype=np.float32)}
    more = {"control": {"w": np.full(settings.size, value, dtype=np.float32)}} if settings.control else {}
    return {"update": update, "rows": settings.rows, "steps": 1, "loss": value, **more}


@dataclass(frozen=True, kw_only=True)
class Telling(Averaging):
    """Asks parties to tell, and aggregates what they say."""

    learner: Any = part(None)

    def start(self, federation):
        return State({})

    def round(self, federation, state):
        return state

    def told(self, federation, parties, names=("update",), **settings):
        """The aggregates of the arrays by name; the parties weigh by the rows that they tell."""
        settings = TellSettings(**{"control": "control" in names, **settings})
        replies = federation.ask(parties, tell, settings=settings, stages=self.stages)
        like = {"w": np.zeros(settings.size, dtype=np.float32)}
        return {name: aggregate(self, federation, State(like), replies, like, replies.values("rows"),
                                name=name).update["w"] for name in names}


def released(federation, stages, parties=None, **settings):
    """What becomes of a round's updates on their way through stages."""
    parties = federation.everyone() if parties is None else parties
    return Telling(stages=tuple(stages)).told(federation, parties, **settings)["update"]


def tellers(values, seed=0):
    """One party a value, each with one row."""
    count = len(values)
    rows = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((count, 1)), np.array(values, float))
    people = Population(rows, Partition(np.arange(count), np.arange(count + 1)), Split(0.0, 0.0), seed)
    engine = InlineEngine()
    engine.open(people)
    return Federation(people, engine, seed=seed)


@pytest.fixture(name="tellers")
def tellers_fixture():
    return tellers
