"""What a party's owner allows: a TOML file that every run, every task and every reply is held against."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from tequio.errors import ConfigError, PermissionDenied, nearest

FOLDER = Path(__file__).parent / "policies"
_SMALLEST_CELL = 5
_SECRET_BYTES = 32
_FEWEST_ROWS, _SATURATION, _MOST_LEVELS = 20, 0.33, 40
_OWN_TRAINING = ("epochs", "steps", "batch", "optimizer", "learning_rate", "momentum", "weight_decay", "decay",
                 "shuffle", "optimizer_memory")


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage that updates have to pass through, with bounds on its parameters."""

    stage: str
    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much privacy loss the party accepts over all runs on its rows together.

    `evaluation_noise` is the standard deviation of the noise on each count of an evaluation, which is charged (0: a
    party with a budget evaluates nothing).
    """

    epsilon: float
    delta: float
    evaluation_noise: float = 0.0

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and 0 < self.delta < 1 and self.evaluation_noise >= 0):
            raise ValueError("a budget needs epsilon above 0, delta between 0 and 1, and evaluation_noise from 0")


class OwnSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which shares of its rows the party keeps to choose models by and to report on."""

    validation: float = 0.1
    test: float = 0.1
    stratify: bool = True

    def __post_init__(self) -> None:
        if not (self.validation >= 0 and self.test >= 0 and self.validation + self.test < 1):
            raise ValueError("split.validation and split.test are shares from 0, and together below 1")


