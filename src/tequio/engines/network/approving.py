"""What a person at the party decides about: a run as it was announced, what changed since the last time, and the cost.

The words of an announcement come from the coordinator. They are shown with everything spelt out that does not print, or
that is made to be taken for other letters, so that they cannot steer a terminal. A decision names the hash of what the
person saw; if the announcement has changed since, there is no decision.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from textwrap import wrap
from typing import TYPE_CHECKING, TypedDict, cast

from tequio.engines.network.files import Document, private_folder, write_private
from tequio.engines.network.policy import Approvals
from tequio.engines.network.telemetry import AuditLog, entries, verify
from tequio.errors import ConfigError, PermissionDenied
from tequio.federation.task import Reveals
from tequio.gate.policy import read_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tequio.engines.network.homes import PartyHome


NOT_STATED = "not stated"
Difference = list[tuple[str, object, object]]
"""Where two announcements differ: the path of a value, the old one and the new one; None where there is none."""

_FIRST = ("algorithm", "learner", "stages", "split", "rounds", "parties")
_LONGEST = 2000
_WIDTH = 78
_WORD = re.compile(r"[^\W_]+")
_BLANK = frozenset("\u115f\u1160\u17b4\u17b5")
_LIKE_LATIN = frozenset("АВЕЅІЈКМНОРСТХУЗаеѕіјорсухԁԛԝһԍѵӏґгпкѡ" "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορτυικγϲϳ" "ՏՕԼսոօցհզ")
"""Letters of other scripts that look like Latin ones."""


class TaskWords(TypedDict):
    """One task of a run: what its reply reveals, what covers that, and what it costs."""

    task: str
    reveals: str
    covered_by: str
    cost: str


@dataclass(frozen=True)
class Asked:
    """A run that asked for approval. `hash` stands for all that was announced; `by` and `at` are of the decision."""

    run: str
    hash: str
    facts: Mapping[str, object]
    decision: str
    by: str
    at: str
    note: str
    before: Mapping[str, object] | None
    tasks: tuple[TaskWords, ...]
    epsilon: float | None

    @property
    def state(self) -> str:
        """What a person would call it."""
        return self.decision or "waits for approval"

    @property
    def words(self) -> list[tuple[str, str]]:
        """The most important things that were announced."""
        return [(key, in_words(self.facts.get(key))) for key in _FIRST]

    @property
    def rest(self) -> list[tuple[str, str]]:
        """Everything else that was announced."""
        return [(key, in_words(self.facts[key])) for key in sorted(self.facts) if key not in _FIRST]

    @property
    def groups(self) -> list[tuple[str, TaskWords]]:
        """The tasks, those together that reveal the same, under the same cover, at the same cost."""
        found: dict[tuple[str, str, str], list[TaskWords]] = {}
        for task in self.tasks:
            found.setdefault((task["reveals"], task["covered_by"], task["cost"]), []).append(task)
        groups = [(", ".join(task["task"] for task in alike), alike[0]) for alike in found.values()]
        return sorted(groups, key=lambda group: group[1]["reveals"] == Reveals.NOTHING.value)

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """How it differs from the version that was approved before, in words; empty if there was none."""
        return [] if self.before is None else [(visible(path), in_words(old), in_words(new))
                                               for path, old, new in difference(self.before, self.facts)]

    def to_plain(self) -> Document:
        """As JSON, with the changes beside the announcement."""
        kept, changes = asdict(self), None if self.before is None else difference(self.before, self.facts)
        return {"asked": kept.pop("facts"), **kept, "changes": changes}

    @property
    def cost(self) -> str:
        """The privacy loss of this run."""
        return NOT_STATED if self.epsilon is None else f"epsilon {self.epsilon:.4g}"


def asked(home: PartyHome) -> dict[str, Asked]:
    """All runs that asked this party for approval, by name."""
    decided = {(entry.get("run"), entry.get("announcement")): {**entry, "at": entry.get("time")}
               for entry in entries(_history(home))}
    return {run: _asked(run, kept, decided) for run, kept in Approvals(home.folder / "approvals").all().items()}


def _asked(run: str, kept: Document, decided: Mapping[tuple[object, object], Document]) -> Asked:
    """One run from what the gate keeps about it, whatever it left out."""
    facts, cost = kept.get("asked") or {}, kept.get("epsilon")
    known = {key: str(kept.get(key) or "") for key in ("decision", "by", "at", "note")}
    tasks = tuple(cast("TaskWords", {key: _reveals(task.get(key)) if key == "reveals" else in_words(task.get(key))
                                   for key in TaskWords.__required_keys__}) for task in kept.get("tasks") or ())
    shown = str(kept.get("hash") or _hash(facts))
    if known["decision"]:
        known |= {key: str(value) for key, value in decided.get((run, shown), {}).items() if key in known}
    return Asked(run, shown, facts, before=kept.get("before"), tasks=tasks,
                 epsilon=None if cost is None else float(cost), **known)


def _hash(facts: Mapping[str, object]) -> str:
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _reveals(name: object) -> str:
    """What a reply reveals, in words."""
    known = Reveals.__members__.get(str(name).upper())
    return str(known.value) if known is not None else "sums over rows" if name == "sums" else in_words(name)


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> Difference:
    """Where two announcements differ, in the order of their paths, such as `stages[0].parameters.noise`."""
    return list(_differences("", before, after))


def _differences(path: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys(), key=str):
            yield from _differences(f"{path}.{key}" if path else str(key), old.get(key), new.get(key))
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        for index in range(max(len(old), len(new))):
            yield from _differences(f"{path}[{index}]", *(side[index] if index < len(side) else None
                                                          for side in (old, new)))
    elif type(old) is not type(new) or old != new:
        yield path, old, new


def in_words(value: object) -> str:
    """A value of an announcement on one line; components as `name (parameter = value)`."""
    text = NOT_STATED if value is None else _plain(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text) - _LONGEST} more characters)"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        component, parameters = value.get("$component"), value.get("parameters")
        if isinstance(component, list) and len(component) == 2 and isinstance(parameters, dict):
            value = {"name": component[1], **parameters}
        rest = {key: item for key, item in value.items() if key != "name"}
        if isinstance(value.get("name"), str):
            return f"{visible(value['name'])} ({_plain(rest)})" if rest else visible(value["name"])
        return ", ".join(f"{visible(str(key))} = {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        nested = any(isinstance(item, dict) for item in value)
        return "; ".join(map(_plain, value)) if nested else f"[{', '.join(map(_plain, value))}]" if value else "none"
    return visible(str(value)) or "none"


def visible(text: str) -> str:
    """A text in which what does not print or has no width of its own is spelt out (control characters, marks that turn
    its direction or change the letter before them), and letters that may be taken for Latin ones: those of
    other forms, of other scripts in one word with Latin letters, and of words that have no others."""
    if text.isascii() and text.isprintable():
        return text
    return _WORD.sub(_plain_word, "".join(mark if _is_plain(mark) else mark.encode("unicode_escape").decode()
                                          for mark in unicodedata.normalize("NFC", text)))


def _is_plain(mark: str) -> bool:
    """Whether a mark is of Latin-1, or a letter or digit that is no other form of some other one, nor a blank."""
    return mark.isprintable() and (ord(mark) < 0x100 or (
        unicodedata.category(mark)[0] in "LN" and unicodedata.normalize("NFKC", mark) == mark and mark not in _BLANK))


def _plain_word(found: re.Match[str]) -> str:
    word = found[0]
    others = {mark for mark in word if ord(mark) >= 0x100 and not unicodedata.name(mark, "").startswith("LATIN ")}
    if not (any(mark.isalpha() for mark in set(word) - others) or others <= _LIKE_LATIN):
        return word
    return "".join(mark.encode("unicode_escape").decode() if mark in others else mark for mark in word)


def decide(home: PartyHome, run: str, *, approved: bool, shown: str, by: str, note: str = "") -> None:
    """Note a person's decision about what was shown to them; refused if the announcement has changed since."""
    with _deciding(home):
        _refuse_changed(home, run, shown)
        approvals = Approvals(home.folder / "approvals")
        approvals.decide(run, approved=approved)
        try:  # the party may have heard of another announcement in between
            _refuse_changed(home, run, shown)
        except PermissionDenied:
            approvals.decide(run, approved=False)
            raise
        AuditLog(_history(home)).note("approved" if approved else "denied", run=run, by=by, note=note,
                                       announcement=shown)


