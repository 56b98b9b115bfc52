"""The parties and their rows: how a dataset lies with its parties, and a party as a task sees it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np

from tequio.data.dataset import Dataset, Source
from tequio.data.partition import Partition, Split, split_rows, strata
from tequio.errors import DataError, PermissionDenied
from tequio.federation.rng import Streams, stream
from tequio.noise.coins import Coins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.federation.payload import Payload


RESERVED_NAMES = ("coordinator", "server", "aggregator")
LEAST_BATCH = "least_batch"
"""The setting by which a party's owner says on how many rows each step of its training rests at least."""

LEAST_COHORT = "least_cohort"
"""The setting by which a party's owner says of how many parties a sum is made at least."""

SMALL_CELLS = "small_cells"
"""The setting by which a party's owner says what is too few rows for an exact statistic."""

STEADY_TRAINING, STEADY_EVALUATION = "steady_training", "steady_evaluation"
"""The settings by which neither fails at a number that is not finite, as this would say that some row has led to it."""

_REMEMBERED_VIEWS = 2048


M = TypeVar("M")
"""A typed record of a party's private state."""


@dataclass(frozen=True)
class PartyData:
    """One party's own rows, split for training, validation and testing."""

    train: Dataset
    validation: Dataset
    test: Dataset

    def part(self, name: Literal["train", "validation", "test"]) -> Dataset:
        """The rows of one part by its name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]


@dataclass(frozen=True)
class Roster:
    """Who takes part in a run, for what parties sign: the hash of what all were announced, how many there are, and the
    public key of each.

    At a party `own` is its private key, and `folder` is where it writes down what only moves forward. Where parties
    hold different columns, `holders` are those that hold rows. In a simulation there are no keys: they follow from the
    hash.
    """

    agreed: bytes
    parties: int
    keys: tuple[bytes, ...] = ()
    own: bytes = field(default=b"", repr=False)
    folder: str = ""
    holders: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Population:
    """Who the parties are and what each holds. `overrides` are per-party settings (its own hyper-parameters), `pinned`
    is the roster of parties that are not simulated, `split_seed` what the split follows from where that is not the
    seed. Those that are `left_out` keep their numbers, hold no row and are never asked."""

    dataset: Dataset
    partition: Partition
    split: Split = field(default_factory=Split)
    seed: int = 0
    overrides: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    _views: OrderedDict[int, PartyData] = field(default_factory=OrderedDict, repr=False)
    pinned: Roster | None = None
    split_seed: int | None = None
    left_out: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in RESERVED_NAMES:
            if self.partition.names and name in self.partition.names:
                raise DataError(f"a party may not be called '{name}': the name is reserved", remedy="rename the party")

    def __len__(self) -> int:
        return len(self.partition)

    @property
    def schema(self) -> Schema:
        """Schema of the whole data."""
        return self.dataset.schema

    @property
    def roster(self) -> Roster:
        """Who takes part: as announced, or simulated by the seed."""
        return self.pinned or _simulated(self.seed, len(self), self.partition.holders)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows each party holds, before its own split."""
        return self.partition.sizes

    def name(self, party: int) -> str:
        """What the party is called."""
        return self.partition.name(party)

    def index(self, name: str) -> int:
        """The number of the party with that name."""
        if self.partition.names is not None:
            if name in self.partition.names:
                return self.partition.names.index(name)
        elif name.isdigit() and int(name) < len(self):
            return int(name)
        raise DataError(f"there is no party called '{name}'", remedy=f"there are {len(self)} parties")

    def view(self, party: int) -> PartyData:
        """One party's data, split by its own stream; recently used views are remembered."""
        known = self._views.get(party)
        if known is None:
            known = self._views[party] = self._split(party)
            if len(self._views) > _REMEMBERED_VIEWS:
                self._views.popitem(last=False)
        return known

    def whole(self, party: int) -> Dataset:
        """One party's rows before its split."""
        return self.partition.view(self.dataset, party)

    def _split(self, party: int) -> PartyData:
        mine, seed = self.whole(party), self.seed if self.split_seed is None else self.split_seed
        if not self.split.validation and not self.split.test:
            nothing = mine.take(np.empty(0, dtype=np.int64))
            return PartyData(mine, nothing, nothing)
        if self.partition.columns is not None:
            parts = self._split_by_row(self.partition.party_rows(party), seed)
        else:
            labels = strata(mine).codes if self.split.stratify and mine.schema.target.kind != "none" else None
            parts = split_rows(len(mine), self.split, stream(seed, "split", party=party), labels)
        return PartyData(*(mine.take(rows) for rows in parts))

    def _split_by_row(self, rows: NDArray[np.integer[Any]], seed: int) -> tuple[NDArray[np.int64], ...]:
        """Parties that hold different columns of one row put it into the same part."""
        luck = stream(seed, "split").random(len(self.dataset))[rows]
        test = luck < self.split.test
        validation = ~test & (luck < self.split.test + self.split.validation)
        return tuple(np.flatnonzero(part) for part in (~test & ~validation, validation, test))


