"""From the body of a request to the body of its answer.

Small requests with nothing unusual take a short way. Everything else, and every error, goes the general way; both give
the same answers. Rows of other requests are never computed together with a request's own, because the last digits of a
matrix product depend on its size, and an answer should not depend on who else asks.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import numpy as np

from tequio.errors import ConfigError, DataError, TequioError
from tequio.models.answers_log import answers_of
from tequio.views.serving.refusing import Refused
from tequio.views.serving.requests import from_csv, from_json, is_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tequio.data.dataset import Array
    from tequio.models.answers_log import Answered, AnswersLog
    from tequio.views.serving.requests import Question
    from tequio.views.serving.versions import Served, Versions

SMALL_BYTES, _SMALL_ROWS = 16 << 10, 16
_SHORTEST_VERSION = 8


@dataclass(frozen=True)
class Reply:
    """The body of an answer, and which version answered each row with which class."""

    body: bytes
    rows: int
    answered: tuple[tuple[Served, str], ...]


@dataclass(frozen=True)
class Desk:
    """What every request is answered with."""

    most_rows: int
    log: AnswersLog | None = None

    def answer_json(self, versions: Versions, body: bytes) -> Reply:
        """Answer a request in JSON."""
        return self._answer(versions, from_json(body, versions.schema, self.most_rows))

    def answer_csv(self, versions: Versions, body: bytes, options: Mapping[str, str]) -> Reply:
        """Answer a request in CSV."""
        return self._answer(versions, from_csv(body, versions.schema, self.most_rows, options))

    def answer_small(self, versions: Versions, body: bytes) -> Reply | None:
        """The same for a request that may take the short way; None where the general way has to look at it."""
        if versions.decoder is None:
            return None
        try:
            asked = versions.decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        count = len(asked.rows)
        # Each name comes at least once, so with as many colons as names, none comes twice.
        names = count * len(versions.schema.names) + 1 + (asked.ids is not None) + (asked.party is not None)
        if not 0 < count <= min(_SMALL_ROWS, self.most_rows) or body.count(b":") != names:
            return None
        if asked.ids is not None and (len(asked.ids) != count or not all(map(is_id, asked.ids))):
            return None
        ids = _new_ids(count) if asked.ids is None else asked.ids
        answers: dict[int, tuple[Served, Answered]] = {}
        for version, places in _by_version(versions, ids):
            with _explained(places):
                compiled = version.compiled(asked.party or "")
                scores = compiled.scores([asked.rows[place] for place in places])
            if scores is None:
                return None
            found = answers_of(compiled.model, [ids[place] for place in places], scores)
            answers |= {place: (version, answer) for place, answer in zip(places, found, strict=True)}
        return self._reply(ids, answers, ())

    def _answer(self, versions: Versions, question: Question) -> Reply:
        _check_version(versions, question.version)
        ids = question.ids or _new_ids(question.count)
        answers: dict[int, tuple[Served, Answered]] = {}
        ignored: tuple[str, ...] = ()
        for version, places in _by_version(versions, ids):
            rows, first = {name: values[places] for name, values in question.columns.items()}, 0
            with _explained(places), np.errstate(over="ignore", invalid="ignore"):
                model = version.of(question.party)
                for part, scores in model.answered(rows, unseen=question.unseen):
                    kept = [places[first + place] for place in part.places]
                    _check_finite(scores, kept)
                    found = answers_of(model, [ids[place] for place in kept], scores)
                    answers |= {place: (version, answer) for place, answer in zip(kept, found, strict=True)}
                    first, ignored = first + part.given, part.ignored
        return self._reply(ids, answers, ignored)

    def _reply(self, ids: Sequence[str], answers: Mapping[int, tuple[Served, Answered]],
               ignored: Sequence[str]) -> Reply:
        """The answers in the order of the rows, once they are logged; a row that was skipped has none."""
        given = [answers[place] for place in sorted(answers)]
        if self.log is not None and given:
            try:
                self.log.write(answer for _, answer in given)
            except TequioError as cause:
                raise Refused(503, "answers cannot be logged at the moment, so none are given",
                              "ask again later; the output of the service names the cause", retry_after=10) from cause
        told = [_told(id, answers[place][1] if place in answers else None) for place, id in enumerate(ids)]
        body = msgspec.json.encode({"answers": told, "ignored": ignored} if ignored else {"answers": told})
        return Reply(body, len(ids), tuple((version, _class(answer)) for version, answer in given))


def _by_version(versions: Versions, ids: Sequence[str]) -> list[tuple[Served, list[int]]]:
    """The places of the rows that each version answers."""
    if len(ids) == 1:
        return [(versions.of(ids[0]), [0])]
    chosen = [versions.of(id) for id in ids]
    groups = [(version, [place for place, one in enumerate(chosen) if one is version]) for version in versions.all]
    return [(version, places) for version, places in groups if places]


@contextmanager
def _explained(places: Sequence[int]) -> Iterator[None]:
    """Turn what a model says about rows into what a request is told: its own row numbers, and its own keys."""
    try:
        yield
    except DataError as error:
        row = None if error.row is None else places[error.row]
        remedy = 'fix the value, or send "unseen": "fill" to take the usual value instead, or "unseen": "skip" to ' \
                 "leave such rows without an answer" if row is not None else error.remedy
        raise Refused(422, re.sub(r"^row \d+", f"row {row}", error.message), remedy, row=row,
                      column=error.column) from None
    except ConfigError as error:
        raise Refused(422, error.message, error.remedy.replace("--party NAME", 'send "party": "NAME"')) from None


def _check_finite(scores: Array, places: Sequence[int]) -> None:
    """Refuse rows with numbers so large that the model cannot compute with them."""
    finite = np.isfinite(scores).reshape(len(scores), -1).all(axis=1)
    if not finite.all():
        row = places[int(np.argmin(finite))]
        raise Refused(422, f"row {row} has numbers that are too large to compute with; the first row is 0",
                      "fix the value; /schema says what is usual", row=row)


def _check_version(versions: Versions, wanted: str) -> None:
    hashes = [one.sha256 for one in versions.all]
    if wanted and (len(wanted) < _SHORTEST_VERSION or not any(one.startswith(wanted) for one in hashes)):
        known = " and ".join(f"{one.sha256} ({one.role})" for one in versions.all)
        raise Refused(409, f"version '{wanted[:64]}' is not served here", f"answers come from {known}: ask for one of "
                      f"these by at least {_SHORTEST_VERSION} characters, or for none")


def _told(id: str, answer: Answered | None) -> dict[str, Any]:
    if answer is None:
        return {"id": id, "prediction": None, "version": None}
    told = {"id": id, "prediction": answer.prediction, "version": answer.version}
    return told if answer.probabilities is None else {**told, "probabilities": answer.probabilities}


def _class(answer: Answered) -> str:
    """The class for counting; numbers have none, and labels come in too many combinations."""
    return str(answer.prediction) if answer.value is None and not isinstance(answer.prediction, list) else ""


def _new_ids(count: int) -> list[str]:
    return [uuid4().hex for _ in range(count)]