def _refuse_changed(home: PartyHome, run: str, shown: str) -> None:
    waiting = asked(home).get(run)
    if waiting is None:
        raise ConfigError(f"no run {visible(run)[:80]!r} waits for approval", remedy="see: tequio party runs")
    if waiting.hash != shown:
        raise PermissionDenied(f"the announcement of '{run}' is not the one that was shown: it changed",
                               remedy=f"look again: tequio party runs --home {home.folder}")


def note_shown(home: PartyHome, runs: Iterable[Asked]) -> None:
    """Keep what a person saw in the terminal, so that they decide about that and nothing newer."""
    with _deciding(home):
        write_private(_shown(home), json.dumps(_all_shown(home) | {run.run: run.hash for run in runs}).encode())


def last_shown(home: PartyHome, run: str) -> str:
    """The hash of the announcement that was shown of a run; empty if none was."""
    return _all_shown(home).get(run, "")


def _all_shown(home: PartyHome) -> dict[str, str]:
    found: dict[str, str] = json.loads(_shown(home).read_bytes()) if _shown(home).exists() else {}
    return found


def _shown(home: PartyHome) -> Path:
    return home.folder / "shown.json"


@contextmanager
def _deciding(home: PartyHome) -> Iterator[None]:
    """One decision at a time: the page and the terminal write the same history."""
    path = private_folder(home.folder) / "deciding.lock"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except (ImportError, OSError):
            pass  # some systems and some network folders know no locks
        yield


