"""What was spent on one set of rows: by all runs, seeds, searches and federations together, in one file.

A release is written down, and on the disk, before it leaves. The file has one line of JSON per release and only grows,
so that noting the ten-thousandth release costs as much as noting the first; processes take turns by a lock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import ceil, inf, isfinite, log10
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from tequio.data.mapped import row_blocks
from tequio.errors import PermissionDenied
from tequio.privacy.accounting import Accountant, Release, Spent, epsilon_of
from tequio.privacy.growing_file import GrowingFile, now
from tequio.privacy.ledger import Context, Entry
from tequio.registry import from_plain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tequio.data.dataset import Dataset, Source
    from tequio.federation.stages import Stage

ENDING = ".jsonl"
HERE = "here"
"""By whom a release was asked for, where nobody else asked."""

_fingerprints: WeakKeyDictionary[Source, str] = WeakKeyDictionary()


def fingerprint_of(dataset: Dataset) -> str:
    """The sha256 of all rows behind a view of them: features, target and ids, whatever the name, split or columns."""
    source = dataset.source
    if source not in _fingerprints:
        features = source.features
        parts = [features.data, features.indices, features.indptr] if sparse.issparse(features) else [features]
        digest = sha256()
        for part in [*parts, source.target, source.ids]:
            if part is None:
                digest.update(b"none")
                continue
            texts = part.astype(str) if part.dtype.kind == "O" else part
            digest.update(f"{texts.dtype.str} {texts.shape}".encode())
            for _, block in row_blocks(texts):
                digest.update(np.ascontiguousarray(block).data.cast("B") if block.size else b"")
        _fingerprints[source] = digest.hexdigest()
    return _fingerprints[source]


def bill_to_plain(spent: Spent) -> list[dict[str, Any]]:
    """Releases and their counts as JSON holds them."""
    return [{**asdict(release), "steps": release.steps if isfinite(release.steps) else None, "count": count}
            for release, count in spent.items()]


def bill_from_plain(plain: list[dict[str, Any]]) -> Spent:
    """Back from JSON."""
    return {Release(each["noise"], each["shape"], each["sampling"], each["rate"],
                    inf if each["steps"] is None else each["steps"]): each["count"] for each in plain}


@dataclass(frozen=True)
class LedgerEntry:
    """One line: what was released, in which run, by whose wish, for which task and round, under which mechanism.

    `unit` is whom the mechanism protects. The bill of a `whole` run takes the place of an earlier one of the same run.
    """

    run: str
    by: str
    task: str
    round: int
    mechanism: str
    spent: Spent
    digest: str = ""
    federation: str = ""
    unit: str = ""
    whole: bool = False
    at: str = ""

    @property
    def releases(self) -> int:
        """How many they are."""
        return sum(self.spent.values())

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**self.__dict__, "spent": bill_to_plain(self.spent)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> LedgerEntry:
        """Back from JSON."""
        return cls(**{**plain, "spent": bill_from_plain(plain["spent"])})


class DatasetLedger(GrowingFile):
    """The ledger of the rows with a fingerprint, among those in a folder."""

    called: ClassVar[str] = "privacy ledger"

    def __init__(self, folder: Path, fingerprint: str) -> None:
        super().__init__(folder / f"{fingerprint}{ENDING}")

    def charge(self, spent: Spent, *, run: str, by: str, task: str, round: int, digest: str, mechanism: str,
               epsilon: float, delta: float, federation: str = "", unit: str = "") -> None:
        """Write a release down, or refuse it: everything so far and this may not cost more than epsilon at delta.

        The same digest again in the same run, for the same asker, is the same release and costs nothing.
        """
        with self._at_work():
            if digest and (run, by, digest) in self._charged:
                return
            self._check(spent, run, task, epsilon, delta)
            entry = LedgerEntry(run, by, task, round, mechanism, dict(spent), digest, federation, unit, at=now())
            self._write(entry.to_plain())

    def record(self, spent: Spent, *, run: str, mechanism: str, unit: str, digest: str = "") -> None:
        """Note all that a simulated run has spent so far. Two runs with one digest have released the same."""
        with self._at_work():
            before = self._bills.get(run)
            if before is None or (before.spent, before.digest) != (spent, digest):
                entry = LedgerEntry(run, HERE, "", 0, mechanism, dict(spent), digest, "", unit, True, now())
                self._write(entry.to_plain())

    def start_anew(self) -> None:
        """Count from here on only; what came before stays in the file."""
        if self.path.exists():
            with self._at_work():
                if self._entries:
                    self._write({"anew": now()})

    def entries(self) -> list[LedgerEntry]:
        """Every line that counts, oldest first."""
        with self._at_work(to_write=False):
            kept = {id(bill) for bill in self._distinct()}
            return [entry for entry in self._entries if not entry.whole or id(entry) in kept]

    def spent(self, unit: str | None = None) -> Spent:
        """All releases together; or only those under mechanisms that protect this unit."""
        return added(entry.spent for entry in self.entries() if unit in (None, entry.unit))

    def by_run(self, unit: str | None = None) -> dict[str, Spent]:
        """The releases of each run."""
        found: dict[str, Spent] = {}
        for entry in self.entries():
            if unit in (None, entry.unit):
                found[entry.run] = added([found.get(entry.run, {}), entry.spent])
        return found

    def epsilon(self, delta: float, accountant: Accountant = "pld", unit: str | None = None) -> float:
        """What all of it comes to."""
        return epsilon_together(self.spent(unit), delta, accountant)

    def lines(self, delta: float) -> list[dict[str, Any]]:
        """What each run has spent, for each asker: a line to show, with the epsilon that it has alone."""
        groups: dict[tuple[str, str, str], list[LedgerEntry]] = {}
        for entry in self.entries():
            groups.setdefault((entry.run, entry.by, entry.federation), []).append(entry)
        return [{"run": run, "by": by, "federation": federation,
                 "mechanism": ", ".join(dict.fromkeys(entry.mechanism for entry in group)),
                 "tasks": list(dict.fromkeys(entry.task for entry in group if entry.task)),
                 "units": list(dict.fromkeys(entry.unit for entry in group if entry.unit)),
                 "releases": sum(entry.releases for entry in group),
                 "epsilon": _or_none(epsilon_together(added(entry.spent for entry in group), delta)),
                 "first": group[0].at, "last": group[-1].at}
                for (run, by, federation), group in groups.items()]

    def left(self, epsilon: float, delta: float) -> float:
        """What is left of a budget."""
        return max(epsilon - self.epsilon(delta), 0.0)

    @property
    def anew(self) -> tuple[str, int]:
        """When counting was started anew (empty: never), and how many runs had been counted before."""
        with self._at_work(to_write=False):
            return self._anew, len(self._runs_before)

    def take_over(self, book: Path) -> None:
        """Take what an earlier version noted in a party's 'budget.json': what was spent stays spent."""
        if not book.exists():
            return
        content = book.read_bytes()
        for run, facts in json.loads(content).items():
            spent = added(bill for account in facts["accounts"] for bill in _bills_before(account))
            with self._at_work():
                digest = sha256(content).hexdigest()
                if spent and (run, "coordinator", digest) not in self._charged:
                    entry = LedgerEntry(run, "coordinator", "", 0, f"taken over from {book.name}", spent, digest,
                                        at=now())
                    self._write(entry.to_plain())
        book.rename(book.with_suffix(".json.taken-over"))

    def _forget(self) -> None:
        self._entries: list[LedgerEntry] = []
        self._charged: set[tuple[str, str, str]] = set()
        self._total: Spent = {}
        self._bills: dict[str, LedgerEntry] = {}
        self._anew, self._runs_before = "", set[str]()
        self._affordable: dict[tuple[float, float], Spent] = {}

    def _distinct(self) -> Iterable[LedgerEntry]:
        """The bills of runs that did not release the very same."""
        return {bill.digest or bill.run: bill for bill in self._bills.values()}.values()

    def _check(self, spent: Spent, run: str, task: str, epsilon: float, delta: float) -> None:
        """Refuse what the budget does not pay for. What was found to be affordable is remembered well beyond this one
        release, so that most of them need no composition."""
        so_far = added([self._total, *(bill.spent for bill in self._distinct())])
        wanted, known = added([so_far, spent]), self._affordable.get((epsilon, delta), {})
        if known and all(known.get(release, 0) >= count for release, count in wanted.items()):
            return

        def pays_for(times: int, accountant: Accountant) -> bool:
            further = added([so_far, {release: count * times for release, count in spent.items()}])
            if epsilon_together(further, delta, accountant) > epsilon:
                return False
            self._affordable[epsilon, delta] = further
            return True

        if any(pays_for(times, "rdp") for times in (256, 16, 1)):
            return
        if pays_for(1, "pld"):
            pays_for(16, "pld")
            return
        before, after = epsilon_together(so_far, delta), epsilon_together(wanted, delta)
        remedy = f"set budget.epsilon = {_rounded_up(after):g}, or have the run add more noise" if isfinite(after) \
            else "have the run add noise at the party, such as by the stage 'local-dp'"
        raise PermissionDenied(
            f"the party's policy refuses: task '{task}' of run '{run}' would take the privacy loss of these rows, over "
            f"all runs, from epsilon {before:.6g} to {after:.6g} at delta = {delta:g}, and the budget is {epsilon:g}",
            remedy=f"the party's owner decides: {remedy}")

    def _take(self, plain: dict[str, Any]) -> None:
        """Count one line."""
        if "anew" in plain:
            before = self._runs_before | {entry.run for entry in self._entries}
            self._forget()
            self._anew, self._runs_before = plain["anew"], before
            return
        entry = LedgerEntry.from_plain(plain)
        self._entries.append(entry)
        if entry.whole:
            self._bills[entry.run] = entry
        else:
            self._charged.add((entry.run, entry.by, entry.digest))
            for release, count in entry.spent.items():
                self._total[release] = self._total.get(release, 0) + count


