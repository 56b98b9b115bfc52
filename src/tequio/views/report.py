"""A report: one HTML file that needs nothing else, of one run or of many, for a screen, a phone and for paper."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import tequio
from tequio.errors import ConfigError, MissingExtra, RunError
from tequio.experiments.finding import contenders, find_runs
from tequio.experiments.store import explained, write_whole
from tequio.views import report_details, report_sections
from tequio.views.report_material import gather_material

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SECTIONS = (report_sections.overview, report_sections.comparison, report_sections.curves, report_details.data,
             report_sections.parties, report_details.labels, report_sections.selection, report_details.trust,
             report_details.trees, report_details.privacy, report_details.leakage, report_sections.costs,
             report_details.warnings, report_sections.runs, report_details.settings)


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

