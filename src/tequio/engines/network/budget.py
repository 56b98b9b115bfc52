"""A party's privacy budget over all runs together, kept on its own disk.

Only noise that is added at the party counts: what a coordinator does with updates later, the party cannot see. A
release is written down before it leaves, and the same request answered again is not a second release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from tequio.engines.network.files import write_private
from tequio.errors import PermissionDenied
from tequio.federation.payload import Payload
from tequio.learners.descent import steps_of_epochs
from tequio.learners.private_training import PrivateTraining, batch_chance
from tequio.privacy.accounting import Spent, epsilon_of
from tequio.privacy.ledger import Context, Entry
from tequio.registry import from_plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tequio.engines.network.wire import TaskRequest
    from tequio.federation.stages import Stage
    from tequio.learners.learner import LocalTraining

_ME = 0


class _Terms(TypedDict):
    """A mechanism as it came with a request, and what its accounting depends on."""

    stage: Payload
    local: Payload | None
    rows: int
    noise: float


class _Account(_Terms):
    """All releases under the same terms: round and noise of each."""

    releases: list[tuple[int, float]]


class _RunBook(TypedDict):
    """The accounts of one run, and the requests that were charged, by position."""

    accounts: list[_Account]
    charged: dict[str, str]


_Book = dict[str, _RunBook]


@dataclass(frozen=True)
class BudgetBook:
    """What was released in which run. In a rehearsal a release of round 1 stands for one in each of `rounds`."""

    path: Path
    epsilon: float
    delta: float
    rounds: int = 0

    def charge(self, request: TaskRequest, about: Payload, rows: int) -> None:
        """Write a release down, or refuse the task that would make it."""
        book = self._read()
        run = book.setdefault(request.run, {"accounts": [], "charged": {}})
        key = f"{request.base}/{request.digest}"
        if run["charged"].get(str(request.position)) == key:
            return
        account = self._account(run["accounts"], _terms(about, request.task, rows))
        rounds = range(request.round, request.round + 1) if not self.rounds or not request.round else \
            range(1, self.rounds + 1) if request.round == 1 else ()
        account["releases"] += [(round, account["noise"]) for round in rounds]
        run["charged"] = {**{position: held for position, held in run["charged"].items()
                             if int(position) >= request.keep},
                          str(request.position): key}
        spent = _spent(book)
        if epsilon_of(spent, self.delta, "rdp") > self.epsilon and epsilon_of(spent, self.delta) > self.epsilon:
            raise PermissionDenied(
                f"the party's policy refuses: task '{request.task}' would take the privacy loss of all its runs above "
                f"epsilon = {self.epsilon:g} at delta = {self.delta:g}; {self.total():.4g} are spent",
                remedy="the party's owner decides: raise 'budget.epsilon', or add more noise")
        write_private(self.path, json.dumps(book).encode())

    def total(self) -> float:
        """The epsilon of all that was released so far."""
        return epsilon_of(_spent(self._read()), self.delta)

    def _account(self, accounts: list[_Account], terms: _Terms) -> _Account:
        """The account of this mechanism under these terms, opened if need be."""
        for account in accounts:
            if {key: value for key, value in account.items() if key != "releases"} == terms:
                return account
        accounts.append({**terms, "releases": []})
        return accounts[-1]

    def _read(self) -> _Book:
        found: _Book = json.loads(self.path.read_bytes()) if self.path.exists() else {}
        return found


def _terms(about: Payload, task: str, rows: int) -> _Terms:
    """Which mechanism of the party's own bounds what the reply tells."""
    for plain in about["stages"]:
        stage: Stage = from_plain(plain)
        if stage.mechanism is None or stage.mechanism.place != "party":
            continue
        noise = stage.mechanism.noise
        plain_local = about["settings"].get("local") if stage.mechanism.protects == "training" else None
        if plain_local:
            local: LocalTraining = from_plain(plain_local)
            noise = local.noise if isinstance(local, PrivateTraining) else None
        return {"stage": plain, "local": plain_local, "rows": rows, "noise": noise or 0.0}
    raise PermissionDenied("the party's policy refuses: it has a privacy budget, and no noise of the party's own is on "
                           f"the reply of task '{task}'",
                           remedy="add a stage such as 'local-dp' to the config's [[stages]], or the task to "
                                  "'exempt_tasks' of the policy")


def _spent(book: _Book) -> Spent:
    """All releases of all runs together."""
    total: Spent = {}
    for run in book.values():
        for account in run["accounts"]:
            entries = [Entry(round, noise, 1, (_ME,)) for round, noise in account["releases"]]
            context = Context(1, 1.0, descent=_descent(account))
            stage: Stage = from_plain(account["stage"])
            assert stage.mechanism is not None
            for release, count in (pair for bill in stage.mechanism.spent(entries, context) for pair in bill.items()):
                total[release] = total.get(release, 0) + count
    return total


def _descent(account: _Account) -> Callable[[int], tuple[float, int]] | None:
    if not account["local"]:
        return None
    local, rows = from_plain(account["local"]), account["rows"]
    return lambda party: (batch_chance(rows, local), sum(steps_of_epochs(rows, local)))
