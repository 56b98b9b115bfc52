"""A report: one HTML file that needs nothing else, of one run or of many, for a screen, a phone and for paper.

Below the page are the sections that look inside runs: who holds what, labels, trust, trees, privacy, attacks,
leakage, settings.
"""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import tequio
from tequio.errors import ConfigError, MissingExtra, RunError, TequioError
from tequio.experiments.comparing.values import contenders, find_runs
from tequio.experiments.explaining.sources import open_run, tree_payload
from tequio.experiments.running.recording import as_json
from tequio.experiments.running.store import CONFIG, ENVIRONMENT, LEAKAGE, explained, write_whole
from tequio.experiments.running.table import read_csv, shown
from tequio.experiments.showing.comparison import Sheet, sheet_html
from tequio.experiments.showing.statistics import cell_text, columns_of, notes_of, statistics_of
from tequio.experiments.showing.trees import tree_svg
from tequio.learners.trees.tree import Tree
from tequio.probing.probe import SHOWN, assumption, stored_table, with_interval
from tequio.views.charts import heat_chart
from tequio.views.estimates import notes_of as notes_of_estimates
from tequio.views.estimates import printed
from tequio.views.heatmap import heatmap_of
from tequio.views.parties import scores_by_label
from tequio.views.report_sections import (
    Section,
    comparison,
    costs,
    curves,
    gather_material,
    overview,
    parties,
    runs,
    selection,
    trust_of,
)
from tequio.views.run_estimates import PICTURES, estimates_of, has_estimates, methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tequio.experiments.running.results import Result
    from tequio.views.report_sections import Material


