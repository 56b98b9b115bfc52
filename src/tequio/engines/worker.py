"""A worker process of the local engine, and what it and the coordinator's process (or a Ray actor) send each other.

An order leaves as `encode_order`, a worker answers it with `run_order`, and `decode_outcome` takes what came back. A
message is a payload: a skeleton, and arrays that lie in shared memory (`pack`) or behind it (`pack_whole`).
"""

from __future__ import annotations

import mmap
import shutil
import signal
import struct
import sys
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tequio import registry
from tequio.engines.inline import one_thread
from tequio.engines.sharing import open_population
from tequio.errors import EngineError, described
from tequio.federation.exchange import Failure, Order, Outcome, Reply, execute
from tequio.federation.payload import from_columns, numbers_in, put_together, take_apart, to_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tequio.data.dataset import Array
    from tequio.federation.exchange import States
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

    Work = Callable[[Order, Population, States, int | None], Outcome]

_ALIGNMENT = 64
# Payloads were checked where they were made; the message around them may be nested deeper than a payload may.
_DEPTH = -64
_LARGE = 100_000
"""Numbers in a reply from which on replies travel one by one rather than column by column."""
_LENGTH = struct.Struct("<Q")


def encode_order(order: Order, states: Mapping[int, Payload]) -> Payload:
    """An order with the states of its parties, without the payload that all orders of one ask have in common."""
    plain = {"ticket": order.ticket, "task": order.task, "parties": list(order.parties), "round": order.round,
             "settings": order.settings, "stages": list(order.stages),
             "each": None if order.each is None else list(order.each)}
    return {"order": plain, "states": [[party, states[party]] for party in order.parties if party in states]}


def run_order(message: Payload, population: Population, work: Work = execute) -> Payload:
    """Carry out an encoded order at a worker: the outcome, with the states that changed. It may bring a seed."""
    order = Order(**{**message["order"], "parties": tuple(message["order"]["parties"]), "payload": message["payload"]})
    before = dict(message["states"])
    states = dict(before)
    try:
        seed = message.get("seed")
        outcome = work(order, population, states, None if seed is None else int(seed))
    except Exception as cause:
        return {"ticket": order.ticket, "error": described(cause), "trace": traceback.format_exc()}
    changed = [[party, state] for party, state in states.items() if not _same(state, before.get(party))]
    return {"ticket": order.ticket, "states": changed, "count": len(outcome.replies), "replies": _columns(outcome),
            "failures": [asdict(failure) for failure in outcome.failures]}


def decode_outcome(message: Payload, order: Order, states: dict[int, Payload]) -> Outcome:
    """The outcome in a worker's answer to an order; `states` gains what changed."""
    if "error" in message:
        raise EngineError(f"task '{order.task}' could not be run by a worker: {message['error']}",
                          remedy="install what it needs where the workers run, or use engine.workers = 1")
    states.update(dict(message["states"]))
    replies = from_columns(message["replies"], message["count"]) if message["count"] else []
    columns = message["replies"].get("payload")
    return Outcome(message["ticket"], tuple(Reply(**reply) for reply in replies),
                   tuple(Failure(**{**failure, "shared": tuple(failure["shared"])}) for failure in message["failures"]),
                   columns if isinstance(columns, dict) else None)


def _columns(outcome: Outcome) -> Payload:
    """The replies column by column, with their payloads as they lie in memory if they already do so."""
    if not outcome.replies:
        return {}
    rest = to_columns([{**vars(reply), "payload": None} for reply in outcome.replies])
    payloads = [reply.payload for reply in outcome.replies]
    if outcome.columns is not None:
        return {**rest, "payload": outcome.columns}
    # Large arrays would be copied twice: next to each other, and from there into the segment.
    return {**rest, "payload": payloads if numbers_in(payloads[0]) > _LARGE else to_columns(payloads)}


def _same(after: Payload, before: Payload | None) -> bool:
    return before is not None and after.keys() == before.keys() and all(after[key] is before[key] for key in after)


class Segment:
    """A growing piece of shared memory, backed by a file that both sides map."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: mmap.mmap | None = None

    def view(self, length: int, *, create: bool = False) -> memoryview:
        """The first `length` bytes, (re)mapped as needed."""
        if self._map is None or len(self._map) < length:
            self._map = None  # views still in use keep the old map alive until they go
            if create:
                with self.path.open("a+b") as file:
                    file.truncate(-(-length * 5 // 4 // mmap.PAGESIZE) * mmap.PAGESIZE)
            with self.path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        return memoryview(self._map)[:length]


def pack(message: Payload, segment: Segment) -> bytes:
    """Put the message's arrays into the segment; the returned bytes say where each one is."""
    head, arrays, starts, end = _plan(message)
    if end:
        memory = segment.view(end, create=True)
        for values, start in zip(arrays, starts, strict=True):
            np.frombuffer(memory, values.dtype, values.size, start).reshape(values.shape)[...] = values
    return head


