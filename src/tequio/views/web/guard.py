"""Who may ask: nothing passes that comes under another host name, from another site, or without the token.

A page of another site can make a browser send requests here, and can let its own name point to this machine. So the
Host header has to be a name of this dashboard, the Origin its own, and the headers say that nothing but its own files
may run, be framed or be asked for.

What a dashboard is told when it starts: which folder, which address, and the secrets of this process.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


POLICY = ("default-src 'none'; script-src {script}; style-src {style}; img-src 'self'; connect-src 'self'; "
          "font-src 'none'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors {frame}")
_HEADERS = {
    "content-security-policy": POLICY.format(script="'self'", style="'self'", frame="'none'"),
    "x-content-type-options": "nosniff",
    # Without any referrer browsers call the origin of our own forms null, too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Guard:
    """Stands before the application; an answer of its own ends the request."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._cookie = f"tequio-{settings.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(request)
        await (answer or self._app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        reason = self._foreign(request)
        if reason:
            return PlainTextResponse(f"refused: {reason}\n", status_code=403)
        return self._identified(request)

    def _foreign(self, request: Request) -> str:
        """Why the request does not come from a page of this dashboard; empty if it may."""
        headers = request.headers
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site", "none")
        if not self._is_ours(host):
            return "this dashboard is not known under that host name"
        if origin is not None and urlsplit(origin).netloc != host:
            return "the request comes from another site"
        if site not in ("same-origin", "none") and not _is_link(request):
            return "the request comes from another site"
        return ""

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if is_loopback(self._settings.host):
            return is_loopback(name) or name in self._settings.host_names
        return is_address(name) or name in (*LOOPBACK_NAMES, self._settings.host, *self._settings.host_names)

    def _identified(self, request: Request) -> Response | None:
        """Nothing for a browser that brings the token; one that comes with it in the address keeps it as a cookie."""
        brought = request.query_params.get("token")
        if brought is not None and self._is_token(brought):
            answer = RedirectResponse(_without_token(request), status_code=303)
            answer.set_cookie(self._cookie, brought, httponly=True, samesite="strict")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(request.cookies.get(self._cookie, "")) or self._is_token(bearer):
            return None
        return PlainTextResponse("refused: open the link that 'tequio ui' printed, with its token\n", 401)

    def _is_token(self, brought: str) -> bool:
        return compare_digest(brought.encode(), self._settings.token.encode())


def _is_link(request: Request) -> bool:
    """Whether someone followed a link to a page, which changes nothing here and shows nothing there."""
    return (request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
            and request.headers.get("sec-fetch-dest") == "document")


def _without_token(request: Request) -> str:
    kept = [(name, value) for name, value in parse_qsl(request.url.query, keep_blank_values=True) if name != "token"]
    # Two slashes at the start would be the name of another host.
    path = "/" + request.url.path.lstrip("/")
    return path + (f"?{urlencode(kept)}" if kept else "")


LOOPBACK_NAMES = ("localhost",)


@dataclass(frozen=True)
class Settings:
    """Where the runs and the models in use are, and who may look at them.

    token:       what a browser has to bring along: this machine may have other users, who can connect too
    host_names:  names, besides addresses, under which this dashboard may be asked for
    form_token:  stands in every form of this process, so that only its own pages can change anything
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8765
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    host_names: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    models: Path = Path("models")

    def __post_init__(self) -> None:
        if not self.token:
            raise ConfigError("a dashboard needs a token", remedy="leave token out, so that one is made")

    @property
    def address(self) -> str:
        """What to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self.token}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


def is_address(host: str) -> bool:
    """Whether it is an address rather than a name, which someone else's name server could point here."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
