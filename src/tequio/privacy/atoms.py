"""The sets of rows that a party has answered questions about, over all runs and analysts, kept beside its ledger.

Together the sets cut the rows into atoms: rows that every answer so far has treated alike. Whatever is added to and
taken from answers, the result is one of atoms' sums, so that nothing about fewer rows than the smallest atom can be
found out from one party's answers. A question that would make an atom smaller than the floor is refused as a whole.
A refusal depends on the rows too; after a few of them an analyst is answered no new questions.
"""

from __future__ import annotations

import base64
import zlib
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tequio.errors import PermissionDenied
from tequio.federation import payload as payloads
from tequio.privacy.growing_file import GrowingFile, now

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tequio.federation.payload import Payload

ENDING = ".atoms.jsonl"
MOST_REFUSALS = 5
QUESTIONS = "questions"
"""The setting of a party's own that says where it writes down what it answers, and whom: see `AtomLedger`."""


class Refusal(Enum):
    """Why a question is not answered."""

    REFUSED = "refused"
    LOCKED = "locked"

    def error(self, floor: int) -> PermissionDenied:
        """As whoever asked may read it."""
        if self is Refusal.REFUSED:
            return PermissionDenied("together with earlier questions this one would single out fewer than "
                                    f"{floor} rows",
                                    remedy="ask along the lines of earlier questions")
        return PermissionDenied(f"{MOST_REFUSALS} questions about these rows were refused, and no further ones are "
                                "answered", remedy="the parties' owners decide: they can read what was asked in the "
                                                   f"file that ends with '{ENDING}', and move it away")


Labels = NDArray[np.int64]
"""For each row a number: rows with the same number are treated alike."""


def refined(atoms: Labels, sets: Iterable[Labels]) -> Labels:
    """The atoms after further sets, numbered from 0 in the order in which rows first show them."""
    for one in sets:
        _, atoms = np.unique(np.stack([atoms, one]), axis=1, return_inverse=True)
    return np.asarray(atoms, dtype=np.int64).reshape(-1)


def singles_out(before: Labels, after: Labels, floor: int) -> bool:
    """Whether some atom was cut so that a part has fewer rows than the floor. One that was as small before, when the
    floor was lower, is left as it is."""
    was, now = (np.bincount(atoms)[atoms] for atoms in (before, after))
    return bool(((now < floor) & (now < was)).any())


class AtomLedger(GrowingFile):
    """The atoms of the rows with a fingerprint, the answers that were given, and how often each analyst was refused."""

    called: ClassVar[str] = "ledger of questions"

    def __init__(self, folder: Path, fingerprint: str, rows: int) -> None:
        self._rows = rows
        super().__init__(folder / f"{fingerprint}{ENDING}")

    def answer(self, digest: str, by: str, sets: Sequence[Labels], reply: Payload, floor: int, *,
               question: str = "", empty: bool = False) -> Payload | Refusal:
        """The reply, written down before it leaves; the one that was given before, where the question was asked before;
        or a refusal, of which the same question makes one."""
        with self._at_work():
            if digest in self._replies:
                return payloads.decode(self._replies[digest])
            if len(self._refusals.get(by, ())) >= MOST_REFUSALS:
                return Refusal.LOCKED
            atoms = refined(self._atoms, sets)
            facts = {"by": by, "question": question, "at": now()}
            if empty or singles_out(self._atoms, atoms, floor):
                if digest not in self._refusals.get(by, ()):
                    self._write({"refused": digest, **facts})
                return Refusal.REFUSED
            content = payloads.encode(reply)
            self._write({"answered": digest, **facts, "atoms": _packed(atoms), "reply": _text(content)})
            return payloads.decode(content)

    def atoms(self) -> Labels:
        """The atoms of all rows so far."""
        with self._at_work(to_write=False):
            return self._atoms.copy()

    def _forget(self) -> None:
        self._atoms: Labels = np.zeros(self._rows, dtype=np.int64)
        self._replies: dict[str, bytes] = {}
        self._refusals: dict[str, set[str]] = {}

    def _take(self, plain: dict[str, Any]) -> None:
        if "refused" in plain:
            self._refusals.setdefault(plain["by"], set()).add(plain["refused"])
            return
        atoms = np.frombuffer(zlib.decompress(base64.b64decode(plain["atoms"])), dtype="<u4").astype(np.int64)
        if len(atoms) != self._rows:
            raise ValueError(f"the atoms are of {len(atoms)} rows, and there are {self._rows}")
        self._atoms = atoms
        self._replies[plain["answered"]] = base64.b64decode(plain["reply"])


def digest_of(*parts: object) -> str:
    """By what a question is known: all that its reply depends on besides the rows."""
    return sha256("|".join(map(repr, parts)).encode()).hexdigest()


def _packed(atoms: Labels) -> str:
    return _text(zlib.compress(atoms.astype("<u4").tobytes()))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