def save_report(places: Sequence[str | Path], path: Path, *, metric: str = "", title: str = "") -> None:
    """Write the report of runs, folders of runs and patterns."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a report cannot be saved as '{path.name}'", remedy="end the name in .html")
    page = report_page(find_runs(places), metric=metric, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page.encode())


def report_page(folders: Sequence[Path], *, metric: str = "", title: str = "") -> str:
    """The whole page."""
    finished, problems = contenders(folders[:1]) if len(folders) == 1 else ([], [])
    if len(folders) == 1 and not finished:
        raise RunError(problems[0].partition("; ")[0], remedy=problems[0].partition("; ")[2])
    template = _template()
    material = gather_material(folders, metric)
    sections = [section for make in _SECTIONS if (section := make(material)) is not None]
    names = dict.fromkeys(str(run.result.summary["name"]) for run in material.runs if run.result.folder in folders)
    return str(template.render(title=title or ", ".join(list(names)[:3]) + (" and more" if len(names) > 3 else ""),
                               sections=sections, made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                               version=tequio.__version__))


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment
    except ImportError:
        raise MissingExtra("jinja2", "report", "a report") from None
    text = (files("tequio.views") / "templates" / "report.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)


MOST_PARTIES = 40
MOST_CLASSES = 30
MOST_NODES = 40
MOST_ROUNDS = 30


def data(material: Material) -> Section | None:
    """How many rows of which class each party of the first run holds."""
    scenario = material.scenario
    if scenario is None:
        return Section("data", "Data", "<p>The data is not here, so who held what cannot be shown.</p>")
    population = scenario.population
    held = heatmap_of(population.dataset, population.partition, most=MOST_PARTIES)
    kept = [f"{len(population.dataset):,} rows at {len(population.partition):,} parties"]
    kept += [f"{len(rows):,} rows to {what} at the coordinator" for rows, what
             in ((scenario.test, "test"), (scenario.validation, "validate")) if rows is not None and len(rows)]
    told = f"<p>{escape(population.dataset.name)}: {'; '.join(kept)}.</p>"
    if len(held.classes) > MOST_CLASSES or not held.counts.size:
        return Section("data", "Data", told)
    cells = [[float(count) if count else None for count in row] for row in held.counts]
    names = [f"{party} ({size:,})" for party, size in zip(held.parties, held.sizes, strict=True)]
    chart = heat_chart(names, held.classes, cells,
                       told=f"rows of each {held.target or 'kind'} at {len(names)} parties")
    few = f"{len(names)} of {held.of_parties:,} parties. " if len(names) < held.of_parties else ""
    note = f"Rows a {held.target or 'party'} in the first run, and in brackets all rows of a party. {few}"
    return Section("data", "Who holds what", f"{told}{chart}<p class='note'>{escape(note)}</p>")


def labels(material: Material) -> Section | None:
    """F1 of every label at every party that knows it."""
    return _each(material, "labels", "Labels", _labels)


def trust(material: Material) -> Section | None:
    """What the aggregator trusted each party with, round by round."""
    hostile = material.scenario.hostility if material.scenario is not None else None
    found = _each(material, "trust", "Trust", lambda result: _trust(result, hostile.hostile if hostile else ()))
    if found is None or hostile is None:
        return found
    return Section(found.id, found.title, found.html + "<p class='note'>▲ marks parties that attack.</p>")


def trees(material: Material) -> Section | None:
    """The common tree."""
    return _each(material, "trees", "Trees", _tree)


def statistics(material: Material) -> Section | None:
    """The tables of statistical results."""
    return _each(material, "results", "Results", _statistics)


def privacy(material: Material) -> Section | None:
    """What the ledger of the run says about its differential privacy."""
    return _each(material, "privacy", "Privacy", _privacy)


def attacks(material: Material) -> Section | None:
    """How attacks on privacy did, where the runs were probed."""
    return _each(material, "attacks", "Attacks on privacy", _attacks)


def leakage(material: Material) -> Section | None:
    """Who saw what in a run between parties that hold different columns."""
    return _each(material, "leakage", "Who saw what", _leakage)


def warnings(material: Material) -> Section | None:
    """What went wrong on the way."""
    return _each(material, "warnings", "Warnings", _warnings)


def settings(material: Material) -> Section:
    """The whole config of one run, and where it took place."""
    run = material.first
    place = run.folder / ENVIRONMENT
    where = _plain(json.loads(place.read_text(encoding="utf-8"))) if place.is_file() else ""
    config = (run.folder / CONFIG).read_text(encoding="utf-8")
    whose = "" if len(material.runs) == 1 else f" of {escape(run.folder.name)}"
    return Section("settings", "Settings", f"<details><summary>Config{whose}</summary><pre>{escape(config)}</pre>"
                                           f"</details><details><summary>Environment</summary>{where}</details>")


def _each(material: Material, id: str, title: str, draw: Callable[[Result], str]) -> Section | None:
    parts = [(method, html) for method, result in material.shown.items() if (html := draw(result))]
    if not parts:
        return None
    several = len(material.shown) > 1
    return Section(id, title, "".join((f"<h3>{escape(method)}</h3>" if several else "") + html
                                      for method, html in parts))


def _labels(result: Result) -> str:
    if not len(result.labels):
        return ""
    names, parties, scores = scores_by_label(result)
    cells = [[None if value != value else float(value) for value in row] for row in scores]
    return heat_chart(names, parties, cells, told="F1 of each label at each party", largest=1.0, digits=2) + \
        "<p class='note'>F1 of each label (row) at each party (column) that knows it.</p>"


def _trust(result: Result, hostile: Any) -> str:
    rounds = trust_of(result)
    if not rounds:
        return ""
    parties = sorted({party for row in rounds.values() for party in row}, key=lambda party: (len(party), party))
    parties = parties[:MOST_PARTIES]
    taken = list(rounds)[::-(-len(rounds) // MOST_ROUNDS)]
    cells = [[rounds[number].get(party) for number in taken] for party in parties]
    marked = [place for place, party in enumerate(parties) if party.isdigit() and int(party) in set(hostile)]
    return heat_chart([f"party {party}" for party in parties], [str(number) for number in taken], cells, digits=2,
                      marked=marked, told="trust in each party, round by round") + \
        "<p class='note'>Trust in each party (row), round by round.</p>"


def _tree(result: Result) -> str:
    try:
        if tree_payload(result.model) is None:
            return ""
        source = open_run(result)
    except TequioError as cause:
        return f"<p>The tree cannot be drawn: {escape(cause.message)}.</p>"
    if not isinstance(source.model, Tree):
        return "<p>The model is an ensemble of trees; see <code>tequio explain</code>.</p>"
    drawing = tree_svg(source.model, source.schema, title=f"{result.summary['algorithm']}", most=MOST_NODES)
    return f"<div class='scroll tree' tabindex='0'>{drawing}</div>"


def _statistics(result: Result) -> str:
    tables = statistics_of(result)
    sheets = [sheet_html(Sheet(title, tuple(columns_of(rows)), tuple(
        tuple(cell_text(name, row.get(name)) for name in columns_of(rows)) for row in rows)))
        for title, rows in tables.items()]
    notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in notes_of(result)) if tables else ""
    if not has_estimates(result):
        return "".join(sheets) + notes
    found = estimates_of(result)
    head, rows = printed(found)
    whole = f"<details><summary>All numbers</summary>{''.join(sheets)}</details>" if sheets else ""
    return (sheet_html(Sheet(found.title, tuple(head), tuple(map(tuple, rows)))) +
            "".join(f"<p class='note'>{escape(note)}</p>" for note in notes_of_estimates(found)) + _picture(result) +
            f"<h3>For the methods section</h3><p>{escape(methods_of(result))}</p>{whole}")


def _picture(result: Result) -> str:
    """The curves or the forest plot of a run, drawn for paper; it scrolls by itself where the page is narrow."""
    algorithm = str(result.config.algorithm["name"])
    if algorithm in ("test", "effect"):
        return ""
    drawing, text = io.StringIO(), f"{algorithm}: {result.model.get('formula', '')}"
    PICTURES["survival" if algorithm == "kaplan-meier" else "forest"](result, "").savefig(drawing, format="svg")
    encoded = base64.b64encode(drawing.getvalue().encode()).decode()
    return (f"<div class='scroll' tabindex='0'><img class='drawn' src='data:image/svg+xml;base64,{encoded}' "
            f"alt='{escape(text)}'></div>")


def _privacy(result: Result) -> str:
    """The statement in words first, then all that it hangs on."""
    told = dict(result.privacy)
    words, together = told.pop("words", ""), result.privacy_over_runs.get("words", "")
    return "".join(f"<p><strong>{escape(str(text))}</strong></p>" for text in (words, together) if text) + (
        _plain(told) if told else "")


def _attacks(result: Result) -> str:
    table = stored_table(result)
    if not len(table):
        return ""
    columns = [column for column in SHOWN if column not in ("low", "high")]
    lines = tuple(tuple(with_interval(row) if column == "success" else shown(row[column]) for column in columns)
                  for row in table)
    names = dict.fromkeys(map(str, table["attack"]))
    assumed = "".join(f"<li>{escape(name)}: {escape(assumption(name))}</li>" for name in names)
    return sheet_html(Sheet("what attacks found, beside guessing", tuple(columns), lines)) + \
        f"<details><summary>What they assume</summary><ul>{assumed}</ul></details>"


def _leakage(result: Result) -> str:
    path = result.folder / LEAKAGE
    if not path.is_file():
        return ""
    table = read_csv(path)
    rows = tuple(tuple(shown(row.get(column)) for column in table.columns) for row in table)
    return sheet_html(Sheet("what each could read from the messages", tuple(table.columns), rows))


def _warnings(result: Result) -> str:
    told = result.warnings + [str(event.get("message", "")) for event in result.events
                              if event["event"] in ("warning", "failure", "note")]
    unique = list(dict.fromkeys(filter(None, told)))[:20]
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in unique)}</ul>" if unique else ""


def _plain(value: Any) -> str:
    """Plain data as HTML: a dict as a table, a list of dicts as one too, anything else as text."""
    value = as_json(value)
    if isinstance(value, dict):
        return sheet_html(Sheet("", ("", "value"), tuple((str(key), _text(inner)) for key, inner in value.items())))
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        columns = tuple(dict.fromkeys(key for row in value for key in row))
        return sheet_html(Sheet("", columns, tuple(tuple(_text(row.get(key)) for key in columns) for row in value)))
    return f"<p>{escape(_text(value))}</p>"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value) if isinstance(value, bool) else shown(value)


_SECTIONS = (overview, statistics, warnings, comparison, curves, data,
             parties, labels, selection, trust,
             trees, privacy, attacks, leakage, costs,
             runs, settings)

