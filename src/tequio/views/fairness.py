"""How groups fare, for a terminal and as a picture; and where the counts come from: files, rows, or a run's parties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError, MissingExtra, nearest
from tequio.experiments.api import load
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.running.store import find_folder
from tequio.models.fairness import (
    RATES,
    GroupCounts,
    count_dataset,
    count_groups,
    gaps,
    named_groups,
    rates,
    reliability,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from rich.table import Table as RichTable

    from tequio.data.dataset import Dataset
    from tequio.models.model import Model


def counted(models: Sequence[str], column: str, data: Path | None, *, merge: bool = False, by_party: bool = False,
            cuts: str = "", minimum: int = 10) -> dict[str, GroupCounts]:
    """Counts by what to call them: a model each, or a party each, or all files together."""
    if merge:
        texts = [_text(Path(name)) for name in models]
        return {"all parties": summed([GroupCounts.from_json(text) for text in texts]).without_small(minimum)}
    if not column:
        raise ConfigError("which column says what group a row is in?", remedy="--column sex")
    ends = _numbers(cuts)
    found: dict[str, GroupCounts] = {}
    for name in models:
        if data is not None:
            found[name] = count_groups(load(name), data, column, cuts=ends)
        else:
            parties = of_parties(name, column, ends)
            found |= {name: summed(parties.values()), **(parties if by_party else {})}
    return {name: counts.without_small(minimum) for name, counts in found.items()}


def of_parties(run: str, column: str, cuts: Sequence[float] = ()) -> dict[str, GroupCounts]:
    """Counts of each party's own test rows, each by the model that the party answers with."""
    result = Result(find_folder(run))
    data = result.config.data
    raw = make_scenario(result.config.model_copy(update={"data": data.model_copy(update={"prepare": []})})).population
    if raw.partition.columns is not None:
        raise ConfigError("parties that hold different columns have no rows of their own to count",
                          remedy="give rows with all columns: --data FILE")
    if not raw.split.test:
        raise ConfigError(f"the parties of '{run}' kept no test rows", remedy="set data.split.test = 0.2, or give rows "
                          "with --data FILE")
    model, found = result.trained, {}
    for party in range(len(raw)):
        name, rows = raw.name(party), raw.view(party).test
        if len(rows):
            groups = named_groups(_values(rows, column, data.parameters.get("group")), cuts)
            found[name] = count_dataset(_model_of(model, name), rows, column, groups)
    return found


def _model_of(model: Model, party: str) -> Model:
    return model.of(party) if party in model.own or party in model.reading.own else model


def _values(rows: Dataset, column: str, group: object) -> NDArray[Any]:
    if column == group:
        return np.asarray(rows.groups).astype(str)
    if column not in rows.schema.names:
        raise DataError(f"the run's rows have no column '{column}'", remedy=nearest(column, rows.schema.names))
    place = rows.schema.column(column)
    values, domain = np.asarray(rows.features)[:, place], rows.schema.features[place].domain
    return values if domain is None else np.array(domain, dtype=object)[values.astype(np.int64)]


def renderables(found: Mapping[str, GroupCounts], positive: Mapping[str, str]) -> Iterator[RichTable | str]:
    """One table of groups and one of gaps for each."""
    from rich import box
    from rich.table import Table as RichTable

    for name, counts in found.items():
        style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "title_justify": "left", "title_style": "bold",
                                 "header_style": "bold", "pad_edge": False}
        table = RichTable(title=f"{Path(name).name}: who is told '{positive[name]}'", **style)
        table.add_column(counts.column)
        for heading in ("rows", "of all", "of those who are", "of those who are not", "calibration error"):
            table.add_column(heading, justify="right")
        for group, row in rates(counts, positive[name]).items():
            table.add_row(group, str(row["rows"]), *(_interval(row, rate) for rate in RATES),
                          f"{row['calibration error']:.3f}")
        yield table
        apart = RichTable(title="how far the groups lie apart", **style)
        for heading in ("", "gap", "95 % interval", "by chance up to", ""):
            apart.add_column(heading, justify="right" if heading else "left")
        for what, gap in gaps(counts, positive[name]).items():
            beyond = gap["low"] > 0 and gap["gap"] > gap["by_chance"]
            apart.add_row(what, f"{gap['gap']:.3f}", f"{gap['low']:.3f} to {gap['high']:.3f}",
                          f"{gap['by_chance']:.3f}", "beyond chance" if beyond else "may be chance")
        yield apart


def draw(found: Mapping[str, GroupCounts], positive: Mapping[str, str], path: Path) -> None:
    """Rates with their intervals, and a reliability curve a group; one line of both for each model."""
    try:
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "plots") from cause
    figure = Figure(figsize=(9, 3.6 * len(found)), dpi=110, layout="constrained")
    axes = figure.subplots(len(found), 2, squeeze=False)
    for (left, right), (name, counts) in zip(axes, found.items(), strict=True):
        groups = rates(counts, positive[name])
        for place, rate in enumerate(RATES):
            at = np.arange(len(groups)) + (place - 1) * 0.2
            values = np.array([row[rate] for row in groups.values()])
            ends = np.array([[row[f"{rate} low"], row[f"{rate} high"]] for row in groups.values()]).T
            left.errorbar(at, values, np.abs(ends - values), fmt="os^"[place], capsize=3, label=rate)
        left.set_xticks(range(len(groups)), list(groups), rotation=20 if len(groups) > 4 else 0)
        left.set(ylim=(-0.03, 1.03), ylabel=f"share told '{positive[name]}'", title=Path(name).name)
        left.legend(fontsize=8)
        right.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
        for (group, told, true), mark in zip(reliability(counts, positive[name]), "osv^D*XP<>" * 3, strict=False):
            right.plot(told, true, marker=mark, label=group)
        right.set(xlabel="told probability", ylabel="share that is so", title="calibration")
        right.legend(fontsize=8)
    figure.savefig(path)


def _interval(row: Mapping[str, float], rate: str) -> str:
    return f"{row[rate]:.3f} ({row[f'{rate} low']:.2f}-{row[f'{rate} high']:.2f})" if np.isfinite(row[rate]) else "none"


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(f"'{text}' is no list of numbers", remedy="such as --cuts 18,65") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"'{path}' cannot be read: {cause}", remedy="give files that --counts wrote") from cause
