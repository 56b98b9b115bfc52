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
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.errors import ConfigError, RunError
from tequio.experiments.running.recording import as_json
from tequio.experiments.running.store import SUMMARY, Plain, write_whole
from tequio.models.statistics import Ranking
from tequio.studies.answers import Decided, Row, row_of
from tequio.studies.fingerprints import fingerprint, keys_of
from tequio.studies.verdicts import Sample, sample_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tequio.studies.description import Cell, Contest, Mean, Study
    from tequio.studies.plans import Plan


FILE = "results.json"

@dataclass(frozen=True)
class Kept:
    """What is kept of a study: by name, the numbers of its cells, its means and its contests; and all keys that its
    configs had (`tequio.studies.fingerprints`)."""

    cells: dict[str, Plain] = field(default_factory=dict)
    contests: dict[str, Plain] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

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
        return Kept(dict(content["cells"]), dict(content["contests"]), list(content.get("keys", [])))
    except (ValueError, KeyError, TypeError) as cause:
        raise RunError(f"'{path}' is damaged: {cause}",
                       remedy="get it back from version control, or keep the numbers anew") from None


def keep_results(plan: Plan, rows: Sequence[Row], contests: Sequence[Decided], folder: Path) -> int:
    """Keep what is finished, beside the seeds of the same config that are kept already; how many numbers changed."""
    if plan.quick:
        raise ConfigError("numbers of the quick form are not kept", remedy="leave --quick or --keep out")
    stored, commit, keys = read_kept(folder), commit_of(folder), keys_of(plan)
    configs, stale = _fingerprints(plan, keys), stale_lines(plan, stored)
    before = {name: {**value, "config": "" if name in stale else configs[name]}
              for name, value in stored.cells.items() if name in configs}
    cells = before | {row.cell: _joined(before.get(row.cell), _plain_row(row, configs[row.cell], commit))
                      for row in rows if row.seeds}
    named = {contest.name for contest in plan.study.contests}
    contested = {name: value for name, value in stored.contests.items() if name in named}
    found = contested | {contest.name: _larger(contested.get(contest.name), _plain_contest(contest, commit))
                         for contest in contests if contest.ranking is not None}
    changed = sum(cells[name] != before.get(name) for name in cells) + \
        sum(found[name] != contested.get(name) for name in found)
    if changed or before.keys() != stored.cells.keys() or contested != stored.contests:
        write_whole(folder / FILE, _lines(Kept(cells, found, keys)).encode())
    return changed


def _joined(old: Plain | None, new: Plain) -> Plain:
    """Numbers of another config give way; those of the same are joined by seed. The same numbers keep their date."""
    if old is None or old.get("config") != new["config"]:
        return new
    if "by_seed" not in old:
        return new if new["seeds"] >= old["seeds"] else old
    values = old["by_seed"] | new["by_seed"]
    return old if values == old["by_seed"] else new | _numbers(_sample(values))


def _larger(old: Plain | None, new: Plain) -> Plain:
    """A contest over more rows, or over other numbers; the same keeps its commit."""
    if old is None or (new["rows"] >= old["rows"] and any(old.get(key) != new[key] for key in new if key != "commit")):
        return new
    return old


def kept_rows(study: Study, kept: Kept, stale: Collection[str] = ()) -> list[Row]:
    """The table of a study from what is kept, with a remark on what is stale."""
    return [_row(study, line, kept.cells.get(line.name), line.name in stale) for line in study.lines]


def kept_contests(study: Study, kept: Kept) -> list[Decided]:
    """The contests of a study from what is kept."""
    return [_decided(contest, kept.contests.get(contest.name, {})) for contest in study.contests]


def stale_lines(plan: Plan, kept: Kept) -> set[str]:
    """The lines whose kept numbers are of a config that may have given others."""
    now = _fingerprints(plan, kept.keys) if kept.cells else {}
    return {name for name, value in kept.cells.items() if name in now and value.get("config") != now[name]}


def _fingerprints(plan: Plan, keys: Collection[str]) -> dict[str, str]:
    """By line; a mean is as old as its cells."""
    cells = {cell.name: fingerprint(plan, cell, keys) for cell in plan.study.cells}
    means = {mean.name: " ".join(cells[cell.name] for cell in plan.study.cells_of(mean)) for mean in plan.study.means}
    return cells | {name: hashlib.sha256(joined.encode()).hexdigest()[:12] for name, joined in means.items()}


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
    return "{" + ",\n".join([*tables, f'"keys": {json.dumps(kept.keys)}']) + "}\n"


def _short(value: float | None) -> float | None:
    """Six digits are more than any table prints."""
    return None if value is None else float(f"{value:.6g}")


def _plain_row(row: Row, config: str, commit: str) -> Plain:
    plain: Plain = {"metric": row.metric, **_numbers(row.sample)}
    plain |= {"seconds": float(f"{row.seconds:.3g}")} if row.seconds is not None else {}
    return as_json(plain | {"config": config, "date": _date(row.runs), "commit": commit})  # type: ignore[no-any-return]


def _numbers(sample: Sample) -> Plain:
    """Ten digits by seed, null for a seed that never reached its target."""
    return {"ours": _short(sample.mean), "sd": _short(sample.sd), "seeds": sample.seeds} | \
        ({"never": sample.never} if sample.never else {}) | \
        ({"by_seed": {str(seed): float(f"{value:.10g}") if isfinite(value) else None
                      for seed, value in sorted(sample.values.items())}} if sample.values else {})


def _sample(by_seed: Plain) -> Sample:
    return sample_of({int(seed): inf if value is None else float(value) for seed, value in by_seed.items()})


def _plain_contest(contest: Decided, commit: str) -> Plain:
    assert contest.ranking is not None
    assert contest.by_means is not None
    plain = {"rows": contest.ranking.problems, "ranking": asdict(contest.ranking), "by_means": asdict(contest.by_means),
             "wilcoxon": contest.wilcoxon, "wins": contest.wins, "commit": commit}
    return as_json(plain)  # type: ignore[no-any-return]


def _date(runs: Sequence[str]) -> str:
    """When the newest of some runs came to its end."""
    ends = [path.stat().st_mtime for run in runs if (path := Path(run) / SUMMARY).is_file()]
    return datetime.fromtimestamp(max(ends), UTC).strftime("%Y-%m-%d") if ends else ""


def _row(study: Study, line: Cell | Mean, kept: Plain | None, stale: bool) -> Row:
    if kept is None:
        return row_of(study, line, Sample())
    sample = _sample(kept["by_seed"]) if "by_seed" in kept else \
        Sample(kept["ours"], kept["sd"], kept["seeds"], kept.get("never", 0))
    return row_of(study, line, sample, seconds=kept.get("seconds"),
                  note="of an earlier config of this cell" if stale else "")


def _decided(contest: Contest, kept: Plain) -> Decided:
    return Decided(contest.name, contest.metric, contest.published, tuple(contest.ranks), _ranking(kept.get("ranking")),
                   _ranking(kept.get("by_means")), kept.get("wilcoxon"), dict(kept.get("wins", {})), contest.note)


def _ranking(plain: Plain | None) -> Ranking | None:
    if plain is None:
        return None
    given: Plain = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return Ranking(**given)
