"""What a run gives back: its tables, its summary, and its model with the fingerprint to compare it by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, MissingExtra, RunError
from tequio.experiments.config.complete import load_config
from tequio.experiments.running import store
from tequio.experiments.running.store import MODELS, Plain, explained, write_whole
from tequio.experiments.running.table import Table, read_csv, shown
from tequio.federation.aggregation import leaves, sha256_of
from tequio.models import folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from tequio.experiments.config.tables import Config
    from tequio.federation.payload import Payload
    from tequio.models.exporting import Format
    from tequio.models.model import Model
    from tequio.models.rows import Unseen


BASELINES = ("alone", "centralised")
"""What a run can be compared with, in the order of tables."""


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder came to its end."""
    return (folder / store.SUMMARY).is_file()


@dataclass(frozen=True)
class Result:
    """A finished run. Everything is read from its folder, so a result of last week is as good as a fresh one."""

    folder: Path

    @cached_property
    def summary(self) -> Plain:
        """Final metrics, rounds, seconds, bytes and the model's fingerprint."""
        if not is_finished(self.folder):
            raise RunError(f"the run '{self.folder}' is not finished",
                           remedy=f"go on with it: tequio run --resume {self.folder}")
        content: Plain = json.loads((self.folder / store.SUMMARY).read_text(encoding="utf-8"))
        return content

    @cached_property
    def metrics(self) -> Table:
        """One row a round."""
        return read_csv(self.folder / store.METRICS)

    @cached_property
    def parties(self) -> Table:
        """One row a party, of the last evaluation."""
        return read_csv(self.folder / store.PARTIES)

    @property
    def privacy(self) -> Plain:
        """What the privacy ledger states: epsilon, delta, what it hangs on, in `words` too; empty without a ledger."""
        return dict(self.summary.get("privacy", {}))

    @property
    def privacy_over_runs(self) -> Plain:
        """What all runs on the same rows had spent together when this one ended, in `words` too; empty without a
        ledger."""
        return dict(self.summary.get("privacy_over_runs", {}))

    @property
    def warnings(self) -> list[str]:
        """What is going wrong, each in one sentence with the key to change."""
        return [str(message) for message in self.summary.get("warnings", [])]

    @cached_property
    def labels(self) -> Table:
        """Of a multi-label target one row a party and label, of the last evaluation; else empty."""
        path = self.folder / store.LABELS
        return read_csv(path) if path.is_file() else Table()

    @cached_property
    def participation(self) -> Table:
        """One row a party that was chosen at least once: how often, and the sum of its contributions if scored."""
        return read_csv(self.folder / store.PARTICIPATION)

    @cached_property
    def events(self) -> list[Plain]:
        """All that was recorded, in order: exchanges, selections, failures, and what the algorithm noted."""
        lines = (self.folder / store.EVENTS).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def config(self) -> Config:
        """The complete config."""
        return load_config(self.folder / store.CONFIG)

    @cached_property
    def baselines(self) -> dict[str, Result]:
        """The baselines that ran beside it, by name."""
        return {name: Result(path) for name in BASELINES if is_finished(path := self.folder / store.BASELINES / name)}

    @cached_property
    def model(self) -> Payload:
        """The model: named arrays."""
        return read_model(self.folder)

    @cached_property
    def trained(self) -> Model:
        """The model as something to ask about rows."""
        return folder.load(self.folder)

    def predict(self, rows: Any, *, party: str = "", unseen: Unseen = "error") -> NDArray[Any]:
        """The class, the number, the labels or the cluster of each row: see `Model.predict`."""
        return self._of(party).predict(rows, unseen=unseen)

    def predict_proba(self, rows: Any, *, party: str = "", unseen: Unseen = "error") -> NDArray[np.float64]:
        """Probabilities of the classes or labels of each row: see `Model.predict_proba`."""
        return self._of(party).predict_proba(rows, unseen=unseen)

    def score(self, rows: Any, target: Any = None, *, party: str = "", unseen: Unseen = "error") -> dict[str, float]:
        """The metrics of rows whose truth is known: see `Model.score`."""
        return self._of(party).score(rows, target, unseen=unseen)

    def module(self, party: str = "") -> nn.Module:
        """A plain torch module with the trained weights; it takes prepared rows and gives outputs before softmax."""
        return self._of(party).module()

    def export(self, to: Format, path: str | Path | None = None, *, party: str = "") -> Any:
        """The model as onnx, rules, torch weights, safetensors or a scikit-learn pipeline: see `Model.export`."""
        return self._of(party).export(to, path)

    def _of(self, party: str) -> Model:
        return self.trained.of(party) if party else self.trained

    @cached_property
    def model_rounds(self) -> list[int]:
        """After which rounds the model was kept (`output.models_every`)."""
        return list(round_models(self.folder))

    def model_after(self, round: int) -> Payload:
        """The model as it was after a round, if it was kept; that of the last round always is."""
        if round == self.summary["rounds"]:
            return self.model
        place = round_models(self.folder).get(round)
        if place is None:
            raise ConfigError(f"the run '{self.folder.name}' did not keep its model of round {round}",
                              remedy="set output.models_every = 1 and run it anew")
        return read_model(place)

    def plot(self, metric: str = "", path: str | Path | None = None, by: str = "round") -> Any:
        """A matplotlib figure of a metric over rounds (or over `by`, such as `clock.seconds`), baselines beside it.

        It is saved where a path is given.
        """
        from tequio.experiments.showing.results import plot_results

        return plot_results(self, metric=metric, path=path, by=by)

    def to_dict(self) -> Plain:
        """The summary with the folder and the baselines' summaries: what `tequio run --json` prints."""
        beside = {name: baseline.to_dict() for name, baseline in self.baselines.items()}
        return self.summary | {"folder": str(self.folder)} | ({"baselines": beside} if beside else {})

    def __repr__(self) -> str:
        if not is_finished(self.folder):
            return f"a run that is not finished\n  folder      {self.folder}"
        return "\n".join([self._title(), *(f"  {name:<19} {text}" for name, text in self._headlines().items())])

    def _repr_html_(self) -> str:
        if not is_finished(self.folder):
            return f"<pre>{escape(repr(self))}</pre>"
        names = ("run", "algorithm", "data", "parties", "rounds", "stopped", "seconds", "bytes_up", "bytes_down",
                 "evaluation_bytes_up", "evaluation_bytes_down")
        facts = {f"training_{name}" if name.startswith("bytes") else name: self.summary[name] for name in names}
        rest = {name: shown(value) for name, value in (facts | self.summary["metrics"]).items()}
        told = f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in self.warnings)}</ul>" if self.warnings else ""
        return (f"<b>{escape(self._title())}</b>{_html_table(self._headlines())}{told}{self._drawing()}"
                f"<details><summary>all metrics</summary>{_html_table(rest)}</details>")

    def _title(self) -> str:
        summary = self.summary
        return f"{summary['name']}: {summary['algorithm']} on {summary['data']}, {summary['parties']:,} parties"

    def _headlines(self) -> dict[str, str]:
        from tequio.experiments.showing.results import headlines

        return headlines(self) | {"folder": str(self.folder)}

    def _drawing(self) -> str:
        try:
            return str(self.plot()._repr_svg_())
        except (MissingExtra, ConfigError):
            return ""


