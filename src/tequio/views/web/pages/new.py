"""The form that starts a run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.exceptions import HTTPException

from tequio.views.web.fields import FURTHER, section_of, tables
from tequio.views.web.kit import Form, dashboard_of, go_to, page, posted
from tequio.views.web.reading import read_config
from tequio.views.web.submission import SEEDS_FIELD, VALUES_FIELD, Submission, read_submission, typed_from, typed_in

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def show(request: Request) -> Response:
    """An empty form, or one filled in like a run that is there."""
    like = request.query_params.get("like", "")
    values: dict[str, str] = {}
    if like:
        values = typed_from(read_config(dashboard_of(request).folder(like)))
    found = read_submission(values)
    return _form(request, Submission(values, found.sections), like=like)


def fields(request: Request) -> Response:
    """The fields of one section, after another component was chosen in it."""
    table, name = request.query_params.get("table", ""), request.query_params.get("name", "")
    if table not in tables() or not table:
        raise HTTPException(404)
    return page(request, "fields.html", section=section_of(table, name), values={}, errors={})


@posted
def start(request: Request, form: Form) -> Response:
    """Start the run, or the sweep, that the form describes, or show what is wrong with it."""
    dashboard = dashboard_of(request)
    found = read_submission(typed_in(form), dashboard.settings.plugins, str(dashboard.settings.folder))
    if found.config is None:
        return _form(request, found, status=422)
    if found.sweep:
        folder = dashboard.processes.start_sweep(found.sweep)
        return go_to(f"/?name={quote(folder.name)}&started={found.runs}")
    folder = dashboard.processes.start(found.config)
    return go_to(f"/run/{folder.name}")


def _form(request: Request, found: Submission, *, like: str = "", status: int = 200) -> Response:
    return page(request, "new.html", status=status, sections=found.sections, values=found.values, errors=found.errors,
                like=like, further=FURTHER, seeds=SEEDS_FIELD, swept=VALUES_FIELD)
