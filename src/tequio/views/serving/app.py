"""The service: who may ask, how much, how many at a time, and the addresses that answer.

Requests are read and written by one thread and computed by another, one after the other. A small request to a fast
model is computed where it is read: to hand it over and back would take longer than to answer it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tequio.engines.inline import one_thread
from tequio.views.serving import describing, metrics
from tequio.views.serving.access import PAGES, Access
from tequio.views.serving.answering import SMALL_BYTES, Desk
from tequio.views.serving.refusing import Refused
from tequio.views.serving.versions import Served, Versions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tequio.models.answers_log import AnswersLog
    from tequio.views.serving.answering import Reply
    from tequio.views.serving.versions import Source

_PATHS = frozenset(("/predict", "/health", "/metrics", *PAGES))
LARGEST_HEADERS = 16 << 10
_MOST_HELD = 64  # requests of the largest size, in memory at a time
_PAUSE_SECONDS = 1.0
_FAST_SECONDS = 0.002
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"), (b"cross-origin-resource-policy", b"same-origin")]
T = TypeVar("T")
_log = logging.getLogger("tequio.serving")


@dataclass(frozen=True)
class Limits:
    """How much may be asked: bytes and rows of a request, requests that wait at a time, and seconds for each."""

    bytes: int = 1_000_000
    rows: int = 1_000
    waiting: int = 256
    seconds: float = 10.0


@dataclass
class Service:
    """All that lives as long as the process."""

    versions: Versions
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    log: AnswersLog | None = None
    source: Source | None = None
    metrics: metrics.Metrics = field(default_factory=metrics.Metrics)
    waiting: int = 0
    held: int = 0
    is_fast: bool = False

    def __post_init__(self) -> None:
        self.desk = Desk(self.limits.rows, self.log)
        self.worker = ThreadPoolExecutor(1, "answers", initializer=one_thread)
        self.serve(self.versions)

    def serve(self, versions: Versions) -> None:
        """Answer with these versions from now on. Each has answered before, which is slow the first time."""
        slowest = max(self.worker.submit(_seconds_of_a_row, one).result() for one in versions.all)
        self.versions, self.is_fast = versions, slowest < _FAST_SECONDS

    async def answer_json(self, body: bytes) -> Reply:
        """Answer a request in JSON, here or in the other thread."""
        versions, desk = self.versions, self.desk
        if len(body) <= SMALL_BYTES:
            if self.is_fast:
                reply = desk.answer_small(versions, body)
            else:
                reply = await self.compute(lambda: desk.answer_small(versions, body))
            if reply is not None:
                return reply
        return await self.compute(lambda: desk.answer_json(versions, body))

    async def compute(self, act: Callable[[], T]) -> T:
        """Let the thread that computes answer a request, unless too many wait for it."""
        if self.waiting >= self.limits.waiting:
            raise Refused(503, f"{self.waiting} requests wait for an answer already", "ask again in a second",
                          retry_after=1)
        self.waiting += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.get_running_loop().run_in_executor(self.worker, act)
        except TimeoutError:
            raise Refused(503, f"there was no answer within {self.limits.seconds:g} seconds",
                          "ask again in a few seconds, with fewer rows at a time", retry_after=5) from None
        finally:
            self.waiting -= 1

    async def keep_up(self) -> None:
        """Every second, bring the log to the disk, and serve other versions if the registry has them."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            if self.log is not None:
                with suppress(OSError):  # whoever asks is told when a write fails
                    await asyncio.to_thread(self.log.sync)
            if self.source is not None:
                await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Serve what the registry says now. What cannot be loaded changes nothing, and /health says so."""
        assert self.source is not None
        try:
            if self.source.has_changed():
                self.serve(self.source.load(self.versions))
                self.source.trouble = ""
                _log.warning("now served: %s", ", ".join(f"version {one.number} ({one.role})"
                                                          for one in self.versions.all))
        except Exception as error:  # whatever is wrong with a new version, the old one goes on
            if self.source.failed(str(error)):
                _log.error("the registry is not followed: %s", error)


def _seconds_of_a_row(version: Served) -> float:
    """How long a version takes for one row, once it is warm."""
    versions = Versions(version)
    example = msgspec.json.encode(describing.example_of(versions))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        with suppress(Refused):
            Desk(1).answer_small(versions, example)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def make_app(service: Service) -> Starlette:
    """The application around a service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        one_thread()
        keeping = asyncio.create_task(service.keep_up())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            service.worker.shutdown()
            if service.log is not None:
                service.log.close()

    routes = [Route("/predict", _predict, methods=["POST"]), Route("/health", _health), Route("/metrics", _metrics),
              Route("/schema", _schema), Route("/openapi.json", _openapi), Route("/docs", _docs)]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, service=service)],
                    exception_handlers={Refused: _refused, HTTPException: _not_there, Exception: _unexpected})
    app.state.service = service
    return app


