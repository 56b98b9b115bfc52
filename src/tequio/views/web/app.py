"""The application: routes, static files, errors as pages, and the guard before everything."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tequio.errors import RunError, TequioError
from tequio.views.web.guard import Guard
from tequio.views.web.kit import STATIC, Dashboard, page
from tequio.views.web.pages import runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.views.web.settings import Settings

_PAGES = ("run", "live", "new", "compare", "partition", "tree")


def _later(page: str, handler: str) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose module is imported when it is first needed: the list of runs need not wait for it."""

    async def handle(request: Request) -> Response:
        module = await run_in_threadpool(import_module, f"tequio.views.web.pages.{page}")
        found: Any = getattr(module, handler)
        answer: Response = await (found(request) if inspect.iscoroutinefunction(found)
                                  else run_in_threadpool(found, request))
        return answer

    return handle


async def _list(request: Request) -> Response:
    """The list of runs; while the reader looks at it, the other pages are imported."""
    answer = await run_in_threadpool(runs.show, request)
    _warm_up()
    return answer


_ROUTES = (
    Route("/", _list),
    Route("/run/{run:path}", _later("run", "show")),
    Route("/events/{run:path}", _later("live", "stream")),
    Route("/compare", _later("compare", "show")),
    Route("/partition", _later("partition", "show")),
    Route("/tree/{run:path}", _later("tree", "show")),
    Route("/drawing/{run:path}", _later("tree", "drawing")),
    Route("/new", _later("new", "show")),
    Route("/new/fields", _later("new", "fields")),
    Route("/start", _later("new", "start"), methods=["POST"]),
    Route("/stop/{run:path}", _later("run", "stop"), methods=["POST"]),
    Route("/resume/{run:path}", _later("run", "resume"), methods=["POST"]),
    Mount("/static", StaticFiles(directory=STATIC)),
)


def make_app(settings: Settings) -> Starlette:
    """The dashboard over one folder of runs."""
    app = Starlette(routes=list(_ROUTES), middleware=[Middleware(Guard, settings=settings)],
                    exception_handlers={TequioError: _explained, HTTPException: _refused, Exception: _unexpected})
    app.state.dashboard = Dashboard.of(settings)
    return app


@cache
def _warm_up() -> None:
    Thread(target=_import_pages, daemon=True).start()


def _import_pages() -> None:
    for name in _PAGES:
        import_module(f"tequio.views.web.pages.{name}")
    import_module("tequio.registry").load_everything()


def _explained(request: Request, error: Exception) -> Response:
    assert isinstance(error, TequioError)
    status = 404 if isinstance(error, RunError) and error.message.startswith("there is no run") else 400
    return page(request, "error.html", status=status, title=f"{error.id} error".capitalize(), message=error.message,
                remedy=error.remedy)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = "there is no such page" if error.status_code == 404 else error.detail
    return page(request, "error.html", status=error.status_code, title="Not possible", message=message,
                remedy="go back to the list of runs")


def _unexpected(request: Request, error: Exception) -> Response:
    return page(request, "error.html", status=500, title="Unexpected error",
                message=f"{type(error).__name__}: {error}",
                remedy="this is a mistake in tequio or in a plugin; the terminal shows the whole trace")
