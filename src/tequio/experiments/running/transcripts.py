"""What the messages of a run show afterwards: the transcript of verified sums, and who saw what in a vertical run.

Every message goes through the coordinator. It sees all that parties send; a party sees what it is sent.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tequio import registry
from tequio.algorithms.vertical.conversation import MESSAGES as KIND
from tequio.algorithms.vertical.conversation import meaning_of
from tequio.errors import RunError
from tequio.experiments.running.store import EVENTS, LEAKAGE, MESSAGES, SUMMARY, Plain, explained, write_whole
from tequio.experiments.running.table import Table
from tequio.privacy.aggregation.keys import fresh_key, is_signed
from tequio.privacy.verification.proofs import complete, receipt_words, wrong_with_sum
from tequio.privacy.verification.transcript import Finding, Transcript, broken_lines
from tequio.privacy.verification.verified import Verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tequio.federation.algorithm import Algorithm
    from tequio.privacy.verification.proofs import Facts
    from tequio.privacy.verification.transcript import Line


TRANSCRIPT, KEY = "transcript.jsonl", "coordinator.key"


def kept_transcript(folder: Path, algorithm: Algorithm, round: int) -> Transcript | None:
    """The transcript of a run, as far as a round, if its algorithm has one kept; new lines go into its folder."""
    if not any(isinstance(stage, Verified) for stage in algorithm.components.stages):
        return None
    lines = [line for line in read_lines(folder) if line["body"].get("round", 0) <= round] if round else []
    write_whole(folder / TRANSCRIPT, b"".join(_as_bytes(line) for line in lines))
    return Transcript(_key(folder), lines, lambda line: _append(folder / TRANSCRIPT, line))


def read_lines(folder: Path) -> list[Line]:
    """The lines of a run's transcript; what is no line stays one that says so."""
    path = folder / TRANSCRIPT
    if not path.is_file():
        raise RunError(f"the run '{folder.name}' has no transcript",
                       remedy="runs keep one where their config has: [[stages]] name = 'verified'")
    return [_line(text) for text in path.read_text(encoding="utf-8", errors="replace").splitlines()]


@dataclass(frozen=True)
class Verdict:
    """What a check of a transcript found; `sums` were proved, of `counted` only who was counted could be checked."""

    lines: int
    sums: int
    counted: int
    receipts: int
    findings: tuple[Finding, ...]


def verify_run(folder: Path) -> Verdict:
    """Check the chain, the signatures, every proof and every receipt of a run's transcript."""
    lines = read_lines(folder)
    findings = list(broken_lines(lines))
    sound = lines[:findings[0].line] if findings else lines
    findings += [found for found in map(_wrong_with, sound, [sound] * len(sound)) if found]
    if not findings and (folder / SUMMARY).is_file():
        findings += _wrong_end(lines, json.loads((folder / SUMMARY).read_text()))
    sums = [cast("Facts", line["body"]) for line in sound if line["body"].get("kind") == "sum"]
    proved = sum(map(complete, sums))
    receipts = sum(len(line["body"]["parties"]) for line in sound if line["body"].get("kind") == "receipts")
    return Verdict(len(lines), proved, len(sums) - proved, receipts, tuple(findings))


def _wrong_with(line: Line, lines: Sequence[Line]) -> Finding | None:
    """What is wrong with a line that is in its place and signed."""
    body = line["body"]
    try:
        what = wrong_with_sum(cast("Facts", body)) if body["kind"] == "sum" else \
            next(_false_receipts(body, lines), "") if body["kind"] == "receipts" else ""
    except (KeyError, TypeError, ValueError, IndexError) as cause:
        what = f"it cannot be understood ({cause!r})"
    return Finding(line["index"], what) if what else None


def _false_receipts(body: Plain, lines: Sequence[Line]) -> Iterator[str]:
    about = lines[body["about"]]
    identities = dict(zip(about["body"]["parties"], about["body"]["identities"], strict=True))
    for party, signed in zip(body["parties"], body["signatures"], strict=True):
        if not is_signed(bytes.fromhex(identities[party]), bytes.fromhex(signed), receipt_words(about["hash"])):
            yield f"party {party} has not signed its receipt for line {body['about']}"


