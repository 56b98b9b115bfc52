"""What a report is made of, the runs sorted by method, and the sections on how well it went and what it cost.

A section that has nothing to show is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from tequio.errors import TequioError
from tequio.experiments.comparing.comparing import Comparison, compare_values
from tequio.experiments.comparing.pairing import label_of, method_keys, shared_metric, value_of, values_of
from tequio.experiments.comparing.values import contenders
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.running.store import BASELINES
from tequio.experiments.running.table import shown
from tequio.experiments.showing.comparison import Sheet, comparison_html, sheet_html
from tequio.experiments.showing.results import STOPPED, in_bytes, in_time
from tequio.learners.metrics import METRICS
from tequio.views.charts import Line, bar_chart, dot_chart, line_chart, rank_chart
from tequio.views.parties import group_rows, ranked, told_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tequio.experiments.comparing.values import Contender
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.scenario import Scenario
    from tequio.experiments.running.store import Plain


MOST_SHOWN = 6
"""Of how many methods a report shows the details: who holds what, trust, trees."""


@dataclass(frozen=True)
class Material:
    """The finished runs of a report by method, and what was said of the others.

    `main` is the method that the report is about: the best one that is no baseline.
    """

    methods: dict[str, list[Contender]]
    main: str
    metric: str
    comparison: Comparison | None
    not_compared: str
    problems: list[str]

    @property
    def runs(self) -> list[Contender]:
        """All runs, method by method."""
        return [run for runs in self.methods.values() for run in runs]

    @property
    def first(self) -> Result:
        """The run whose data and settings are shown."""
        return self.methods[self.main][0].result

    @cached_property
    def shown(self) -> dict[str, Result]:
        """The first run of each method, whose details are shown."""
        return {method: runs[0].result for method, runs in list(self.methods.items())[:MOST_SHOWN]}

    @cached_property
    def scenario(self) -> Scenario | None:
        """What the first run worked on; nothing where its data is not here."""
        try:
            return make_scenario(self.first.config)
        except TequioError:
            return None


def gather_material(folders: Sequence[Path], metric: str = "") -> Material:
    """Read the runs. A run's baselines are methods of their own where it is the only method."""
    runs, problems = contenders(folders)
    keys = method_keys(runs)
    if not keys:
        runs += contenders([beside.folder for run in runs for beside in run.result.baselines.values()])[0]
        keys = method_keys(runs)
    measured = any(run.result.summary["metrics"] for run in runs)  # statistics have tables, and nothing to compare by
    chosen = metric or (shared_metric([run.result for run in runs]) if measured else "")
    comparison, reason = _compared(runs, chosen)
    methods: dict[str, list[Contender]] = {}
    for run in runs:
        methods.setdefault(label_of(run, keys) or str(run.result.summary["algorithm"]), []).append(run)
    if comparison is not None:
        order = [standing.method for standing in comparison.standings]
        methods = dict(sorted(methods.items(), key=lambda item: order.index(item[0]) if item[0] in order else 99))
    main = next((method for method, group in methods.items() if not _is_baseline(group[0])), next(iter(methods)))
    return Material(methods, main, chosen, comparison, reason, problems)


def _is_baseline(run: Contender) -> bool:
    return run.result.folder.parent.name == BASELINES


def _compared(runs: list[Contender], metric: str) -> tuple[Comparison | None, str]:
    try:
        return compare_values(values_of(runs, metric)), ""
    except TequioError as cause:
        return None, cause.message if len(runs) > 1 else ""


def numbers_of(result: Result, column: str) -> list[float]:
    """A column of the parties' table."""
    return [float(value) for value in result.parties[column] if isinstance(value, int | float)] \
        if column in result.parties.columns else []