def history(home: PartyHome) -> list[Document]:
    """All decisions, oldest first. Like the audit log, a history that was changed is refused."""
    verify(_history(home))
    return entries(_history(home))


def _history(home: PartyHome) -> Path:
    return home.folder / "decisions.jsonl"


def this_user() -> str:
    """Who is at the keyboard, as the operating system knows them: environment variables do not count."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        import getpass

        return getpass.getuser()


def spent_and_left(home: PartyHome) -> tuple[str, str]:
    """The privacy loss of this party's rows over all runs, and what is left of the budget, in words."""
    budget, ledgers = read_policy(home.policy).budget, home.ledgers()
    if budget is None:
        return NOT_STATED, "the policy has no budget"
    which = [f" (rows {ledger.path.stem[:12]})" if len(ledgers) > 1 else "" for ledger in ledgers]
    spent = [f"epsilon {ledger.epsilon(budget.delta):.4g} at delta = {budget.delta:g}{rows}"
             for ledger, rows in zip(ledgers, which, strict=True)]
    left = [f"epsilon {ledger.left(budget.epsilon, budget.delta):.4g} of {budget.epsilon:g}{rows}"
            for ledger, rows in zip(ledgers, which, strict=True)]
    return ("; ".join(spent) or "nothing was spent under the budget",
            "; ".join(left) or f"epsilon {budget.epsilon:g} of {budget.epsilon:g}")


def ledger_rows(home: PartyHome) -> list[dict[str, str]]:
    """What was spent on this party's rows, a row for each run and asker."""
    budget = read_policy(home.policy).budget
    delta = 1e-5 if budget is None else budget.delta
    return [{"run": visible(line["run"]), "asked by": visible(line["by"])[:12], "releases": f"{line['releases']:,}",
             "under": visible(", ".join([line["mechanism"], *line["tasks"]])),
             "epsilon alone": "none" if line["epsilon"] is None else f"{line['epsilon']:.4g}",
             "last": line["last"][:19].replace("T", " "), "rows": ledger.path.stem[:12]}
            for ledger in home.ledgers() for line in ledger.lines(delta)]


def as_text(run: Asked, *, whole: bool = True) -> Iterator[str]:
    """What a person should know about a run before they decide, for a terminal of 80 columns; or only its state."""
    yield f"{visible(run.run)}: {run.state}"
    if run.by or run.at:
        yield from _field("decided", " ".join(filter(None, [f"by {visible(run.by)}" if run.by else "", run.at])))
    if run.note:
        yield from _field("note", visible(run.note))
    if not whole:
        return
    for key, value in run.words:
        yield from _field(visible(key), value)
    yield from _field("costs", run.cost)
    if not run.tasks:
        yield from _field("tasks", NOT_STATED)
    for names, task in run.groups:
        yield from _field("reveals", f"{task['reveals']}: {names} (covered by: {task['covered_by']}; costs: "
                                     f"{task['cost']})")
    for key, value in run.rest:
        yield from _field(visible(key), value)
    for path, old, new in run.changes:
        yield from _field("changed", f"{path}: {old} -> {new}")
    yield from _field("hash", run.hash)


def _field(name: str, value: str) -> Iterator[str]:
    yield from wrap(f"{name:<10} {value}", _WIDTH, initial_indent="  ", subsequent_indent=" " * 13,
                    break_on_hyphens=False)
