"""Runs as processes of their own: `tequio run --resume FOLDER`, which outlive the dashboard and stop as on Ctrl-C.

A new run begins as a folder that holds only its config, so that its page exists before its first line is written; going
on with a run that has no checkpoint is the same as starting it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import RunError
from tequio.experiments.running.store import CONFIG, explained, new_folder, write_whole
from tequio.views.web.index import LOG, Writers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.config.tables import Config


# A folder with the log of a run would be taken for a run.
SWEEP, SWEEP_LOG = "sweep.toml", "sweep.log"


class Processes:
    """The processes that this dashboard started."""

    def __init__(self) -> None:
        self._started: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, config: Config) -> Path:
        """Begin a new run; its folder."""
        from tequio.experiments.config.complete import config_hash, resolved_toml

        folder = new_folder(config.output.folder, config.name, config_hash(config))
        write_whole(folder / CONFIG, resolved_toml(config).encode())
        self._launch(folder)
        return folder

    def start_sweep(self, given: Mapping[str, Any]) -> Path:
        """Begin, or go on with, a sweep, whose runs appear one after the other below its folder."""
        from tequio.experiments.config.toml import write_toml
        from tequio.experiments.sweep import sweep_folder

        folder = sweep_folder(str(given["output"]["folder"]), str(given.get("name") or "run"))
        child = self._started.get(folder)
        if child is not None and child.poll() is None:
            raise RunError(f"the sweep '{folder.name}' is running already",
                           remedy="wait for it, stop it, or give this one another name")
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / SWEEP, write_toml(given).encode())
        self._begin(folder, SWEEP_LOG, str((folder / SWEEP).resolve()))
        return folder

    def resume(self, folder: Path, rounds: int | None = None) -> None:
        """Go on with a run that is not running, to more rounds if wanted."""
        if self.is_running(folder):
            raise RunError(f"the run '{folder.name}' is running already", remedy="wait for it or stop it")
        self._launch(folder, *(() if rounds is None else ("--set", f"rounds={rounds}")))

    def stop(self, folder: Path) -> None:
        """Ask a run, or the sweep that it is part of, to end; what is done so far is kept."""
        child, pid = self._child(folder), Writers().process(folder)
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGINT)
        elif pid and _is_tequio_run(pid):
            os.kill(pid, signal.SIGINT)
        else:
            raise RunError(f"the run '{folder.name}' is not a process that can be stopped from here",
                           remedy="press Ctrl-C where it was started" if pid else "load the page again")

    def is_running(self, folder: Path) -> bool:
        """Whether some process works on this run."""
        child = self._started.get(folder)
        if child is not None and child.poll() is None:
            return True
        return Writers().is_written(folder)

    def _child(self, folder: Path) -> subprocess.Popen[bytes] | None:
        """The process that works on a run: its own, or that of its sweep."""
        return self._started.get(folder) or (self._started.get(folder.parent) if Writers().is_written(folder) else None)

    def _launch(self, folder: Path, *settings: str) -> None:
        self._begin(folder, LOG, "--resume", str(folder.resolve()), *settings)

    def _begin(self, folder: Path, said_in: str, *words: str) -> None:
        command = [sys.executable, "-m", "tequio", "run", *words, "--quiet"]
        log = folder / said_in
        with explained(log), log.open("wb") as said:
            self._started[folder] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"})


def _is_tequio_run(pid: int) -> bool:
    """Whether the process is a `tequio run` of ours, which knows what to do when it is interrupted."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return False
    return "run" in words and any("tequio" in word for word in words[:words.index("run")])
