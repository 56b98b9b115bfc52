"""What an attack on privacy works on: a finished run, and what an onlooker sees of rounds that its federation plays."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from tequio.algorithms.training import train, training_settings
from tequio.data.partition import Partition
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.experiments.scenario import make_scenario
from tequio.federation.federation import Federation, Rules
from tequio.federation.models import difference
from tequio.federation.stages import Trait, summing_stage
from tequio.privacy.verification.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.results import Result
    from tequio.experiments.scenario import Scenario
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.population import Population
    from tequio.federation.stages import Stage
    from tequio.learners.learner import Arrays, LocalTraining

View = Literal["coordinator", "released"]
"""Who looks on: the coordinator, at all that reaches it; or somebody who sees the model before and after a round."""


@dataclass(frozen=True)
class Probed:
    """A finished run with its data and its parts, ready to be attacked. `own` are rows that the attacker holds."""

    result: Result
    scenario: Scenario
    own: Dataset

    @property
    def seed(self) -> int:
        """That of the run; attacks draw from streams of their own."""
        return self.result.config.seed

    @property
    def bounds(self) -> tuple[float, float]:
        """Between what an entry of a row may lie, as the attacker's own rows show."""
        features = self.own.features
        return float(features.min()), float(features.max())


def probed(result: Result) -> Probed:
    """Make a finished run ready; runs whose updates or models these attacks know nothing of are refused."""
    scenario = make_scenario(result.config)
    crossing = scenario.algorithm.crossing(scenario.population.schema)
    if crossing is None or crossing.arrays != ("update",) or scenario.population.schema.target.kind != "classes":
        raise ConfigError(f"the attacks on privacy know classes and one update a party, which "
                          f"'{result.config.algorithm['name']}' on this data has not",
                          remedy="probe a run such as one of 'fedavg' on data with classes")
    if scenario.test is None or not len(scenario.test):
        raise ConfigError("the attacker has no rows of its own to compare with", remedy="set data.test = 0.2")
    return Probed(result, scenario, scenario.test)


def holding(population: Population, dataset: Dataset, rows: Sequence[NDArray[Any]]) -> Population:
    """The same parties with other rows, all for training."""
    partition = Partition.of(rows, names=population.partition.names, categories=population.partition.categories)
    return replace(population, dataset=dataset, partition=partition, split=Split(0.0, 0.0), _views=OrderedDict())


@dataclass(frozen=True)
class Observed:
    """Updates of single parties by their number, or of all of a round together (`whole`), and who took part."""

    model: Arrays
    parties: NDArray[np.int64]
    single: dict[int, Arrays]
    whole: Arrays | None = None

    def of(self, party: int) -> Arrays:
        """What there is to be seen of a party's update."""
        return self.whole if self.whole is not None else self.single[party]


def observed(run: Probed, population: Population, view: View, *, round: int = 1,
             local: LocalTraining | None = None) -> Observed:
    """What an onlooker sees of a round on a fresh model, when gradients are longest, that these parties play."""
    algorithm = _looked_at(run.scenario.algorithm, view, local)
    ledger, stages = run.scenario.ledger, algorithm.parts.stages
    if ledger is not None:
        ledger.restore({"memory": {}, "entries": []})
    with closing(InlineEngine()) as engine:
        engine.open(population)
        notary = Transcript() if any(_trait(stage).proves for stage in stages) else None
        federation = Federation(population, engine, run.seed, Rules(), run.scenario.topology, round=round,
                                notary=notary)
        state = algorithm.start(federation)
        model = cast("Arrays", state.model)
        if view == "coordinator" and summing_stage(stages) is None:
            replies = federation.ask(federation.everyone(), train, {"model": model},
                                     settings=training_settings(algorithm), stages=stages)
            return Observed(model, replies.parties, {reply.party: reply.payload["update"] for reply in replies})
        chosen = algorithm.select(federation, state).parties
        after = algorithm.round(federation, state).model
        return Observed(model, np.sort(chosen), {}, difference(after, model))


def _looked_at(algorithm: Algorithm, view: View, local: LocalTraining | None) -> Algorithm:
    """The algorithm as it is at the view: the coordinator sees updates before it adds noise to them."""
    stages = tuple(replace(cast("Any", stage), noise=0.0) if view == "coordinator" and _trait(stage).noise == view
                   else stage for stage in algorithm.parts.stages)
    return replace(algorithm, parts=replace(algorithm.parts, stages=stages, local=local or algorithm.parts.local))


def _trait(stage: Stage) -> Trait:
    return cast("Trait", getattr(stage, "trait", Trait()))
