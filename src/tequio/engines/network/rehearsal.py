"""A rehearsal at a party: a run is tried out on made-up rows before anybody decides about it.

Who answers is a site of its own. Its rows are made up from the party's schema, its folder is deleted afterwards, and
nothing leads from it to the party's rows, states, approvals or secret randomness. The policy is the party's own; what a
run would spend of the privacy budget is counted in a copy of the ledger, as if all its rounds took place. Nothing that
was rehearsed counts for a real run: that is announced, judged and approved anew.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from shutil import copyfile, rmtree
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from tequio.data.dataset import Dataset, schema_from_json
from tequio.data.sharing import load_schema
from tequio.engines.network.files import create_private, private_folder
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.homes import SIGNING, PartyHome
from tequio.engines.network.site import REHEARSAL, Site
from tequio.engines.network.telemetry import Telemetry
from tequio.engines.network.wire import Declined, Ready, clipped
from tequio.errors import PayloadError, PermissionDenied, TequioError, crossing
from tequio.federation import payload as payloads
from tequio.gate.announcement import read_announcement
from tequio.gate.gate import judge_run
from tequio.privacy.dataset_ledger import DatasetLedger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Feature, Schema, Target
    from tequio.engines.network.journal import Record
    from tequio.engines.network.wire import TaskRequest, Waiting
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
    from tequio.gate.announcement import Announcement
    from tequio.gate.gate import Gate
    from tequio.gate.policy import Policy

MOST_ROUNDS, MOST_TASKS, MOST_AN_HOUR = 2, 500, 100
MOST_ROWS, MOST_VALUES = 5_000, 2_000_000
MOST_ROUNDS_PREDICTED = 10_000
_ROWS_IF_UNKNOWN = 1_000
_HOUR = 3600.0
_DAYS = 20_000
_ASKS_A_PERSON = ("a person at the party has to approve each run, and until then nothing is computed there, not even "
                  "on made-up rows")


@dataclass(frozen=True, eq=False)
class _Rehearsal:
    """One that goes on, and how many tasks it has done."""

    run: str
    site: Site
    tasks: list[str]


class RehearsingSite(Site):
    """A party's site that also rehearses, one run at a time."""

    _rehearsal: _Rehearsal | None = None
    _begun: tuple[float, ...] = ()

    def begin(self, run: str, announcement: bytes | memoryview) -> Ready | Waiting | Declined:
        """Judge a run. One that is only rehearsed never comes to the party's own rows, and ends what was rehearsed."""
        try:
            facts = payloads.decode(announcement)
        except PayloadError:
            facts = {}
        if REHEARSAL not in facts:
            self._forget(run)
            return super().begin(run, announcement)
        try:
            if self.knows(run) or self._home.run(run).exists():
                raise PermissionDenied("a run cannot be rehearsed under the name of one that takes place",
                                       remedy="choose another name")
            if self._rehearsed(run) is None:
                self._forget(None)
                self._refuse_too_many()
            return self._rehearse(run, facts)
        except (TequioError, KeyError, TypeError, ValueError) as cause:
            self._forget(None)
            self._telemetry.note("rehearsal declined", run=run[:80], cause=str(cause))
            return Declined(run, *map(clipped, crossing(cause)))
        finally:
            if self._rehearsal is None:
                _clear(self._home)

    def end(self, run: str) -> None:
        """A run is over, or its rehearsal."""
        self._forget(run)
        super().end(run)

    def run(self, request: TaskRequest, parts: list[bytes | memoryview]) -> Record:
        """Carry out a request: on made-up rows if it belongs to what is rehearsed."""
        rehearsal = self._rehearsed(request.run)
        if rehearsal is None:
            return super().run(request, parts)
        if request.round > MOST_ROUNDS or len(rehearsal.tasks) >= MOST_TASKS:
            raise PermissionDenied(f"a rehearsal has {MOST_ROUNDS} rounds and {MOST_TASKS} tasks at most")
        rehearsal.tasks.append(request.task)
        return rehearsal.site.run(request, parts)

    def explain(self, request: TaskRequest, cause: BaseException) -> tuple[str, str]:
        """Cause and remedy of a failure as the coordinator may know them."""
        rehearsal = self._rehearsed(request.run)
        return super().explain(request, cause) if rehearsal is None else rehearsal.site.explain(request, cause)

    def _rehearse(self, run: str, facts: Payload) -> Ready | Declined:
        told = read_announcement({key: value for key, value in facts.items() if key != REHEARSAL})
        judge_run(self.policy, told, self._authority, self._holding.rows)
        if self._holding.share:
            raise PermissionDenied("this party holds a share of a simulated dataset, which needs no rehearsal",
                                   remedy="try the run out with: tequio run FILE.toml")
        rounds = told.rounds
        if rounds > MOST_ROUNDS_PREDICTED:
            raise PermissionDenied(f"what {rounds} rounds cost is not predicted, only up to {MOST_ROUNDS_PREDICTED}")
        schema = schema_from_json(self._holding.schema)
        rows = made_up(schema, rehearsed_rows(schema, self.policy, self._holding.rows), _agreed_ranges(self._home))
        self._kept_split(told)
        going = self._rehearsed(run)  # it is announced again once the rows are prepared, or when a link breaks
        home = _home(self._home, new=going is None)
        if going is None and self.policy.budget is not None and (own := self._ledger_of_rows()).path.exists():
            copyfile(own.path, DatasetLedger(home.folder, _LEDGER).path)
        site = _Stand(home, OwnRows(self._holding.name, rows),
                      # The run was judged by the party's own number of rows above; a person is asked below.
                      structs.replace(self.policy, minimum_rows=0, split=None, approval="none"),
                      _Notes(self._telemetry), max(rounds, 1))
        said = site.begin(run, payloads.encode({key: value for key, value in facts.items() if key != REHEARSAL}))
        if not isinstance(said, Ready):
            self._forget(None)
            return Declined(run, said.cause, said.remedy if isinstance(said, Declined) else "")
        if going is None:
            self._telemetry.note("rehearsal accepted", run=run, algorithm=told.algorithm,
                                 made_up_rows=len(rows))
        if self.policy.approval != "none":
            return Ready(run, note=_ASKS_A_PERSON)
        self._rehearsal = _Rehearsal(run, site, [] if going is None else going.tasks)
        return Ready(run, rows=len(rows))

    def _rehearsed(self, run: str) -> _Rehearsal | None:
        rehearsal = self._rehearsal  # another thread may end it
        return rehearsal if rehearsal is not None and rehearsal.run == run else None

    def _forget(self, run: str | None) -> None:
        """End the rehearsal of that name, or any."""
        rehearsal = self._rehearsal if run is None else self._rehearsed(run)
        if rehearsal is not None:
            self._rehearsal = None
            _clear(self._home)
            self._telemetry.note("rehearsal over", run=rehearsal.run, tasks=len(rehearsal.tasks))

    def _refuse_too_many(self) -> None:
        now = time.monotonic()
        self._begun = (*(begun for begun in self._begun if now - begun < _HOUR), now)
        if len(self._begun) > MOST_AN_HOUR:
            raise PermissionDenied(f"this party has been asked for {MOST_AN_HOUR} rehearsals within an hour",
                                   remedy="wait for an hour")


