"""Models in use: a folder per model, with numbered versions of which one is in production and one may be a candidate.

    models/NAME/versions/0001/       a model folder, as every run ends with; run/ holds the config and summary of the
                                     run, and what its rows were like: counts in bins per column
    models/NAME/audit.jsonl          what was done when, and how things stand since
    models/NAME/gates.toml           what has to hold before a version goes on, if anything was required
    models/NAME/answers.jsonl        what was answered, if `tequio serve` writes it here
    models/NAME/outcomes/0001.jsonl  answers with what really happened, a file per time that outcomes were added

A version never changes. Which one answers an id follows from a hash of the id, so the same id gets the same answer
everywhere and tomorrow.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.engines.network.files import is_plain_name
from tequio.errors import ConfigError, RunError
from tequio.models import answers_log, audit, publishing
from tequio.models import folder as model_folder
from tequio.models import gates as gating
from tequio.models.audit import Audit, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tequio.data.dataset import Schema
    from tequio.models.audit import Entry
    from tequio.models.model import Model

ORIGIN, KEPT = "run", ("config.toml", "summary.json", "reference.json")
_NOTHING: Entry = {"production": 0, "candidate": 0, "share": 0.0, "trial": None}


@dataclass(frozen=True)
class Version:
    """One version of a model: a model folder with a number for a name."""

    folder: Path

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return int(self.folder.name)

    @cached_property
    def sha256(self) -> str:
        """The hash over the model, by which answers name their version."""
        return str(json.loads((self.folder / model_folder.FILE).read_bytes())["sha256"])

    @property
    def summary(self) -> dict[str, Any]:
        """What the run that made it said; empty where it is not known."""
        path = self.folder / ORIGIN / KEPT[1]
        return dict(json.loads(path.read_bytes())) if path.is_file() else {}

    @property
    def config(self) -> dict[str, Any]:
        """The config of the run that made it; empty where it is not known."""
        path = self.folder / ORIGIN / KEPT[0]
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @property
    def reference(self) -> bytes | None:
        """What rows and scores were like when it was trained, as `tequio.models.drift` reads it, if that is known."""
        path = self.folder / ORIGIN / KEPT[2]
        return path.read_bytes() if path.is_file() else None

    @property
    def schema(self) -> Schema:
        """What rows it is for."""
        return self.load().reading.schema

    def load(self) -> Model:
        """The model, to be asked about rows."""
        return model_folder.load(self.folder)

    def check(self) -> None:
        """Refuse files that are not, bit for bit, those that the run wrote."""
        model_folder.read_document(model_folder.find(self.folder))


@dataclass(frozen=True)
class ModelRegistry:
    """The versions of one model, by name."""

    parent: Path
    name: str

    def __post_init__(self) -> None:
        if not is_plain_name(self.name):
            raise ConfigError(f"a model cannot be called {self.name[:80]!r}",
                              remedy="use letters, digits, dots, dashes and underscores, and begin with a letter")

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.parent / self.name

    @property
    def audit(self) -> Audit:
        """What was done, step by step."""
        return Audit(self.folder / audit.FILE)

    @property
    def answers(self) -> Path:
        """Where answers are logged, unless another file is named."""
        return self.folder / answers_log.FILE

    @property
    def state(self) -> Entry:
        """Production and candidate (0: none), the candidate's share of ids, and the rule of its trial."""
        found = self.audit.state()
        if found is None:
            raise ConfigError(f"there is no model '{self.name}' in '{self.parent}'",
                              remedy="add a run to it: tequio models add NAME RUN")
        return found

    @property
    def gates(self) -> gating.Gates:
        """What has to hold at each stage; nothing where nothing was required."""
        path = self.folder / gating.FILE
        content = gating.kept(path)
        if ("" if content is None else sha256(content).hexdigest()) != gating.sealed(self.audit.entries()):
            raise RunError(f"'{path}' is not the file that was required",
                           remedy=f"require it, which the log then says: tequio models require {self.name} FILE")
        return gating.Gates() if content is None else gating.read(content.decode(), str(path))

    def require(self, content: bytes) -> gating.Gates:
        """Let versions go on from now on only where these gates let them."""
        found = gating.read(content.decode(), gating.FILE)
        with locked(self.folder):
            state = self.audit.state() or _NOTHING
            if state["share"]:
                raise ConfigError(f"version {state['candidate']} is on trial, by the gates as they were",
                                  remedy=f"end its trial first: tequio models split {self.name} 0")
            (self.folder / gating.FILE).write_bytes(content)
            self.audit.add("gates", state, version=0, facts={"gates": sha256(content).hexdigest()})
        return found

    def approve(self, why: str) -> int:
        """Note that this user has looked at the candidate and lets it answer; its number."""
        with locked(self.folder):
            state = self.state
            if not state["candidate"]:
                raise ConfigError(f"the model '{self.name}' has no candidate",
                                  remedy=f"add a run: tequio models add {self.name} RUN")
            self.check(state["candidate"])
            self.audit.add("approved", state, version=state["candidate"], why=why)
            return int(state["candidate"])

    def require_use(self, number: int) -> None:
        """Refuse to let a version answer that is flagged, or does not pass the gates of its use."""
        version = self.version(number)
        self.refuse_flagged(number)
        gating.require(self.name, self.gates.of_use(self, version))

    def flag(self, sha256: str, why: str) -> list[Version]:
        """Mark the versions that are this model, so that none of them is put into use any more."""
        with locked(self.folder):
            found = [version for version in self.versions() if version.sha256 == sha256]
            for version in found:
                self.audit.add("flagged", self.state, version=version.number, why=why)
        return found

    def flags(self) -> dict[int, str]:
        """Versions that are not to be used any more, and why."""
        return {entry["version"]: entry["why"] for entry in self.audit.entries() if entry["what"] == "flagged"}

    def refuse_flagged(self, number: int) -> None:
        """Refuse to put a version into use that was flagged."""
        if number in self.flags():
            raise ConfigError(f"version {number} of '{self.name}' is flagged: {self.flags()[number]}",
                              remedy=f"add the run without it: tequio models add {self.name} RUN")

    def _require_trial(self) -> None:
        """Refuse to decide by hand where outcomes have to decide."""
        if self.gates.deployment.trial:
            raise RunError(f"the model '{self.name}' does not pass its gates: deployment: a trial (found: set by hand)",
                           remedy=f"let its outcomes decide: tequio models promote {self.name} --if-better")

    def versions(self) -> list[Version]:
        """All that were added, the oldest first."""
        added = {entry["version"] for entry in self.audit.entries() if entry["what"] == "added"}
        return [Version(path) for path in self._folders() if int(path.name) in added]

    def strays(self) -> list[Path]:
        """Folders of versions that the log knows nothing of: adding them broke off, or the end of the log is gone."""
        known = [version.folder for version in self.versions()]
        return [path for path in self._folders() if path not in known]

    def version(self, number: int) -> Version:
        """One of them."""
        folder = self.folder / "versions" / f"{number:04d}"
        if not folder.is_dir():
            known = ", ".join(str(one.number) for one in self.versions())
            raise ConfigError(f"the model '{self.name}' has no version {number}", remedy=f"there is: {known or 'none'}")
        return Version(folder)

    def add(self, place: Path, reference: str = "") -> Version:
        """Make the model of a finished run, or one that was handed over, the candidate.

        `reference` says what rows were like when it was trained, see `tequio.models.drift`.
        """
        source = model_folder.find(place)
        with locked(self.folder):
            state = self.audit.state() or _NOTHING
            if state["share"]:
                raise ConfigError(f"version {state['candidate']} is on trial with {state['share']:.0%} of the ids",
                                  remedy=f"end its trial first: tequio models split {self.name} 0")
            number = max((int(path.name) for path in self._folders()), default=0) + 1
            target = self.folder / "versions" / f"{number:04d}"
            asked, production = self.gates, self.version(state["production"]) if state["production"] else None
            facts = _copied(source, place, target, reference,
                            lambda version: gating.require(self.name, asked.of_run(version, production)))
            self.audit.add("added", {**state, "candidate": number, "share": 0.0, "trial": None}, version=number,
                           facts=facts)
        return self.version(number)

    def split(self, share: float) -> None:
        """Let the candidate answer this share of the ids; none ends its trial."""
        if not 0 <= share <= 1:
            raise ConfigError(f"a share is between 0 and 1, not {share:g}", remedy="such as 0.1 for every tenth id")
        with locked(self.folder):
            state = self.state
            if not state["candidate"] or not state["production"]:
                raise ConfigError(f"the model '{self.name}' has no candidate beside one in production",
                                  remedy=f"add a run: tequio models add {self.name} RUN; and promote one first: "
                                         f"tequio models promote {self.name}")
            self.check(state["candidate"])
            if share:
                self._require_trial()
                self.require_use(state["candidate"])
            after = {**state, "share": share, "trial": state["trial"] if share else None}
            self.audit.add("share", after, version=state["candidate"], why="set by hand")

    def promote(self) -> Version:
        """Put the candidate into production, whatever its outcomes are."""
        with locked(self.folder):
            state = self.state
            if state["production"] and state["candidate"]:
                self._require_trial()
            return self.put_into_production(state, "set by hand", {})

    def put_into_production(self, state: Entry, why: str, facts: Mapping[str, object]) -> Version:
        """The last step of a candidate; the caller holds the lock."""
        if not state["candidate"]:
            raise ConfigError(f"the model '{self.name}' has no candidate",
                              remedy=f"add a run: tequio models add {self.name} RUN")
        self.check(state["candidate"])
        self.require_use(state["candidate"])
        number = int(state["candidate"])
        self.audit.add("production", {**_NOTHING, "production": number}, version=number, why=why, facts=facts)
        return self.version(number)

    def roll_back(self) -> Version:
        """Put the version that was in production before this one back."""
        with locked(self.folder):
            state = self.state
            before = [entry["state"]["production"] for entry in self.audit.entries()]
            earlier = [number for number in before if number not in (0, state["production"])]
            if not earlier:
                raise ConfigError(f"the model '{self.name}' had no other version in production",
                                  remedy=f"promote one: tequio models promote {self.name}")
            self.check(earlier[-1])
            self.refuse_flagged(earlier[-1])
            after = {**state, "production": earlier[-1], "share": 0.0, "trial": None}
            self.audit.add("rolled back", after, version=earlier[-1], why="set by hand")
        return self.version(earlier[-1])

    def _folders(self) -> list[Path]:
        return [path for path in sorted((self.folder / "versions").glob("[0-9]*")) if path.name.isdecimal()]

    def check(self, number: int) -> None:
        """Refuse a version that is not what was added, or whose run says something else than it did then."""
        version = self.version(number)
        version.check()
        added = next((entry["facts"] for entry in self.audit.entries()
                      if entry["what"] == "added" and entry["version"] == number), None)
        if added is None or added != _facts_of(version.folder):
            raise RunError(f"'{version.folder}' is not what was added to the registry",
                           remedy="it was damaged or changed: add the run or the model again")

    def route(self, id: str) -> Version:
        """The version that answers this id: the candidate for its share of them, else the one in production."""
        return self.version(self.routes([id])[0])

    def routes(self, ids: Iterable[str]) -> list[int]:
        """The numbers of the versions that answer these ids, as things stand now."""
        state = self.state
        if not state["production"]:
            raise ConfigError(f"the model '{self.name}' has no version in production",
                              remedy=f"promote one: tequio models promote {self.name}")
        draws = (int.from_bytes(sha256(f"{self.name}\0{state['candidate']}\0{id}".encode()).digest()[:8], "big") / 2**64
                 for id in ids)
        return [int(state["candidate"] if draw < state["share"] else state["production"]) for draw in draws]