class Guard:
    """Stands before the application: lets through who may ask, counts, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started, path = time.perf_counter(), scope["path"]
        status = 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                policy = (_POLICY[0], describing.page_policy()) if path == "/docs" and status == 200 else _POLICY
                message["headers"] = [*message.get("headers", ()), *_HEADERS, policy]
            await send(message)

        try:
            refusal = self._refusal(path, scope)
            await (refusal or self._app)(scope, receive, send_guarded)
        finally:
            self._service.metrics.requested(path if path in _PATHS else "other", status,
                                            time.perf_counter() - started)

    def _refusal(self, path: str, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEADERS:
            return Refused(431, f"the headers are larger than {LARGEST_HEADERS} bytes", "send fewer headers").response()
        if b"transfer-encoding" in headers and b"content-length" in headers:  # programs before us may see another end
            return Refused(400, "the request has two lengths", "leave out Content-Length, or do not send chunks"
                           ).response()
        refused = self._service.access.refuses(path, headers)
        if refused is None:
            return None
        answer = Refused(*refused).response()
        if refused[0] == 401:
            answer.headers["www-authenticate"] = "Basic realm=\"tequio\"" if path == "/docs" else "Bearer"
        return answer


async def _predict(request: Request) -> Response:
    service = _service(request)
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in ("application/json", "text/csv"):
        raise Refused(415, f"a request of type '{kind}' cannot be read",
                      "send JSON with 'Content-Type: application/json', or CSV with 'Content-Type: text/csv'")
    async with _body(request, service) as body:
        if kind == "text/csv":
            versions, options = service.versions, dict(request.query_params)
            reply = await service.compute(lambda: service.desk.answer_csv(versions, body, options))
        else:
            reply = await service.answer_json(body)
    service.metrics.answered(reply)
    return Response(reply.body, media_type="application/json")


@asynccontextmanager
async def _body(request: Request, service: Service) -> AsyncIterator[bytes]:
    """The whole body; one that is too large is not waited for, nor are more than fit into memory at a time."""
    limits, parts, more = service.limits, [], True
    size = int(request.headers.get("content-length", "0")[:20] or 0)
    held = 0
    try:
        async with asyncio.timeout(limits.seconds):
            while more and size <= limits.bytes:
                message = await request.receive()
                if message["type"] != "http.request":
                    raise Refused(400, "the request ended before its end", "send as many bytes as Content-Length says")
                parts.append(message.get("body", b""))
                held, more = held + len(parts[-1]), message.get("more_body", False)
                service.held += len(parts[-1])
                size = max(size, held)
                if service.held > _MOST_HELD * limits.bytes:
                    raise Refused(503, "too many large requests are being read", "ask again in a second",
                                  retry_after=1, unread=more)
        if size > limits.bytes:
            raise Refused(413, f"the request is larger than {limits.bytes} bytes", "send fewer rows at a time, or "
                          "start the service with --largest-request 10MB", unread=more)
        yield b"".join(parts)
    except TimeoutError:
        raise Refused(408, f"the request did not arrive within {limits.seconds:g} seconds", "send it faster, or with "
                      "fewer rows; Content-Length has to be its real length", unread=True) from None
    finally:
        service.held -= held


async def _health(request: Request) -> Response:
    service = _service(request)
    # Without a token anybody may ask this, so it says nothing about the model.
    trouble = service.source is not None and bool(service.source.trouble)
    content = {"status": "ok", "registry": "not followed; the output of the service says why"} if trouble else \
        {"status": "ok"}
    return _json(content)


async def _metrics(request: Request) -> Response:
    service = _service(request)
    return Response(service.metrics.text(service.versions, service.waiting), media_type=metrics.CONTENT_TYPE)


async def _schema(request: Request) -> Response:
    return _json(describing.schema_of(_service(request).versions))


async def _openapi(request: Request) -> Response:
    service = _service(request)
    return _json(describing.openapi_of(service.versions, service.limits.rows, service.limits.bytes,
                                       with_token=bool(service.access.hashes)))


async def _docs(request: Request) -> Response:
    service = _service(request)
    return HTMLResponse(describing.page_of(service.versions, service.limits.rows, service.limits.bytes,
                                           with_token=bool(service.access.hashes)))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    if error.__cause__ is not None:
        _log.error("%s: %s", error.error, error.__cause__)
    return error.response()


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        answer = Refused(405, f"{request.method} is not for this address", "POST rows to /predict; GET all others")
    else:
        answer = Refused(error.status_code, "there is no such address", f"there is: {', '.join(sorted(_PATHS))}")
    response = answer.response()
    response.headers.update(error.headers or {})
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    return Refused(500, "the service failed at this request", "this is a mistake in tequio or in a plugin; the output "
                   "of the service shows the whole trace").response()


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