def alone(dataset: Dataset, party: int, name: str, split: Split, seed: int,
          overrides: Mapping[str, Any]) -> Population:
    """A population as one real party knows it: all rows are its own, and others are there in number only."""
    offsets = np.zeros(party + 2, dtype=np.int64)
    offsets[-1] = len(dataset)
    names = (*map(str, range(party)), name)
    return Population(dataset, Partition(np.arange(len(dataset)), offsets, names), split, seed, {party: overrides})


def elsewhere(schema: Schema, names: Sequence[str], sizes: Sequence[int], split: Split, seed: int,
              overrides: Mapping[int, Mapping[str, Any]], **columns: Any) -> Population:
    """A population as the coordinator knows it: who there is and how much they hold, and not one row.

    `columns` are what a `Partition` is told of parties with different columns.
    """
    offsets = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])
    rows, kind = int(offsets[-1]), schema.target.kind
    target = np.broadcast_to(np.int64(0), (rows, schema.target.size) if kind == "multilabel" else (rows,))
    source = Source(_Absent((rows, *schema.shape)), None if kind == "none" else target)
    partition = Partition(np.arange(rows), offsets, tuple(names), **columns)
    return Population(Dataset(schema, source, name="parties"), partition, split, seed, overrides)


@lru_cache(maxsize=8)
def _simulated(seed: int, parties: int, holders: tuple[int, ...]) -> Roster:
    return Roster(sha256(f"simulated|{seed}|{parties}".encode()).digest(), parties, holders=holders)


class _Absent:
    """Features of rows that can be counted but are not here."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __getitem__(self, rows: Any) -> Any:
        raise PermissionDenied("these rows are with their parties", remedy="write a task and ask the parties to run it")


class Party:
    """One holder of data. Exists only while a task runs there: afterwards its data can no longer be reached.

    `state` is private and outlives the round: put arrays and plain values in it by name, and replace them rather than
    changing them in place, so that a failing task leaves the state as it was.
    """

    __slots__ = ("_population", "_pretended", "_streams", "index", "round", "state")

    def __init__(self, index: int, round: int, state: Payload, population: Population,
                 streams: Streams | None = None) -> None:
        self.index = index
        self.round = round
        self.state = state
        self._population: Population | None = population
        self._pretended: PartyData | None = None
        self._streams = streams or Streams(population.seed, round, (index,))

    @property
    def name(self) -> str:
        """What the party is called."""
        return self._home().name(self.index)

    @property
    def data(self) -> PartyData:
        """Its own rows, or those that it pretends to have."""
        own = self._home().view(self.index)
        return own if self._pretended is None else self._pretended

    @property
    def own(self) -> PartyData:
        """Its own rows, whatever it pretends to have."""
        return self._home().view(self.index)

    @property
    def rows(self) -> Dataset:
        """All its own rows in their own order, whatever part the split puts them in."""
        return self._home().whole(self.index)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns as the federation knows them, those that others hold included."""
        return self._home().schema.names

    @property
    def roster(self) -> Roster:
        """Who takes part in the run, and by which key each signs."""
        return self._home().roster

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of this party only, such as its own learning rate."""
        return self._home().overrides.get(self.index, {})

    def recall(self, kind: type[M]) -> M:
        """What the party keeps privately under a typed record; empty where it has kept nothing yet."""
        return cast("M", self.state.get(state_name(kind), {}))

    def keep(self, kind: type[M], values: M) -> None:
        """Keep values privately under a typed record, beside those that it keeps there already."""
        self.state[state_name(kind)] = {**self.state.get(state_name(kind), {}), **values}  # type: ignore[dict-item]

    def forget(self, kind: type[M]) -> None:
        """Drop a typed record, if the party keeps one."""
        self.state.pop(state_name(kind), None)

    def rng(self, purpose: str) -> np.random.Generator:
        """This party's random stream for a purpose in this round."""
        self._home()
        return self._streams.of(purpose, self.index)

    def coins(self, purpose: str, *, lasting: bool = False) -> Coins:
        """This party's coins for a purpose in this task, or in all of them: for what no one else may guess.

        Those of a task follow from the seed that the party wants for it, which no other request has.
        """
        return Coins.derived(self._home().seed, purpose, 0, self.index) if lasting else \
            Coins.derived(self._streams.seed, purpose, self.round, self.index)

    def pretend(self, data: PartyData) -> None:
        """Use other rows than its own while this task runs, as a hostile party may."""
        self._pretended = data

    def leave(self) -> None:
        """End of the task: nobody can reach the data through this object any more."""
        self._population = self._pretended = None

    def _home(self) -> Population:
        if self._population is None:
            raise PermissionDenied(f"party {self.index} can only be reached from a task that runs there",
                                   remedy="write a task and ask the party to run it")
        return self._population


def state_name(kind: type) -> str:
    """The name under which a typed record lies in a party's state."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
