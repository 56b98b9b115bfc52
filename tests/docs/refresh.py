"""Runs pages and writes what their commands really print into them.

Type `PYTHONPATH=tests python -m docs.refresh [PAGE ...]`: other packages bring a `tests` of their own.

Blocks that match already are left alone, so that `...` lines and numbers that may vary stay as they are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .blocks import blocks_of, pages
from .running import PageRun, is_run
from .warm import warmed_up


def refresh(page: Path, folder: Path, socket: str) -> int:
    """Rewrite one page; how many blocks changed."""
    lines = page.read_text(encoding="utf-8").split("\n")
    run, changes = PageRun(folder, socket), []
    for block in filter(is_run, blocks_of(page)):
        before = len(run.outcomes)
        problem = run.run(block)
        if problem and len(run.outcomes) > before:
            changes.append((block, run.outcomes[-1].transcript.rstrip("\n")))
        elif problem:
            print(f"{block.place}: {problem}", file=sys.stderr)
    run.close()
    for block, transcript in reversed(changes):
        start = block.line - 1
        lines[start:start + block.content.count("\n")] = transcript.split("\n") if transcript else []
    page.write_text("\n".join(lines), encoding="utf-8")
    return len(changes)


def main() -> None:
    """Refresh the named pages, or all of them."""
    with warmed_up() as socket:
        for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
            with tempfile.TemporaryDirectory() as folder:
                print(f"{page.name}: {refresh(page, Path(folder), socket)} blocks changed", flush=True)


if __name__ == "__main__":
    main()