def trust_of(result: Result) -> dict[int, dict[str, float]]:
    """What the aggregator trusted each party with, round by round; empty where it weighs nobody."""
    found: dict[int, dict[str, float]] = {}
    for event in result.events:
        if event["event"] == "aggregation" and "trust" in event:
            pairs: Any = zip(event["parties"], event["trust"], strict=True)
            found[int(event["round"])] = {str(party): float(trust) for party, trust in pairs if trust is not None}
    return found


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
    main = material.methods[material.main]
    measured = {material.metric.replace("_", " "): shown(fmean(value_of(run.result, material.metric)
                                                               for run in main), 3)} if material.metric else {}
    cards = {**measured, "runs": str(len(runs)), "methods": str(len(material.methods)),
             "seeds": str(len({run.seed for run in runs})), "parties": f"{first['parties']:,}",
             "rounds": str(first["rounds"]), "data": str(first["data"])}
    if len(main) == 1:
        cards = {name: card for name, card in cards.items() if name not in ("runs", "methods", "seeds")}
        cards |= {"training bytes up": in_bytes(first["bytes_up"]), "time": in_time(first["seconds"])}
    boxes = "".join(f"<div class='card'><b{' class=long' if len(card) > 8 else ''}>{escape(card)}</b>"
                    f"<span>{escape(name)}</span></div>" for name, card in cards.items())
    whose = f"<p>The first number is that of <strong>{escape(material.main)}</strong>.</p>" \
        if len(material.methods) > 1 and measured else ""
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
        for by, name in (("round", "round"), ("megabytes", "training megabytes"), ("clock.seconds", "virtual seconds")):
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
                     in_bytes(round(fmean(summary.get("evaluation_bytes_up", 0) for summary in summaries))),
                     in_bytes(round(fmean(summary.get("evaluation_bytes_down", 0) for summary in summaries))),
                     in_time(fmean(summary["seconds"] for summary in summaries)), virtual, joules))
    titles = ("method", "rounds", "training up", "training down", "evaluation up", "evaluation down", "time",
              "virtual time", "energy")
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
            stopped = summary.get("stopped") or ""
            rows.append((run.result.folder.name, method, str(summary["data"]), str(summary["seed"]),
                         shown(value_of(run.result, material.metric)) if material.metric else "",
                         str(summary["rounds"]), STOPPED.get(stopped, stopped), in_time(summary["seconds"])))
    left = f", {len(rows) - MOST_RUNS} more are not listed" if len(rows) > MOST_RUNS else ""
    columns = ("run", "method", "data", "seed", material.metric, "rounds", "stopped", "time")
    sheet = Sheet(f"{len(rows)} run{'s' if len(rows) > 1 else ''}{left}", columns, tuple(rows[:MOST_RUNS]))
    damaged = "".join(f"<li>{escape(problem)}</li>" for problem in material.problems)
    return Section("runs", "Runs", sheet_html(sheet) + (f"<p>Left out:</p><ul>{damaged}</ul>" if damaged else ""))


def _chosen(method: str, result: Result) -> str:
    metrics: Plain = result.summary["metrics"]
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


MOST_POINTS = 200


def curve(name: str, runs: Sequence[Contender], column: str, by: str = "round") -> Line:
    """A method's metric over rounds, megabytes or virtual seconds, as far as all of its runs have come."""
    series = [points for run in runs if (points := _points(run.result, column, by))]
    if not series:
        return Line(name, (), ())
    places = sorted(set.intersection(*(set(points) for points in series)))
    places = places[::-(-len(places) // MOST_POINTS)] + ([places[-1]] if len(places) > MOST_POINTS else []) \
        if places else []
    x = [fmean(points[place][0] for points in series) for place in places]
    y = [fmean(points[place][1] for points in series) for place in places]
    if len(series) < 2:
        return Line(name, x, y)
    spread = [stdev([points[place][1] for points in series]) for place in places]
    return Line(name, x, y, [value - sd for value, sd in zip(y, spread, strict=True)],
                [value + sd for value, sd in zip(y, spread, strict=True)])


def _points(result: Result, column: str, by: str) -> dict[int, tuple[float, float]]:
    """By round: the place on the axis, and the value."""
    sent, found = 0.0, {}
    for row in result.metrics:
        sent += float(row.get("bytes_up") or 0) + float(row.get("bytes_down") or 0)
        value, place = row.get(column), sent / 1e6 if by == "megabytes" else row.get(by)
        if isinstance(value, int | float) and isinstance(place, int | float):
            found[int(row["round"] or 0)] = float(place), float(value)
    return found
