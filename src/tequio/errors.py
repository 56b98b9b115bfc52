"""The one tree of errors. Each has an id that the error index in the docs explains."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class TequioError(Exception):
    """Base of every error that tequio raises on purpose. `remedy` says what to do about it.

    `may_cross` says that messages of this class are built from what others already know (an announcement, a policy,
    names of components), so that a party may send them. All others stay in its own log: see `crossing`.
    """

    id = "tequio"
    exit_code = 1
    may_cross = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(TequioError):
    """A config key, value or component name is wrong."""

    id = "config"
    exit_code = 2
    may_cross = True


class DataError(TequioError):
    """A dataset, schema or partition cannot be used as asked. `row` and `column` say where, if it is one place."""

    id = "data"
    exit_code = 3

    def __init__(self, message: str, *, remedy: str = "", row: int | None = None, column: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.row = row
        self.column = column


class PayloadError(TequioError):
    """Something that may not cross, or bytes that are not a whole payload."""

    id = "payload"
    exit_code = 4


class PermissionDenied(TequioError):
    """A role tried to talk to, or to read from, someone it may not."""

    id = "permission"
    exit_code = 5
    may_cross = True


class PartyError(TequioError):
    """A task failed at a party: names the party, the round, the task and the cause."""

    id = "party"
    exit_code = 6

    def __init__(self, message: str, *, party: str, round: int, task: str, cause: str, remedy: str = "",
                 diverged: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.diverged = diverged
        self.party = party
        self.round = round
        self.task = task
        self.cause = cause


class QuorumError(TequioError):
    """Too few parties answered to go on. `lost` says that only the round is: the next one may go better."""

    id = "quorum"
    exit_code = 7

    def __init__(self, message: str, *, remedy: str = "", lost: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.lost = lost


class RunError(TequioError):
    """A run folder cannot be written, read or resumed."""

    id = "run"
    exit_code = 8


class EngineError(TequioError):
    """An engine could not carry the tasks (a worker died, a link broke)."""

    id = "engine"
    exit_code = 9


class MissingExtra(TequioError):
    """A feature needs an optional package that is not installed."""

    id = "extra"
    exit_code = 10
    may_cross = True

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package '{package}', which is not installed",
            remedy=f"type: pip install 'tequio[{extra}]'",
        )


class EncryptionError(TequioError):
    """A key or a ciphertext is of the wrong kind or size, was tampered with, or holds more than its range allows."""

    id = "encryption"
    exit_code = 11


def described(cause: BaseException) -> str:
    """Kind and text of an error, also of one that fails when it is asked for its text."""
    try:
        return f"{type(cause).__name__}: {cause}"
    except BaseException:  # a task's own class may raise anything here, SystemExit included
        return f"{type(cause).__name__} (it has no readable text)"


SEE_ITS_LOG = "its own log has the details: tequio party audit, or what it wrote to stderr"


def crossing(cause: BaseException, columns: Collection[str] = ()) -> tuple[str, str]:
    """Cause and remedy of a party's error as others may read them.

    Texts of errors hold values of rows, paths and more, so that only those of classes that `may_cross` are sent, and
    only if they quote no other error. Of the rest goes the kind, and the column if it is one of the agreed `columns`.
    """
    if isinstance(cause, TequioError) and cause.may_cross and cause.__cause__ is None:
        return cause.message, cause.remedy
    kind = f"{cause.id} error" if isinstance(cause, TequioError) else type(cause).__name__
    column = cause.column if isinstance(cause, DataError) else ""
    return (f"{kind} in column '{column}'" if column in columns else kind), SEE_ITS_LOG


class DivergedError(TequioError):
    """Training has diverged: loss or weights are absurd or no numbers. A run ends there, with a complete folder."""

    id = "diverged"
    exit_code = 12


def listed(name: str) -> str:
    """A list of one name, as it is typed in TOML and in Python."""
    return json.dumps([name], ensure_ascii=False)


def nearest(word: str, choices: Iterable[str], key: str = "") -> str:
    """A hint such as "did you mean 'rounds'?" or, failing that, the list of what there is; with a key, what to type."""
    known = sorted(choices)
    close = get_close_matches(word, known, n=1, cutoff=0.6) or [name for name in known if name.startswith(f"{word}_")]
    if close:
        return f"did you mean '{close[0]}'?" + (f" Then set {key} = \"{close[0]}\"" if key else "")
    there = "there is: " + ", ".join(known) if known else "there is none"
    return f"set {key} to another; {there}" if key else there
