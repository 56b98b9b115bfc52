"""What every page needs: the dashboard's state, folders of runs, templates, and forms that only it can send."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import wraps
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse

from tequio.errors import RunError
from tequio.experiments.running.table import shown
from tequio.views.web.index import Index
from tequio.views.web.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.views.web.guard import Settings


Form = list[tuple[str, str]]
"""Fields of a form in their order, by name."""

FORM_TOKEN = "form_token"
STATIC, _TEMPLATES = (Path(__file__).with_name(name) for name in ("static", "templates"))
_MOST_FORM_BYTES = 1 << 20


@dataclass
class Dashboard:
    """All that lives as long as the process. `memory` holds what was slow to find out and may be asked for again."""

    settings: Settings
    templates: Environment
    index: Index
    processes: Processes = field(default_factory=Processes)
    memory: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Dashboard:
        """A fresh one."""
        return cls(settings, make_templates(), Index(settings.folder))

    def folder(self, run: str) -> Path:
        """The folder of a run that an address names."""
        return run_folder(self.settings.folder, run)


def make_templates() -> Environment:
    """Templates in which every value is escaped, and a name that is not there is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {"cell": shown, "link": lambda text: quote(str(text), safe="/"), "words": _words}
    return templates


def dashboard_of(request: Request) -> Dashboard:
    """The dashboard that answers a request."""
    dashboard: Dashboard = request.app.state.dashboard
    return dashboard


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """A page of the dashboard."""
    dashboard = dashboard_of(request)
    values |= {"folder": str(dashboard.settings.folder), "form_token": dashboard.settings.form_token,
               "path": request.url.path}
    return HTMLResponse(dashboard.templates.get_template(template).render(values), status)


def go_to(address: str) -> Response:
    """Send the browser on after a form."""
    return RedirectResponse(quote(address, safe="/?=&%"), status_code=303)


def posted(handler: Callable[[Request, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
    """A handler of forms: refuses those that another site's page could have made, and works in a thread."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        form = await read_form(request)
        brought = dict(form).get(FORM_TOKEN, "")
        if not compare_digest(brought.encode(), dashboard_of(request).settings.form_token.encode()):
            raise HTTPException(403, "the form is not one of this dashboard, or it was restarted since; load the "
                                     "page again")
        return await run_in_threadpool(handler, request, [pair for pair in form if pair[0] != FORM_TOKEN])

    return handle


async def read_form(request: Request) -> Form:
    """The fields of a form, of a length that a form has."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _MOST_FORM_BYTES:
            raise HTTPException(413, "the form is too long")
    try:
        return parse_qsl(content.decode(), keep_blank_values=True, strict_parsing=bool(content), max_num_fields=2000)
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None


def _words(name: str) -> str:
    """A metric's or a key's name for people."""
    return name.replace("_", " ").replace(".", " ")


_DEEPEST = 4
_NOT_IN_NAMES = set("\\\0:")


def run_folder(root: Path, name: str) -> Path:
    """The folder that a run's name under `root` means; one that leads elsewhere means none."""
    parts = name.split("/")
    path = root.joinpath(*parts) if len(parts) <= _DEEPEST and all(map(_is_plain, parts)) else None
    if path is None or not path.is_dir() or not path.resolve().is_relative_to(root.resolve()):
        raise RunError(f"there is no run '{name[:200]}' in '{root}'", remedy="choose one from the list of runs")
    return path


def _is_plain(part: str) -> bool:
    return bool(part) and not part.startswith(".") and not _NOT_IN_NAMES & set(part) and part.isprintable()
