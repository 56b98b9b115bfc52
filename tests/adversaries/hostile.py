"""A coordinator that says what it likes to one party, and that party: its site, on a table as in the tutorial."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.site import Site
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.engines.network.wire import Declined, Ready, TaskRequest, Waiting
from tequio.federation import payload as payloads
from tequio.learners.learner import LocalTraining
from tequio.learners.private_training import PrivateTraining
from tequio.privacy.aggregation.identities import public_half
from tequio.privacy.updates import JOINT
from tequio.registry import COMPONENT_KEY, build, to_plain

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.gate.policy import Policy

COLUMNS = ("radius", "texture", "smoothness", "concavity")
LOGISTIC = to_plain(build("learner", "logistic"))
SOUTH: dict[str, Any] = {"algorithms": ("fedavg",), "minimum_rows": 100, "minimum_parties": 3, "tell_rows": "hundreds"}
"""The policy of the hospital `south` in the tutorial."""


def table(rows: int = 181, seed: int = 7) -> Dataset:
    """As many rows as `south` has, no two alike in any column."""
    draw = np.random.default_rng(seed)
    target = np.arange(rows) % 3 == 0
    features = draw.normal([14, 19, 0.1, 0.1], [3, 4, 0.01, 0.08], (rows, 4)) + target[:, None] * [4, 2, 0.01, 0.1]
    return Dataset.of(Schema.of_numbers(COLUMNS, Target("classes", ("benign", "malignant"), "diagnosis")),
                      features, target.astype(np.int64), name="south.csv")


def training(**local: Any) -> dict[str, Any]:
    """Local training as it is sent; private training where it says a noise."""
    return to_plain((PrivateTraining if "noise" in local else LocalTraining)(**local))


def stage(name: str, **parameters: Any) -> dict[str, Any]:
    """A stage as it is sent, with all its parameters."""
    return to_plain(build("stage", name, parameters))


@dataclass(frozen=True)
class Refused:
    """What the coordinator reads instead of a reply, or of a party that is ready."""

    cause: str
    remedy: str


@dataclass
class Coordinator:
    """One party's home, and what a coordinator may say to it."""

    folder: Path
    policy: Policy
    rows: Dataset = field(default_factory=table)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Made up, so that tests find the same each time; a party draws its own.
        (self.folder / "randomness").write_bytes(sha256(self.folder.name.encode()).digest())
        self.site = Site(PartyHome(self.folder), OwnRows("south", self.rows), self.policy,
                         Telemetry(AuditLog(self.folder / "audit.jsonl")))

    def facts(self, **changes: Any) -> dict[str, Any]:
        """An announcement, as an honest run with these changes makes it."""
        algorithm = changes.get("algorithm", "fedavg")
        return {"name": "tumours", "algorithm": algorithm, "rounds": 10, "index": 1, "parties": 3, "seed": 4,
                "roster": ["north", "south", "east"], "split": {"validation": 0.1, "test": 0.1, "stratify": True},
                "overrides": {}, "learner": {"name": "logistic"}, "stages": [],
                "components": [LOGISTIC, training()], "work": {"algorithm": {"name": algorithm}},
                "schema": self.schema, **self._keys(changes.get("components", ())), **changes}

    def _keys(self, components: Any) -> dict[str, Any]:
        """The keys of a roster of three, where the party wants to see its own in it: two are made up."""
        if not any(isinstance(spec, dict) and spec.get(COMPONENT_KEY, [0, 0])[1] in JOINT for spec in components):
            return {}
        own = public_half(PartyHome(self.folder).signing_key)
        return {"keys": [public_half(sha256(b"north").digest()), own, public_half(sha256(b"east").digest())]}

    @property
    def schema(self) -> str:
        """What the party says about its columns."""
        return self.site.greeting().schema

    def announce(self, run: str = "run-1", **changes: Any) -> Ready | Waiting | Refused:
        """Announce a run."""
        said = self.site.begin(run, payloads.encode(self.facts(**changes)))
        return Refused(said.cause, said.remedy) if isinstance(said, Declined) else said

    def ask(self, task: str, payload: dict[str, Any] | None = None, *, run: str = "run-1", round: int = 1,
            stages: Any = (), digest: str = "", base: int = 0, **settings: Any) -> Any:
        """Ask for a task: the content of the reply, or what is read instead of one."""
        number = next(self.numbers)
        request = TaskRequest(run, number, base, 0, digest or f"digest {number}", task, round, ((0, 0),) * 3)
        about = payloads.encode({"settings": settings, "stages": list(stages)})
        try:
            return payloads.decode(self.site.run(request, [about, payloads.encode(payload or {}), b""]).reply)
        except Exception as cause:
            return Refused(*self.site.explain(request, cause))

    def train(self, model: dict[str, Any] | None = None, **changes: Any) -> Any:
        """Ask for training of a logistic model from zero weights, or from others."""
        local = changes.pop("local", training())
        return self.ask("train", {"model": zeros() if model is None else model}, learner=LOGISTIC, local=local,
                        **changes)

    def evaluate(self, model: dict[str, Any], part: str = "test", **changes: Any) -> Any:
        """Ask how well a model does."""
        return self.ask("evaluate", {"model": model}, learner=LOGISTIC, part=part, **changes)

    @property
    def noted(self) -> list[dict[str, Any]]:
        """What the party's owner finds in the audit log."""
        return entries(self.folder / "audit.jsonl")

    def data(self, run: str = "run-1") -> Any:
        """The rows as the party splits them, which no coordinator sees."""
        return self.site._runs[run].population.view(1)

    def epsilon(self) -> float:
        """What the ledger of the rows says was spent."""
        (ledger,) = self.site._home.ledgers()
        return ledger.epsilon(1e-5)


def zeros() -> dict[str, Any]:
    """The logistic model whose gradient is made of rows and labels alone."""
    return linear(np.zeros(4), 0.0)


def linear(weights: Any, offset: float) -> dict[str, Any]:
    """A logistic model."""
    return {"output.weight": np.asarray(weights, np.float32).reshape(1, -1),
            "output.bias": np.array([offset], np.float32)}


def refuses(said: Any, words: str, coordinator: Coordinator) -> None:
    """Both sides read why: the coordinator in what crosses, the party's owner in the audit log."""
    assert isinstance(said, Refused), said
    assert words in said.cause, said
    last = coordinator.noted[-1]
    assert last["event"] in ("run declined", "task refused", "task failed"), last
    assert words in last["cause"]


def component(kind: str, name: str, **parameters: Any) -> dict[str, Any]:
    """A component as a coordinator may make it up."""
    return {COMPONENT_KEY: [kind, name], "parameters": parameters}
