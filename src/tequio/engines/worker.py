"""A worker process of the local engine: runs orders one after another next to the shared data."""

from __future__ import annotations

import shutil
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tequio import registry
from tequio.engines.channel import Segment, pack, unpack
from tequio.engines.messages import answer
from tequio.engines.sharing import open_population
from tequio.engines.threads import one_thread


def main() -> None:
    """Connect to the coordinator's process and serve until it says goodbye or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's to handle
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    connection: Connection[Any, Any] = Connection(int(sys.argv[3]))
    one_thread()
    try:
        _serve(connection, folder, number)
    except EOFError:
        # The coordinator died without a goodbye: nobody else will remove what it left in memory.
        shutil.rmtree(folder, ignore_errors=True)


def _serve(connection: Connection[Any, Any], folder: Path, number: int) -> None:
    population = open_population(folder)
    outgoing = [Segment(folder / f"from-{number}-{half}") for half in (0, 1)]
    incoming: dict[str, Segment] = {}
    registry.load_plugins(_plugins(folder))
    served = 0
    while header := connection.recv_bytes():
        names = header.decode().split("\n")
        parts = [unpack(connection.recv_bytes(), incoming.setdefault(name, Segment(folder / name)), copy=False)
                 for name in names]
        message = {key: value for part in parts for key, value in part.items()}
        # At most two orders are under way at a worker, so two segments taken in turn are never overwritten unread.
        connection.send_bytes(pack(answer(message, population), outgoing[served % 2]))
        served += 1


def _plugins(folder: Path) -> list[str]:
    return (folder / "plugins").read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main()
