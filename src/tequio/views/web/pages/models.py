"""Models in use: their versions, the stage of a roll-out, what was done, outcomes over time, and drift."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from tequio.errors import TequioError
from tequio.models.answers_log import log_files
from tequio.models.drift import drift_in_use, last_drift
from tequio.models.outcomes import counts_by_version
from tequio.models.registry import registries
from tequio.views.charts import Line, line_chart, side_chart
from tequio.views.models import step_text
from tequio.views.web.kit import dashboard_of, page
from tequio.views.web.reading import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.models.audit import Entry
    from tequio.models.drift import Change, Window
    from tequio.models.registry import ModelRegistry
    from tequio.views.web.kit import Dashboard

_MOST_LOG_BYTES = 1 << 28
_MOST_DRAWN, _MOST_STEPS, _MOST_REMEMBERED = 12, 200, 8


@dataclass(frozen=True)
class Listed:
    """One model as the list shows it. `trouble` says why it cannot be read."""

    name: str
    production: int = 0
    candidate: int = 0
    stage: str = ""
    outcomes: int = 0
    last: str = ""
    when: str = ""
    trouble: str = ""


def show_all(request: Request) -> Response:
    """All models of the folder."""
    folder = dashboard_of(request).settings.models
    return page(request, "models.html", models=[_listed(one) for one in registries(folder)], models_folder=str(folder))


def show(request: Request) -> Response:
    """One model."""
    dashboard, name = dashboard_of(request), request.path_params["name"]
    registry = next((one for one in registries(dashboard.settings.models) if one.name == name), None)
    if registry is None:
        raise HTTPException(404)
    state, entries = registry.state, registry.audit.entries()
    changes, windows, too_large = _in_use(dashboard, registry)
    noted = last_drift(registry)
    inputs = sorted(noted[2], key=lambda one: -one.index) if noted else []
    return page(request, "model.html", name=name, state=state, listed=_listed(registry), windows=windows,
                versions=_versions(registry, entries, windows), changes=sorted(changes, key=lambda one: -one.index),
                inputs=inputs, noted=noted, too_large=too_large, metric=windows[0].metric if windows else "",
                outcome_chart=_over_time(windows, "mean"), score_chart=_over_time(windows, "index"),
                input_chart=_bars(inputs), steps=[(entry, step_text(entry)) for entry in entries[:-_MOST_STEPS - 1:-1]],
                left_out=max(len(entries) - _MOST_STEPS, 0), head=entries[-1]["sha256"])


def _listed(registry: ModelRegistry) -> Listed:
    try:
        state, last = registry.state, registry.audit.entries()[-1]
        stage = f"{state['share']:.0%} of the ids" if state["share"] else "not on trial" if state["candidate"] else ""
        when = str(last["time"])[:16].replace("T", " ")
        return Listed(registry.name, state["production"], state["candidate"], stage,
                      sum(counts_by_version(registry).values()), step_text(last), when)
    except (TequioError, *DAMAGE) as cause:
        return Listed(registry.name, trouble=str(cause))


def _in_use(dashboard: Dashboard, registry: ModelRegistry) -> tuple[list[Change], list[Window], bool]:
    """Drift in use, remembered until the log or the steps change; logs that take too long to read are left out."""
    files = [path for path in (registry.audit.path, *log_files(registry.answers)) if path.is_file()]
    stamp = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    if sum(size for _, size, _ in stamp[1:]) > _MOST_LOG_BYTES:
        return [], [], True
    remembered = dashboard.memory.setdefault("models", {})
    if stamp not in remembered:
        while len(remembered) >= _MOST_REMEMBERED:
            remembered.pop(next(iter(remembered)))
        remembered[stamp] = drift_in_use(registry)
    changes, windows = remembered[stamp]
    return changes, windows, False


def _versions(registry: ModelRegistry, entries: Sequence[Entry], windows: Sequence[Window]) -> list[dict[str, object]]:
    """The newest first."""
    state, counts = registry.state, counts_by_version(registry)
    roles = {state["candidate"]: "candidate", state["production"]: "production"}
    added = {entry["version"]: str(entry["time"])[:16].replace("T", " ") for entry in entries
             if entry["what"] == "added"}
    gone = {entry["version"] for entry in entries if entry["what"] == "withdrawn"}
    rows: list[dict[str, object]] = []
    for version in reversed(registry.versions()):
        mine = [window for window in windows if window.version == version.number and window.mean is not None]
        total = sum(window.outcomes for window in mine)
        mean = sum((window.mean or 0.0) * window.outcomes for window in mine) / total if total else None
        rows.append({"number": version.number, "role": roles.get(version.number, "withdrawn" if version.number in gone
                     else ""), "added": added.get(version.number, ""), "run": version.summary.get("run", ""),
                     "sha256": version.sha256, "outcomes": counts[version.number], "mean": mean,
                     "answers": sum(window.answers for window in windows if window.version == version.number)})
    return rows


def _over_time(windows: Sequence[Window], what: str) -> str:
    """A line per version over the hours since the first answer."""
    drawn = [window for window in windows if what == "index" or window.mean is not None]
    if not drawn:
        return ""
    start = min(datetime.fromisoformat(window.begin) for window in windows)
    lines = []
    for number in sorted({window.version for window in drawn}):
        mine = [window for window in drawn if window.version == number]
        hours = [(datetime.fromisoformat(window.end) - start).total_seconds() / 3600 for window in mine]
        if what == "index":
            lines.append(Line(f"version {number}", hours, [window.index for window in mine]))
            continue
        means = [window.mean or 0.0 for window in mine]
        low, high = ([mean if bound is None else bound for mean, bound in zip(means, bounds, strict=True)]
                     for bounds in ([window.low for window in mine], [window.high for window in mine]))
        lines.append(Line(f"version {number}", hours, means, low, high))
    y = "stability index of scores" if what == "index" else drawn[0].metric.replace("_", " ")
    return line_chart(lines, x="hours since the first answer", y=y)


def _bars(inputs: Sequence[Change]) -> str:
    drawn = inputs[:_MOST_DRAWN]
    return side_chart({f"{one.kind} {one.name}": one.index for one in drawn},
                      {f"{one.kind} {one.name}": one.chance for one in drawn}, x="stability index",
                      marked="what chance rarely exceeds") if drawn else ""
