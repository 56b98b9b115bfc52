"""A party's privacy budget over all runs together, kept on its own disk.

Only noise that is added at the party counts: what a coordinator does with updates later, the party cannot see. A
release is written down before it leaves, and the same work done again is not a second release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tequio.components import from_plain
from tequio.engines.network.files import write_private
from tequio.errors import PermissionDenied
from tequio.learners.batches import steps_of_epochs
from tequio.learners.private_training import batch_chance
from tequio.privacy.accounting import Spent, epsilon_of
from tequio.privacy.ledger import Context, Entry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tequio.engines.network.wire import Work

_ME = 0


@dataclass(frozen=True)
class BudgetBook:
    """What was released in which run."""

    path: Path
    epsilon: float
    delta: float

    def charge(self, work: Work, about: Mapping[str, Any], rows: int) -> None:
        """Write a release down, or refuse the task that would make it."""
        book = self._read()
        run = book.setdefault(work.run, {"accounts": [], "charged": {}})
        key = f"{work.base}/{work.digest}"
        if run["charged"].get(str(work.position)) == key:
            return
        account = self._account(run["accounts"], _terms(about, work.task, rows))
        account["releases"].append([work.round, account["noise"]])
        run["charged"] = {**{place: held for place, held in run["charged"].items() if int(place) >= work.keep},
                          str(work.position): key}
        spent = _spent(book)
        if epsilon_of(spent, self.delta, "rdp") > self.epsilon and epsilon_of(spent, self.delta) > self.epsilon:
            raise PermissionDenied(
                f"the party's policy refuses: task '{work.task}' would take the privacy loss of all its runs above "
                f"epsilon = {self.epsilon:g} at delta = {self.delta:g}; {self.total():.4g} are spent",
                remedy="the party's owner decides: raise 'budget.epsilon', or add more noise")
        write_private(self.path, json.dumps(book).encode())

    def total(self) -> float:
        """The epsilon of all that was released so far."""
        return epsilon_of(_spent(self._read()), self.delta)

    def _account(self, accounts: list[dict[str, Any]], terms: dict[str, Any]) -> dict[str, Any]:
        """The account of this mechanism under these terms, opened if need be."""
        for account in accounts:
            if {key: account[key] for key in terms} == terms:
                return account
        accounts.append({**terms, "releases": []})
        return accounts[-1]

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_bytes()) if self.path.exists() else {}
        return found


def _terms(about: Mapping[str, Any], task: str, rows: int) -> dict[str, Any]:
    """Which mechanism of the party's own bounds what the reply tells."""
    for plain in about["stages"]:
        mechanism = from_plain(plain)
        if getattr(mechanism, "place", "") == "party" and hasattr(mechanism, "spent"):
            local = about["settings"].get("local") if mechanism.protects == "training" else None
            noise = getattr(from_plain(local), "noise", None) if local else mechanism.noise
            return {"stage": plain, "local": local, "rows": rows, "noise": noise or 0.0}
    raise PermissionDenied("the party's policy refuses: it has a privacy budget, and no noise of the party's own is on "
                           f"the reply of task '{task}'",
                           remedy="add a stage such as 'local-dp' to the config's [[stages]], or the task to "
                                  "'exempt_tasks' of the policy")


def _spent(book: Mapping[str, Any]) -> Spent:
    """All releases of all runs together."""
    total: Spent = {}
    for run in book.values():
        for account in run["accounts"]:
            entries = [Entry(round, noise, 1, (_ME,)) for round, noise in account["releases"]]
            context = Context(1, 1.0, descent=_descent(account))
            for release, count in (pair for bill in from_plain(account["stage"]).spent(entries, context)
                                   for pair in bill.items()):
                total[release] = total.get(release, 0) + count
    return total


def _descent(account: Mapping[str, Any]) -> Any:
    if not account["local"]:
        return None
    local, rows = from_plain(account["local"]), account["rows"]
    return lambda party: (batch_chance(rows, local), sum(steps_of_epochs(rows, local)))
