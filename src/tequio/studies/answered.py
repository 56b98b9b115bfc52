"""A study with all that its runs say: rows, contests, rankings and claims, from stored runs or from kept numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.experiments.running.recording import as_json
from tequio.studies.answers import answer, decide, row_of
from tequio.studies.claims import check_claims
from tequio.studies.description import load_study, study_names
from tequio.studies.keeping import kept_contests, kept_rows, read_kept, stale_lines
from tequio.studies.orders import agreement
from tequio.studies.plans import make_plan
from tequio.studies.verdicts import sample_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.experiments.running.store import Plain
    from tequio.studies.answers import Decided, Row
    from tequio.studies.claims import Fared
    from tequio.studies.description import Cell, Mean, Study
    from tequio.studies.keeping import Kept
    from tequio.studies.orders import Agreement
    from tequio.studies.plans import Plan, Store


@dataclass(frozen=True)
class Answered:
    """What there is to print about a study."""

    study: Study
    rows: tuple[Row, ...]
    contests: tuple[Decided, ...]
    orders: tuple[Agreement, ...]
    claims: tuple[Fared, ...]

    @property
    def source(self) -> str:
        """Who published it: what the study's source begins with."""
        return self.study.source.partition(" (")[0].partition(",")[0]

    @property
    def verdicts(self) -> Counter[str]:
        """How many published numbers came out how, each number of a source once."""
        return Counter(row.verdict for row in self.rows if row.counts)

    def document(self, figures: Sequence[str] = (), *, quick: bool = False) -> Plain:
        """All of it as plain data."""
        study = self.study
        return {"study": study.name, "title": study.title, "source": study.source, "form": "quick" if quick else "full",
                "notes": [study.quick.note, *study.notes] if quick else list(study.notes), "figures": list(figures)} | {
            name: as_json([asdict(one) for one in found]) for name, found in (
                ("rows", self.rows), ("contests", self.contests), ("orders", self.orders), ("claims", self.claims))}


def from_runs(plan: Plan, store: Store, problems: Mapping[str, str] | None = None,
              kept: Kept | None = None) -> Answered:
    """From stored runs, and from kept numbers of the same config where these are given. The quick form, which is on
    other data, says nothing about claims and rankings."""
    rows, contests = answer(plan, store, problems), decide(plan, store)
    if plan.quick:
        return Answered(plan.study, tuple(rows), tuple(contests), (), ())
    if kept is not None:
        stale = stale_lines(plan, kept)
        pairs = zip(rows, kept_rows(plan.study, kept, stale), plan.study.lines, strict=True)
        rows = [_together(plan.study, line, mine, theirs, line.name in stale) for mine, theirs, line in pairs]
        contests = [mine if mine.ranking else theirs
                    for mine, theirs in zip(contests, kept_contests(plan.study, kept), strict=True)]
    return answered(plan.study, rows, contests)


def _together(study: Study, line: Cell | Mean, mine: Row, theirs: Row, stale: bool) -> Row:
    """A row of all seeds that are stored here or kept by number."""
    if not mine.seeds or not theirs.values or stale:
        return mine if mine.seeds else replace(theirs, problem=mine.problem)
    return row_of(study, line, sample_of({**theirs.values, **mine.values}), seconds=mine.seconds, runs=mine.runs,
                  problem=mine.problem)


def answered(study: Study, rows: Sequence[Row], contests: Sequence[Decided]) -> Answered:
    """What follows from the rows of a study."""
    found = [agreement(order, rows) for order in study.orders]
    return Answered(study, tuple(rows), tuple(contests), tuple(one for one in found if one),
                    tuple(check_claims(study.claims, rows)))


def kept_studies(folder: Path) -> list[tuple[Answered, Kept]]:
    """All studies of a folder, from what is kept beside them."""
    found = []
    for name in study_names(folder):
        study, kept = load_study(name, folder), read_kept(folder / name)
        stale = stale_lines(make_plan(study, seeds=1, out=Path("runs")), kept)
        found.append((answered(study, kept_rows(study, kept, stale), kept_contests(study, kept)), kept))
    return found


def claims_of(studies: Sequence[Answered]) -> list[tuple[str, Fared]]:
    """All claims by source. One that is asked of several studies is one claim: it fares as on the first of them that
    decides it, those with the source's own data first."""
    found: dict[tuple[str, str], list[Fared]] = {}
    for one in studies:
        for claim in one.claims:
            found.setdefault((one.source, claim.says), []).append(claim)
    merged = [(source, min(claims, key=lambda claim: (claim.fate == "open", claim.other_data)))
              for (source, _), claims in found.items()]
    return sorted(merged, key=lambda item: item[0])
