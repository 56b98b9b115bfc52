"""From a name in an address to a folder, and never out of the folder of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.errors import RunError

if TYPE_CHECKING:
    from pathlib import Path

_DEEPEST = 4
_NOT_IN_NAMES = set("\\\0:")


def run_folder(root: Path, name: str) -> Path:
    """The folder that a run's name under `root` means; one that leads elsewhere means none."""
    parts = name.split("/")
    path = root.joinpath(*parts) if len(parts) <= _DEEPEST and all(map(_is_plain, parts)) else None
    if path is None or not path.is_dir() or not path.resolve().is_relative_to(root.resolve()):
        raise RunError(f"there is no run '{name[:200]}' in '{root}'", remedy="choose one from the list of runs")
    return path


def _is_plain(part: str) -> bool:
    return bool(part) and not part.startswith(".") and not _NOT_IN_NAMES & set(part) and part.isprintable()
