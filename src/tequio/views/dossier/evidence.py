"""The files that a dossier rests on, read with their hashes, and the facts that are made of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.experiments.running.recording import as_json
from tequio.experiments.running.store import CONFIG, EVENTS, SUPERSEDED
from tequio.experiments.running.table import Table, read_csv
from tequio.experiments.running.transcripts import KEY
from tequio.models import folder as model_folder
from tequio.models.registry import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tequio.experiments.running.store import Plain

NOT_STATED = "not stated"
NAME = "dossier"
_NOT_EVIDENCE = (KEY, SUPERSEDED, f"{NAME}.html", f"{NAME}.json")
"""A key is for its owner alone; a note of what replaced the run comes after the dossier, as the dossier does itself."""

_AS_IT_STANDS = object()


@dataclass(frozen=True)
class Evidence:
    """A run's folder, the folder of a version in use with what is known of its run, or a model's folder."""

    folder: Path

    def __post_init__(self) -> None:
        if not self.path(CONFIG) and not self.path(model_folder.FILE):
            raise ConfigError(f"there is neither a run nor a model in '{self.folder}'",
                              remedy="give the folder of a finished run, of a version in use, or of a model")

    @cached_property
    def files(self) -> dict[str, Plain]:
        """Every file by its path in the folder, with its size and hash."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        kept = [(path.relative_to(self.folder).as_posix(), path.read_bytes()) for path in found
                if path.name not in _NOT_EVIDENCE and not path.name.startswith(".")]
        return {name: {"bytes": len(content), "sha256": sha256(content).hexdigest()} for name, content in kept}

    def path(self, name: str) -> str:
        """Where a file is: at the top, beside the model, or with what is kept of the run; empty where it is not."""
        if name == model_folder.FILE:  # the result of a run may be called so too
            try:
                return (model_folder.find(self.folder) / name).relative_to(self.folder).as_posix()
            except ConfigError:
                return ""
        places = (name, f"{model_folder.FOLDER}/{name}", f"{ORIGIN}/{name}")
        return next((place for place in places if (self.folder / place).is_file()), "")

    def json(self, name: str) -> Plain:
        """A file of facts; empty where there is none."""
        if not (place := self.path(name)):
            return {}
        found: Plain = json.loads((self.folder / place).read_bytes())
        return found

    @cached_property
    def config(self) -> Plain:
        """The run's config as it was written."""
        return tomllib.loads((self.folder / place).read_text(encoding="utf-8")) if (place := self.path(CONFIG)) else {}

    def table(self, name: str) -> Table:
        """A table of the run; empty where there is none."""
        return read_csv(self.folder / place) if (place := self.path(name)) else Table()

    def events(self, *kinds: str) -> Iterator[Plain]:
        """What was recorded of these kinds, in order."""
        place = self.path(EVENTS)
        lines = (self.folder / place).read_text(encoding="utf-8").splitlines() if place else []
        yield from (event for event in map(json.loads, lines) if event["event"] in kinds)

    def origin(self, name: str, at: str = "") -> Plain:
        """The file, its hash and the place in it that a fact comes from."""
        place = self.path(name)
        return {"file": place, "sha256": self.files[place]["sha256"], **({"at": at} if at else {})} if place else {}

    def fact(self, name: str, file: str, at: str, value: object = _AS_IT_STANDS) -> Plain:
        """A fact from a file: what is found there, or what was made of it."""
        found = self._at(file, at) if value is _AS_IT_STANDS else value
        if found is None or found in ("", [], {}):
            return unstated(name)
        return {"name": name, "value": as_json(found), "from": self.origin(file, at)}

    def _at(self, file: str, at: str) -> object:
        found: object = self.config if file == CONFIG else self.json(file)
        for key in at.split("/"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found


def unstated(name: str) -> Plain:
    """A fact that nothing says anything about."""
    return {"name": name, "value": NOT_STATED, "from": {}}


@dataclass
class Section:
    """Facts and tables on one question. `words` say how to read them."""

    id: str
    title: str
    words: str
    facts: list[Plain] = field(default_factory=list)
    tables: list[Plain] = field(default_factory=list)

    def add_table(self, title: str, rows: Sequence[Mapping[str, object]], origin: Plain,
                  columns: Sequence[str] = ()) -> None:
        """A table, if it has rows."""
        if rows:
            names = list(columns) or list(dict.fromkeys(key for row in rows for key in row))
            self.tables.append({"title": title, "columns": names, "from": origin,
                                "rows": [[as_json(row.get(name)) for name in names] for row in rows]})
