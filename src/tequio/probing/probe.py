"""What a probe is: an attack on the privacy of a finished run, from a view, with the odds of guessing beside it.

A probe is a component, so that `tequio list` shows it and its parameters are checked. What it finds is numbers by name:
`success` with its 95 % interval (`low`, `high`), `guess`, which is what somebody without the update, model or messages
reaches, the number of `attempts`, and measures of its own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from tequio import registry
from tequio.errors import ConfigError
from tequio.experiments.running.recording import Listener, ignore
from tequio.experiments.running.store import PROBES as FILE
from tequio.experiments.running.store import write_json
from tequio.experiments.running.table import Table
from tequio.privacy.auditing import share_bounds
from tequio.registry import contract

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.results import Result

View = Literal["coordinator", "released", "party"]
"""Who looks on: the coordinator, at all that reaches it; somebody who sees the model before and after a round; or
another party, at what it is sent."""

SEEN_BY = {"coordinator": "coordinator", "released": "everybody", "party": "another party"}
_MEASURES = ("success", "guess", "low", "high", "attempts")
SHOWN = ("attack", "seen by", *_MEASURES, "more")


@contract("probe")
@dataclass(frozen=True)
class Probe(ABC):
    """An attack on a finished run.

    `views` are those from where it makes a difference to look, and `assumes` says what the attacker is taken to know.
    """

    views: ClassVar[tuple[View, ...]] = ("released",)
    assumes: ClassVar[str]

    @abstractmethod
    def suits(self, config: Config) -> bool:
        """Whether there is something of the kind in a run with that config."""

    def get_ready(self, result: Result, workers: int, listen: Listener) -> None:
        """Do beforehand what takes long and can be shared out; it is kept, so that it can be stopped at any time."""
        return

    @abstractmethod
    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """How the attack does: `success`, `low`, `high`, `guess` and `attempts`, and measures of its own."""


def assumption(name: str) -> str:
    """What the attacker of a probe is taken to know, as a sentence."""
    return f"the attacker is taken to know {cast('type[Probe]', registry.find('probe', name).component).assumes}."


def interval(hits: float, attempts: int) -> dict[str, float]:
    """A share of attempts with its 95 % interval by Clopper and Pearson, under the names of a probe's measures."""
    low, high = share_bounds(round(hits), attempts)
    return {"success": hits / attempts, "low": low, "high": high, "attempts": float(attempts)}


def probe(result: Result, attack: str, view: View | None = None, **parameters: object) -> dict[str, float]:
    """How an attack does against a run, by default from its first view.

    It is kept in the run's folder, because it always comes out the same.
    """
    return attempted(result, cast("Probe", registry.build("probe", attack, parameters)), view)


def attempted(result: Result, made: Probe, view: View | None = None, *, workers: int = 1,
              listen: Listener = ignore) -> dict[str, float]:
    """What a probe that is already made finds, or has found before."""
    name, view = registry.name_of(type(made)), view or made.views[0]
    if view not in made.views:
        raise ConfigError(f"the probe '{name}' does not look on as '{view}'", remedy=f"choose view = '{made.views[0]}'")
    if not made.suits(result.config):
        raise ConfigError(f"the probe '{name}' finds nothing of its kind in a run of "
                          f"'{result.config.algorithm['name']}'", remedy=f"see what it needs: tequio show {name}")
    path = result.folder / FILE
    changed = {field.name: registry.to_plain(getattr(made, field.name)) for field in registry.parameters_of(made)
               if getattr(made, field.name) != field.default}
    key = " ".join([name, view, *([json.dumps(changed, sort_keys=True)] if changed else [])])
    sha = result.summary["model_sha256"]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept = kept if kept.get("model_sha256") == sha else {"model_sha256": sha}
    if key not in kept:
        made.get_ready(result, workers, listen)
        kept[key] = made.attempt(result, view)
        write_json(path, kept)
    found: dict[str, float] = kept[key]
    return found


def probe_table(results: Sequence[Result], attacks: Sequence[str] = (),
                settings: Mapping[str, object] | None = None, *, workers: int = 1, listen: Listener = ignore) -> Table:
    """One line a run, attack and view; without names, all attacks that suit a run.

    `SHOWN` are the columns for readers; those after them are the numbers behind `more`, for programs.
    """
    table = Table()
    for result in results:
        made = {name: cast("Probe", registry.build("probe", name, settings))
                for name in attacks or registry.names("probe")}
        fitting = {name: one for name, one in made.items() if attacks or one.suits(result.config)}
        if not fitting:
            raise ConfigError(f"no probe knows what a run of '{result.config.algorithm['name']}' gives away",
                              remedy="probe a run such as one of 'fedavg', 'split-nn' or 'secureboost'")
        for name, one in fitting.items():
            for view in one.views:
                table.add(_line(result, name, view, attempted(result, one, view, workers=workers, listen=listen)))
    return table


def stored_table(result: Result) -> Table:
    """What probes found of a run before, with the parameters that they had."""
    path, table = result.folder / FILE, Table()
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for key, found in kept.items() if kept.get("model_sha256") == result.summary["model_sha256"] else ():
        name, _, rest = key.partition(" ")
        view, _, changed = rest.partition(" ")
        if name in registry.names("probe"):
            line = _line(result, name, cast("View", view), found)
            table.add(line | {"more": ", ".join(filter(None, [line["more"], changed.strip("{}").replace('"', "")]))})
    return table


def with_interval(row: Mapping[str, object]) -> str:
    """A success with its interval, for readers."""
    interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if {"low", "high"} <= row.keys() else ""
    return f"{row['success']:.3f}{interval}"


def _line(result: Result, name: str, view: View, found: dict[str, float]) -> dict[str, Any]:
    rest = {key: value for key, value in found.items() if key not in _MEASURES}
    shares = {key: f" [{rest[f'{key}_low']:.2f}, {rest[f'{key}_high']:.2f}]" for key in rest if f"{key}_low" in rest}
    more = ", ".join(f"{key.replace('_', ' ')} {value:.2f}{shares.get(key, '')}" for key, value in rest.items()
                     if key.removesuffix("_low").removesuffix("_high") not in shares or key in shares)
    return {"run": result.folder.name, "attack": name, "seen by": SEEN_BY[view],
            **{key: found[key] for key in _MEASURES[:-1] if key in found}, "attempts": int(found["attempts"]),
            "more": more, **rest}
