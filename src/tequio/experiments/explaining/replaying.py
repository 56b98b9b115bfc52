"""A finished run of a vertical algorithm, taken up again: to predict new rows, or to see what its gradients leak.

Every party brings its columns, and only the party that asks gets the answer.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.vertical.rows import CommonRows
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.attacks.label_leakage import leaked
from tequio.data.dataset import Dataset, Target
from tequio.data.inputs import read
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, DataError, RunError
from tequio.experiments.config.complete import load_config
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.running.store import CONFIG, find_folder, read_checkpoint
from tequio.experiments.running.table import Table
from tequio.federation.federation import Federation
from tequio.federation.population import Party

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tequio.experiments.running.scenario import Scenario
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


def predict(run: str | Path, data: object, *, id: str | None = None, ids: Sequence[object] = (),
            ask: str = "") -> Table:
    """What the model of a run says of new rows: one line each with its id, the prediction, and how sure it is.

    `data` is a file or an object with the columns of all parties, of which each gets its own; `id` names the column
    that identifies rows (default: as in the run). `ids` picks some of them. `ask` names the party that asks, which
    alone is told the answer; by default the label holder. Every party is needed: who does not answer is named.
    """
    folder = find_folder(run)
    config = load_config(folder / CONFIG)
    schema = make_scenario(config).population.schema
    named = id or config.data.parameters.get("id")
    rows = data if isinstance(data, Dataset) else read(
        data, id=named, target_kind="none", schema=replace(schema, target=Target("none")))
    rows = _with_target(_picked(rows, ids), schema.target)
    with replayed(folder, fresh=rows) as again:
        asking = again.federation.index(ask) if ask else None
        found = again.algorithm.predict(again.federation, again.state, asking)
    return _table(rows.ids[found["rows"]], found["scores"], schema.target)


def _picked(rows: Dataset, ids: Sequence[object]) -> Dataset:
    if not ids:
        return rows
    places = {str(value): place for place, value in enumerate(rows.ids.tolist())}
    unknown = sum(str(value) not in places for value in ids)
    if unknown:
        raise DataError(f"{unknown} of the {len(ids)} ids asked about are not in the new rows",
                        remedy="check the column that `id` names")
    return rows.take(np.array([places[str(value)] for value in ids], dtype=np.int64))


def _with_target(rows: Dataset, target: Target) -> Dataset:
    """The rows with a target of noughts, which nobody looks at: a label holder's table has a column for it."""
    shape = (len(rows), len(target.names)) if target.kind == "multilabel" else (len(rows),)
    kind = np.float64 if target.kind == "number" else np.int64
    return Dataset.of(replace(rows.schema, target=target), rows.features, np.zeros(shape, kind), ids=rows.ids,
                      name=rows.name)


def _table(ids: NDArray[np.generic], scores: NDArray[np.float64], target: Target) -> Table:
    table = Table()
    for identity, score in zip(ids.tolist(), scores, strict=True):
        if target.kind == "number":
            table.add({"id": identity, "prediction": float(score)})
        elif target.kind == "classes":
            best = int(np.argmax(score))
            table.add({"id": identity, "prediction": target.names[best], "probability": float(score[best])})
        else:
            table.add({"id": identity} | dict(zip(target.names, map(float, score), strict=True)))
    return table
