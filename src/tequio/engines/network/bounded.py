"""Where a party does its tasks: in its own process, or in a worker process with limits on memory and time.

A bounded task that takes too much of either, or that ends or crashes its process, fails as that one task, while the
party and its other runs go on. A run has one worker, which lasts until the run is over. It is a new process and not a
fork (the party's has threads) with a scrubbed environment, so that it has no key in memory. Nothing that a party has to
keep is there either: private states come with an order, and go back with its outcome.

Messages lie in memory that both processes map and that has no name on any disk. The pipes between them carry the
lengths of messages only, so that a worker which stops halfway through one cannot make the party wait beyond its limit.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tequio import registry
from tequio.engines.inline import ONE_THREAD, one_thread
from tequio.engines.network.files import private_folder
from tequio.engines.sharing import open_population, write_population
from tequio.engines.worker import Segment, decode_outcome, encode_order, pack_into, run_order, unpack_whole
from tequio.errors import SEE_ITS_LOG, ConfigError, EngineError, TequioError, crossing, described
from tequio.federation.exchange import Failure, Outcome, execute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.engines.network.telemetry import Telemetry
    from tequio.federation.exchange import Order, States
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population


_GIGABYTE = 1 << 30
_LENGTH = struct.Struct("<Q")
_START_SECONDS, _LOOK_SECONDS, _DRAIN_SECONDS = 120.0, 0.1, 2.0
_OUT_OF_MEMORY = 97
"""The code with which a worker ends that has no memory left even to say so."""

_LOGGED_BYTES = 1 << 14
"""How much of what one task prints goes to the party's log."""

# Where libraries and the package's own cache are found; a party's passwords and tokens are in other variables.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
                   "CUDA_VISIBLE_DEVICES", "TEQUIO_CACHE", "TEQUIO_DATA", "TEQUIO_DEVICE")


class Runner(Protocol):
    """Does a party's tasks. Whatever goes wrong in a task is a failure in its outcome."""

    def run(self, run_id: str, order: Order, population: Population, states: States,
            seed: int | None = None) -> Outcome:
        """What `execute` does for an order of a run."""
        ...

    def close(self, run_id: str | None = None) -> None:
        """Let go of what is kept for a run that is over, or for all."""
        ...


