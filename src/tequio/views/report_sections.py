"""The sections of a report that say how well it went and what it cost; one without anything to show is left out."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tequio.experiments.pairing import value_of
from tequio.experiments.table import shown
from tequio.learners.metrics import METRICS
from tequio.views.charts import bar_chart, dot_chart, line_chart, rank_chart
from tequio.views.comparison import Sheet
from tequio.views.comparison_html import comparison_html, sheet_html
from tequio.views.participation import group_rows, ranked, told_of
from tequio.views.report_curves import curve
from tequio.views.report_material import numbers_of
from tequio.views.tables import STOPPED, in_bytes, in_time

if TYPE_CHECKING:
    from tequio.experiments.results import Result
    from tequio.views.report_material import Material

MOST_LINES = 12
MOST_RUNS = 500


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, as HTML."""

    id: str
    title: str
    html: str


def overview(material: Material) -> Section:
    """The few numbers that tell most."""
    runs, first = material.runs, material.first.summary
    values = [value_of(run.result, material.metric) for run in material.methods[material.main]]
    cards = {material.metric.replace("_", " "): shown(fmean(values), 3), "runs": str(len(runs)),
             "methods": str(len(material.methods)), "seeds": str(len({run.seed for run in runs})),
             "parties": f"{first['parties']:,}", "rounds": str(first["rounds"]), "data": str(first["data"])}
    if len(values) == 1:
        cards = {name: card for name, card in cards.items() if name not in ("runs", "methods", "seeds")}
        cards |= {"bytes up": in_bytes(first["bytes_up"]), "time": in_time(first["seconds"])}
    boxes = "".join(f"<div class='card'><b{' class=long' if len(card) > 8 else ''}>{escape(card)}</b>"
                    f"<span>{escape(name)}</span></div>" for name, card in cards.items())
    whose = f"<p>The first number is that of <strong>{escape(material.main)}</strong>.</p>" \
        if len(material.methods) > 1 else ""
    meaning = next((METRICS[part].meaning for part in material.metric.split(".") if part in METRICS), "")
    said = f"<p>{escape(material.metric)}: {escape(meaning)}.</p>" if meaning else ""
    return Section("overview", "At a glance", f"<div class='cards'>{boxes}</div>{whose}{said}")


def comparison(material: Material) -> Section | None:
    """Tables with tests, and the diagram of mean ranks."""
    found = material.comparison
    if found is None:
        reason = material.not_compared
        return Section("comparison", "Comparison", f"<p>Not compared: {escape(reason)}.</p>") if reason else None
    diagram = ""
    if found.ranking is not None and len(found.ranking.methods) > 2:
        diagram = rank_chart(found.ranking.methods, found.ranking.ranks, found.groups,
                             found.ranking.critical_difference)
        diagram += "<p class='note'>Methods beside one bar cannot be told apart.</p>"
    return Section("comparison", "Comparison", comparison_html(found) + diagram)


def curves(material: Material) -> Section | None:
    """Learning over rounds, over what was sent, and over virtual time."""
    methods = list(material.methods.items())[:MOST_LINES]
    columns = dict.fromkeys([material.metric, "train.loss"])
    drawn = []
    for column in columns:
        for by, name in (("round", "round"), ("megabytes", "megabytes sent"), ("clock.seconds", "virtual seconds")):
            lines = [curve(method, runs, column, by) for method, runs in methods]
            several = any(len(line.x) > 1 for line in lines)
            if several and (by == "round" or column == material.metric):
                drawn.append(line_chart(lines, x=name, y=column.replace("_", " ")))
    if not drawn:
        return None
    several_seeds = any(len(runs) > 1 for _, runs in methods)
    note = "<p class='note'>Lines are means over runs, bands one standard deviation to either side.</p>" \
        if several_seeds else ""
    return Section("curves", "Learning", f"<div class='figures'>{''.join(drawn)}</div>{note}")