def added(bills: Iterable[Spent]) -> Spent:
    """All releases of several bills."""
    total: Spent = {}
    for bill in bills:
        for release, count in bill.items():
            total[release] = total.get(release, 0) + count
    return total


def epsilon_together(spent: Spent, delta: float, accountant: Accountant = "pld") -> float:
    """The epsilon of releases of all kinds. What no accountant composes is added up kind by kind, each with its share
    of delta, as basic composition allows."""
    kinds: dict[tuple[str, str], Spent] = {}
    for release, count in spent.items():
        kinds.setdefault((release.shape, release.sampling), {})[release] = count
    whole = epsilon_of(spent, delta, accountant)
    if len(kinds) < 2 or any(release.noise <= 0 for release in spent):
        return whole
    return min(whole, sum(epsilon_of(kind, delta / len(kinds), accountant) for kind in kinds.values()))


def _bills_before(account: dict[str, Any]) -> list[Spent]:
    """What one account of a 'budget.json' had released."""
    from tequio.learners.descent import steps_of_epochs
    from tequio.learners.private_training import batch_chance

    stage: Stage = from_plain(account["stage"])
    local, rows = from_plain(account["local"]) if account["local"] else None, account["rows"]
    context = Context(1, 1.0, descent=None if local is None else
                      lambda party: (batch_chance(rows, local), sum(steps_of_epochs(rows, local))))
    assert stage.mechanism is not None
    return stage.mechanism.spent([Entry(round, noise, 1, (0,)) for round, noise in account["releases"]], context)


def _or_none(epsilon: float) -> float | None:
    """As JSON can hold it."""
    return epsilon if isfinite(epsilon) else None


def _rounded_up(value: float) -> float:
    """To three digits, and never down."""
    step = 10.0 ** (ceil(log10(value)) - 3) if value > 0 else 1.0
    return ceil(value / step) * step