class Intersections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the party lets set intersections learn about its ids, which methods for different columns begin with.

    It takes part in at most `per_day` of them within 24 hours and in `per_dataset` with the same rows. Lists of other
    parties have at most `most_ids` ids and `times_own` times as many as its own, both after padding. With fewer common
    ids than `minimum` it reports nothing (left out: 100, or a tenth of its rows where that is less). `secret_file`
    holds the secret that hardens ids, 32 bytes or more, the same at all parties (left out: the first party makes one
    for each intersection).
    """

    per_day: int = 3
    per_dataset: int = 5
    most_ids: int = 1 << 20
    times_own: float = 4.0
    minimum: int | None = None
    secret_file: str = ""

    def __post_init__(self) -> None:
        if self.per_day < 0 or self.per_dataset < 0 or self.most_ids < 1 or not self.times_own >= 1:
            raise ValueError("psi.per_day and psi.per_dataset are 0 or more, psi.most_ids and psi.times_own 1 or more")
        if self.minimum is not None and self.minimum < 1:
            raise ValueError("psi.minimum is 1 or more")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the party's owner allows. An empty list allows all that is installed.

    `coordinators` are fingerprints of authorities. `components` are what others may have built here, as 'kind/name'.
    `parameters` are those of free text that others may set, as 'kind/name.parameter', which could name a file.
    `functions` are the 'module:function' names that settings may hold: none are allowed unless they are listed, because
    importing one runs code. `minimum_rows` have to stand behind each reply, `minimum_batch` behind each step of
    training, and `minimum_count` behind each count. `split` is the party's own split (left out: that of the first run
    that it accepts, which then stays). `exempt_tasks` need not pass the required stages or be paid for. `tell_rows` is
    what the coordinator learns of the number of rows, `evaluation` how metrics leave (left out: coarse where anything
    else here protects rows, else exact), and `overrides` are the keys of its training that a run may set for this party
    alone. Exact statistics rest on `minimum_rows` rows and cells of `minimum_count`, have at most `saturation` times as
    many columns as the party has rows, and factors of at most `maximum_levels` levels (left out: 20, 5, 0.33 and 40
    where anything else here protects rows, else no limits). `psi` bounds set intersections. With `private_randomness`
    the party's random numbers follow from a secret of its own, so that nobody else can take noise off again.
    """

    coordinators: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    minimum_rows: int = 0
    minimum_batch: int = 1
    minimum_count: int = 0
    minimum_parties: int = 1
    split: OwnSplit | None = None
    require: tuple[Requirement, ...] = ()
    exempt_tasks: tuple[str, ...] = ()
    budget: Budget | None = None
    evaluation: Literal["exact", "coarse", "no"] | None = None
    overrides: tuple[str, ...] = _OWN_TRAINING
    maximum_reply_megabytes: float = 1024.0
    maximum_task_seconds: float = 0.0
    maximum_task_gigabytes: float = 0.0
    approval: Literal["none", "run"] = "none"
    tell_rows: Literal["exact", "hundreds", "no"] = "exact"
    share_rows: bool = False
    saturation: float | None = None
    maximum_levels: int | None = None
    psi: Intersections = Intersections()
    private_randomness: bool = True

    def __post_init__(self) -> None:
        for name in ("minimum_rows", "minimum_count", "maximum_task_seconds", "maximum_task_gigabytes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is 0 or more")
        if not (self.saturation is None or self.saturation > 0) or (self.maximum_levels or 2) < 2:
            raise ValueError("saturation is above 0, and maximum_levels 2 or more")
        if self.minimum_batch < 1 or self.minimum_parties < 1 or not self.maximum_reply_megabytes > 0:
            raise ValueError("minimum_batch and minimum_parties are 1 or more, maximum_reply_megabytes is above 0")
        if self.budget is not None and not self.private_randomness:
            raise ValueError("a budget needs private_randomness = true: the coordinator could take noise off again")
        if self.budget is not None and self.evaluation == "exact":
            raise ValueError("evaluation = 'exact' is not paid for by a budget: set budget.evaluation_noise, or "
                             "evaluation = 'no'")
        if self.evaluation == "exact" and self.tell_rows != "exact":
            raise ValueError("evaluation = 'exact' counts test rows exactly: set tell_rows = 'exact', or evaluation = "
                             "'coarse'")
        if self.evaluation == "coarse" and self.tell_rows == "no":
            raise ValueError("evaluation = 'coarse' says about how many test rows there are: set tell_rows = "
                             "'hundreds', or evaluation = 'no'")

    @property
    def protects_rows(self) -> bool:
        """Whether it says anything about how many rows stand behind what leaves, or what noise is on it."""
        return self.minimum_rows > 1 or self.minimum_count > 1 or self.budget is not None or bool(self.require)

    @property
    def cell(self) -> int:
        """How many rows a count stands for at least; 1 where nothing is protected."""
        return max(self.minimum_count, 1) if self.minimum_count else _SMALLEST_CELL if self._careful else 1

    @property
    def small_cells(self) -> dict[str, float]:
        """What exact statistics are held against at the party; nothing where there are no limits."""
        usual = {"minimum_rows": _FEWEST_ROWS, "saturation": _SATURATION, "maximum_levels": _MOST_LEVELS}
        own = {"minimum_rows": self.minimum_rows, "saturation": self.saturation, "maximum_levels": self.maximum_levels}
        found = {**(usual if self._careful else {}), **{name: value for name, value in own.items() if value}}
        return {**found, "minimum_count": self.cell} if found or self.cell > 1 else {}

    @property
    def _careful(self) -> bool:
        return self.protects_rows or self.tell_rows != "exact"

    @property
    def least_batch(self) -> int:
        """How many rows are behind each step of training at least, the last one of an epoch included."""
        return self.minimum_batch if self.minimum_batch > 1 or self.minimum_rows < 2 else self.cell

    @property
    def metrics(self) -> Literal["exact", "coarse", "noised", "no"]:
        """How metrics leave."""
        if self.budget is not None and self.evaluation != "no":
            return "noised" if self.budget.evaluation_noise else "no"
        if self.tell_rows == "no":  # counts of rows would say how many there are
            return "no"
        return self.evaluation or ("coarse" if self.cell > 1 else "exact")

    def notes(self) -> list[str]:
        """What of a run's numbers are not exact because of it, for the record of the run."""
        found = {"exact": "", "no": "no metrics of the parties' own rows leave",
                 "coarse": f"metrics of the parties' own rows are rounded at random to multiples of {self.cell} rows",
                 "noised": "metrics of the parties' own rows have noise on each count"}[self.metrics]
        rows = "" if self.tell_rows == "exact" else f"parties report their numbers of rows as '{self.tell_rows}'"
        return [f"{text}, as the policy says" for text in (found, rows) if text]

    def intersections(self, folder: Path) -> dict[str, Any]:
        """What tasks need to know of `psi`; a file of a secret is looked for from that folder."""
        secret = b""
        if self.psi.secret_file:
            path = folder / Path(self.psi.secret_file).expanduser()
            try:
                secret = path.read_bytes().strip()
            except OSError as cause:
                raise ConfigError(f"the secret that hardens ids, '{path}', cannot be read: {cause.strerror}",
                                  remedy="set psi.secret_file to a file that all parties have, or leave it "
                                         "out") from None
            if len(secret) < _SECRET_BYTES:
                raise ConfigError(f"the secret that hardens ids, '{path}', has {len(secret)} bytes, fewer than "
                                  f"{_SECRET_BYTES}",
                                  remedy="make one that nobody can guess, and give it to all parties: head -c 32 "
                                         "/dev/urandom | base64 > FILE")
        return {"most_ids": self.psi.most_ids, "times_own": self.psi.times_own, "minimum": self.psi.minimum,
                "secret": secret, "tell_rows": self.tell_rows}

    def told_rows(self, rows: int) -> int:
        """The number of rows as the coordinator may hear it."""
        return {"exact": rows, "hundreds": max(rows // 100 * 100, 1), "no": 1}[self.tell_rows]


def shipped() -> list[str]:
    """Names of the policies that come with tequio, from the most open one to the strictest."""
    return [name for name in ("open", "hospital", "strict") if (FOLDER / f"{name}.toml").is_file()]


def policy_file(given: str) -> Path:
    """The file of a policy: one that comes with tequio, by its name, or a path."""
    return FOLDER / f"{given}.toml" if given in shipped() else Path(given)


def read_policy(path: Path, *, required: bool = False) -> Policy:
    """The policy file; where there is none, everything that is installed is allowed and nothing else."""
    if not path.exists() and not required:
        return Policy()
    try:
        return as_policy(tomllib.loads(path.read_text(encoding="utf-8")), f"the policy '{path}'")
    except FileNotFoundError:
        raise ConfigError(f"there is no policy '{path}'",
                          remedy=f"give a file, or one of: {', '.join(shipped())}") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise ConfigError(f"the policy '{path}' cannot be read: {cause}", remedy="write it as TOML") from None


def as_policy(given: object, whose: str) -> Policy:
    """A policy from plain data."""
    try:
        return msgspec.convert(given, Policy)
    except msgspec.ValidationError as cause:
        unknown = re.search(r"unknown field `(\w+)`", str(cause))
        hint = nearest(unknown[1], Policy.__struct_fields__) if unknown else "see docs/how-to/deploy.md, Policies"
        raise ConfigError(f"{whose} cannot be used: {cause}", remedy=hint) from None


def refused(cause: str, remedy: str) -> PermissionDenied:
    """A refusal by the policy, in the words that the coordinator may read."""
    return PermissionDenied(f"the party's policy refuses: {cause}", remedy=f"the party's owner decides: {remedy}")


def check_listed(name: str, allowed: tuple[str, ...], what: str, key: str) -> None:
    """Refuse a name that a list of the policy does not have."""
    if allowed and name not in allowed:
        raise refused(f"the {what} '{name}' is not among the policy's '{key}'", f"list it there if it is wanted "
                                                                                f"({nearest(name, allowed)})")
