"""Gates between the stages of a model's life: what has to hold before it goes on, declared once and checked each time.

    [data]         what the model may have been trained on
    [preparation]  how its columns were made ready
    [training]     how far it was trained, and how privately
    [evaluation]   what it has to reach
    [deployment]   who has to have looked at it, and whether it has to earn its place
    [monitoring]   how lately rows of today were compared with those of the training, and how alike they have to be

The first four are checked against what the run wrote, before its model becomes a candidate; the last two before the
candidate answers. A stage of which nothing was kept does not pass: what is not known is not taken for granted.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from tequio.errors import ConfigError, RunError, nearest
from tequio.registry import validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tequio.models.registry import ModelRegistry, Version

FILE = "gates.toml"
_BOUND = re.compile(r"(\S+?)\s*(>=|<=)\s*(-?[\d.]+(?:e-?\d+)?)")
Least = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class DataGate:
    """Where the rows came from.

    Parameters:
        names: the run's data is one of these (none: any)
        parties: at least this many parties took part
        warnings: whether what the run warned of may be let through
        reference: what rows were like in training has to be kept, to see drift later
    """

    names: tuple[str, ...] = ()
    parties: Least = 0
    warnings: Literal["allow", "refuse"] = "allow"
    reference: bool = False


@dataclass(frozen=True)
class PreparationGate:
    """How columns were made ready.

    Parameters:
        steps: steps that have to be among those of the run
        scope: how steps were fitted: federated or local (empty: either)
    """

    steps: tuple[str, ...] = ()
    scope: Literal["", "federated", "local"] = ""


@dataclass(frozen=True)
class TrainingGate:
    """How the model was trained.

    Parameters:
        rounds: at least this many
        algorithms: the algorithm is one of these (none: any)
        epsilon: the run spent at most this much of privacy (0: nothing is asked)
    """

    rounds: Least = 0
    algorithms: tuple[str, ...] = ()
    epsilon: Annotated[float, Ge(0)] = 0.0


@dataclass(frozen=True)
class EvaluationGate:
    """What the run has to have reached.

    Parameters:
        bounds: bounds on metrics of the run, such as 'test.accuracy>=0.8' or 'parties.accuracy.min>=0.6'
        no_worse: bounded metrics in which it may not be worse than the run of the version in production
    """

    bounds: tuple[str, ...] = ()
    no_worse: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeploymentGate:
    """Who lets it answer.

    Parameters:
        approvals: at least this many people have approved the candidate (`tequio models approve`)
        trial: what is in production is replaced by a trial only (`tequio models promote --if-better`)
    """

    approvals: Least = 0
    trial: bool = False


@dataclass(frozen=True)
class MonitoringGate:
    """Whether rows of today are still those of the training.

    Parameters:
        days: they were compared within this many days (`tequio models drift --data`; 0: nothing is asked)
        largest: the largest stability index of a column that passes
    """

    days: Annotated[float, Ge(0)] = 0.0
    largest: Annotated[float, Ge(0)] = 0.25


@dataclass(frozen=True)
class Check:
    """One thing that a gate asks for, what was found, and whether that will do."""

    stage: str
    asked: str
    found: str
    passed: bool


@dataclass(frozen=True)
class Gates:
    """What has to hold at each stage."""

    data: DataGate = field(default_factory=DataGate)
    preparation: PreparationGate = field(default_factory=PreparationGate)
    training: TrainingGate = field(default_factory=TrainingGate)
    evaluation: EvaluationGate = field(default_factory=EvaluationGate)
    deployment: DeploymentGate = field(default_factory=DeploymentGate)
    monitoring: MonitoringGate = field(default_factory=MonitoringGate)

    def of_run(self, version: Version, production: Version | None) -> Iterator[Check]:
        """Whether what the run wrote is enough to make its model a candidate."""
        config, summary = version.config, version.summary
        missing = [name for name, kept in (("config.toml", config), ("summary.json", summary)) if not kept]
        if missing:
            yield Check("data", "the record of the run", f"no {' and no '.join(missing)}", False)
            return
        yield from self._of_data(summary, has_reference=version.reference is not None)
        yield from self._of_preparation(config["data"])
        yield from self._of_training(summary)
        yield from self._of_evaluation(summary, {} if production is None else production.summary)

    def _of_data(self, summary: Mapping[str, Any], *, has_reference: bool) -> Iterator[Check]:
        if self.data.names:
            yield _one_of("data", "data", self.data.names, str(summary["data"]))
        if self.data.parties:
            yield Check("data", f"at least {self.data.parties} parties", str(summary["parties"]),
                        int(summary["parties"]) >= self.data.parties)
        if self.data.warnings == "refuse":
            warned = list(summary["warnings"])
            yield Check("data", "a run that warned of nothing", "; ".join(warned) or "nothing", not warned)
        if self.data.reference:
            yield Check("data", "what rows were like in training", "kept" if has_reference else
                        "not kept: tequio models add NAME RUN --since FILE", has_reference)

    def _of_preparation(self, data: Mapping[str, Any]) -> Iterator[Check]:
        given = data.get("prepare", [])
        steps = [step if isinstance(step, str) else step["name"] for step in ([given] if isinstance(given, str)
                                                                               else given)]
        for step in self.preparation.steps:
            yield Check("preparation", f"the step '{step}'", ", ".join(steps) or "no steps", step in steps)
        if self.preparation.scope:
            scope = str(data.get("prepare_scope", ""))
            yield Check("preparation", f"steps fitted {self.preparation.scope}", scope, scope == self.preparation.scope)

    def _of_training(self, summary: Mapping[str, Any]) -> Iterator[Check]:
        if self.training.rounds:
            yield Check("training", f"at least {self.training.rounds} rounds", str(summary["rounds"]),
                        int(summary["rounds"]) >= self.training.rounds)
        if self.training.algorithms:
            yield _one_of("training", "algorithm", self.training.algorithms, str(summary["algorithm"]))
        if self.training.epsilon:
            spent = summary["metrics"].get("privacy.epsilon")
            yield Check("training", f"epsilon at most {self.training.epsilon:g}",
                        "not private" if spent is None else f"{spent:g}",
                        spent is not None and spent <= self.training.epsilon)

    def _of_evaluation(self, summary: Mapping[str, Any], production: Mapping[str, Any]) -> Iterator[Check]:
        for bound in self.evaluation.bounds:
            metric, sign, limit = parsed(bound)
            value = summary["metrics"].get(metric)
            yield Check("evaluation", bound, "not measured" if value is None else f"{value:.4g}",
                        value is not None and (value >= limit if sign == ">=" else value <= limit))
        for metric in self.evaluation.no_worse if production else ():
            sign = next(parsed(bound)[1] for bound in self.evaluation.bounds if parsed(bound)[0] == metric)
            new, old = (one["metrics"].get(metric) for one in (summary, production))
            alike = summary["data"] == production["data"]
            known = new is not None and old is not None and alike
            yield Check("evaluation", f"{metric} no worse than in production", f"{new:.4g} against {old:.4g}" if known
                        else "not measured in both" if alike else "other data than production's",
                        known and (new >= old if sign == ">=" else new <= old))

    def of_use(self, registry: ModelRegistry, version: Version) -> Iterator[Check]:
        """Whether a version may answer anybody."""
        if self.deployment.approvals:
            people = sorted({entry["who"] for entry in registry.audit.entries()
                             if entry["what"] == "approved" and entry["version"] == version.number})
            yield Check("deployment", f"approved by {self.deployment.approvals}", ", ".join(people) or "nobody",
                        len(people) >= self.deployment.approvals)
        if self.monitoring.days:
            yield from self._of_drift(registry, version)

    def _of_drift(self, registry: ModelRegistry, version: Version) -> Iterator[Check]:
        from tequio.models.drift import last_drift

        asked = f"rows compared within {self.monitoring.days:g} days"
        last = last_drift(registry, version.number)
        if last is None:
            yield Check("monitoring", asked, "never", False)
            return
        time, _, changes = last
        age = datetime.now(UTC) - datetime.fromisoformat(time)
        yield Check("monitoring", asked, time, age <= timedelta(days=self.monitoring.days))
        worst = max((one for one in changes if one.kind == "input"), key=lambda one: one.index, default=None)
        yield Check("monitoring", f"no column beyond {self.monitoring.largest:g}",
                    "no columns" if worst is None else f"{worst.name}: {worst.index:.3f}",
                    worst is not None and worst.index <= self.monitoring.largest)


_KINDS = {"data": DataGate, "preparation": PreparationGate, "training": TrainingGate, "evaluation": EvaluationGate,
          "deployment": DeploymentGate, "monitoring": MonitoringGate}
STAGES = tuple(_KINDS)


def read(text: str, place: str) -> Gates:
    """The gates that a file declares; unknown stages and keys, and bounds that say nothing, are refused."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ConfigError(f"'{place}' is no TOML: {cause}", remedy="write tables such as [evaluation]") from None
    for name, table in tables.items():
        if name not in _KINDS or not isinstance(table, dict):
            raise ConfigError(f"{place}: there is no stage '{name}'", remedy=nearest(name, STAGES))
    gates = Gates(**{name: kind(**validate(kind, tables.get(name, {}), f"{place}: [{name}]"))
                     for name, kind in _KINDS.items()})
    bounded = [parsed(bound)[0] for bound in gates.evaluation.bounds]
    for metric in gates.evaluation.no_worse:
        if metric not in bounded:
            raise ConfigError(f"{place}: [evaluation] 'no_worse' names '{metric}', of which no bound says whether more "
                              "is better", remedy=f"add it to bounds, such as '{metric}>=0'")
    return gates


