"""What every contestant's script shares: its command line, the clock of its rounds, and the document it prints.

``PYTHON run_PEER.py --case CASE --rounds N --workers W --json`` prints one JSON document on stdout and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from problems import PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
KIBIBYTES_PER_MEGABYTE = 1_000_000 / 1_024


@dataclass(frozen=True)
class Arguments:
    """The command line of a contestant."""

    problem: Problem
    rounds: int
    workers: int
    as_json: bool


@dataclass(frozen=True)
class Report:
    """The document a contestant prints."""

    peer: str
    version: str
    case: str
    seconds_per_round: dict[str, float]
    rounds: int
    workers: int
    start_seconds: float
    peak_rss_mb: float
    weights_norm: float


def parse_arguments(description: str) -> Arguments:
    """Read the command line that all contestants share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--case", choices=sorted(PROBLEMS), required=True)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; one more goes first to warm up")
    parser.add_argument("--workers", type=int, default=2, help="processes, where the framework can use several")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a line to read")
    given = parser.parse_args()
    if given.rounds < 1 or given.workers < 1:
        parser.error("--rounds and --workers must be at least 1")
    return Arguments(PROBLEMS[given.case], given.rounds, given.workers, given.json)


def restart_with(environment: dict[str, str]) -> None:
    """Start this script over with ``environment`` set, unless it is.

    Numeric libraries read these variables while they are imported, so it is too late to set them from inside.
    """
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.environ.update(environment)
        os.execv(sys.executable, [sys.executable, *sys.argv])


class RoundClock:
    """Seconds of each round, from the end of the one before."""

    def __init__(self) -> None:
        self._last = 0.0
        self.warm_up_seconds: float | None = None
        self.seconds: list[float] = []

    def start(self) -> None:
        """The first round begins now."""
        self._last = time.perf_counter()

    def end_round(self) -> None:
        """A round ended now. The first one only warms up: it compiles, starts workers and fills caches."""
        now = time.perf_counter()
        if self.warm_up_seconds is None:
            self.warm_up_seconds = now - self._last
        else:
            self.seconds.append(now - self._last)
        self._last = now


def time_rounds(run_round: Callable[[], None], rounds: int) -> RoundClock:
    """Call ``run_round`` once to warm up and then ``rounds`` times on the clock."""
    clock = RoundClock()
    clock.start()
    for _ in range(rounds + 1):
        run_round()
        clock.end_round()
    return clock


def make_report(
    peer: str,
    version: str,
    arguments: Arguments,
    clock: RoundClock,
    weights: Iterable[NDArray[np.float32]],
    *,
    workers: int,
    root_process: int | None = None,
) -> Report:
    """Sum a run up. Call it while the worker processes still live, because it asks for their memory.

    ``weights`` are those of the global model after the last round; ``root_process`` is the process from which the run
    was started, where that is not this one.
    """
    root = root_process or os.getpid()
    seconds_since_start = process_age_seconds(root)
    return Report(
        peer=peer,
        version=version,
        case=arguments.problem.name,
        seconds_per_round={"best": min(clock.seconds), "median": statistics.median(clock.seconds)},
        rounds=len(clock.seconds),
        workers=workers,
        start_seconds=seconds_since_start - sum(clock.seconds),
        peak_rss_mb=peak_rss_mb(root),
        weights_norm=float(np.sqrt(sum(float(np.square(values, dtype=np.float64).sum()) for values in weights))),
    )


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the document, or a line to read."""
    if as_json:
        # `tequio bench` reads best and median as names of the document itself.
        print(json.dumps(asdict(report) | report.seconds_per_round), flush=True)
        return
    best, median = report.seconds_per_round["best"], report.seconds_per_round["median"]
    print(
        f"{report.peer} ({report.version}), {report.case}, {report.workers} workers: best {best:.4f} s a round, "
        f"median {median:.4f} s over {report.rounds} rounds; first round done after {report.start_seconds:.1f} s; "
        f"peak memory {report.peak_rss_mb:.0f} MB",
        flush=True,
    )


@contextlib.contextmanager
def stdout_for_the_report() -> Iterator[None]:
    """Send what frameworks and their child processes print to stderr, so that stdout holds the document alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def process_age_seconds(process: int) -> float:
    """Seconds since a process started: the interpreter's start and the imports are part of what a user waits for."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    started_ticks = int(after_name[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def peak_rss_mb(root: int) -> float:
    """Peak resident memory of a process and all below it, in MB.

    It is the sum of each process's own peak: pages that processes share count once for each of them.
    """
    peaks = [_peak_rss_kib(process) for process in _process_tree(root)]
    if not any(peaks):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIBIBYTES_PER_MEGABYTE
    return sum(peaks) / KIBIBYTES_PER_MEGABYTE


def _process_tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    tree = [root]
    for process in tree:
        tree.extend(children.get(process, []))
    return tree


def _peak_rss_kib(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0
