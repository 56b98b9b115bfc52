"""Models in use: a folder a model, with numbered versions of which one is in production and one may be a candidate.

    models/NAME/versions/0001/   model file, the run's config and summary, schema.json
    models/NAME/state.json       which version is what, how the ids are split, and what happened when

A version never changes. Which one answers an id follows from a hash of the id, so the same id gets the same answer
everywhere and tomorrow.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from tequio.data.dataset import load_schema, save_schema
from tequio.errors import ConfigError, RunError
from tequio.experiments.running import store
from tequio.experiments.running.results import ARRAYS, PLAIN, Result
from tequio.experiments.running.scenario import make_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.data.dataset import Schema
    from tequio.experiments.running.store import Plain


_STATE, _SEAL = "state.json", "sha256.json"
_KEPT = (ARRAYS, PLAIN, store.CONFIG, store.SUMMARY)


@dataclass(frozen=True)
class Version:
    """One version of a model."""

    folder: Path

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return int(self.folder.name)

    @property
    def summary(self) -> Plain:
        """What the run that made it said."""
        return Result(self.folder).summary

    @property
    def schema(self) -> Schema:
        """What rows it is for."""
        return load_schema(self.folder / store.SCHEMA)

    def check(self) -> None:
        """Refuse files that are not, bit for bit, those that were added."""
        sealed = json.loads((self.folder / _SEAL).read_bytes())
        for name, told in sealed.items():
            if not (self.folder / name).exists() or _hash(self.folder / name) != told:
                raise RunError(f"'{self.folder / name}' is not what was added to the registry",
                               remedy="it was damaged or changed: copy the version again")


@dataclass(frozen=True)
class ModelRegistry:
    """The versions of one model, by name."""

    parent: Path
    name: str

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.parent / store.safe_name(self.name)

    @property
    def state(self) -> Plain:
        """Production and candidate (0: none), the candidate's share of ids, and the history."""
        path = self.folder / _STATE
        if not path.exists():
            raise ConfigError(f"there is no model '{self.name}' in '{self.parent}'",
                              remedy="add a run to it: tequio models add NAME RUN")
        found: Plain = json.loads(path.read_bytes())
        return found

    def version(self, number: int) -> Version:
        """One of them."""
        folder = self.folder / "versions" / f"{number:04d}"
        if not folder.is_dir():
            raise ConfigError(f"the model '{self.name}' has no version {number}", remedy="see: tequio models list")
        return Version(folder)

    def add(self, run: Result) -> Version:
        """Make a finished run's model the candidate."""
        _ = run.summary  # an unfinished run is refused here
        numbers = [int(path.name) for path in (self.folder / "versions").glob("[0-9]*")]
        number = max(numbers, default=0) + 1
        target = self.folder / "versions" / f"{number:04d}"
        with store.explained(target):
            partial = target.with_name(f".{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for name in _KEPT:
                if (run.folder / name).exists():
                    shutil.copy2(run.folder / name, partial / name)
            save_schema(_schema_of(run), partial / store.SCHEMA)
            sealed = {path.name: _hash(path) for path in sorted(partial.iterdir())}
            store.write_json(partial / _SEAL, sealed)
            partial.rename(target)
        state = self.state if (self.folder / _STATE).exists() else \
            {"production": 0, "candidate": 0, "share": 0.0, "history": []}
        self._write({**state, "candidate": number, "share": 0.0}, "candidate", number)
        return self.version(number)

    def split(self, share: float) -> None:
        """Let the candidate answer this share of the ids."""
        state = self.state
        if not state["candidate"] or not state["production"]:
            raise ConfigError(f"the model '{self.name}' has no candidate beside one in production",
                              remedy="add a run, and promote one first")
        if not 0 <= share <= 1:
            raise ConfigError(f"a share is between 0 and 1, not {share:g}", remedy="such as 0.1 for every tenth id")
        self._write({**state, "share": share}, f"split {share:g}", state["candidate"])

    def promote(self) -> Version:
        """Put the candidate into production."""
        state = self.state
        if not state["candidate"]:
            raise ConfigError(f"the model '{self.name}' has no candidate", remedy="add a run: tequio models add")
        self.version(state["candidate"]).check()
        self._write({**state, "production": state["candidate"], "candidate": 0, "share": 0.0}, "production",
                    state["candidate"])
        return self.version(state["candidate"])

    def roll_back(self) -> Version:
        """Put the version that was in production before this one back."""
        state = self.state
        before = [entry["version"] for entry in state["history"] if entry["what"] in ("production", "rolled back")]
        earlier = [number for number in before if number != state["production"]]
        if not earlier:
            raise ConfigError(f"the model '{self.name}' had no other version in production", remedy="promote one")
        self.version(earlier[-1]).check()
        self._write({**state, "production": earlier[-1], "share": 0.0}, "rolled back", earlier[-1])
        return self.version(earlier[-1])

    def route(self, id: str) -> Version:
        """The version that answers this id: the candidate for its share of them, else the one in production."""
        state = self.state
        if not state["production"]:
            raise ConfigError(f"the model '{self.name}' has no version in production", remedy="promote one")
        draw = int.from_bytes(sha256(f"{self.name}\0{state['candidate']}\0{id}".encode()).digest()[:8], "big") / 2**64
        return self.version(state["candidate"] if draw < state["share"] else state["production"])

    def _write(self, state: Plain, what: str, version: int) -> None:
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"time": moment, "what": what, "version": version}
        store.write_json(self.folder / _STATE, {**state, "history": [*state["history"], entry]})


def registries(parent: Path) -> list[ModelRegistry]:
    """All models of a folder."""
    return [ModelRegistry(parent, path.parent.name) for path in sorted(parent.glob(f"*/{_STATE}"))]


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _schema_of(run: Result) -> Schema:
    """What rows the model is for: as real parties told it, or as the simulated ones have it."""
    told = run.folder / store.SCHEMA
    return load_schema(told) if told.exists() else make_scenario(run.config).population.schema
