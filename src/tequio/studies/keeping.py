"""The results of studies that are kept in the checkout: numbers only, with their seeds, their date and the commit.

Runs are large and stay where they were made. What a page of results needs of them is a few numbers a cell, in
`results.json` beside `study.toml`; published values and verdicts always come from `study.toml` itself.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.errors import ConfigError, RunError
from tequio.experiments.running.recording import as_json
from tequio.experiments.running.store import SUMMARY, Plain, write_whole
from tequio.models.statistics import Ranking
from tequio.studies.answers import Decided, Row, higher_is_better, judge
from tequio.studies.description import Mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.studies.description import Cell, Contest, Study
    from tequio.studies.plans import Plan


FILE = "results.json"


@dataclass(frozen=True)
class Kept:
    """What is kept of a study: by name, the numbers of its cells, its means and its contests."""

    cells: dict[str, Plain] = field(default_factory=dict)
    contests: dict[str, Plain] = field(default_factory=dict)

    @property
    def dates(self) -> list[str]:
        """When the runs behind the numbers were made, each date once."""
        return sorted({str(one["date"]) for one in (*self.cells.values(), *self.contests.values()) if one.get("date")})

    @property
    def commits(self) -> list[str]:
        """The commits at which numbers were kept."""
        return sorted({str(one["commit"]) for one in (*self.cells.values(), *self.contests.values())
                       if one.get("commit")})


def read_kept(folder: Path) -> Kept:
    """What is kept beside a study; nothing where there is no file."""
    path = folder / FILE
    if not path.is_file():
        return Kept()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Kept(dict(content["cells"]), dict(content["contests"]))
    except (ValueError, KeyError, TypeError) as cause:
        raise RunError(f"'{path}' is damaged: {cause}",
                       remedy="get it back from version control, or keep the numbers anew") from None


def keep_results(plan: Plan, rows: Sequence[Row], contests: Sequence[Decided], folder: Path) -> int:
    """Keep what is finished, where it has at least as many seeds as what is kept already; how many numbers changed."""
    if plan.quick:
        raise ConfigError("numbers of the quick form are not kept", remedy="leave --quick or --keep out")
    stored, commit, configs = read_kept(folder), commit_of(folder), configs_of(plan)
    before = _still_asked(plan.study, stored)
    cells = {row.cell: _plain_row(row, configs.get(row.cell, ""), commit) for row in rows if row.seeds}
    found = {contest.name: _plain_contest(contest, commit) for contest in contests if contest.ranking is not None}
    after = Kept(_merged(before.cells, cells, "seeds"), _merged(before.contests, found, "rows"))
    changed = sum(after.cells[name] != before.cells.get(name) for name in after.cells) + \
        sum(after.contests[name] != before.contests.get(name) for name in after.contests)
    if changed or before != stored:
        write_whole(folder / FILE, _lines(after).encode())
    return changed


def _still_asked(study: Study, kept: Kept) -> Kept:
    """Without the numbers of cells and contests that the study no longer has."""
    lines = {cell.name for cell in study.cells} | {mean.name for mean in study.means}
    contests = {contest.name for contest in study.contests}
    return Kept({name: value for name, value in kept.cells.items() if name in lines},
                {name: value for name, value in kept.contests.items() if name in contests})


def kept_rows(study: Study, kept: Kept, configs: Mapping[str, str] | None = None) -> list[Row]:
    """The table of a study from what is kept. `configs` says how cells are run now: older numbers are told apart."""
    lines: list[Cell | Mean] = [*study.cells, *study.means]
    return [_row(study, line, kept.cells.get(line.name), (configs or {}).get(line.name, "")) for line in lines]


def kept_contests(study: Study, kept: Kept) -> list[Decided]:
    """The contests of a study from what is kept."""
    return [_decided(contest, kept.contests.get(contest.name, {})) for contest in study.contests]


def configs_of(plan: Plan) -> dict[str, str]:
    """By cell, what tells its way of being run from others: the configs of its first seed."""
    return {cell.name: hashlib.sha256(" ".join(run.hash for run in plan.of_cell(cell)[0]).encode()).hexdigest()[:12]
            for cell in plan.study.cells}


def commit_of(folder: Path) -> str:
    """The commit of the checkout that a folder lies in; empty where there is none."""
    try:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True,
                              text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def _lines(kept: Kept) -> str:
    """JSON with a line a number, so that version control shows which ones changed."""
    tables = (f'"{name}": {{\n' + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
              + "\n}" for name, table in (("cells", kept.cells), ("contests", kept.contests)))
    return "{" + ",\n".join(tables) + "}\n"


def _short(value: float | None) -> float | None:
    """Six digits are more than any table prints."""
    return None if value is None else float(f"{value:.6g}")


def _plain_row(row: Row, config: str, commit: str) -> Plain:
    plain: Plain = {"metric": row.metric, "ours": _short(row.ours), "sd": _short(row.sd), "seeds": row.seeds}
    plain |= {"never": row.never} if row.never else {}
    plain |= {"config": config} if config else {}
    return as_json(plain | {"date": _date(row.runs), "commit": commit})  # type: ignore[no-any-return]


def _plain_contest(contest: Decided, commit: str) -> Plain:
    assert contest.ranking is not None
    assert contest.by_means is not None
    plain = {"rows": contest.ranking.problems, "ranking": asdict(contest.ranking), "by_means": asdict(contest.by_means),
             "wilcoxon": contest.wilcoxon, "wins": contest.wins, "commit": commit}
    return as_json(plain)  # type: ignore[no-any-return]


def _merged(before: Plain, after: Plain, count: str) -> Plain:
    """Numbers of more runs, or of another config, replace those before; the same numbers keep their date and commit."""
    merged = dict(before)
    for name, new in after.items():
        old = before.get(name)
        same = old is not None and all(old.get(key) == new.get(key) for key in new if key not in ("date", "commit"))
        other_config = old is not None and old.get("config") != new.get("config")
        if old is None or other_config or (new[count] >= old[count] and not same):
            merged[name] = new
    return merged


def _date(runs: Sequence[str]) -> str:
    """When the newest of some runs came to its end."""
    ends = [path.stat().st_mtime for run in runs if (path := Path(run) / SUMMARY).is_file()]
    return datetime.fromtimestamp(max(ends), UTC).strftime("%Y-%m-%d") if ends else ""


def _row(study: Study, line: Cell | Mean, kept: Plain | None, config: str) -> Row:
    if isinstance(line, Mean):
        metric, comparable, both = study.cells_of(line)[0].metric, True, False
    else:
        metric, comparable, both = line.metric, line.comparable, line.both_sides
    if kept is None:
        return Row(line.name, line.published, None, None, 0, "not run", metric, line.tolerance, None, (), line.note, "")
    never = int(kept.get("never", 0))
    worst = -inf if higher_is_better(metric) else inf
    verdict = judge(line, metric, worst if never else kept["ours"], comparable=comparable, both_sides=both)
    stale = config and kept.get("config") and kept["config"] != config
    note = "; ".join(filter(None, [line.note, "of an earlier config of this cell" if stale else ""]))
    return Row(line.name, line.published, kept["ours"], kept["sd"], kept["seeds"], verdict, metric, line.tolerance,
               None, (), note, "", never)


def _decided(contest: Contest, kept: Plain) -> Decided:
    return Decided(contest.name, contest.metric, contest.published, tuple(contest.ranks), _ranking(kept.get("ranking")),
                   _ranking(kept.get("by_means")), kept.get("wilcoxon"), dict(kept.get("wins", {})), contest.note)


def _ranking(plain: Plain | None) -> Ranking | None:
    if plain is None:
        return None
    given: Plain = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return Ranking(**given)
