"""What a run gives back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.experiments.config import load_config
from tequio.experiments.models import read_model
from tequio.experiments.store import CONFIG, METRICS, PARTIES, SUMMARY
from tequio.experiments.table import Table, read_csv, shown

if TYPE_CHECKING:
    from tequio.experiments.tables import Config
    from tequio.federation.payload import Payload


@dataclass(frozen=True)
class Result:
    """A finished run. Everything is read from its folder, so a result of last week is as good as a fresh one."""

    folder: Path
    baselines: dict[str, Result] = field(default_factory=dict)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Final metrics, rounds, seconds, bytes and the model's fingerprint."""
        content: dict[str, Any] = json.loads((self.folder / SUMMARY).read_text(encoding="utf-8"))
        return content

    @cached_property
    def metrics(self) -> Table:
        """One row a round."""
        return read_csv(self.folder / METRICS)

    @cached_property
    def parties(self) -> Table:
        """One row a party, of the last evaluation."""
        return read_csv(self.folder / PARTIES)

    @cached_property
    def config(self) -> Config:
        """The complete config."""
        return load_config(self.folder / CONFIG)

    @cached_property
    def model(self) -> Payload:
        """The model: named arrays."""
        return read_model(self.folder)

    def plot(self, metric: str = "", path: str | Path | None = None) -> Any:
        """A matplotlib figure of a metric over rounds, baselines beside it; saved where a path is given."""
        # Views stand above experiments; this is the one door through which a result shows itself.
        return import_module("tequio.views.plots").plot_results(self, metric=metric, path=path)

    def _repr_html_(self) -> str:
        facts = {name: value for name, value in self.summary.items() if isinstance(value, int | float | str)}
        facts |= self.summary["metrics"]
        rows = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(shown(value))}</td></tr>"
                       for name, value in facts.items())
        return f"<table>{rows}</table>"
