"""What there is to say about a table, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.data.inspecting.facts import FEWEST_ROWS, SMALL_PARTY, Finding, TableFacts, TargetFacts, count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.inputs.column import Columns


def findings_of(found: TableFacts, content: Columns) -> list[Finding]:
    """All sentences: on rows, the target, the parties and the columns."""
    return [*_on_rows(found, content), *_on_target(found), *_on_parties(found), *_on_columns(found, content)]


def _on_rows(found: TableFacts, content: Columns) -> list[Finding]:
    findings = []
    if found.rows < FEWEST_ROWS:
        findings.append(Finding("problem", f"a table of fewer than {FEWEST_ROWS} rows cannot be dealt to parties and "
                                           "split"))
    if found.is_sample:
        findings.append(Finding("check", f"the table has {found.rows:,} rows; a sample of {found.seen:,} was looked "
                                         "at, the same one each time"))
    names = [column.name for column in found.columns if column.kind != "id"]
    repeated = _repeated(content, names)
    if repeated:
        findings.append(Finding("check", f"{count_text(repeated)} rows repeat an earlier one (ids aside): they may "
                                         "end up both in training and in test rows"))
    return findings


def _repeated(content: Columns, names: Sequence[str]) -> int:
    codes = [np.unique(content[name].values.astype(str) if content[name].is_text else content[name].values,
                       return_inverse=True)[1] for name in names]
    if not codes or not len(codes[0]):
        return 0
    return len(codes[0]) - len(np.unique(np.stack(codes, axis=1).astype(np.int32), axis=0))


def _on_target(found: TableFacts) -> list[Finding]:
    target = found.target
    if target is None:
        return []
    findings, name = [], target.names[0]
    if target.missing:
        findings.append(Finding("acts", f"'{name}' is missing in {count_text(target.missing)} rows, which are "
                                        "dropped"))
    if target.kind == "classes" and len(target.classes) < 2:
        findings.append(Finding("problem", f"'{name}' has one class only: there is nothing to predict"))
    if target.kind == "classes" and len(target.classes) > max(50, found.seen // 20):
        findings.append(Finding("problem", f"'{name}' has {len(target.classes):,} classes, too many for "
                                           f"{found.seen:,} rows: is it an id or a text?"))
    if target.is_unbalanced:
        findings.append(Finding("acts", _on_balance(target)))
    return findings


def _on_balance(target: TargetFacts) -> str:
    common = max(target.classes, key=lambda label: target.classes[label])
    return (f"{target.share(common):.1%} of the rows are of class '{common}', so accuracy says little: results are "
            "compared by balanced accuracy")


def _on_parties(found: TableFacts) -> list[Finding]:
    if not found.party:
        return []
    findings, sizes = [], [party.rows for party in found.parties]
    if found.party_missing:
        findings.append(Finding("acts", f"'{found.party}' is missing in {count_text(found.party_missing)} rows, which "
                                        "are dropped"))
    small = [party.name for party in found.parties if party.rows < SMALL_PARTY]
    if len(small) == len(found.parties):
        findings.append(Finding("problem", f"every value of '{found.party}' has fewer than {SMALL_PARTY} rows: it does "
                                           "not name parties"))
    elif small:
        have, are = ("have", "are") if len(small) > 1 else ("has", "is")
        findings.append(Finding("acts", f"{_listed(small)} {have} fewer than {SMALL_PARTY} " + (
            "of the rows looked at; parties that are as small in the whole table are left out" if found.is_sample else
            f"rows and {are} left out")))
    if len(sizes) == 1:
        findings.append(Finding("check", f"'{found.party}' has one value only, so there is one party"))
    lacking = [party.name for party in found.parties if party.may_lack_a_class and party.name not in small]
    if lacking and found.target and len(found.target.classes) > 1:
        findings.append(Finding("acts", f"{_listed(lacking)} may hold rows of one class only, which is allowed"))
    return findings


def _on_columns(found: TableFacts, content: Columns) -> list[Finding]:
    findings = []
    if not found.of("feature"):
        findings.append(Finding("problem", "no column is left to learn from"))
    leaks = [column for column in found.of("out") if column.reason.startswith("leak?")]
    findings += [Finding("acts", f"'{leak.name}' alone predicts the target almost without error ({found.metric} "
                                 f"{leak.score:.3f}): most likely it is only known afterwards, so it is left out")
                 for leak in leaks[:4]]
    findings += [Finding("check", f"'{column.name}' alone predicts the target very well ({found.metric} "
                                  f"{column.score:.3f}): is it known at the time of the prediction?")
                 for column in found.of("feature") if column.reason.startswith("check:")][:4]
    findings += [Finding("check", f"'{column.name}' holds {column.reason}, and is read as text: " + (
        "to read it as numbers set data.mapping.decimal = \",\"" if "commas" in column.reason else
        "correct these values, or name them in data.mapping.missing"))
                 for column in found.columns if column.reason.startswith("numbers")][:4]
    gaps = [column for column in found.of("feature") if column.missing]
    if gaps:
        rows = int(np.logical_or.reduce([content[column.name].missing for column in gaps]).sum())
        findings.append(Finding("acts", f"{len(gaps)} {'columns have' if len(gaps) > 1 else 'column has'} missing "
                                        f"values, in {rows / found.seen:.1%} of the rows: these are kept, not dropped"))
    several = [column.name for column in found.columns if column.kind == "id" and 0 < column.distinct + column.missing
               < len(content[column.name].values)]
    if several:
        findings.append(Finding("check", f"some values of {_listed(several)} are in several rows: rows of one patient "
                                         "or customer may end up both in training and in test rows"))
    return findings


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
