"""A finished run of a vertical algorithm, played again from its seed, with all that each party is sent on record."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tequio.algorithms.vertical.conversation import roles_of
from tequio.algorithms.vertical.rows import common_rows, design
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, nearest
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.federation import Federation
from tequio.federation.population import Party
from tequio.federation.rng import stream
from tequio.probing.probe import Probe, View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Roles
    from tequio.experiments.config.tables import Config
    from tequio.federation.exchange import Order, Outcome
    from tequio.federation.payload import Payload


@dataclass(frozen=True)
class Message:
    """What a party was asked in a round, and what it answered."""

    party: int
    round: int
    task: str
    payload: Payload
    reply: Payload


class _Recording(InlineEngine):
    """Keeps all messages."""

    def __init__(self) -> None:
        super().__init__()
        self._orders: dict[int, Order] = {}
        self.messages: list[Message] = []

    def submit(self, order: Order) -> None:
        """Remember the order until its outcome is there."""
        self._orders[order.ticket] = order
        super().submit(order)

    def collect(self) -> Outcome:
        """Put the order's messages on record."""
        outcome = super().collect()
        order = self._orders.pop(outcome.ticket)
        for reply in outcome.replies:
            own = order.each[order.parties.index(reply.party)] if order.each else {}
            self.messages.append(Message(reply.party, order.round, order.task, {**order.payload, **own},
                                         dict(reply.payload)))
        return outcome


@dataclass(frozen=True)
class Overheard:
    """The messages of a run, and the parties as it left them."""

    algorithm: VerticalAlgorithm
    federation: Federation
    roles: Roles
    messages: list[Message]
    states: dict[int, Payload]

    def sent_to(self, party: int) -> Iterator[Message]:
        """What one party got, in order."""
        return (message for message in self.messages if message.party == party)

    def party(self, index: int, round: int = 0) -> Party:
        """A party with its private state, as its task functions see it."""
        return Party(index, round, self.states[index], self.federation.population)

    def labels(self) -> NDArray[np.bool_]:
        """Whether the true label of each common training row is the second class."""
        holder = self.party(self.roles.label_holder)
        positive: NDArray[np.bool_] = np.asarray(holder.rows.source.target)[common_rows(holder, "train").rows] == 1
        return positive

    def columns(self, index: int) -> NDArray[np.float64]:
        """A party's columns of the common training rows as numbers, categories as one column each."""
        party = self.party(index)
        return design(party, common_rows(party, "train"))


@dataclass(frozen=True)
class ProbeOfVertical(Probe):
    """A probe of runs whose parties hold different columns, at what one party is sent."""

    views: ClassVar[tuple[View, ...]] = ("party",)
    algorithms: ClassVar[tuple[str, ...]]

    def suits(self, config: Config) -> bool:
        """Whether the algorithm is one whose messages the attack reads."""
        return config.algorithm["name"] in self.algorithms


def overheard(result: Result) -> Overheard:
    """Play the run again with the same seed, without encryption: the numbers are those that parties open."""
    return _played(str(result.folder), result.summary["model_sha256"])


@lru_cache(maxsize=1)
def _played(folder: str, sha: str) -> Overheard:
    # Several probes look at one run after each other; another model under the same name is another run.
    result = Result(Path(folder))
    config = result.config
    if "encryption" in config.algorithm:
        config = config.model_copy(update={"algorithm": {**config.algorithm, "encryption": "plain"}})
    scenario, engine = make_scenario(config), _Recording()
    algorithm = scenario.algorithm
    assert isinstance(algorithm, VerticalAlgorithm)
    with closing(engine):
        engine.open(scenario.population)
        federation = Federation(scenario.population, engine, config.seed, replace(scenario.rules, dropout=0.0),
                                scenario.topology)
        state = algorithm.start(federation)
        for round in range(1, result.summary["rounds"] + 1):
            federation.round = round
            state = algorithm.round(federation, state)
        return Overheard(algorithm, federation, roles_of(federation), engine.messages, engine.states())


def without_labels(heard: Overheard, name: str) -> int:
    """The party of that name; without a name the first that has columns and no labels."""
    names = {heard.federation.name(party): party for party in heard.roles.others}
    if not names:
        raise ConfigError("no party without labels takes part", remedy="deal the columns to two parties or more")
    if name and name not in names:
        raise ConfigError(f"no party '{name}' has columns and no labels", remedy=nearest(name, names))
    return names[name] if name else heard.roles.others[0]


def known_rows(heard: Overheard, labels: NDArray[np.bool_], known: int, draws: int) -> list[NDArray[np.bool_]]:
    """Which rows' labels the attacker happens to know, several times: half of them of each class."""
    rng, half = stream(heard.federation.population.seed, "probe known labels"), known // 2
    if min(int(labels.sum()), int((~labels).sum())) <= half:
        raise ConfigError(f"there are fewer than {half + 1} training rows of a class", remedy="set known to less")
    marks = []
    for _ in range(draws):
        mark = np.zeros(len(labels), dtype=bool)
        for which in (labels, ~labels):
            mark[rng.choice(np.flatnonzero(which), half, replace=False)] = True
        marks.append(mark)
    return marks