def registries(parent: Path) -> list[ModelRegistry]:
    """All models of a folder."""
    return [ModelRegistry(parent, path.parent.name) for path in sorted(parent.glob(f"*/{audit.FILE}"))
            if is_plain_name(path.parent.name)]


def _copied(source: Path, place: Path, target: Path, reference: str,
            check: Callable[[Version], object]) -> dict[str, str]:
    """Copy a model that is whole and passes a check, with the config and summary of its run; the hashes of that."""
    listed = [model_folder.FILE, *model_folder.read_document(source)["files"]]
    names = [name for name in (*listed, publishing.FILE) if (source / name).exists()]
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
        raise RunError(f"the model in '{source}' names files outside its folder", remedy="take no model from whoever "
                       "made it")
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        for name in names:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, partial / name)
        for folder, name in ((folder, name) for folder in (place, place / ORIGIN) for name in KEPT):
            if (folder / name).is_file():
                (partial / ORIGIN).mkdir(exist_ok=True)
                shutil.copy2(folder / name, partial / ORIGIN / name)
        if reference:
            (partial / ORIGIN).mkdir(exist_ok=True)
            (partial / ORIGIN / KEPT[2]).write_text(reference, encoding="utf-8")
        facts = _facts_of(partial)
        model_folder.load(partial)
        told = Version(partial).summary.get("model_folder_sha256", facts["model"])
        if told != facts["model"]:
            raise RunError(f"the model in '{source}' is not the one that its run wrote", remedy="run it again")
        check(Version(partial))
        partial.rename(target)
    except OSError as cause:
        raise RunError(f"'{target}' cannot be written: {cause.strerror or cause}",
                       remedy="free some space, or name another folder: --folder PATH") from cause
    return facts


def _facts_of(folder: Path) -> dict[str, str]:
    facts = {"model": Version(folder).sha256}
    for name in KEPT:
        if (folder / ORIGIN / name).is_file():
            facts[name] = sha256((folder / ORIGIN / name).read_bytes()).hexdigest()
    return facts