class _Stand(Site):
    """A site on made-up rows. A release of the first round stands for one of each round."""

    def __init__(self, home: PartyHome, holding: OwnRows, policy: Policy, telemetry: Telemetry, rounds: int) -> None:
        super().__init__(home, holding, policy, telemetry)
        self._rounds = rounds

    def _gate(self, run: str, told: Announcement, population: Population) -> Gate:
        gate = super()._gate(run, told, population)
        gate.rounds = self._rounds
        return gate

    def _ledger_of_rows(self) -> DatasetLedger:
        """A copy of the party's own ledger, as it was when the rehearsal began."""
        return DatasetLedger(self._home.folder, _LEDGER)

    def _answered(self) -> dict[str, str]:
        """Beside that copy: made-up rows have no questions of their own."""
        return {**super()._answered(), "folder": str(self._home.folder)}


class _Notes(Telemetry):
    """Notes what a stand-in does as what it is: a rehearsal."""

    def __init__(self, party: Telemetry) -> None:
        super().__init__()
        self._party = party

    def note(self, event: str, **facts: object) -> None:
        """Something worth keeping."""
        self._party.note(f"rehearsal: {event}", **facts)

    def log(self, event: str, **facts: object) -> None:
        """A line for the operator."""
        self._party.log(f"rehearsal: {event}", **facts)


