"""The HTTP server around a service: connections that say nothing are closed, and stopping loses no request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tequio.views.serving.app import LARGEST_HEADERS

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette

_IDLE_SECONDS = 75
_MOST_CONNECTIONS = 1_000
_DRAIN_SECONDS = 1.0
_GRACE_SECONDS = 30


class Connection(H11Protocol):
    """A connection whose requests have to begin and to end their headers in time. uvicorn waits for those for ever."""

    header_seconds = 10.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Give the first request its time."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.header_seconds, self._close_if_idle)

    def data_received(self, data: bytes) -> None:
        """Once a request has its headers, the application limits the time of the rest."""
        super().data_received(data)
        waits = self.cycle is None or self.cycle.response_complete
        if not waits:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.header_seconds, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is timed any more."""
        self._stop_timer()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle; one that does not even take its last answer is cut."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(self.header_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_if_idle(self) -> None:
        self._timer = None
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()


class Server(uvicorn.Server):
    """A server that, when it is stopped, first answers what is on its way on open connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections, close each open one with its next answer, and wait for the last."""
        for server in self.servers:
            server.close()
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        end = asyncio.get_running_loop().time() + _DRAIN_SECONDS
        while self.server_state.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def server_for(app: Starlette, seconds: float) -> Server:
    """A server that is ready to run; `seconds` is how long the headers of a request may take."""
    connection = type("Connection", (Connection,), {"header_seconds": seconds})
    # Without a log config of its own: setting one up closes the handlers of other libraries, and what they write to.
    return Server(uvicorn.Config(
        app, http=connection, ws="none", log_level="warning", log_config=None, access_log=False, server_header=False,
        date_header=False, proxy_headers=False, timeout_keep_alive=_IDLE_SECONDS,
        limit_concurrency=_MOST_CONNECTIONS, h11_max_incomplete_event_size=LARGEST_HEADERS,
        timeout_graceful_shutdown=_GRACE_SECONDS))
