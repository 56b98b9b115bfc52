"""`tequio.inspect`: look at a table before anything is learned from it, and get a config that fits it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.data.inspecting.sampling import MOST_ROWS
from tequio.data.inspecting.table import inspect_table
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.draft import data_keys, draft_config
from tequio.experiments.running.store import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from tequio.data.inspecting.facts import TableFacts
    from tequio.experiments.config.toml import Given


def inspect(data: Any, *, target: str | Sequence[str] | None = None, party: str | None = None,
            most_rows: int = MOST_ROWS) -> Inspection:
    """Look at a table: a file, a data frame, a dict of columns, `(X, y)`, or what else `tequio.run` takes as one.

    Says what its columns hold, which are ids, constants, copies or leaks of the target, what is missing, and what
    parties there are. Of a table with more than `most_rows` rows a sample is looked at.
    """
    path = Path(data) if isinstance(data, str | PathLike) else None
    return Inspection(inspect_table(data, target=target, party=party, most=most_rows), path)


@dataclass(frozen=True)
class Inspection:
    """What was found in a table. It shows itself in a console and in a notebook."""

    facts: TableFacts
    path: Path | None = None

    @cached_property
    def keys(self) -> Given:
        """Keys of `[data]` that fit the table: `tequio.run(data={"name": frame, **found.keys})`."""
        return {key: value for key, (value, _) in data_keys(self.facts).items()}

    def config(self, path: str | Path = "") -> str:
        """The commented config for the file that was looked at, as it belongs into a file at `path`."""
        if self.path is None:
            raise ConfigError("only a file can be named in a config", remedy="hand the table over together with what "
                              "was found: tequio.run(data={'name': table, **found.keys})")
        if self.facts.problems:
            raise DataError(self.facts.problems[0].text, remedy="correct the table; no config for it would run")
        place = Path(path) if path else Path(f"{self.path.name.split('.')[0]}.toml")
        source = {"name": "parquet" if self.path.suffix.lower() == ".parquet" else "csv",
                  "path": _seen_from(self.path, place.parent)}
        return draft_config(self.facts, name=place.stem, source=source, command=self._command())

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the config; a file that is there already is only replaced by force."""
        path = Path(path)
        refuse_existing(path, force=force)
        text = self.config(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
        except OSError as cause:
            raise ConfigError(f"'{path}' cannot be written: {cause}", remedy="type --out with a file in a folder of "
                              "your own") from cause
        return path

    def plot(self, path: str | Path | None = None) -> Figure:
        """A matplotlib figure of columns and parties; saved where a path is given."""
        from tequio.experiments.showing.inspection_picture import draw_inspection

        return draw_inspection(self.facts, None if path is None else Path(path))

    def to_dict(self) -> Given:
        """Everything that was found, as plain data: what `tequio init --json` prints."""
        from tequio.experiments.showing.inspection import as_document

        return as_document(self.facts)

    def __str__(self) -> str:
        from tequio.experiments.showing.inspection import as_text

        return as_text(self.facts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from tequio.experiments.showing.inspection import as_html

        return as_html(self)

    def _command(self) -> str:
        target = self.facts.target
        words = [f" --target {_word(name)}" for name in (target.names if target else ())]
        return f"tequio init {_word(self.facts.name)}{''.join(words)}" + (
            f" --party {_word(self.facts.party)}" if self.facts.party else "")


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over a file unless that is wanted."""
    if path.exists() and not force:
        raise ConfigError(f"'{path}' is there already", remedy="type --force to write over it, or --out OTHER.toml")


def _seen_from(path: Path, folder: Path) -> str:
    """The file as a config in that folder names it: relative where it lies in or below the folder."""
    whole, folder = path.resolve(), folder.resolve()
    return whole.relative_to(folder).as_posix() if whole.is_relative_to(folder) else str(whole)


def _word(text: str) -> str:
    import shlex

    return shlex.quote(text)
