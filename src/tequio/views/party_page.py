"""`tequio party ui`: one page on this machine where the party's owner reads what is asked, and approves or declines it.

The printed link is good for one browser: its token is taken when it is opened, and the browser keeps another secret as
a cookie. Everything that came from the coordinator is escaped, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tequio.engines.network.approving import asked, decide, history, in_words, ledger_rows, spent_and_left, this_user
from tequio.engines.network.telemetry import entries, verify
from tequio.errors import PermissionDenied, TequioError
from tequio.views.web.guard import Guard, Settings
from tequio.views.web.kit import FORM_TOKEN, STATIC, make_templates, read_form

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from tequio.engines.network.files import Document
    from tequio.engines.network.homes import PartyHome

_SHOWN_ENTRIES = 30
_NOT_DETAILS = ("number", "time", "event", "hash", "previous")


class OneBrowser(Guard):
    """The dashboard's guard, with a link that works once: the cookie is another secret than the link's token."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(app, settings)
        self._link, self._session = settings.token, secrets.token_urlsafe(24)

    def _identified(self, request: Request) -> Response | None:
        brought = request.query_params.get("token", "")
        if self._link and compare_digest(brought.encode(), self._link.encode()):
            self._link = ""
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            return answer
        if compare_digest(request.cookies.get(self._cookie, "").encode(), self._session.encode()):
            return None
        return PlainTextResponse("refused: open the link that 'tequio party ui' printed; it works once, in one "
                                 "browser. For another link start the command again\n", 401)


@dataclass(frozen=True)
class _Page:
    """What lives as long as the process."""

    home: PartyHome
    templates: Environment
    form_token: str

    def render(self, trouble: str = "", remedy: str = "", status: int = 200) -> Response:
        """The page as things are now."""
        runs, (spent, left) = asked(self.home).values(), spent_and_left(self.home)
        intact, log = _audit(self.home)
        return HTMLResponse(self.templates.get_template("party.html").render(
            name=self.home.facts["name"], folder=str(self.home.folder), form_token=self.form_token, trouble=trouble,
            remedy=remedy, spent=spent, left=left, ledger=ledger_rows(self.home), intact=intact, audit=log,
            waiting=[run for run in runs if not run.decision], history=history(self.home)[::-1]), status)

    async def show(self, request: Request) -> Response:
        """The page."""
        return await run_in_threadpool(self.render)

    async def decided(self, request: Request) -> Response:
        """A decision about what the form's page had shown."""
        form = dict(await read_form(request))
        if not compare_digest(form.get(FORM_TOKEN, "").encode(), self.form_token.encode()):
            return PlainTextResponse("refused: the form is not one of this page\n", 403)
        return await run_in_threadpool(self._decide, form)

    def _decide(self, form: dict[str, str]) -> Response:
        decision = form.get("decision")
        if decision not in ("approved", "denied"):
            return PlainTextResponse("refused: the form says neither 'approved' nor 'denied'\n", 400)
        try:
            decide(self.home, form.get("run", ""), approved=decision == "approved", shown=form.get("hash", ""),
                   by=this_user(), note=form.get("note", ""))
        except TequioError as cause:
            changed = isinstance(cause, PermissionDenied)
            return self.render(cause.message, "look at it again below, then decide" if changed else cause.remedy,
                               status=409 if changed else 400)
        return RedirectResponse("/#decisions", status_code=303)


def make_party_app(home: PartyHome, settings: Settings) -> Starlette:
    """The page of the party with this folder."""
    page = _Page(home, make_templates(), settings.form_token)
    return Starlette(routes=[Route("/", page.show), Route("/decide", page.decided, methods=["POST"]),
                             Mount("/static", StaticFiles(directory=STATIC))],
                     middleware=[Middleware(OneBrowser, settings=settings)],
                     exception_handlers={TequioError: _explained})


def _explained(request: Request, error: Exception) -> Response:
    """A folder that cannot be read or a log that was changed."""
    return PlainTextResponse(f"{error}\n", 500)


def _audit(home: PartyHome) -> tuple[str, list[Document]]:
    """Whether the audit log is whole, and its last entries, newest first."""
    try:
        intact = f"{verify(home.audit)} entries, unchanged since they were written"
    except TequioError as cause:
        intact = f"{cause.message}: {cause.remedy}"
    return intact, [{"time": entry.get("time", ""), "event": entry.get("event", ""), "details": in_words(
        {key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in entry.items()
         if key not in _NOT_DETAILS})} for entry in entries(home.audit)[-_SHOWN_ENTRIES:][::-1]]
