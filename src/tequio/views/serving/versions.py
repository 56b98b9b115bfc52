"""Which version of a model answers which id, and where the versions come from.

Either folders are named on the command line, or a registry says which version is in production, which is on trial and
for what share of the ids; then a change of the registry is followed while the service runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from tequio.errors import ConfigError
from tequio.models import audit
from tequio.models.compiled import Compiled, row_type
from tequio.models.registry import ModelRegistry

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.data.dataset import Schema
    from tequio.models.model import Model


@dataclass(frozen=True)
class Served:
    """One version that answers. `number` is the one it has in a registry, or 0."""

    model: Model
    role: str
    number: int = 0
    _compiled: dict[str, Compiled] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sha256(self) -> str:
        """The hash of the model's folder."""
        return str(self.model.facts["sha256"])

    def of(self, party: str) -> Model:
        """The model that answers, for a party or for nobody in particular."""
        return self.model.of(party) if party else self.model

    def compiled(self, party: str) -> Compiled:
        """The same, made ready for small requests."""
        if party not in self._compiled:
            self._compiled[party] = Compiled(self.of(party))
        return self._compiled[party]


@dataclass(frozen=True)
class Versions:
    """The version in production, the candidate beside it, and the candidate's share of ids."""

    production: Served
    candidate: Served | None = None
    share: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        if self.candidate is not None:
            _check_alike(self.production.model, self.candidate.model)
        if not 0 <= self.share <= 1:
            raise ConfigError(f"a share is between 0 and 1, not {self.share:g}",
                              remedy="such as --share 0.1 for every tenth id")

    @property
    def all(self) -> list[Served]:
        """Those that may answer."""
        return [self.production] if self.candidate is None else [self.production, self.candidate]

    def of(self, id: str) -> Served:
        """The version that answers an id; the same as `ModelRegistry.route` says."""
        if self.candidate is None or not self.share:
            return self.production
        candidate = self.candidate.number or self.candidate.sha256
        draw = int.from_bytes(sha256(f"{self.name}\0{candidate}\0{id}".encode()).digest()[:8], "big") / 2**64
        return self.candidate if draw < self.share else self.production

    @property
    def schema(self) -> Schema:
        """What rows are answered."""
        return self.production.model.reading.schema

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[SmallRequest] | None:
        """Decodes requests that have nothing unusual about them; None where columns have names with quotes or such."""
        try:
            rows: object = list[row_type(self.schema)]  # type: ignore[misc]
        except ValueError:
            return None
        kind = msgspec.defstruct("Request", [("rows", rows)], bases=(SmallRequest,), kw_only=True,
                                 forbid_unknown_fields=True)
        return msgspec.json.Decoder(kind)


class SmallRequest(msgspec.Struct, kw_only=True):
    """What a request is decoded to whose rows have exactly the model's columns."""

    rows: list[msgspec.Struct]
    ids: list[str] | None = None
    party: str | None = None


@dataclass
class Source:
    """A registry that is followed; `trouble` says why its latest state is not served."""

    registry: ModelRegistry
    trouble: str = ""
    _seen: tuple[int, int, int] = (0, 0, 0)

    def has_changed(self) -> bool:
        """Whether the registry was written since the last look."""
        status = (self.registry.folder / audit.FILE).stat()
        now = (status.st_ino, status.st_size, status.st_mtime_ns)
        changed, self._seen = now != self._seen, now
        return changed

    def failed(self, trouble: str) -> bool:
        """Note why the latest state is not served, to try it again; whether that is news."""
        is_news, self.trouble, self._seen = trouble != self.trouble, trouble, (0, 0, 0)
        return is_news

    def load(self, served: Versions | None = None) -> Versions:
        """The versions as the registry has them; those that are served already are not loaded again."""
        state = self.registry.state
        if not state["production"]:
            raise ConfigError(f"the model '{self.registry.name}' has no version in production",
                              remedy=f"promote one: tequio models promote {self.registry.name}")
        known = {one.number: one for one in served.all} if served else {}

        def version(role: str) -> Served:
            number = int(state[role])
            if number in known:
                return Served(known[number].model, role, number, known[number]._compiled)
            self.registry.check(number)
            return Served(self.registry.version(number).load(), role, number)

        # A candidate without a share answers nobody.
        candidate = version("candidate") if state["candidate"] and state["share"] else None
        return Versions(version("production"), candidate, float(state["share"]) if candidate else 0.0,
                        self.registry.name)


def registry_at(place: Path) -> ModelRegistry | None:
    """The registry whose folder this is."""
    return ModelRegistry(place.resolve().parent, place.resolve().name) if (place / audit.FILE).is_file() else None


def _check_alike(production: Model, candidate: Model) -> None:
    """Two versions can only share the ids of one service if they take the same rows and give the same answers."""
    ours, theirs = production.reading.schema, candidate.reading.schema
    kinds = [[(feature.name, feature.categorical) for feature in schema.features] for schema in (ours, theirs)]
    if kinds[0] != kinds[1]:
        odd = sorted({*kinds[0]} ^ {*kinds[1]})
        raise ConfigError("the candidate is for other columns than the version in production: "
                          + (f"'{odd[0][0]}' differs" if odd else "their order differs"),
                          remedy="serve it on a port of its own: tequio serve MODEL --port 8081")
    if (ours.target.kind, ours.target.names) != (theirs.target.kind, theirs.target.names):
        raise ConfigError("the candidate predicts other classes than the version in production",
                          remedy="serve it on a port of its own: tequio serve MODEL --port 8081")
