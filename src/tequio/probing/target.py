"""A finished run as an attacker finds it: its data and parts, and what an onlooker sees of a round."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tequio import registry
from tequio.algorithms.training import train
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.aggregation import difference
from tequio.federation.averaging import Averaging, select
from tequio.federation.federation import Federation, Rules
from tequio.federation.stages import summing_stage
from tequio.federation.task import TrainSettings
from tequio.privacy.verification.transcript import Transcript
from tequio.probing.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.scenario import Scenario
    from tequio.federation.population import Population
    from tequio.learners.learner import Arrays, LocalTraining
    from tequio.probing.probe import View


class ProbeOfAveraging(Probe):
    """A probe of runs whose parties send updates of one model."""

    def suits(self, config: Config) -> bool:
        """Whether the algorithm averages."""
        return issubclass(cast("type", registry.find("algorithm", config.algorithm["name"]).component), Averaging)


@dataclass(frozen=True)
class Probed:
    """A finished run with its data and its parts, ready to be attacked. `own` are rows that the attacker holds."""

    result: Result
    scenario: Scenario
    algorithm: Averaging
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
    algorithm, schema = scenario.algorithm, scenario.population.schema
    crossing = algorithm.disclosure(schema)
    if not isinstance(algorithm, Averaging) or crossing is None or crossing.arrays != ("update",) \
            or schema.target.kind != "classes":
        raise ConfigError(f"the attacks on privacy know classes and one update a party, which "
                          f"'{result.config.algorithm['name']}' on this data has not",
                          remedy="probe a run such as one of 'fedavg' on data with classes")
    if scenario.test is None or not len(scenario.test):
        raise ConfigError("the attacker has no rows of its own to compare with", remedy="set data.test = 0.2")
    return Probed(result, scenario, algorithm, scenario.test)


def holding(population: Population, dataset: Dataset, rows: Sequence[NDArray[np.integer]]) -> Population:
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
    algorithm = _looked_at(run.algorithm, view, local)
    ledger, stages = run.scenario.ledger, algorithm.way
    if ledger is not None:
        ledger.restore({"memory": {}, "entries": []})
    with closing(InlineEngine()) as engine:
        engine.open(population)
        notary = Transcript() if any(stage.spec.proves for stage in stages) else None
        federation = Federation(population, engine, run.seed, Rules(), run.scenario.topology, round=round,
                                notary=notary)
        state = algorithm.start(federation)
        model = cast("Arrays", state.model)
        if view == "coordinator" and summing_stage(stages) is None:
            replies = federation.ask(federation.everyone(), train, {"model": model}, stages=stages,
                                     settings=TrainSettings(learner=algorithm.learner, local=algorithm.local))
            return Observed(model, replies.parties, {reply.party: reply.payload["update"] for reply in replies})
        chosen = select(algorithm, federation, state).parties
        after = algorithm.round(federation, state).model
        return Observed(model, np.sort(chosen), {}, difference(after, model))


def _looked_at(algorithm: Averaging, view: View, local: LocalTraining | None) -> Averaging:
    """The algorithm as it is at the view: the coordinator sees updates before it adds noise to them."""
    stages = tuple(replace(cast("Any", stage), noise=0.0) if view == "coordinator" and stage.mechanism is not None
                   and stage.mechanism.place == view else stage for stage in algorithm.stages)
    return replace(algorithm, stages=stages, local=local or algorithm.local)
