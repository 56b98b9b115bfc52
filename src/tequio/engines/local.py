"""This machine: worker processes that share the data in memory, or no process at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from tequio import registry
from tequio.engines.inline import ONE_THREAD, InlineEngine, one_thread
from tequio.engines.sharing import shared_folder, write_population
from tequio.engines.worker import Segment, decode_outcome, encode_order, pack, unpack
from tequio.errors import ConfigError, EngineError
from tequio.federation.exchange import execute
from tequio.federation.payload import numbers_in

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.engines.inline import ThreadLimits
    from tequio.federation.exchange import Engine, Order, Outcome
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

_ORDERS_UNDER_WAY = 2
# A worker keeps the memory of large arrays for the next ones: fresh pages cost more than what is computed with them.
_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
# Numbers sent times rows below which an order is done here sooner than it could be sent to a worker; and below which
# this process does its share, because it would be waiting only for a moment. An order that sends no numbers says
# nothing about its work (it may fit a tree), so it always goes to a worker.
_TRIFLING_WORK, _LIGHT_WORK = 3_000_000, 20_000_000


@registry.register("engine", "local")
@dataclass(frozen=True)
class Local:
    """Worker processes on this machine, one compute thread each.

    Parameters:
        workers: processes (0: one per core; 1: everything in this process); no more than 8 per core, or 32
    """

    workers: Annotated[int, Ge(0)] = 0

    def create(self) -> Engine:
        """An engine ready to be opened."""
        workers = worker_count(self.workers)
        if sys.platform == "win32":  # pipes cannot be handed to a child by number there
            workers = 1
        return InlineEngine() if workers == 1 else WorkerPool(workers)


WORKERS_PER_CORE, ALWAYS_ALLOWED = 8, 32
"""More processes than this for each core only wait for each other, and each takes memory; a few are always allowed."""


def worker_count(asked: int) -> int:
    """How many worker processes to start: one per core if 0 are asked for; more than the machine can do are refused."""
    cores = os.cpu_count() or 1
    most = max(WORKERS_PER_CORE * cores, ALWAYS_ALLOWED)
    if asked > most:
        raise ConfigError(f"engine.workers = {asked} is more than this machine can do: it has {cores} cores, and more "
                          f"than {most} workers are refused", remedy=f"set engine.workers = {cores}, or leave it out")
    return asked or cores


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    connection: Connection[bytes, bytes]
    incoming: tuple[Segment, Segment]
    outgoing: tuple[Segment, Segment]
    orders: deque[Order] = field(default_factory=deque)
    sent: int = 0
    received: int = 0


class WorkerPool:
    """Gives orders to whichever worker is free; parties' states stay here, so that a failed task changes nothing."""

    def __init__(self, workers: int) -> None:
        self._size = workers
        self._population: Population | None = None
        self._folder: Path | None = None
        self._workers: list[_Worker] = []
        self._waiting: deque[Order] = deque()
        self._ready: deque[Outcome] = deque()
        self._states: dict[int, Payload] = {}
        self._broadcast = _Broadcasts()
        self._light_orders = 0
        self._limits: ThreadLimits | None = None

    def open(self, population: Population) -> None:
        """Share the data and start the workers."""
        self._limits = one_thread()
        self._population = population
        self._folder = shared_folder()
        try:
            write_population(population, self._folder)
            (self._folder / "plugins").write_text("\n".join(registry.loaded_plugins()), encoding="utf-8")
            self._workers = _start(self._folder, self._size)
        except OSError as cause:
            self.close()
            raise EngineError(f"the data cannot be shared with worker processes: {cause}",
                              remedy="free memory, or use engine.workers = 1") from cause
        except BaseException:
            self.close()
            raise

    def submit(self, order: Order) -> None:
        """Queue the order; it leaves as soon as a worker has room for it. Some light ones are done here and now."""
        if self._is_ours(order):
            self._ready.append(execute(order, self._home(), self._states))
            return
        self._broadcast.expect(order)
        self._waiting.append(order)
        self._dispatch()

    def collect(self) -> Outcome:
        """The next outcome from any worker."""
        while not self._ready:
            busy = {worker.connection: worker for worker in self._workers if worker.orders}
            if not busy:
                raise EngineError("nothing was submitted to this engine")
            for connection in wait(list(busy)):
                self._ready.append(self._receive(busy[connection]))  # type: ignore[index]
            self._dispatch()
        return self._ready.popleft()

    def states(self) -> dict[int, Payload]:
        """Private states of all parties that have one, in party order."""
        return dict(sorted(self._states.items()))

    def restore(self, states: dict[int, Payload]) -> None:
        """Put states of a checkpoint back."""
        self._states = dict(states)

    def close(self) -> None:
        """Say goodbye to the workers and remove what they shared."""
        for worker in self._workers:
            _dismiss(worker)
        self._workers = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._limits is not None:
            self._limits.restore_original_limits()
            self._limits = None

    def _home(self) -> Population:
        if self._population is None:
            raise EngineError("this engine is not open")
        return self._population

    def _is_ours(self, order: Order) -> bool:
        work = numbers_in(order.payload) * float(self._home().sizes[list(order.parties)].sum())
        if order.each is not None or not 0 < work < _LIGHT_WORK:
            return False
        self._light_orders += 1
        return work < _TRIFLING_WORK or self._light_orders % self._size == 0

    def _dispatch(self) -> None:
        for _ in range(_ORDERS_UNDER_WAY):
            for worker in sorted(self._workers, key=lambda worker: len(worker.orders)):
                if self._waiting and len(worker.orders) < _ORDERS_UNDER_WAY:
                    self._send(worker, self._waiting.popleft())

    def _send(self, worker: _Worker, order: Order) -> None:
        assert self._folder is not None
        shared, common = self._broadcast.of(order, self._folder)
        own = worker.outgoing[worker.sent % 2]
        private = pack(encode_order(order, self._states), own)
        try:
            worker.connection.send_bytes(f"{shared}\n{own.path.name}".encode())
            worker.connection.send_bytes(common)
            worker.connection.send_bytes(private)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(worker, order) from None
        worker.orders.append(order)
        worker.sent += 1

    def _receive(self, worker: _Worker) -> Outcome:
        try:
            data = worker.connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise self._death(worker, worker.orders[0]) from None
        order = worker.orders.popleft()
        message = unpack(data, worker.incoming[worker.received % 2], copy=True)
        worker.received += 1
        self._broadcast.done(order)
        return decode_outcome(message, order, self._states)

    def _death(self, worker: _Worker, order: Order) -> EngineError:
        code = worker.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return EngineError(f"worker process {worker.number} {how} while it ran task '{order.task}' of round "
                           f"{order.round} for parties {', '.join(map(str, order.parties))}",
                           remedy="it may have run out of memory: use fewer workers, then --resume the run")