_FOLDER, _LEDGER = "rehearsal", "ledger"


def _home(own: PartyHome, *, new: bool) -> PartyHome:
    """The folder of a stand-in: it knows the coordinator and what was spent, signs by the party's key, and has secrets
    of its own."""
    if not new:
        return PartyHome(own.folder / _FOLDER)
    _clear(own)
    folder = private_folder(own.folder / _FOLDER)
    if (own.folder / "authority.pem").exists():
        copyfile(own.folder / "authority.pem", folder / "authority.pem")
    create_private(folder / SIGNING, own.signing_key)
    return PartyHome(folder)


def _clear(own: PartyHome) -> None:
    rmtree(own.folder / _FOLDER, ignore_errors=True)


def rehearsed_rows(schema: Schema, policy: Policy, rows: int) -> int:
    """How many rows are made up: as many as the party reports to the coordinator, within bounds."""
    reported = _ROWS_IF_UNKNOWN if policy.tell_rows == "no" else policy.told_rows(rows)
    return min(reported, MOST_ROWS, MOST_VALUES // max(len(schema.features), 1)) if rows else 0


def _agreed_ranges(home: PartyHome) -> Mapping[str, tuple[float, float]]:
    """The ranges in the schema file that the parties agreed on, if this one joined with it."""
    path = home.facts["data"].get("schema_path")
    return load_schema(path).ranges if path else {}


def made_up(schema: Schema, rows: int, ranges: Mapping[str, tuple[float, float]] | None = None) -> Dataset:
    """Rows that fit a schema and the agreed ranges, and come from nothing else; the same whenever they are made.

    They are numbered from 0, so that parties with other columns find the same rows.
    """
    draw, known = np.random.default_rng(rows), ranges or {}
    columns = [_column(feature, rows, known.get(feature.name), draw) for feature in schema.features]
    features = np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
    target = _target(schema.target, rows, known.get(schema.target.name), draw)
    return Dataset.of(schema, features.reshape(rows, *schema.shape), target, ids=np.arange(rows), name="made-up rows")


_Ends = tuple[float, float] | None


def _column(feature: Feature, rows: int, ends: _Ends, draw: np.random.Generator) -> NDArray[np.float64]:
    if feature.domain is not None:
        return draw.integers(max(len(feature.domain), 1), size=rows).astype(np.float64)
    if ends is not None:
        return draw.uniform(*ends, size=rows)
    if feature.kind == "date":
        return draw.integers(_DAYS, size=rows).astype(np.float64)
    if feature.kind == "text":
        return draw.poisson(0.3, size=rows).astype(np.float64)
    if feature.kind == "flag":
        return draw.integers(2, size=rows).astype(np.float64)
    return draw.normal(size=rows)


def _target(target: Target, rows: int, ends: _Ends, draw: np.random.Generator) -> Array | None:
    if target.kind == "none":
        return None
    if target.kind == "number":
        return draw.normal(size=rows) if ends is None else draw.uniform(*ends, size=rows)
    if target.kind == "multilabel":
        return draw.integers(2, size=(rows, target.size))
    return np.arange(rows) % target.size
