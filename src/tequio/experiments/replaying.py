"""A finished run of a vertical algorithm, taken up again: its parties with their states, to ask or to attack them."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.attacks.label_leakage import leaked
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, RunError
from tequio.experiments.checkpoint import read_checkpoint
from tequio.experiments.config import load_config
from tequio.experiments.scenario import make_scenario
from tequio.experiments.store import CONFIG
from tequio.federation.federation import Federation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tequio.data.dataset import Dataset
    from tequio.experiments.scenario import Scenario
    from tequio.federation.algorithm import State
    from tequio.federation.exchange import Order
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population


@dataclass(frozen=True)
class Replay:
    """A run as its last checkpoint left it, in this process."""

    scenario: Scenario
    algorithm: VerticalAlgorithm
    federation: Federation
    state: State


class Listening(InlineEngine):
    """Keeps the messages to one party: the task and what it was sent."""

    def __init__(self, party: int) -> None:
        super().__init__()
        self._party = party
        self.heard: list[tuple[str, Payload]] = []

    def submit(self, order: Order) -> None:
        """Keep what goes to the party, and pass the order on."""
        if self._party in order.parties:
            own = order.each[order.parties.index(self._party)] if order.each else {}
            self.heard.append((order.task, {**order.payload, **own}))
        super().submit(order)

@contextmanager
def replayed(folder: Path, *, fresh: Dataset | None = None, engine: InlineEngine | None = None) -> Iterator[Replay]:
    """Take up a run; where fresh rows are given, the parties hold these instead of those that they trained on."""
    config = load_config(folder / CONFIG)
    scenario = make_scenario(config, fresh=fresh)
    if not isinstance(scenario.algorithm, VerticalAlgorithm):
        raise ConfigError(f"'{folder.name}' is no run of a vertical algorithm",
                          remedy="choose a run whose parties hold different columns")
    checkpoint = read_checkpoint(folder)
    if checkpoint is None or not checkpoint.state.model:
        raise RunError(f"'{folder.name}' has no trained model yet", remedy="let the run come to its end first")
    population = scenario.population if scenario.fresh is None else _holding(scenario.population, scenario.fresh)
    with closing(engine or InlineEngine()) as used:
        used.open(population)
        used.restore(checkpoint.parties)
        federation = Federation(population, used, config.seed, replace(scenario.rules, dropout=0.0), scenario.topology,
                                round=checkpoint.round)
        yield Replay(scenario, scenario.algorithm, federation, checkpoint.state)


def _holding(old: Population, dataset: Dataset) -> Population:
    """The same parties and columns with other rows."""
    if dataset.schema.names != old.schema.names:
        raise ConfigError("the new rows do not have the columns that the parties trained on",
                          remedy=f"give a file with the columns {', '.join(old.schema.names[:5])}, ...")
    rows = np.arange(len(dataset))
    partition = type(old.partition).of(
        [rows[:0] if party == old.partition.key_holder else rows for party in range(len(old))],
        names=old.partition.names, columns=old.partition.columns, holds_target=old.partition.holds_target,
        key_holder=old.partition.key_holder)
    return replace(old, dataset=dataset, partition=partition, _views=type(old._views)())


def label_leakage(folder: Path) -> dict[str, dict[str, float]]:
    """Play one more round of a split network and let each party without labels try to tell them from its gradients."""
    found: dict[str, dict[str, float]] = {}
    config = load_config(folder / CONFIG)
    if config.algorithm["name"] != "split-nn":
        return {}
    partition = make_scenario(config).population.partition
    holds_target = partition.holds_target or ()
    for party in (party for party in range(len(partition)) if not holds_target[party]):
        listening = Listening(party)
        with replayed(folder, engine=listening) as run:
            if len(run.federation.schema.target.names) != 2:
                return {}
            run.federation.round += 1
            run.algorithm.round(run.federation, run.state)
            batches = _batches(listening.heard, _labels(run, listening.states()))
            if batches:
                found[run.federation.name(party)] = leaked(batches)
    return found


def _labels(run: Replay, states: dict[int, Payload]) -> Any:
    """The labels of the common training rows, which only the label holder and this check know."""
    partition = run.federation.population.partition
    holder = list(partition.holds_target or ()).index(True)
    state = states[holder]
    rows = run.federation.population.whole(holder).take(state["rows"])
    return rows.target[state["part"] == 0] == 1


def _batches(heard: list[tuple[str, Payload]], positive: Any) -> list[tuple[Any, Any]]:
    """Each batch's gradients with its true labels. A party gets the gradients together with the next batch."""
    batches, pending = [], None
    for task, payload in heard:
        if task == "split-nn.step":
            if "gradient" in payload and pending is not None:
                batches.append((payload["gradient"], positive[pending]))
            pending = payload.get("positions")
    return batches
