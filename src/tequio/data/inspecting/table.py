"""What is found in a table as a whole: its target, its parties, its rows; and the role of every column."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs.encoding import infer_target
from tequio.data.inputs.shapes import PARTY
from tequio.data.inspecting.columns import copies, facts_of
from tequio.data.inspecting.facts import FEWEST_ROWS, PartyFacts, TableFacts, TargetFacts
from tequio.data.inspecting.findings import findings_of
from tequio.data.inspecting.sampling import MOST_ROWS, sampled
from tequio.data.inspecting.scores import bins_of, outcome_of, party_folds, share_placed
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.inputs.column import Column, Columns
    from tequio.data.inspecting.columns import ColumnFacts, Role


_PLACED, _LARGEST_PARTY = 0.98, 0.9
_TARGETS = re.compile(r"target|label|class|outcome|diagnos|readmi|died|death|mortal|churn|default|risk|result|^y$",
                      re.IGNORECASE)
_PARTIES = re.compile(r"part(y|ies)$|hospital|clinic|klinik|site|cent(er|re)|school|branch|bank|store|region|institut"
                      r"|client|provider|organi[sz]ation|ward|standort", re.IGNORECASE)


def inspect_table(data: Any, *, target: str | Sequence[str] | None = None, party: str | None = None,
                  most: int = MOST_ROWS) -> TableFacts:
    """Look at a table in a file or an object."""
    name = Path(data).name if isinstance(data, str | PathLike) else "the table"
    sample = sampled(data, most)
    content, rows = sample.columns, sample.rows
    target, party = target or sample.target, party or (PARTY if "group" in sample.said else None)
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    _refuse(content, rows, targets, party, name)
    seen = len(next(iter(content.values())).values)
    wanted = _target_facts(content, targets)
    party_missing = int(content[party].missing.sum()) if party else 0
    known = ~np.logical_or.reduce([np.zeros(seen, dtype=bool), *(content[one].missing for one in (
        *targets, *((party,) if party else ())))])
    content = {column: values.take(known) for column, values in content.items()}
    outcomes = [outcome for one in targets if (outcome := outcome_of(
        content[one], is_number=wanted is not None and wanted.kind == "number")) is not None]
    roles: dict[str, Role] = dict.fromkeys(targets, "target")
    roles |= {party: "party"} if party else {}
    columns = _with_roles(facts_of(content, roles, outcomes), content, party)
    found = TableFacts(name, rows, seen, tuple(columns), outcomes[0].metric if outcomes else "", wanted, party or "",
                       _parties(content, party, wanted), party_missing, (), () if targets else _likely_targets(columns),
                       () if party else _likely_parties(columns), sample.said)
    return replace(found, findings=tuple(findings_of(found, content)))


def _refuse(content: Columns, rows: int, targets: Sequence[str], party: str | None, name: str) -> None:
    if not content or not rows:
        raise DataError(f"'{name}' has no rows", remedy="give a table with a line of names and rows below it")
    for one in (*targets, *((party,) if party else ())):
        if one not in content:
            raise DataError(f"'{name}' has no column '{one}'", remedy=nearest(one, content))
    if party in targets:
        raise DataError(f"'{party}' cannot be both the target and the party", remedy="name another column for one")


def _target_facts(content: Columns, names: Sequence[str]) -> TargetFacts | None:
    if not names:
        return None
    columns = [content[name].take(~content[name].missing) for name in names]
    kind = infer_target(columns, "auto", names[0]).kind
    # 0.0 and 1.0 are classes that some program wrote as numbers
    is_named = kind == "number" and len(np.unique(columns[0].values)) == 2
    kind = "classes" if is_named else kind
    lost = int(np.logical_or.reduce([content[name].missing for name in names]).sum())
    return TargetFacts(tuple(names), kind, _sizes(columns[0]) if kind == "classes" else {}, lost, is_named)


def _sizes(column: Column) -> dict[str, int]:
    names, sizes = np.unique(column.texts().astype(str), return_counts=True)
    return dict(zip(names.tolist(), sizes.tolist(), strict=True))


def _parties(content: Columns, party: str | None, target: TargetFacts | None) -> tuple[PartyFacts, ...]:
    if party is None:
        return ()
    names = content[party].texts().astype(str)
    labels = content[target.names[0]].texts().astype(str) if target and target.kind == "classes" else None
    found = []
    for name, rows in sorted(Counter(names.tolist()).items()):
        own = {} if labels is None else Counter(labels[names == name].tolist())
        found.append(PartyFacts(name, rows, {label: own[label] for label in target.classes} if target and own else {}))
    return tuple(found)


def _with_roles(columns: list[ColumnFacts], content: Columns, party: str | None) -> list[ColumnFacts]:
    """The columns with those left out that repeat another or name the party, and one id that names rows."""
    same = copies(content, [column.name for column in columns if column.role == "feature"])
    columns = [replace(column, role="out", reason=f"the same as {same[column.name]}") if column.name in same else column
               for column in columns]
    if party is not None:
        columns = _without_party_names(columns, content, content[party])
    rows = len(next(iter(content.values())).values)
    ids = [column.name for column in columns if column.kind == "id" and column.reason == "tells rows apart"
           and column.distinct == rows and not column.missing]
    return [replace(column, role="id") if column.name in ids[:1] else column for column in columns]


def _without_party_names(columns: list[ColumnFacts], content: Columns, party: Column) -> list[ColumnFacts]:
    parties = np.unique(party.texts().astype(str), return_inverse=True)[1].astype(np.int64)
    sizes = np.bincount(parties)
    if len(sizes) < 2 or sizes.max() > _LARGEST_PARTY * len(parties) or len(parties) < FEWEST_ROWS:
        return columns
    folds = party_folds(parties)
    return [replace(column, role="out", reason="says which party it is") if column.role == "feature"
            and column.kind not in ("text", "id") and _placed(content[column.name], parties, folds) else column
            for column in columns]


def _placed(column: Column, parties: NDArray[np.int64], folds: NDArray[np.int64]) -> bool:
    return share_placed(bins_of(column, categories=False), parties, folds) >= _PLACED


def _likely_targets(columns: Sequence[ColumnFacts]) -> tuple[str, ...]:
    """Up to three columns that may be meant: by their name, with two values, or the last one."""
    usable = [column for column in columns if column.role == "feature" and column.kind in ("number", "category")
              and not column.missing]
    points = {column.name: 2 * bool(_TARGETS.search(column.name)) + 2 * (column.distinct == 2)
              + (column is usable[-1]) for column in usable}
    return tuple(name for name in sorted(points, key=lambda name: -points[name]) if points[name])[:3]


def _likely_parties(columns: Sequence[ColumnFacts]) -> tuple[str, ...]:
    return tuple(column.name for column in columns if column.kind in ("category", "number", "ordered")
                 and 2 <= column.distinct <= 100 and not column.missing and _PARTIES.search(column.name))[:3]
