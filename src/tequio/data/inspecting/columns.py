"""What is found in one column at a time, and what is to be done with it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.data.inputs.kinds import DATE_FORMATS, MINIMUM_COUNT, Plan, as_dates, common, plans_of, spoiled_numbers
from tequio.data.inspecting.scores import bins_of, monotone_score, score, text_score
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Column, Columns
    from tequio.data.inputs.kinds import Kind
    from tequio.data.inspecting.scores import Outcome


Role = Literal["feature", "target", "party", "id", "out"]
"""`out` is left out: neither learned from nor used otherwise."""

LEAKS, SUSPECT = {"AUC": 0.99, "R²": 0.95}, {"AUC": 0.95, "R²": 0.85}
NEARLY_CONSTANT = 0.99
FEWEST_SHOWN = MINIMUM_COUNT
"""Smaller counts of a class or a category are not shown, and neither are the names of such categories."""

_CODES = re.compile(r"code|type|kind|categor|zip|plz|postal|icd|region|district", re.IGNORECASE)
SCALES = tuple(tuple(scale.split()) for scale in (
    "low medium high", "low moderate high", "low normal high", "none mild moderate severe", "mild moderate severe",
    "never rarely sometimes often always", "poor fair good excellent", "small medium large", "xs s m l xl xxl",
    "never former current", "bad average good", "i ii iii iv v", "niedrig mittel hoch", "gering mittel hoch",
    "leicht mittel schwer", "primary secondary tertiary", "bronze silver gold", "low high"))


@dataclass(frozen=True)
class ColumnFacts:
    """One column: what it holds, how well it alone predicts the target, and what is to be done with it.

    `reason` says in a few words why a column is left out or worth a look.
    """

    name: str
    kind: Kind
    role: Role
    plan: Plan
    rows: int
    distinct: int
    missing: int
    commonest: float
    score: float | None = None
    reason: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether all values that are there are the same."""
        return self.distinct == 1


def facts_of(content: Columns, roles: Mapping[str, Role], outcomes: Sequence[Outcome]) -> list[ColumnFacts]:
    """Facts of every column; rows that lack the target have been taken away."""
    features = [name for name in content if name not in roles]
    plans, _ = plans_of(content, features, {})
    plans |= {name: Plan("number" if not content[name].is_text else "category") for name in roles}
    return [_facts(content[name], plans[name], roles.get(name, "feature"), outcomes) for name in content]


def _facts(column: Column, plan: Plan, role: Role, outcomes: Sequence[Outcome]) -> ColumnFacts:
    column, plan, reason = _dated(column, plan) if plan.kind == "date" else (column, plan, "")
    _, sizes = np.unique(column.present.astype(str) if column.is_text else column.present, return_counts=True)
    facts = ColumnFacts(column.name, plan.kind, role, plan, len(column.values), len(sizes), int(column.missing.sum()),
                        float(sizes.max(initial=0) / max(len(column.present), 1)), reason=reason)
    if role != "feature":
        return facts
    if plan.kind == "category":
        facts = replace(facts, plan=_on_a_scale(column, plan))
        facts = replace(facts, kind=facts.plan.kind)
    return _judged(replace(facts, score=_score(column, plan, outcomes)), column, outcomes)


def _dated(column: Column, plan: Plan) -> tuple[Column, Plan, str]:
    """The column as days, with the format where the values leave it open; as it was, left out, where none fits."""
    try:
        return as_dates(column), plan, ""
    except DataError:
        for format in DATE_FORMATS:
            try:
                dated = as_dates(column, format)
            except DataError:
                continue
            return dated, Plan("date", format=format), f"day or month first? read as {format}"
    return column, Plan("ignore"), "dates written in several ways"


def _on_a_scale(column: Column, plan: Plan) -> Plan:
    """The plan of an ordered column where its categories are the steps of a usual scale, each with enough rows."""
    if not column.is_text:
        return plan
    names, sizes = np.unique(column.present.astype(str), return_counts=True)
    known = {name.lower(): name for name in names.tolist()}
    for scale in SCALES:
        if 3 <= len(known) == len(names) and known.keys() <= set(scale) and sizes.min() >= FEWEST_SHOWN:
            return Plan("ordered", tuple(known[step] for step in scale if step in known))
    return plan


def _score(column: Column, plan: Plan, outcomes: Sequence[Outcome]) -> float | None:
    """The best of its scores over the targets."""
    if plan.kind == "text":
        found = [text_score(column, outcome) for outcome in outcomes]
    else:
        bins = bins_of(column, categories=plan.kind == "id")
        found = [score(bins, outcome) for outcome in outcomes]
        if plan.kind in ("number", "date"):
            found += [monotone_score(column, outcome) for outcome in outcomes]
    return max((one for one in found if one is not None), default=None)


def _judged(facts: ColumnFacts, column: Column, outcomes: Sequence[Outcome]) -> ColumnFacts:
    metric = outcomes[0].metric if outcomes else ""
    level = facts.score if facts.score is not None else -1.0
    if not facts.distinct:
        return replace(facts, role="out", kind="ignore", reason="holds no values")
    if level >= LEAKS.get(metric, 2.0):
        return replace(facts, role="out", reason=f"leak? {metric} {level:.3f} alone")
    if facts.kind == "ignore":
        return replace(facts, role="out")
    if facts.kind == "id":
        return replace(facts, role="out", reason=spoiled_numbers(column) or "tells rows apart")
    if facts.is_constant and not facts.missing:
        return replace(facts, role="out", reason="always the same value")
    if level >= SUSPECT.get(metric, 2.0):
        return replace(facts, reason=f"check: {metric} {level:.3f} alone")
    return replace(facts, reason=facts.reason or spoiled_numbers(column) or _worth_a_look(facts, column))


def _worth_a_look(facts: ColumnFacts, column: Column) -> str:
    if facts.commonest >= NEARLY_CONSTANT:
        return f"{facts.commonest:.1%} are one value"
    if facts.kind == "number" and column.whole and 2 < facts.distinct <= 50 and _CODES.search(column.name):
        return 'codes? then kind "category"'
    if facts.kind == "text":
        return f"words, in {facts.plan.width} columns"
    if facts.kind == "hashed":
        return f"hashed to {facts.plan.width} categories"
    if facts.kind == "date":
        return "as parts of the date"
    if facts.kind == "ordered":
        return "in order: " + " < ".join(facts.plan.order)
    rare = common(column, MINIMUM_COUNT)[1] if facts.kind == "category" else 0
    return f"{rare} rare categories together" if rare > 1 else ""


def copies(content: Columns, names: Iterable[str]) -> dict[str, str]:
    """Columns that hold the same as an earlier one, with the earlier one's name."""
    first: dict[bytes, str] = {}
    found = {}
    for name in names:
        earlier = first.setdefault(_digest(content[name]), name)
        if earlier != name:
            found[name] = earlier
    return found


def _digest(column: Column) -> bytes:
    values: Array = np.unique(column.values.astype(str), return_inverse=True)[1] if column.is_text else column.values
    texts = "\0".join(sorted(set(column.present))) if column.is_text else ""
    return hashlib.sha256(values.tobytes() + column.missing.tobytes() + texts.encode()).digest()