class InProcess:
    """Does tasks in this process. What they raise is caught, SystemExit included; what they use is not bounded."""

    def run(self, run_id: str, order: Order, population: Population, states: States,
            seed: int | None = None) -> Outcome:
        """Do the task here and now."""
        try:
            return execute(order, population, states, seed)
        except BaseException as cause:
            if isinstance(cause, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # the operator's own
            said = (cause.message, cause.remedy) if isinstance(cause, TequioError) else (described(cause), "")
            return _failed(order, said, crossing(cause, population.schema.names), traceback.format_exc())

    def close(self, run_id: str | None = None) -> None:
        """Nothing is kept."""


class Bounded:
    """Does the tasks of each run in a worker process of its own, with limits on memory and time; 0 is no limit.

    `folder` is a private one of the party, in which a worker finds its rows while it starts. No more than `workers` are
    there at a time: that of the run which was idle for longest ends when another run needs one.
    """

    def __init__(self, folder: Path, telemetry: Telemetry, *, gigabytes: float, seconds: float,
                 workers: int = 4) -> None:
        if sys.platform != "linux":
            raise ConfigError("the memory and the time of a task can be bounded on Linux only",
                              remedy="set maximum_task_gigabytes = 0 and maximum_task_seconds = 0 in the policy")
        self._folder, self._telemetry = folder, telemetry
        self._gigabytes, self._seconds = gigabytes, seconds
        self._most, self._slots = workers, threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []

    def run(self, run_id: str, order: Order, population: Population, states: States,
            seed: int | None = None) -> Outcome:
        """Do the task in the run's worker, and wait for it."""
        message = {**encode_order(order, states), "payload": order.payload,
                   "seed": None if seed is None else str(seed)}
        with self._slots:
            worker = self._worker_for(run_id, population, order.parties)
            try:
                answer = worker.ask(message, self._seconds)
                if "error" in answer:
                    return _failed(order, (answer["error"], ""), tuple(answer["shared"]), answer["trace"])
                worker.over = worker.over or answer["busy"]
                outcome = decode_outcome(answer, order, states)
                if self._gigabytes and any(map(_says_out_of_memory, outcome.failures)):
                    worker.over = True  # what is left of it may not do for the next task
                    said = _too_much_memory(self._gigabytes).about(order)
                    return replace(outcome, failures=tuple(
                        replace(failure, cause=said[0], remedy=said[1], shared=said) if _says_out_of_memory(failure)
                        else failure for failure in outcome.failures))
                return outcome
            except _Stopped as cause:
                return _failed(order, cause.about(order), cause.about(order))
            except Exception as cause:
                worker.over = True
                return _failed(order, (f"its worker process cannot be reached: {described(cause)}", ""),
                               crossing(cause), traceback.format_exc())
            except BaseException:
                worker.over = True
                raise
            finally:
                self._give_back(worker)

    def close(self, run_id: str | None = None) -> None:
        """End the worker of a run, or all; a task that is under way there fails."""
        with self._lock:
            for worker in list(self._workers):
                if run_id in (None, worker.run):
                    self._end(worker)

    def _worker_for(self, run_id: str, population: Population, parties: Sequence[int]) -> _Worker:
        with self._lock:
            for worker in self._workers:
                if worker.run == run_id and not worker.busy:
                    if worker.serves(population, parties):
                        worker.busy = True
                        return worker
                    self._end(worker)
                    break
            # Fewer than the most are busy, because this thread has a slot: one that is idle makes room.
            if len(self._workers) >= self._most:
                self._end(next(worker for worker in self._workers if not worker.busy))
            worker = _Worker(run_id, population, tuple(parties), self._gigabytes, self._telemetry)
            self._workers.append(worker)
        try:
            worker.start(self._folder)
        except BaseException:
            worker.over = True
            self._give_back(worker)
            raise
        return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            worker.busy = False
            if worker.over:
                self._end(worker)
            else:  # the last of the list was used last
                self._workers.remove(worker)
                self._workers.append(worker)

    def _end(self, worker: _Worker) -> None:
        """End a worker now; one that is busy is taken off the list by the thread that waits for it."""
        worker.over = True
        worker.kill()
        if not worker.busy:
            self._workers.remove(worker)
            worker.release()


def runner_for(folder: Path, telemetry: Telemetry, *, gigabytes: float, seconds: float) -> Runner:
    """What does the tasks of a party with these limits."""
    return Bounded(folder, telemetry, gigabytes=gigabytes, seconds=seconds) if gigabytes or seconds else InProcess()


class _Stopped(Exception):
    """A task came to no end of its own: how, to be read after its name."""

    def __init__(self, how: str, remedy: str = SEE_ITS_LOG) -> None:
        super().__init__(how)
        self.remedy = remedy

    def about(self, order: Order) -> tuple[str, str]:
        """Cause and remedy, which hold nothing but what the policy and the order say."""
        return f"task '{order.task}' {self}", self.remedy


def _too_much_memory(gigabytes: float) -> _Stopped:
    amount = f"more than {gigabytes:g} GB of memory here" if gigabytes else "more memory than there is"
    return _Stopped(f"used {amount}", "ask for less at once, or let the party's owner raise maximum_task_gigabytes")


def _says_out_of_memory(failure: Failure) -> bool:
    return "MemoryError" in failure.cause or "can't allocate memory" in failure.cause  # numpy's and torch's words


def _failed(order: Order, said: tuple[str, str], shared: tuple[str, str], trace: str = "") -> Outcome:
    return Outcome(order.ticket, (), tuple(Failure(party, *said, trace, shared) for party in order.parties))


class _Worker:
    """A worker process as the party sees it."""

    def __init__(self, run: str, population: Population, parties: tuple[int, ...], gigabytes: float,
                 telemetry: Telemetry) -> None:
        self.run, self.busy, self.over = run, True, False
        self._population, self._parties = population, parties
        self._gigabytes, self._telemetry = gigabytes, telemetry
        self._process: subprocess.Popen[bytes] | None = None
        self._poll = select.poll()
        self._handles: list[int] = []
        self._room, self._left_out, self._resident = _LOGGED_BYTES, 0, 0

    def serves(self, population: Population, parties: Sequence[int]) -> bool:
        """Whether it is there for these rows: after a broken link a run may bring others."""
        return population is self._population and set(parties) <= set(self._parties) and not self._is_dead()

    def start(self, folder: Path) -> None:
        """Start the process and wait until it has its rows."""
        try:
            place = Path(tempfile.mkdtemp(prefix="worker-", dir=private_folder(folder)))
        except OSError as cause:
            raise _no_start(cause) from cause
        try:
            write_population(self._population, place, self._parties)
            (place / "plugins").write_text("\n".join(registry.loaded_plugins()), encoding="utf-8")
            self._launch(place)
            self._wait(_START_SECONDS)
            if not os.read(self._answers, _LENGTH.size):
                raise self._death()
        except (OSError, _Stopped) as cause:
            raise _no_start(cause) from cause
        finally:
            shutil.rmtree(place, ignore_errors=True)  # it has mapped the files by now
        self._resident = self._memory()

    def _launch(self, place: Path) -> None:
        import fcntl

        segments = [os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) for name in ("orders", "outcomes")]
        self._handles += segments
        for handle in segments:  # memory that a worker could shrink would crash the process that reads it
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        theirs, self._bell = os.pipe()
        self._answers, answers = os.pipe()
        lifeline, own = os.pipe()
        self._handles += [self._bell, self._answers, own]
        self._orders, self._outcomes = (Segment(Path(f"/proc/self/fd/{handle}")) for handle in segments)
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | ONE_THREAD
        there = [theirs, answers, lifeline, *segments]
        try:
            # -P: modules are found where they are found here, and nowhere else.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "tequio.engines.network.bounded", str(place), str(self._gigabytes),
                 *map(str, there)], env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=there,
                start_new_session=True)
        finally:
            for handle in there[:3]:
                os.close(handle)
        self._end = os.pidfd_open(self._process.pid)
        self._handles.append(self._end)
        for handle in (self._answers, self._end):
            self._poll.register(handle, select.POLLIN)
        self._reading = threading.Thread(target=self._log_output, name="tequio-worker-output", daemon=True)
        self._reading.start()

    def ask(self, message: Payload, seconds: float) -> Payload:
        """The worker's answer to an order."""
        length = pack_into(message, self._orders)
        self._note_left_out()
        self._room = _LOGGED_BYTES
        with suppress(BrokenPipeError):  # then it is dead, which is found out by waiting for it
            os.write(self._bell, _LENGTH.pack(length))
        self._wait(seconds)
        answer = os.read(self._answers, _LENGTH.size)
        if len(answer) < _LENGTH.size:
            raise self._death()
        length, = _LENGTH.unpack(answer)
        if self._gigabytes and length > self._gigabytes * _GIGABYTE:
            self.over = True
            raise _too_much_memory(self._gigabytes)
        return unpack_whole(self._outcomes.view(length).toreadonly(), copy=True)

    def _wait(self, seconds: float) -> None:
        """Until it has answered; an error if it ended, or takes or uses too much."""
        until = time.monotonic() + (seconds or float("inf"))
        while True:
            left = until - time.monotonic()
            ready = [handle for handle, _ in self._poll.poll(max(min(left, _LOOK_SECONDS), 0.0) * 1000)]
            if self._answers in ready:
                return
            if ready:
                raise self._death()
            if left <= 0:
                self.over = True
                raise _Stopped(f"took more than {seconds:g} s here",
                               "ask for less at once, or let the party's owner raise maximum_task_seconds")
            if self._gigabytes and self._resident and self._uses_too_much():
                self.over = True
                raise _too_much_memory(self._gigabytes)

    def _uses_too_much(self) -> bool:
        """Its own limit does not count memory that it shares, as this does. What the messages take is not its fault."""
        messages = sum(os.fstat(handle).st_size for handle in self._handles[:2])
        return self._memory() > self._resident + self._gigabytes * _GIGABYTE + messages

    def _memory(self) -> int:
        """Bytes that it holds in memory, files aside: the system gives the pages of those back."""
        assert self._process is not None
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8").splitlines()
        except OSError:  # it has ended
            return 0
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))

    def _is_dead(self) -> bool:
        return any(handle == self._end for handle, _ in self._poll.poll(0))

    def _death(self) -> _Stopped:
        """How it ended. It may only have closed its side, and is ended then."""
        self.over = True
        assert self._process is not None
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.poll(1000)
        self.kill()
        code = self._process.wait()
        if code == _OUT_OF_MEMORY:
            return _too_much_memory(self._gigabytes)
        how = f"signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"code {code}"
        return _Stopped(f"ended the process that it ran in ({how})")

    def kill(self) -> None:
        """End it, with all processes that its tasks started."""
        if self._process is not None and self._process.returncode is None:  # else its number may be another's by now
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def release(self) -> None:
        """Close everything that is shared with a process that was ended."""
        if self._process is not None:
            self._process.wait()
            self._reading.join(_DRAIN_SECONDS)  # only a process that left the worker's group can keep its output open
            self._note_left_out()
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()

    def _log_output(self) -> None:
        """What it prints goes to the party's own log, but not without end."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while text := output.readline(1 << 16):
                kept = text[:self._room]
                self._room -= len(kept)
                self._left_out += len(text) - len(kept)
                if kept:
                    self._telemetry.log("task output", run=self.run, text=kept.decode("utf-8", "replace").rstrip("\n"))

    def _note_left_out(self) -> None:
        if self._left_out:
            self._telemetry.log("task output", run=self.run, text=f"{self._left_out} more bytes were left out")
            self._left_out = 0


def _no_start(cause: Exception) -> EngineError:
    return EngineError(f"a worker process for tasks could not be started: {cause}",
                       remedy="free memory and space on the party's disk; its own log has what the process wrote")


def main() -> None:
    """Serve the party's process as its worker until that is gone."""
    place, gigabytes = Path(sys.argv[1]), float(sys.argv[2])
    orders, answers, lifeline, *segments = map(int, sys.argv[3:])
    for handle in (orders, answers, lifeline, *segments):
        os.set_inheritable(handle, False)
    _end_with(lifeline)
    one_thread()
    registry.load_plugins((place / "plugins").read_text(encoding="utf-8").splitlines())
    registry.load_everything()  # so that the first task is not charged for it
    population = open_population(place)
    _limit(gigabytes)
    incoming, outgoing = (Segment(Path(f"/proc/self/fd/{handle}")) for handle in segments)
    threads, runner = threading.active_count(), InProcess()

    def work(order: Order, population: Population, states: States, seed: int | None) -> Outcome:
        return runner.run("", order, population, states, seed)

    def answer(length: int) -> int:
        try:
            message = unpack_whole(incoming.view(length).toreadonly(), copy=False)
            outcome = run_order(message, population, work)
            # Threads that a task leaves behind end with this process, before the next task.
            return pack_into({**outcome, "busy": threading.active_count() > threads}, outgoing)
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
        except Exception as cause:  # a state or a reply that cannot be sent
            return pack_into({"error": described(cause), "shared": list(crossing(cause)),
                              "trace": traceback.format_exc()}, outgoing)

    os.write(answers, _LENGTH.pack(0))
    while order := os.read(orders, _LENGTH.size):
        os.write(answers, _LENGTH.pack(answer(*_LENGTH.unpack(order))))


def _end_with(lifeline: int) -> None:
    """Have the system end this process and its children when the other end closes, whatever they are doing then.

    A death signal from the parent would come too early: when the thread ends that started this process.
    """
    import fcntl

    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it closed before
        os._exit(0)


def _limit(gigabytes: float) -> None:
    """Bound the memory of this process from here on.

    RLIMIT_DATA counts what a process could write to and nobody else sees. RLIMIT_AS would also count files that are
    mapped (the rows, libraries) and addresses that are only reserved: torch alone takes 0.6 GB of those, 0.2 of these.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not write rows to the disk
    with suppress(OSError):  # where memory runs out, the system is to end this process before the party's
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    if gigabytes:
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        taken = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
        most = taken + int(gigabytes * _GIGABYTE)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    main()
