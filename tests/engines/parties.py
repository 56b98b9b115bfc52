"""A plugin for engine tests: a few tasks, and a small population to run them on."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.federation.payload import Payload
from tequio.federation.population import Population
from tequio.federation.task import Done, NoSettings, Reveals, Sums, record, task


def population(parties: int = 10, rows: int = 4, **extra) -> Population:
    total = parties * rows
    features = np.arange(total * 3, dtype=np.float32).reshape(total, 3)
    schema = Schema.of_numbers(["a", "b", "c"], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, features, np.arange(total) % 2)
    partition = Partition.of([np.arange(party * rows, (party + 1) * rows) for party in range(parties)], **extra)
    return Population(dataset, partition, Split(validation=0.0, test=0.0), seed=3)


@record
class Shift:
    """What is added to the sums."""

    add: int = 0


@record
class Unlucky:
    """Whose task fails."""

    parties: tuple[int, ...]


@record
class Mark:
    """The file that says that the worker went down once."""

    mark: str


@task("engine test.sum", settings=Shift, reply=Payload, reveals=Sums())
def column_sum(party, payload, settings):
    return {"sum": party.data.train.features.sum(axis=0) + payload.get("shift", 0) + settings.add}


@task("engine test.count", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def count_calls(party, payload, settings):
    party.state["calls"] = party.state.get("calls", 0) + 1
    party.state["noise"] = party.rng("noise").random(2)
    return {"calls": party.state["calls"], "noise": party.state["noise"]}


@task("engine test.fail at", settings=Unlucky, reply=Payload, reveals=Reveals.NOTHING)
def fail_at(party, payload, settings):
    party.state["touched"] = 1
    if party.index in settings.parties:
        raise ValueError("no such luck")
    return {"fine": True}


@task("engine test.die", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def die(party, payload, settings):
    os.kill(os.getpid(), signal.SIGKILL)


@task("engine test.nothing", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def nothing(party, payload, settings):
    return {}


@task("engine test.die once", settings=Mark, reply=Payload, reveals=Reveals.NOTHING)
def die_once(party, payload, settings):
    """Take the worker down, unless somebody did so before: the file says."""
    party.state["touched"] = party.state.get("touched", 0) + 1
    with suppress(FileExistsError):
        os.close(os.open(settings.mark, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    return {"touched": party.state["touched"]}


@task("engine test.where", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def where(party, payload, settings):
    import ray

    return {"node": ray.get_runtime_context().get_node_id()}
