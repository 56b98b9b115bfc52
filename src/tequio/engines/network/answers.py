"""What a party sends back for a task: the frames of its result, or of why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.engines.network.transfers import Part
from tequio.engines.network.wire import Failed, Result, frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tequio.engines.network.site import Site
    from tequio.engines.network.wire import Work

LARGEST_PAYLOAD = 1 << 32
"""Bytes that a party takes for one task."""


def answer(site: Site, work: Work, parts: list[bytes | memoryview]) -> Iterable[bytes]:
    """Do a task, or say why not."""
    try:
        record = site.do(work, parts)
    except Exception as cause:
        return [frame(Failed(work.run, work.position, work.digest, *site.explain(work, cause)))]
    reply = Part(record.reply, lasting=True)
    return _frames(reply, Result(work.run, work.position, work.digest, record.seconds, reply.place))


def _frames(reply: Part, result: Result) -> Iterator[bytes]:
    yield from reply.frames
    yield frame(result, reply.inline)
