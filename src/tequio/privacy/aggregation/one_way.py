"""What a party remembers of a protocol, which only moves forward: whatever it is asked, it never goes back.

In a deployment that lies in files of its own, apart from the states that a coordinator may ask to go back to. Each step
appends a line to a journal, and is on the disk before its answer leaves. After a crash the journal decides: the same
request gets the same bytes again, any other that does not fit is refused, and the refusal is a line of the journal too.
In a simulation the same memory is part of the party's state, and answers are not kept.
"""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from tequio.errors import PermissionDenied, RunError, TequioError
from tequio.federation import payload as payloads
from tequio.federation.population import state_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

M = TypeVar("M")
R = TypeVar("R")

SECRETS = "secrets"
"""Under this name a memory holds what is erased when a protocol ends, runs out of time or is given up."""

_LASTS = 86_400.0
"""Seconds after which secrets of a step that nothing followed are erased."""


class Lines(TypedDict, total=False):
    """How many lines the journal of each protocol had when this state was made."""

    known: dict[str, int]


def answer_once(party: Party, kind: type[M], step: str, payload: Mapping[str, Any],
                work: Callable[[M], tuple[M, R]]) -> R:
    """Do one step of a protocol and keep it before its answer is returned.

    `work` gets what the party remembers under the typed record `kind` (empty at first), checks that the request fits,
    and gives what to remember from now on and the answer; what it raises leaves the memory as it was.
    """
    asked = sha256(payloads.encode({**payload, "step of protocol": step, "round of protocol": party.round})).hexdigest()
    folder = party.roster.folder
    if not folder:
        after, reply = _worked(work, cast("M", dict(cast("Payload", party.recall(kind)))))
        party.state[state_name(kind)] = after
        return reply
    files = _Files(Path(folder), state_name(kind))
    files.check_whole(party.recall(Lines).get("known", {}).get(files.name, 0))
    memory, known, answer = files.read()
    if known == asked:
        return cast("R", answer)
    try:
        after, reply = _worked(work, cast("M", memory))
    except TequioError as cause:
        files.note({"refused": cause.message, "step": step, "asked": asked})
        raise
    files.keep(cast("Payload", after), step, asked, cast("Payload", reply))
    party.keep(Lines, {"known": {**party.recall(Lines).get("known", {}), files.name: files.lines}})
    return reply


def _worked(work: Callable[[M], tuple[M, R]], memory: M) -> tuple[M, R]:
    """The step done; a message that it stumbles over is refused like any other that does not fit."""
    try:
        return work(memory)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as cause:
        raise PermissionDenied(f"a message of a protocol is not well formed ({type(cause).__name__})",
                               remedy="let the coordinator run a version of tequio that this party knows") from cause


def memory_of(party: Party, kind: type[M]) -> M:
    """What a party remembers of a protocol, to look at."""
    folder = party.roster.folder
    return cast("M", _Files(Path(folder), state_name(kind)).read()[0]) if folder else party.recall(kind)


def erase_secrets(folder: Path) -> None:
    """The run is over: what its protocols held secret is erased."""
    for path in folder.glob("*.jsonl"):
        files = _Files(folder, path.stem)
        memory, _, _ = files.read()
        memory.pop(SECRETS, None)
        files.keep(memory, "over", "", {})


class _Files:
    """The journal of one protocol in one run, and beside it what is remembered now with the last answer."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = name
        self._journal, self._now, self._next = (folder / f"{name}.{end}" for end in ("jsonl", "now", "next"))
        written = self._journal.read_bytes() if self._journal.exists() else b""
        # A line without its end was being written when the party fell: it never counted.
        self._lines = [json.loads(line) for line in written.split(b"\n")[:-1]]
        if written and not written.endswith(b"\n"):
            _write(self._journal, written[:written.rfind(b"\n") + 1], "wb")

    @property
    def lines(self) -> int:
        """How many lines the journal has."""
        return len(self._lines)

    def check_whole(self, known: int) -> None:
        """Refuse to go on with a journal that lacks lines which the party knows of."""
        if len(self._lines) < known:
            raise RunError(f"the journal '{self._journal.name}' of this run has {len(self._lines)} lines, and the "
                           f"party has written {known}", remedy="put the journal back, or take part in a new run: "
                                                                "nothing is answered without it")

    def read(self) -> tuple[Payload, str, Payload]:
        """What is remembered, which request came last, and what the answer to it was."""
        last = next((line for line in reversed(self._lines) if "now" in line), None)
        if last is None:
            return {}, "", {}
        for path in (self._now, self._next):
            content = path.read_bytes() if path.exists() else b""
            if sha256(content).hexdigest() == last["now"]:
                if path == self._next:
                    os.replace(self._next, self._now)
                found = payloads.decode(content)
                if time.time() - found["at"] > _LASTS:
                    found["memory"].pop(SECRETS, None)
                    found["asked"] = ""
                return found["memory"], found["asked"], found["answer"]
        raise RunError(f"what '{self._journal.name}' says was remembered last is not there",
                       remedy="put the folder back, or take part in a new run: nothing is answered without it")

    def keep(self, memory: Payload, step: str, asked: str, answer: Payload) -> None:
        """A step was made: on the disk before anything leaves."""
        content = payloads.encode({"memory": memory, "asked": asked, "answer": answer, "at": time.time()})
        _write(self._next, content, "wb")
        self.note({"step": step, "asked": asked, "now": sha256(content).hexdigest()})
        os.replace(self._next, self._now)

    def note(self, line: dict[str, str]) -> None:
        """Append a line."""
        _write(self._journal, json.dumps(line).encode() + b"\n", "ab")
        self._lines.append(line)


def _write(path: Path, content: bytes, mode: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if mode == "ab" else os.O_TRUNC), 0o600),
                  mode) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as cause:
        raise PermissionDenied("a step of a protocol cannot be written down, and so is not answered",
                               remedy="free some space on the party's disk") from cause
