"""The party's end: one letter in, one letter out, by the same rules as over a link of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.engines.network.answers import LARGEST_PAYLOAD, answer
from tequio.engines.network.greetings import greeting
from tequio.engines.network.transfers import Assembly
from tequio.engines.network.wire import Begin, Chunk, End, Ready, Work, frame, from_coordinator
from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.engines.network.holding import Holding
    from tequio.engines.network.site import Site


def answer_letter(site: Site, holding: Holding, frames: Sequence[bytes]) -> list[bytes]:
    """What a party says to a letter: its greeting to an empty one, else what its site makes of each message in it."""
    if not frames:
        return [frame(greeting(holding, site.policy))]
    assembly, said = Assembly(LARGEST_PAYLOAD), list[bytes]()
    for data in frames:
        message, body = from_coordinator(data)
        if isinstance(message, Chunk):
            assembly.take(message, body)
        elif isinstance(message, Begin):
            verdict = site.begin(message.run, assembly.parts([message.part], body)[0])
            said.append(frame(verdict))
            if not isinstance(verdict, Ready):
                break
        elif isinstance(message, Work):
            said.extend(answer(site, message, assembly.parts(message.parts, body)))
        elif isinstance(message, End):
            site.end(message.run)
        else:
            raise PayloadError(f"a letter cannot hold a message such as {type(message).__name__}")
    return said
