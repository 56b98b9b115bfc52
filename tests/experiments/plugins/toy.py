"""A plugin whose numbers can be worked out by hand: parties learn the mean of their targets."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np
from annotated_types import Gt

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.data.catalogue.entry import Loaded
from tequio.data.dataset import Dataset, Schema, Target
from tequio.federation.task import Reveals, record, task
from tequio.learners import metrics
from tequio.learners.learner import Trained
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.algorithm import State

TARGETS = {"ana": [1.0, 2.0, 3.0], "beto": [4.0, 6.0], "caro": [10.0]}


@register("dataset", "toy_numbers")
@dataclass(frozen=True)
class ToyNumbers:
    """Six numbers of three parties.

    Parameters:
        copies: how often each row is there
        official_test: whether the set comes with test rows
    """

    copies: int = 1
    official_test: bool = False

    def load(self) -> Loaded:
        values = np.repeat(np.concatenate([*map(np.array, TARGETS.values())]), self.copies)
        groups = np.repeat([name for name, own in TARGETS.items() for _ in own], self.copies)
        schema = Schema.of_numbers(["x"], Target("number"))
        rows = Dataset.of(schema, np.arange(len(values), dtype=float)[:, None], values, groups=groups)
        return Loaded(rows, Dataset.of(schema, [[0.0]], [7.0]) if self.official_test else None)


@register("learner", "toy_mean")
@dataclass(frozen=True)
class ToyMean:
    """One number that moves towards the mean of the rows.

    Parameters:
        scale: factor on the prediction
    """

    scale: Annotated[float, Gt(0)] = 1.0

    def initial(self, schema: Schema, rng: np.random.Generator) -> dict[str, Any]:
        return {"mean": np.zeros(1)}

    def train(self, model: Any, data: Dataset, how: Any, rng: Any, *, learning_rate: Any = None,
              correction: Any = None) -> Trained:
        mean, loss = model["mean"], float(np.mean((data.target - model["mean"]) ** 2))
        for _ in range(how.epochs):
            mean = mean + learning_rate * (data.target.mean() - mean)
        return Trained({"mean": mean}, how.epochs, loss, len(data))

    def predict(self, model: Any, data: Dataset) -> Any:
        return np.full(len(data), self.scale * model["mean"][0])

    def evaluate(self, model: Any, data: Dataset) -> Any:
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)


@record
class Fall:
    party: str
    round: int


class Visit(TypedDict):
    visits: int
    draw: float


@task("stumble", settings=Fall, reply=Visit, reveals=Reveals.NOTHING)
def stumble(party: Any, payload: Any, settings: Fall) -> Visit:
    if party.name == settings.party and party.round == settings.round:
        raise ValueError("the disk of this party is on fire")
    party.state["visits"] = party.state.get("visits", 0) + 1
    return {"visits": party.state["visits"], "draw": float(party.rng("draw").random())}


@register("algorithm", "toy_stumble")
@dataclass(frozen=True, kw_only=True)
class Stumble(FedAvg):
    """Federated averaging that also visits parties, one of which fails.

    Parameters:
        party: who fails
        fails_in: in which round (0: never)
        killed_in: the coordinator kills itself in this round if $TOY_KILL is set (0: never)
    """

    party: str = "caro"
    fails_in: int = 0
    killed_in: int = 0

    def start(self, federation: Any) -> State:
        return super().start(federation).next(draws=0.0, visits=0)

    def round(self, federation: Any, state: State) -> State:
        if federation.round == self.killed_in and os.environ.get("TOY_KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        if federation.round == self.killed_in and os.environ.get("TOY_INTERRUPT"):
            group = os.environ["TOY_INTERRUPT"] == "group"
            os.killpg(0, signal.SIGINT) if group else signal.raise_signal(signal.SIGINT)
        after = super().round(federation, state)
        replies = federation.ask(federation.everyone(), stumble,
                                 settings=Fall(party=self.party, round=self.fails_in))
        return after.next(draws=state.memory["draws"] + float(replies.values("draw").sum()),
                          visits=int(replies.values("visits").sum()))

    def result(self, state: State) -> Any:
        return {**state.model, "draws": np.array(state.memory["draws"]), "visits": np.array(state.memory["visits"])}


@register("algorithm", "toy_crash")
@dataclass(frozen=True, kw_only=True)
class Crash(FedAvg):
    """A plugin with a mistake in its coordinator's part."""

    def round(self, federation: Any, state: State) -> State:
        print("a plugin that talks on stdout")
        return replace(state, model=state.model["no such name"])


@register("algorithm", "toy_talk")
@dataclass(frozen=True, kw_only=True)
class Talk(FedAvg):
    """A plugin that prints."""

    def round(self, federation: Any, state: State) -> State:
        print("a plugin that talks on stdout")
        os.write(1, b"and on the descriptor too\n")
        return super().round(federation, state)
