"""Five parties whose updates pass through stages in a whole round, and all that can be seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.algorithm import State, part
from tequio.federation.averaging import Averaging, aggregate
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.task import Reveals, record, task
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.verification.transcript import Transcript
from tequio.registry import build

from .ways import Arrays, updates

if TYPE_CHECKING:
    from tequio.federation.exchange import Replies

PARTIES, ROWS = 5, 200

CLIP = 50.0
"""Longer than any update here, so that only noise changes it."""

MOVES = {"weight": 1.0, "bias": 1.0}

QUIET: dict[str, dict[str, Any]] = {
    "central-dp": {"noise": 0.0, "clip": CLIP}, "dp-ftrl": {"noise": 0.0, "clip": CLIP},
    "dp-mf": {"noise": 0.0, "clip": CLIP},
    "distributed-dp": {"noise": 0.0, "clip": CLIP}, "local-dp": {"noise": 0.0, "clip": CLIP},
    "dp-sums": {"noise": 0.0}, "randomised-response": {"epsilon": 60.0},
    "silent-training": {"noise": 0.0}}
LOUD: dict[str, dict[str, Any]] = {
    "central-dp": {"noise": 0.1, "clip": CLIP}, "dp-ftrl": {"noise": 0.1, "clip": CLIP},
    "dp-mf": {"noise": 0.1, "clip": CLIP},
    "distributed-dp": {"noise": 0.1, "clip": CLIP}, "local-dp": {"noise": 0.02, "clip": CLIP},
    "dp-sums": {"noise": 0.5}, "randomised-response": {"epsilon": 0.5},
    "silent-training": {"noise": 1.0}}
SPREAD = {"central-dp": 0.1 * CLIP / 5, "dp-ftrl": 0.1 * CLIP / 5, "dp-mf": 0.1 * CLIP / 5,
          "distributed-dp": 0.1 * CLIP / 4**0.5 / 5**0.5,
          "local-dp": 0.02 * CLIP / 5**0.5, "dp-sums": 0.5 * 2**0.5 / 5**0.5}
"""The deviation of the noise on every entry of the mean; four shares of the distributed noise are enough."""


@record
class Bareness:
    bare: bool


@task("privacy tests: send something", settings=Bareness, reply=dict, reveals=Reveals.UPDATE)
def send_something(party: Any, payload: Any, settings: Bareness) -> Any:
    update = updates(1, seed=party.index)[0]
    update["bias"][:] = np.mean(party.data.train.target)
    return {"update": update} if settings.bare else {"update": update, "rows": 1, "steps": 1, "loss": 0.0}


@dataclass(frozen=True, kw_only=True)
class Asking(Averaging):
    """Asks everybody once, and keeps what it was told."""

    learner: Any = part(None)

    def start(self, federation: Federation) -> State:
        return State({name: np.zeros_like(values) for name, values in updates(1)[0].items()})

    def round(self, federation: Federation, state: State) -> State:
        bare = any(stage.mechanism is not None and stage.mechanism.protects == "sums" for stage in self.stages)
        replies = federation.ask(federation.everyone(), send_something, {}, settings=Bareness(bare=bare),
                                 stages=self.way)
        mean = aggregate(self, federation, state, replies, state.model, by="uniform")
        return State(mean.update, {"replies": replies})


@dataclass(frozen=True)
class Passage:
    """What came of a round: the aggregate, what reached the coordinator, the bytes, the tasks, and the ledger."""

    model: Arrays
    replies: Replies
    bytes_up: int
    tasks: tuple[str, ...]
    lines: tuple[str, ...]
    ledger: Ledger | None


def people() -> Population:
    labels = np.concatenate([np.random.default_rng(party).random(ROWS) < party / 5 for party in range(PARTIES)])
    rows = Dataset.of(Schema.of_numbers(["x"], Target("classes", ("no", "yes"))), np.zeros((PARTIES * ROWS, 1)),
                      labels.astype(np.int64))
    return Population(rows, Partition(np.arange(PARTIES * ROWS), np.arange(PARTIES + 1) * ROWS), Split(0.0, 0.0))


@cache
def passed(*names: str, loud: bool = False) -> Passage:
    """The way through some stages, noise left out unless it is to be heard."""
    stages = [build("stage", name, (LOUD if loud else QUIET).get(name, {})) for name in names]
    context = Context(PARTIES, float(PARTIES), hidden="secure-sum", scale=2.0**24, largest=64.0, moves=MOVES)
    ledger = None
    for place, stage in enumerate(stages):
        if stage.mechanism is not None:
            ledger = Ledger(Terms(), stage, context)
            stages[place] = ledger.mechanism = stage.opened(stage.noise, context, ledger)
    engine, population, notary, tasks = InlineEngine(), people(), Transcript(), []
    engine.open(population)
    federation = Federation(population, engine, round=1, notary=notary)
    federation.record = lambda kind, facts: tasks.append(facts["task"]) if kind == "exchange" else None  # type: ignore[method-assign]
    algorithm = Asking(stages=tuple(stages))
    state = algorithm.round(federation, algorithm.start(federation))
    return Passage(state.model, state.memory["replies"], federation.traffic.bytes_up, tuple(tasks),
                   tuple(line["body"]["kind"] for line in notary.lines), ledger)
