"""A finished run of a vertical algorithm, taken up again to see what its gradients leak."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tequio.algorithms.vertical.rows import CommonRows
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.attacks.label_leakage import leaked
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, RunError
from tequio.experiments.config.complete import load_config
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.running.store import CONFIG, read_checkpoint
from tequio.federation.federation import Federation
from tequio.federation.population import Party

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tequio.experiments.running.scenario import Scenario
    from tequio.federation.algorithm import State
    from tequio.federation.exchange import Order
    from tequio.federation.payload import Payload


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
def replayed(folder: Path, engine: InlineEngine) -> Iterator[Replay]:
    """Take up a run of a vertical algorithm in this process."""
    config = load_config(folder / CONFIG)
    scenario = make_scenario(config)
    if not isinstance(scenario.algorithm, VerticalAlgorithm):
        raise ConfigError(f"'{folder.name}' is no run of a vertical algorithm",
                          remedy="choose a run whose parties hold different columns")
    checkpoint = read_checkpoint(folder)
    if checkpoint is None or not checkpoint.state.model:
        raise RunError(f"'{folder.name}' has no trained model yet", remedy="let the run come to its end first")
    with closing(engine):
        engine.open(scenario.population)
        engine.restore(checkpoint.parties)
        federation = Federation(scenario.population, engine, config.seed, replace(scenario.rules, dropout=0.0),
                                scenario.topology, round=checkpoint.round)
        yield Replay(scenario, scenario.algorithm, federation, checkpoint.state)


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
        with replayed(folder, listening) as run:
            if len(run.federation.schema.target.names) != 2:
                return {}
            run.federation.round += 1
            run.algorithm.round(run.federation, run.state)
            batches = _batches(listening.heard, _labels(run, listening.states()))
            if batches:
                found[run.federation.name(party)] = leaked(batches)
    return found


def _labels(run: Replay, states: dict[int, Payload]) -> NDArray[np.bool_]:
    """The labels of the common training rows, which only the label holder and this check know."""
    partition = run.federation.population.partition
    holder = list(partition.holds_target or ()).index(True)
    kept = Party(holder, 0, states[holder], run.federation.population).recall(CommonRows)
    rows = run.federation.population.whole(holder).take(kept["rows"])
    positive: NDArray[np.bool_] = rows.target[kept["part"] == 0] == 1
    return positive


def _batches(heard: list[tuple[str, Payload]],
             positive: NDArray[np.bool_]) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Each batch's gradients with its true labels. A party gets the gradients together with the next batch."""
    batches, pending = [], None
    for task, payload in heard:
        if task == "split-nn.step":
            if "gradient" in payload and pending is not None:
                batches.append((payload["gradient"], positive[pending]))
            pending = payload.get("positions")
    return batches
