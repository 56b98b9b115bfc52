"""The application: routes, static files, errors as pages, and the guard before everything."""

from __future__ import annotations

from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles

from tequio import registry
from tequio.errors import RunError, TequioError
from tequio.views.web import runs
from tequio.views.web.guard import Guard
from tequio.views.web.kit import STATIC, Dashboard, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from tequio.views.web.guard import Settings


async def _list(request: Request) -> Response:
    """The list of runs; while the reader looks at it, the other pages are imported."""
    answer = await run_in_threadpool(runs.show, request)
    _warm_up()
    return answer


async def _other_pages(scope: Scope, receive: Receive, send: Send) -> None:
    """The pages behind the list, which need not wait until they are imported."""
    router = await run_in_threadpool(_page_router)
    await router(scope, receive, send)


_ROUTES = (
    Route("/", _list),
    Mount("/static", StaticFiles(directory=STATIC)),
    Mount("/", _other_pages),
)


def make_app(settings: Settings) -> Starlette:
    """The dashboard over one folder of runs."""
    app = Starlette(routes=list(_ROUTES), middleware=[Middleware(Guard, settings=settings)],
                    exception_handlers={TequioError: _explained, HTTPException: _refused, Exception: _unexpected})
    app.state.dashboard = Dashboard.of(settings)
    return app


@cache
def _page_router() -> Router:
    from tequio.views.web.pages import ROUTES

    return Router(ROUTES)


@cache
def _warm_up() -> None:
    Thread(target=_import_all, daemon=True).start()


def _import_all() -> None:
    _page_router()
    registry.load_everything()


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