class _Broadcasts:
    """What all orders of one ask have in common is put into shared memory once, and kept until they are all back."""

    def __init__(self) -> None:
        self._free: list[Segment] = []
        self._held: dict[int, tuple[Payload, Segment, bytes]] = {}
        self._users: dict[int, int] = {}
        self._made = 0

    def expect(self, order: Order) -> None:
        key = id(order.payload)
        self._users[key] = self._users.get(key, 0) + 1

    def of(self, order: Order, folder: Path) -> tuple[str, bytes]:
        key = id(order.payload)
        if key not in self._held:
            if not self._free:
                self._free.append(Segment(folder / f"broadcast-{self._made}"))
                self._made += 1
            segment = self._free.pop()
            # The payload is kept as well: while it lives, its id is not given to another.
            self._held[key] = (order.payload, segment, pack({"payload": order.payload}, segment))
        _, segment, data = self._held[key]
        return segment.path.name, data

    def done(self, order: Order) -> None:
        key = id(order.payload)
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._free.append(self._held.pop(key)[1])


def _start(folder: Path, count: int) -> list[_Worker]:
    workers = []
    for number in range(count):
        here, there = Pipe()
        command = [sys.executable, "-m", "tequio.engines.worker", str(folder), str(number), str(there.fileno())]
        # Ctrl-C is the coordinator's to handle, and a worker that is still importing does not know that yet.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(command, env={**_KEPT_MEMORY, **os.environ, **ONE_THREAD},
                                       stdin=subprocess.DEVNULL, pass_fds=[there.fileno()])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()
        incoming = (Segment(folder / f"from-{number}-0"), Segment(folder / f"from-{number}-1"))
        outgoing = (Segment(folder / f"to-{number}-0"), Segment(folder / f"to-{number}-1"))
        workers.append(_Worker(number, process, here, incoming, outgoing))
    return workers


def _dismiss(worker: _Worker) -> None:
    try:
        if worker.orders:
            raise OSError("still at work")
        worker.connection.send_bytes(b"")
        worker.process.wait(timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        worker.process.kill()
        worker.process.wait()
    worker.connection.close()
