"""The one tree of errors. Each has an id that the error index in the docs explains."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class TequioError(Exception):
    """Base of every error that tequio raises on purpose. `remedy` says what to do about it."""

    id = "tequio"
    exit_code = 1

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


class PartyError(TequioError):
    """A task failed at a party: names the party, the round, the task and the cause."""

    id = "party"
    exit_code = 6

    def __init__(self, message: str, *, party: str, round: int, task: str, cause: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.party = party
        self.round = round
        self.task = task
        self.cause = cause


class QuorumError(TequioError):
    """Too few parties answered to go on."""

    id = "quorum"
    exit_code = 7


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

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package '{package}', which is not installed",
            remedy=f"type: pip install 'tequio[{extra}]'",
        )


class EncryptionError(TequioError):
    """A key or a ciphertext is of the wrong kind or size, was tampered with, or holds more than its range allows."""

    id = "encryption"
    exit_code = 11


def nearest(word: str, choices: Iterable[str]) -> str:
    """A hint such as "did you mean 'rounds'?" or, failing that, the list of what there is."""
    known = sorted(choices)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "there is: " + ", ".join(known) if known else "there is none"