def parsed(bound: str) -> tuple[str, str, float]:
    """A bound's metric, sign and limit."""
    found = _BOUND.fullmatch(bound.strip())
    if found is None:
        raise ConfigError(f"'{bound}' is no bound", remedy="write a metric of a run's summary, >= or <=, and a number: "
                                                           "'test.accuracy>=0.8'")
    return found[1], found[2], float(found[3])


def require(name: str, checks: Iterator[Check]) -> dict[str, str]:
    """What was found, by what was asked; a version that does not pass is refused, with all that it lacks."""
    done = list(checks)
    failed = [f"{one.stage}: {one.asked} (found: {one.found})" for one in done if not one.passed]
    if failed:
        raise RunError(f"the model '{name}' does not pass its gates: {'; '.join(failed)}",
                       remedy=f"do what is asked, or change the gates: tequio models require {name} FILE")
    return {f"{one.stage}: {one.asked}": one.found for one in done}


def _one_of(stage: str, what: str, names: tuple[str, ...], found: str) -> Check:
    return Check(stage, f"{what} among {', '.join(names)}", found, found in names)


def kept(path: Path) -> bytes | None:
    """The file of gates beside the versions, if there is one."""
    return path.read_bytes() if path.is_file() else None


def sealed(entries: list[dict[str, Any]]) -> str:
    """The hash of the gates as the log has them; empty where none were ever required."""
    return next((str(entry["facts"]["gates"]) for entry in reversed(entries) if entry["what"] == "gates"), "")


def as_json(checks: list[Check]) -> str:
    """For `--json`."""
    return json.dumps([vars(one) for one in checks])
