"""What a party is told of a run: typed, bounded, and known by its hash.

A person approves the hash of everything that decides what will be done with the rows, noise included: a run that learns
only from its parties how much noise its budget asks for asks again once it knows. What a preparation found and what
else is filled in later is held against what the party knows itself when it arrives.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from tequio.errors import PermissionDenied
from tequio.privacy.updates import JOINT
from tequio.registry import COMPONENT_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.federation.payload import Payload

MOST_PARTIES = 1 << 20
MOST_ROUNDS = 1_000_000
_LARGEST_WORK = 1 << 20
_NAMES_IN_FULL = 1_000

Name = Annotated[str, Meta(max_length=200)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Table = dict[Name, Any]


class AnnouncedSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which shares of its rows a party is asked to keep back."""

    validation: Share
    test: Share
    stratify: bool

    def __post_init__(self) -> None:
        if not self.validation + self.test < 1:
            raise ValueError("the shares of validation and test rows leave none to train on")


class AnnouncedSteps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The steps that rows go through, with what all parties together found in theirs."""

    steps: Annotated[list[Any], Meta(max_length=100)] = []
    statistics: Annotated[list[Table], Meta(max_length=100)] = []

    def __post_init__(self) -> None:
        if not all(isinstance(step, str | dict) for step in self.steps):
            raise ValueError("a step is a name, or a table with a name")


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run as it is announced to one party.

    `work` are the tables of its config that decide what is done with rows, `components` all components that tasks may
    come with, `stages` those of updates. `index` and `overrides` are this party's own. `predicts` and `tell` belong to
    a question to a trained model, `columns` to parties that hold different columns of the same rows. `keys` are those
    by which parties sign, in the order of the roster, where they check each other. `holders` are the parties with rows,
    where they hold different columns.
    """

    name: Name
    algorithm: Name
    rounds: Annotated[int, Meta(ge=0, le=MOST_ROUNDS)]
    index: Annotated[int, Meta(ge=0, lt=MOST_PARTIES)]
    parties: Annotated[int, Meta(ge=1, le=MOST_PARTIES)]
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    split: AnnouncedSplit
    overrides: Table = {}
    learner: Table = {}
    stages: Annotated[list[Table], Meta(max_length=50)] = []
    components: Annotated[list[Table], Meta(max_length=200)] = []
    work: Table = {}
    roster: Annotated[list[Name], Meta(max_length=_NAMES_IN_FULL)] | Name = []
    schema: Annotated[str, Meta(max_length=1 << 24)] = ""
    share: Name = ""
    columns: Annotated[list[Name], Meta(max_length=100_000)] | None = None
    preparation: AnnouncedSteps = AnnouncedSteps()
    predicts: Name = ""
    tell: Name = ""
    keys: Annotated[list[Annotated[bytes, Meta(max_length=64)]], Meta(max_length=MOST_PARTIES)] = []
    holders: Annotated[list[Annotated[int, Meta(ge=0, lt=MOST_PARTIES)]], Meta(max_length=_NAMES_IN_FULL)] = []

    def __post_init__(self) -> None:
        if self.index >= self.parties:
            raise ValueError(f"party number {self.index} of {self.parties} parties")
        for component in self.components:
            place = component.get(COMPONENT_KEY)
            if not (isinstance(place, list) and len(place) == 2 and all(isinstance(part, str) for part in place)
                    and isinstance(component.get("parameters"), dict)):
                raise ValueError("a component has a kind, a name and parameters")
        if self.keys and not len(self.keys) == len(set(self.keys)) == self.parties:
            raise ValueError("its roster does not have one key of each party")
        if shadowed := self._own.keys() & self.work.keys() - {"algorithm"}:
            raise ValueError(f"its work says '{min(shadowed)}' again")
        algorithm = self.work.get("algorithm", {"name": self.algorithm})
        if not isinstance(algorithm, dict) or algorithm.get("name") != self.algorithm:
            raise ValueError(f"its work names another algorithm than '{self.algorithm}'")

    @property
    def _own(self) -> Payload:
        keys: Payload = {"keys": sha256(b"".join(self.keys)).hexdigest()} if self.keys else {}
        keys |= {"holders": self.holders} if self.holders else {}
        return {"name": self.name, "algorithm": self.algorithm, "rounds": self.rounds, "parties": self.parties,
                "roster": self.roster, **keys, "seed": self.seed, "split": msgspec.structs.asdict(self.split),
                "overrides": self.overrides, "learner": self.learner, "stages": self.stages,
                "steps": self.preparation.steps, "columns": self.columns,
                "components": [_without_what_comes_later(component) for component in self.components],
                "schema": sha256(self.schema.encode()).hexdigest() if self.schema else self.share}

    @property
    def asked(self) -> Payload:
        """All that a person approves, as plain data."""
        return {**self._own, **self.work}

    @property
    def hash(self) -> str:
        """The hash of what a person approves."""
        return hash_of(self.asked)

    @property
    def agreed(self) -> bytes:
        """The hash of what all parties of the run are announced alike."""
        return bytes.fromhex(hash_of({**self.asked, "overrides": {}, "columns": None}))

    @property
    def signed(self) -> bool:
        """Whether a stage of the run lets parties check each other's signatures."""
        return any(component[COMPONENT_KEY][0] == "stage" and component[COMPONENT_KEY][1] in JOINT
                   for component in self.components)


FILLED_IN = frozenset({"expected", "arrays", "moves", "grid"})
"""Parameters of stages that a run fills in once it knows its parties."""


def _without_what_comes_later(component: Table) -> Payload:
    kind, name = component[COMPONENT_KEY]
    later = FILLED_IN if kind == "stage" else frozenset[str]()
    return {"kind": kind, "name": name, **{key: value for key, value in component["parameters"].items()
                                           if key not in later}}


def hash_of(asked: Mapping[str, object]) -> str:
    """The hash of an announcement's content, whatever the order of its keys."""
    return sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_announcement(facts: Mapping[str, Any]) -> Announcement:
    """A checked announcement from what arrived."""
    try:
        statistics = facts.get("preparation", {}).get("statistics", []) if isinstance(facts.get("preparation", {}),
                                                                                      dict) else []
        found = msgspec.convert(dict(facts), Announcement)
        if len(json.dumps(found.asked)) > _LARGEST_WORK:
            raise ValueError("what it asks for is longer than a megabyte")
        if len(statistics) > len(found.preparation.steps):
            raise ValueError("there are more statistics than steps")
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError, RecursionError) as cause:
        raise PermissionDenied(f"the run was announced badly: {cause}",
                               remedy="let the coordinator run a version of tequio that this party knows") from None
    return found


def roster_of(names: Sequence[str]) -> list[str] | str:
    """Who takes part: by name, or by a hash of the names where there are many."""
    return list(names) if len(names) <= _NAMES_IN_FULL else sha256("\n".join(names).encode()).hexdigest()