def costs(material: Material) -> Section:
    """What was sent, how long it took, and what the virtual clock says."""
    rows = []
    for method, runs in material.methods.items():
        summaries = [run.result.summary for run in runs]
        clock = [summary["metrics"].get("clock.seconds") for summary in summaries]
        virtual = in_time(fmean(clock)) if all(value is not None for value in clock) else ""
        energy = [summary["metrics"].get("clock.joules") for summary in summaries]
        joules = f"{fmean(energy):,.0f} J" if all(value is not None for value in energy) else ""
        rows.append((method, f"{fmean(summary['rounds'] for summary in summaries):g}",
                     in_bytes(round(fmean(summary["bytes_up"] for summary in summaries))),
                     in_bytes(round(fmean(summary.get("bytes_down", 0) for summary in summaries))),
                     in_time(fmean(summary["seconds"] for summary in summaries)), virtual, joules))
    titles = ("method", "rounds", "bytes up", "bytes down", "time", "virtual time", "energy")
    filled = [place for place, _ in enumerate(titles) if any(row[place] for row in rows)]
    sheet = Sheet("means over runs", tuple(titles[place] for place in filled),
                  tuple(tuple(row[place] for place in filled) for row in rows))
    return Section("costs", "Cost", sheet_html(sheet))


def parties(material: Material) -> Section | None:
    """How unlike the parties are served."""
    metric = material.metric.removesuffix(".mean").rpartition(".")[2]
    groups = {method: values for method, result in material.shown.items() if (values := numbers_of(result, metric))}
    if not groups:
        return None
    note = "A dot is a party's own test rows at the end, the bar their mean; of the first run of each method."
    return Section("parties", "Parties", dot_chart(groups, x=metric.replace("_", " ")) + f"<p class='note'>{note}</p>")


def selection(material: Material) -> Section | None:
    """Who was chosen how often, and whom that favoured."""
    parts = [part for method, result in material.shown.items() if (part := _chosen(method, result))]
    return Section("selection", "Who took part", "".join(parts)) if parts else None


def runs(material: Material) -> Section:
    """Every run."""
    rows = []
    for method, group in material.methods.items():
        for run in group:
            summary = run.result.summary
            rows.append((run.result.folder.name, method, str(summary["data"]), str(summary["seed"]),
                         shown(value_of(run.result, material.metric)), str(summary["rounds"]),
                         STOPPED.get(summary.get("stopped", ""), summary.get("stopped", "")),
                         in_time(summary["seconds"])))
    left = f", {len(rows) - MOST_RUNS} more are not listed" if len(rows) > MOST_RUNS else ""
    columns = ("run", "method", "data", "seed", material.metric, "rounds", "stopped", "time")
    sheet = Sheet(f"{len(rows)} run{'s' if len(rows) > 1 else ''}{left}", columns, tuple(rows[:MOST_RUNS]))
    damaged = "".join(f"<li>{escape(problem)}</li>" for problem in material.problems)
    return Section("runs", "Runs", sheet_html(sheet) + (f"<p>Left out:</p><ul>{damaged}</ul>" if damaged else ""))


def _chosen(method: str, result: Result) -> str:
    metrics: dict[str, Any] = result.summary["metrics"]
    told = told_of(metrics)
    if not told or "chosen" not in result.participation.columns:
        return ""
    counts = [int(count or 0) for count in result.participation["chosen"] if isinstance(count, int)]
    never = int(result.summary["parties"]) - len(counts)
    often = {str(times): float(counts.count(times) + (never if not times else 0)) for times in range(max(counts) + 1)}
    sheets = [Sheet("how parties were chosen", ("", "value"), tuple(told))]
    groups = group_rows(metrics)
    if groups:
        sheets.append(Sheet("categories", tuple(groups[0]), tuple(tuple(shown(value) for value in row.values())
                                                                  for row in groups)))
    if any(column.startswith("contribution.") for column in result.participation.columns):
        columns = tuple(result.participation.columns)
        sheets.append(Sheet("parties that added most", columns,
                            tuple(tuple(shown(row.get(column)) for column in columns) for row in ranked(result)[:10])))
    return (f"<h3>{escape(method)}</h3><div class='figures'>{bar_chart(often, x='times chosen', y='parties')}"
            f"<div>{''.join(map(sheet_html, sheets))}</div></div>")
