"""What a party brings to a run: rows of its own, prepared together with the rows of the others.

Parties fit a preparation step on their training rows, and the coordinator merges what they found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict

from tequio.data.dataset import Target, schema_from_json, schema_to_json
from tequio.data.partition import Split
from tequio.data.preprocessing import Statistics, preparations
from tequio.errors import ConfigError, PartyError, PermissionDenied
from tequio.federation.exchange import Order
from tequio.federation.population import alone
from tequio.federation.task import Reveals, record, task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.exchange import Engine
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party, Population


class Holding(Protocol):
    """A party's data."""

    @property
    def name(self) -> str:
        """What the party is called."""
        ...

    @property
    def share(self) -> str:
        """Which simulated share it is; empty for data of the party's own."""
        ...

    @property
    def rows(self) -> int:
        """How many rows there are."""
        ...

    @property
    def schema(self) -> str:
        """What the columns and the target mean, as JSON."""
        ...

    def population(self, facts: Payload) -> Population:
        """The party in a run, with the number that it has there."""
        ...


@dataclass(frozen=True, eq=False)
class OwnRows:
    """A table of the party's own. `notes` say what its columns were taken for."""

    name: str
    dataset: Dataset
    share: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.dataset)

    @property
    def schema(self) -> str:
        """The table's schema."""
        return schema_to_json(self.dataset.schema)

    def population(self, facts: Payload) -> Population:
        """The party's rows after the run's preparation, if there is one."""
        wanted = schema_from_json(facts["schema"])
        if not (self._is_part_of(wanted, facts["columns"]) if "columns" in facts else wanted == self.dataset.schema):
            raise ConfigError("the run is about other columns, categories or classes than this party's table has",
                            remedy="agree on one schema file and join with --schema")
        dataset, preparation = self.dataset, facts.get("preparation", {})
        for step, statistics in zip(preparations(preparation.get("steps", [])), preparation.get("statistics", []),
                                    strict=False):
            dataset = step.apply(dataset, statistics)
        return alone(dataset, facts["index"], self.name, Split(**facts["split"]), facts["seed"], facts["overrides"])

    def _is_part_of(self, whole: Schema, columns: Sequence[str]) -> bool:
        """Whether a run over columns of several parties takes this party's for what they are."""
        own, known = self.dataset.schema, {feature.name: feature for feature in whole.features}
        return (tuple(known.get(name) for name in columns) == own.features
                and own.target in (whole.target, Target("none")))


@dataclass(frozen=True, eq=False)
class Question:
    """New rows that a party brings to a trained model, its part of the model, and what it does for an answer.

    It does no task but `tasks`, and none that comes with a field that is `unwanted`: rows that others make up would
    show what its part of the model is. `done` is told of each task, and of the state after it.
    """

    holding: Holding
    part: Payload
    tasks: frozenset[str]
    unwanted: frozenset[str]
    done: Callable[[str, Payload, Dataset], None]

    def judge(self, task: str, payload: Payload) -> None:
        """Refuse what no prediction needs, and what the party's owner has not agreed to."""
        if task not in self.tasks:
            raise PermissionDenied(f"this party's owner has not agreed to the task '{task}' on its new rows",
                                   remedy="the label holder says who is told predictions besides itself: tequio party "
                                          "bring RUN --data FILE --tell NAME")
        if strange := self.unwanted & payload.keys():
            raise PermissionDenied(f"a question about this party's own rows does not come with '{min(strange)}'",
                                   remedy="ask about the rows that the parties have brought")


class Questions(Protocol):
    """The new rows that a party has brought."""

    def about(self, run: str, facts: Payload, state: Payload) -> Question:
        """Those for the model of a run, of which the party keeps `state`; a refusal where it brought none."""
        ...


@record
class PreparationSettings:
    """The steps so far, as the config lists them: names, or tables of a name and parameters."""

    steps: tuple[str | dict[str, object], ...]


class FittedStep(TypedDict):
    """What a step found in one party's training rows."""

    statistics: Statistics


@task("fit preparation", settings=PreparationSettings, reply=FittedStep, reveals=Reveals.STRUCTURE)
def fit_preparation(party: Party, payload: Payload, settings: PreparationSettings) -> FittedStep:
    """The statistics of the last step on this party's training rows, after the steps before it."""
    *before, last = preparations(settings.steps)
    rows = party.data.train
    for step, statistics in zip(before, payload["statistics"], strict=True):
        rows = step.apply(rows, statistics)
    return {"statistics": last.fit(rows)}


def fit_everywhere(engine: Engine, names: Sequence[str],
                   steps: Sequence[str | dict[str, object]]) -> list[Statistics]:
    """The merged statistics of each step over the training rows of all parties: those of the pooled rows."""
    found: list[Statistics] = []
    for ticket, step in enumerate(preparations(steps), 1):
        if not step.looks_at_rows():
            found.append({})
            continue
        engine.submit(Order(ticket, fit_preparation.name, tuple(range(len(names))), 0, {"statistics": list(found)},
                            fit_preparation.encode(PreparationSettings(steps=tuple(steps[:ticket])))))
        outcome = engine.collect()
        for failure in outcome.failures:
            name = names[failure.party]
            raise PartyError(f"party '{name}' could not prepare its rows: {failure.cause}", party=name, round=0,
                             task=fit_preparation.name, cause=failure.cause, remedy=failure.remedy)
        found.append(step.merge([reply.payload["statistics"] for reply in outcome.replies]))
    return found