def _html_table(facts: dict[str, str]) -> str:
    rows = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td>"
                   "</tr>" for name, text in facts.items())
    return f"<table>{rows}</table>"


ARRAYS, PLAIN = "model.safetensors", "model.json"


def model_sha256(model: Payload, fingerprints: Sequence[str] = ()) -> str:
    """The hash of a run's model; where parties have models of their own, over its hash and theirs."""
    common = sha256_of(model)
    return hashlib.sha256("\n".join([common, *fingerprints]).encode()).hexdigest() if fingerprints else common


def write_model(folder: Path, model: Payload) -> Path:
    """As safetensors where the model is arrays only (nested names joined by '/'), else as JSON."""
    from safetensors.numpy import save

    held = leaves(model)
    if held and all(isinstance(value, np.ndarray) for value in held.values()):
        path, content = folder / ARRAYS, save({name: np.asarray(value, order="C") for name, value in held.items()})
    else:
        path, content = folder / PLAIN, (json.dumps(_listed(model), indent=1) + "\n").encode()
    write_whole(path, content)
    return path


def read_model(folder: Path) -> Payload:
    """The model that a run left behind; a flat table of names where it was nested."""
    from safetensors.numpy import load

    if (folder / ARRAYS).exists():
        return dict(load((folder / ARRAYS).read_bytes()))
    content: Payload = json.loads((folder / PLAIN).read_text(encoding="utf-8"))
    return content


def write_round_model(folder: Path, round: int, model: Payload) -> Path:
    """Keep what the model was after a round."""
    place = folder / MODELS / str(round)
    with explained(place):
        place.mkdir(parents=True, exist_ok=True)
    return write_model(place, model)


def round_models(folder: Path) -> dict[int, Path]:
    """The rounds whose models were kept, in order, and where these are."""
    return dict(sorted((int(place.name), place) for place in (folder / MODELS).glob("*") if place.name.isdigit()))


def _listed(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
