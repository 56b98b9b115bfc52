"""What a request is told when it is not answered: a status, what is wrong, what to do, and where."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_LONGEST = 600
_LINGER_SECONDS, _LINGER_BYTES = 5.0, 64 << 20


class Refused(Exception):
    """A request that is not answered. `row` and `column` say where, if it is one place; `unread` that it has not been
    read to its end."""

    def __init__(self, status: int, error: str, remedy: str, *, row: int | None = None, column: str = "",
                 retry_after: int = 0, unread: bool = False) -> None:
        super().__init__(error)
        self.status, self.error, self.remedy, self.row, self.column = status, error, remedy, row, column
        self.retry_after, self.unread = retry_after, unread

    def response(self) -> Response:
        """As JSON. Where the rest of a request is not read, the connection ends with it."""
        content = {"error": _plain(self.error), "remedy": _plain(self.remedy), "row": self.row,
                   "column": _plain(self.column) or None}
        headers = {"retry-after": str(self.retry_after)} if self.retry_after else {}
        if self.unread:
            headers["connection"] = "close"
        kind = _Lingering if self.unread and self.status == 413 else Response
        return kind(msgspec.json.encode(content), self.status, headers, "application/json")


class _Lingering(Response):
    """Says no to a request that is still being sent. Most programs read an answer only when all is sent, and never if
    the connection breaks before; so the rest is taken and thrown away, for a while."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer first, then listen."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                left, more = _LINGER_BYTES, True
                while more and left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    more = message["type"] == "http.request" and message.get("more_body", False)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _plain(text: str) -> str:
    """A text that may hold anything that came in, as one that can be sent back."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return cut.encode("utf-8", "backslashreplace").decode()