def _wrong_end(lines: Sequence[Line], summary: Plain) -> list[Finding]:
    last = lines[-1]["body"] if lines else {}
    if last.get("kind") != "end":
        return [Finding(len(lines), "the run has ended and its transcript has no last line: lines were cut off")]
    if last["model_sha256"] != summary["model_sha256"]:
        return [Finding(len(lines) - 1, "the run's model is another one than its transcript says")]
    return []


def _key(folder: Path) -> bytes:
    """The coordinator's signing key, which only its owner can read."""
    path = folder / KEY
    if path.is_file():
        return bytes.fromhex(path.read_text())
    seed = fresh_key()
    with explained(path), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(seed.hex())
    return seed


def _append(path: Path, line: Line) -> None:
    with explained(path), path.open("ab") as file:
        file.write(_as_bytes(line))
        file.flush()
        os.fsync(file.fileno())


def _as_bytes(line: Line) -> bytes:
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def _line(text: str) -> Line:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    return cast("Line", line if isinstance(line, dict) and isinstance(line.get("body"), dict) else {"body": {}})


COORDINATOR = "coordinator"


def write_messages(folder: Path) -> None:
    """Put both tables into the folder of a run that has such messages on record."""
    for name, table in ((MESSAGES, message_table(folder)), (LEAKAGE, leakage_table(folder))):
        if len(table):
            write_whole(folder / name, table.to_csv().encode())


def message_table(folder: Path) -> Table:
    """One row a party and task: how often it was asked, bytes both ways, and how long it worked and waited for others.

    A party that is not asked waits for those who are.
    """
    totals: dict[tuple[str, str, str], Plain] = {}
    for event in _events(folder):
        key = (event["party"], event["role"], event["task"])
        row = totals.setdefault(key, dict.fromkeys(_SUMS, 0))
        for name in _SUMS:
            row[name] += event[name]
    table = Table()
    for (party, role, task), row in sorted(totals.items()):
        table.add({"party": party, "role": role, "task": task, **row})
    return table


def leakage_table(folder: Path) -> Table:
    """One row for each who and field: what they saw, in what form, how much of it, and what it tells."""
    registry.load_everything()  # what fields mean is said beside the tasks
    seen: dict[tuple[str, str, str, str], Plain] = {}
    for event in _events(folder):
        for who, role, fields in ((event["party"], event["role"], event["down"]), (COORDINATOR, COORDINATOR,
                                                                                  event["up"])):
            for field, facts in _joined(fields).items():
                row = seen.setdefault((who, role, event["task"], field),
                                      {"kind": facts["kind"], "shape": facts["shape"], "numbers": 0, "messages": 0})
                row["shape"] = max(row["shape"], facts["shape"])
                row["numbers"] += facts["amount"]
                row["messages"] += event["times"]
    table = Table()
    for (who, role, task, field), row in sorted(seen.items(), key=lambda item: (item[0][0] == COORDINATOR, item[0])):
        table.add({"who": who, "role": role, "task": task, "field": field, **row,
                   "shape": " x ".join(map(str, row["shape"])) or "one", "tells": meaning_of(task, field)})
    return table


_SUMS = ("times", "bytes_down", "bytes_up", "seconds", "waiting_seconds")


def _joined(fields: dict[str, Plain]) -> dict[str, Plain]:
    """Fields inside another, such as `gradients/1` for each party, count as one, of the form of the largest of them."""
    joined: dict[str, Plain] = {}
    for path, facts in fields.items():
        name = path.partition("/")[0]
        old = joined.get(name, {"amount": 0, "largest": -1})
        larger = facts if facts["amount"] > old["largest"] else old
        joined[name] = {"kind": larger["kind"], "shape": larger["shape"], "amount": old["amount"] + facts["amount"],
                        "largest": max(facts["amount"], old["largest"])}
    return joined


def _events(folder: Path) -> Iterator[Plain]:
    mark = f'{{"event": "{KIND}"'
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(mark):
                yield json.loads(line)
