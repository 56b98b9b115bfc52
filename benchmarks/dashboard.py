"""How long `tequio ui` takes to open a folder of many runs, and what its live view costs.

    python benchmarks/dashboard.py [RUNS]

Times are wall seconds and, because other work on the machine lengthens those, seconds of processor time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.experiments.api import run

if TYPE_CHECKING:
    from collections.abc import Callable

_WATCHED_SECONDS = 20
_TICKS = os.sysconf("SC_CLK_TCK")


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        made = run(name="one", rounds=20, data={"name": "wine", "prepare": ["standardise"]}, engine={"workers": 1},
                   output={"folder": str(folder)}).folder
        for number in range(count - 1):
            shutil.copytree(made, folder / f"run-{number:05}", ignore=shutil.ignore_patterns("checkpoint", "model.*"))
        port = _free_port()
        started = time.perf_counter()
        server = subprocess.Popen([sys.executable, "-m", "tequio", "ui", str(folder), "--port", str(port)],
                                  stdout=subprocess.DEVNULL)
        try:
            _first_page(port)
            wall, busy = time.perf_counter() - started, _processor_seconds(server.pid)
            print(f"{count} runs, from the command to the first page: {wall:.2f} s ({busy:.2f} s of the processor)")
            print(f"the list again: {_seconds_of(lambda: _get(port, '/')):.2f} s")
            _watch(server.pid, port, folder)
        finally:
            server.terminate()
            server.wait()


def _watch(server: int, port: int, folder: Path) -> None:
    """Follow a running experiment with one browser's connection."""
    live = subprocess.Popen([sys.executable, "-m", "tequio", "run", str(next(folder.glob("one-*")) / "config.toml"),
                             "--set", "rounds=1000000", "--set", "name=live", "--out", str(folder), "--quiet"],
                            stderr=subprocess.DEVNULL)
    try:
        while not any(path.stat().st_size for path in folder.glob("live-*/events.jsonl")):
            time.sleep(0.1)
        name = next(folder.glob("live-*")).name
        stream = urllib.request.urlopen(f"http://127.0.0.1:{port}/events/{name}", timeout=60)
        threading.Thread(target=lambda: [None for _ in stream], daemon=True).start()
        time.sleep(2)  # what was written before is sent first
        ours, its = _processor_seconds(server), _processor_seconds(live.pid)
        time.sleep(_WATCHED_SECONDS)
        ours, its = _processor_seconds(server) - ours, _processor_seconds(live.pid) - its
        print(f"the live view for {_WATCHED_SECONDS} s: {ours:.2f} s of the processor, the experiment {its:.2f} s "
              f"({ours / its:.1%}); {ours / _WATCHED_SECONDS:.1%} of one core")
    finally:
        live.send_signal(2)
        live.wait()


def _first_page(port: int) -> None:
    while True:
        try:
            _get(port, "/")
            return
        except OSError:
            time.sleep(0.01)


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return bytes(answer.read())


def _seconds_of(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