def pack_whole(message: Payload) -> bytes:
    """The message with its arrays in one piece, for a worker that shares no memory with this process."""
    head, arrays, _, _ = _plan(message)
    parts: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head, bytes(-(_LENGTH.size + len(head)) % _ALIGNMENT)]
    for values in arrays:  # joined straight from where they lie, because they may be large
        parts += [np.ascontiguousarray(values).reshape(-1).view(np.uint8).data, bytes(-values.nbytes % _ALIGNMENT)]
    return b"".join(parts)


def pack_into(message: Payload, segment: Segment) -> int:
    """Put the same piece into the segment; the length of it."""
    head, arrays, starts, end = _plan(message)
    body = -(-(_LENGTH.size + len(head)) // _ALIGNMENT) * _ALIGNMENT
    memory = segment.view(body + end, create=True)
    memory[:_LENGTH.size + len(head)] = _LENGTH.pack(len(head)) + head
    for values, start in zip(arrays, starts, strict=True):
        np.frombuffer(memory, values.dtype, values.size, body + start).reshape(values.shape)[...] = values
    return body + end


def unpack_whole(data: bytes | memoryview, *, copy: bool) -> Payload:
    """The message back from one piece. Without `copy` its arrays are read-only views of it."""
    length, = _LENGTH.unpack_from(data)
    start = -(-(_LENGTH.size + length) // _ALIGNMENT) * _ALIGNMENT
    skeleton, layout, _ = msgspec.msgpack.decode(data[_LENGTH.size:_LENGTH.size + length])
    return _join(skeleton, layout, memoryview(data)[start:], copy=copy)


def unpack(data: bytes, segment: Segment, *, copy: bool) -> Payload:
    """The message back. Without `copy` its arrays are read-only views that hold until the sender reuses the segment."""
    skeleton, layout, end = msgspec.msgpack.decode(data)
    return _join(skeleton, layout, segment.view(end).toreadonly() if end else memoryview(b""), copy=copy)


def _plan(message: Payload) -> tuple[bytes, list[Array], list[int], int]:
    """The message without its arrays, the arrays, where each is to start, and where the last one ends."""
    arrays: dict[str, Array] = {}
    skeleton = take_apart(message, arrays, depth=_DEPTH)
    layout, end = [], 0
    for path, values in arrays.items():
        layout.append((path, values.dtype.str, values.shape, end))
        end += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
    head = msgspec.msgpack.encode((skeleton, layout, end))
    return head, list(arrays.values()), [array[-1] for array in layout], end


def _join(skeleton: object, layout: list[tuple[str, str, list[int], int]], memory: memoryview, *,
          copy: bool) -> Payload:
    arrays: dict[str, Array] = {}
    for path, kind, shape, start in layout:
        count = int(np.prod(shape, dtype=np.int64))
        values = np.frombuffer(memory, kind, count, start).reshape(shape) if count else np.empty(shape, kind)
        arrays[path] = values.copy() if copy else values
    message: Payload = put_together(skeleton, arrays, _DEPTH)
    return message


def main() -> None:
    """Connect to the coordinator's process and serve until it says goodbye or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's to handle
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    connection: Connection[bytes, bytes] = Connection(int(sys.argv[3]))
    one_thread()
    try:
        _serve(connection, folder, number)
    except EOFError:
        # The coordinator died without a goodbye: nobody else will remove what it left in memory.
        shutil.rmtree(folder, ignore_errors=True)


def _serve(connection: Connection[bytes, bytes], folder: Path, number: int) -> None:
    population = open_population(folder)
    outgoing = [Segment(folder / f"from-{number}-{half}") for half in (0, 1)]
    incoming: dict[str, Segment] = {}
    registry.load_plugins((folder / "plugins").read_text(encoding="utf-8").splitlines())
    served = 0
    while header := connection.recv_bytes():
        names = header.decode().split("\n")
        parts = [unpack(connection.recv_bytes(), incoming.setdefault(name, Segment(folder / name)), copy=False)
                 for name in names]
        message = {key: value for part in parts for key, value in part.items()}
        # At most two orders are under way at a worker, so two segments taken in turn are never overwritten unread.
        connection.send_bytes(pack(run_order(message, population), outgoing[served % 2]))
        served += 1


if __name__ == "__main__":
    main()
