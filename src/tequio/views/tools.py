"""What a program that speaks for somebody may do here: look, check, simulate, compare and read. Nothing else.

Every call is in a log before it is answered. A config may name CSV files of one folder only; it may load no code, reach
no real party and no database, and bring no policy. Replies hold numbers that were computed, and words of configs,
components and columns. The text of a cell, in a table that calls were about, is withheld wherever in a reply it stands;
an error about rows says only that it is one.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, field
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from tequio import errors, registry
from tequio.errors import ConfigError, DataError, PartyError, TequioError
from tequio.experiments import api
from tequio.experiments.comparing.comparing import compare
from tequio.experiments.config.complete import complete
from tequio.experiments.running import store
from tequio.experiments.running.recording import as_json
from tequio.experiments.running.results import Result, is_finished
from tequio.experiments.running.scenario import make_scenario
from tequio.models.audit import Audit, locked
from tequio.views.components import describe
from tequio.views.dossier.evidence import Evidence
from tequio.views.dossier.page import sections_of
from tequio.views.report import save_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tequio.experiments.config.tables import Config

LOG, RUNS = "agents.jsonl", "runs"
MOST_ROUNDS = 200
WITHHELD = "(withheld)"
_NAMES_A_FILE = re.compile(r"[/\\:]|\.(py|toml|json|csv|parquet|txt|pt)$")
_REFUSED = ("plugins", "policy", "sweep", "search", "engine", "output")
_SHORT_NUMBER = 4
"""Numbers of fewer characters are everywhere; nobody is known by them."""


@with_config(ConfigDict(extra="forbid"))
class Nothing(TypedDict):
    """No arguments."""


@with_config(ConfigDict(extra="forbid"))
class OfKind(TypedDict):
    """Components of one kind, or one of them."""

    kind: str
    name: NotRequired[str]


@with_config(ConfigDict(extra="forbid"))
class OfTable(TypedDict):
    """A CSV file in the folder."""

    path: str


@with_config(ConfigDict(extra="forbid"))
class OfConfig(TypedDict):
    """A config as an object: the tables of a TOML file."""

    config: dict[str, Any]


@with_config(ConfigDict(extra="forbid"))
class OfRun(TypedDict):
    """A run by its name."""

    run: str


@with_config(ConfigDict(extra="forbid"))
class OfRuns(TypedDict):
    """Several runs, and what to compare."""

    runs: list[str]
    metric: NotRequired[str]


@with_config(ConfigDict(extra="forbid"))
class OfError(TypedDict):
    """The id of an error."""

    id: str


@dataclass
class Tools:
    """The tools over one folder. `cells` are the texts of cells in tables that calls were about."""

    folder: Path
    cells: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """What may be called."""
        return list(_TOOLS)

    def described(self) -> list[store.Plain]:
        """The tools as the protocol lists them."""
        return [{"name": name, "description": (getdoc(tool) or "").replace("\n", " "),
                 "inputSchema": TypeAdapter(arguments).json_schema()} for name, (arguments, tool) in _TOOLS.items()]

    def call(self, name: str, arguments: Mapping[str, object]) -> tuple[store.Plain, bool]:
        """Log a call and answer it; whether the answer is an error."""
        kind, tool = _TOOLS[name]
        try:
            with locked(self.folder / RUNS):
                Audit(self.folder / RUNS / LOG).add(name, {}, version=0, facts={"arguments": as_json(dict(arguments))})
            found, is_error = tool(self, TypeAdapter(kind).validate_python(arguments)), False
        except ValidationError as cause:
            places = sorted({".".join(map(str, one["loc"])) for one in cause.errors()})
            found, is_error = {"error": "arguments", "message": f"not as the schema of '{name}' says: {places}"}, True
        except (DataError, PartyError) as cause:
            found, is_error = {"error": cause.id, "message": "the rows do not fit; what exactly is wrong is for people "
                               "who may see them: type tequio data inspect FILE"}, True
        except TequioError as cause:
            found, is_error = {"error": cause.id, "message": cause.message, "remedy": cause.remedy}, True
        except Exception as cause:  # whatever it is, its text may hold a row
            found, is_error = {"error": "unexpected", "message": type(cause).__name__}, True
        return self.without_cells(as_json(found)), is_error

    def without_cells(self, reply: store.Plain) -> store.Plain:
        """A reply in which no text, and no part of one, is that of a cell."""
        text = json.dumps(reply, ensure_ascii=False)
        there = [cell for cell in self.cells if cell in text or json.dumps(cell, ensure_ascii=False)[1:-1] in text]
        if not there:
            return reply
        longest_first = "|".join(map(re.escape, sorted(there, key=len, reverse=True)))
        cells = re.compile(f"(?<![^\\W_])(?:{longest_first})(?![^\\W_])")
        withheld: store.Plain = _withheld(reply, cells)
        return withheld

    def table(self, path: str) -> list[str]:
        """The header of a table, once its cells are known, so that none of them is repeated."""
        place = self.inside(path)
        try:
            with place.open(newline="", encoding="utf-8-sig") as file:
                lines = csv.reader(file)
                header = [name.strip() for name in next(lines, [])]
                found = {cell.strip() for line in lines for cell in line}
        except (OSError, UnicodeDecodeError, csv.Error) as cause:
            raise ConfigError(f"'{path}' cannot be read as a CSV file", remedy="give one in the folder") from cause
        if any(_is_number(name) for name in header):
            raise ConfigError(f"'{path}' does not begin with the names of its columns",
                              remedy="add a first line of names")
        self._withhold(found)
        return header

    def _withhold(self, texts: Iterable[str]) -> None:
        self.cells |= {text for text in texts if text and not (_is_number(text) and len(text) < _SHORT_NUMBER)}

    def inside(self, path: str) -> Path:
        """A file in the folder; anything outside is refused."""
        place = (self.folder / path).resolve()
        if "\0" in path or not place.is_relative_to(self.folder.resolve()) or place.is_relative_to(
                (self.folder / RUNS).resolve()):
            raise ConfigError("this path is not in the folder of tables", remedy="name a file beside the server")
        return place

    def run_folder(self, name: str) -> Path:
        """The folder of a finished run, whose tables' cells are then known."""
        place = self.folder / RUNS / name
        if name not in [path.name for path in self._runs()]:
            raise ConfigError("there is no such run", remedy="see which there are: list_runs")
        evidence = Evidence(place)
        for value in _paths_in(evidence.config.get("data", {})):
            if Path(value).is_file():
                self.table(str(Path(value).resolve().relative_to(self.folder.resolve())))
        schema = evidence.json("model.json").get("reading", {}).get("schema", {})
        words = [*schema.get("target", {}).get("names", ()),
                 *(value for column in schema.get("features", ()) for value in column.get("domain") or ()),
                 *(str(row["party"]) for row in evidence.table(store.PARTIES).rows)]
        self._withhold(map(str, words))
        return place

    def _runs(self) -> list[Path]:
        return [path for path in sorted((self.folder / RUNS).glob("*")) if is_finished(path)]

    def config(self, given: Mapping[str, object]) -> Config:
        """A complete config of a simulation on tables in the folder."""
        named = [key for key in _REFUSED if given.get(key)]
        if named:
            raise ConfigError(f"'{named[0]}' is for people to set", remedy=f"leave {named[0]} out")
        data = given.get("data")
        name = data.get("name", "digits") if isinstance(data, dict) else data
        if name in ("parties", "sql", "given"):
            raise ConfigError(f"data.name = '{name}' reaches rows that are elsewhere, which takes a person's approval",
                              remedy="set data.name = 'csv', and data.path to a file in the folder")
        if any(_NAMES_A_FILE.search(text) for text in _texts(dict(given))):
            raise ConfigError("this config names code or a file to load, which is for people to do",
                              remedy="use components that come with tequio (list_components), and CSV files: data.path")
        known = self._with_tables(dict(given), "")
        config = complete({**known, "engine": {"name": "local", "workers": 1},
                           "output": {"folder": str(self.folder / RUNS)}})
        if config.rounds > MOST_ROUNDS:
            raise ConfigError(f"rounds = {config.rounds} is more than a call may take",
                              remedy=f"set rounds = {MOST_ROUNDS} or less")
        return config

    def _with_tables(self, value: Any, key: str) -> Any:
        """A config whose paths are those of tables in the folder, now that their cells are known."""
        if isinstance(value, dict):
            return {name: self._with_tables(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._with_tables(item, key) for item in value]
        if not key.endswith("path") or not isinstance(value, str) or not value:
            return value
        self.table(value)
        return str(self.inside(value))


def _withheld(value: Any, cells: re.Pattern[str]) -> Any:
    if isinstance(value, dict):
        return {_withheld(key, cells): _withheld(item, cells) for key, item in value.items()}
    if isinstance(value, list):
        return [_withheld(item, cells) for item in value]
    return cells.sub(WITHHELD, value) if isinstance(value, str) else value


def _paths_in(value: object, key: str = "") -> list[str]:
    """Every value of a key that ends in `path`."""
    if isinstance(value, dict):
        return [path for name, item in value.items() for path in _paths_in(item, str(name))]
    if isinstance(value, list):
        return [path for item in value for path in _paths_in(item, key)]
    return [value] if isinstance(value, str) and key.endswith("path") and value else []


def _texts(value: object, key: str = "") -> list[str]:
    """Every text but those of keys that end in `path`."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in _texts(item, str(name))]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, key)]
    return [value] if isinstance(value, str) and not key.endswith("path") else []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _outcome(result: Result) -> store.Plain:
    """What a run came to, in numbers."""
    summary = result.summary
    kept = ("run", "algorithm", "rounds", "stopped", "headline", "parties", "seconds", "bytes_up", "bytes_down",
            "model_sha256", "config_hash", "metrics")
    return {name: summary[name] for name in kept if name in summary} | {"warnings": len(summary["warnings"])}


def list_components(tools: Tools, given: OfKind) -> store.Plain:
    """List the components of a kind (algorithm, learner, selector, aggregator, partition, stage, ...), or describe one
    with its parameters."""
    if "name" in given:
        return describe(registry.find(given["kind"], given["name"]))
    return {"components": {entry.name: entry.summary for entry in registry.entries(given["kind"])}}


def list_columns(tools: Tools, given: OfTable) -> store.Plain:
    """Name the columns of a CSV file in the folder, and count its rows. No values."""
    header = tools.table(given["path"])
    with tools.inside(given["path"]).open(newline="", encoding="utf-8-sig") as file:
        rows = sum(1 for _ in csv.reader(file)) - 1
    return {"columns": header, "rows": max(rows, 0)}


def list_runs(tools: Tools, given: Nothing) -> store.Plain:
    """List the finished runs of this folder."""
    return {"runs": [path.name for path in tools._runs()]}


def show_run(tools: Tools, given: OfRun) -> store.Plain:
    """Show what a run came to: metrics, rounds, bytes, hashes."""
    return _outcome(Result(tools.run_folder(given["run"])))


def validate(tools: Tools, given: OfConfig) -> store.Plain:
    """Check a config with its table, without running anything."""
    make_scenario(tools.config(given["config"]))
    return {"valid": True}


def run(tools: Tools, given: OfConfig) -> store.Plain:
    """Run a config in simulation, with parties of this machine only, and show what came of it."""
    return _outcome(api.run_with_baselines(tools.config(given["config"])))


def compare_runs(tools: Tools, given: OfRuns) -> store.Plain:
    """Compare runs by a metric, with the tests that fit."""
    found = compare(*[tools.run_folder(name) for name in given["runs"]], metric=given.get("metric", ""))
    return found.to_dict()


def explain_error(tools: Tools, given: OfError) -> store.Plain:
    """Say what an error id stands for."""
    known = {kind.id: kind for kind in vars(errors).values()
             if isinstance(kind, type) and issubclass(kind, TequioError)}
    if given["id"] not in known:
        raise ConfigError("there is no such error id", remedy=f"one of {', '.join(sorted(known))}")
    kind = known[given["id"]]
    return {"id": kind.id, "exit_code": kind.exit_code, "meaning": (getdoc(kind) or "").split("\n")[0]}


def read_dossier(tools: Tools, given: OfRun) -> store.Plain:
    """Read the facts of a run's dossier, each with its file and hash; tables of parties and settings are left out."""
    sections = sections_of(Evidence(tools.run_folder(given["run"])))
    return {"sections": [{key: section[key] for key in ("id", "title", "words", "facts")} for section in sections]}


def write_report(tools: Tools, given: OfRuns) -> store.Plain:
    """Write an HTML report of runs into the folder, for people to open; its name is returned, not its content."""
    save_report([tools.run_folder(name) for name in given["runs"]], tools.folder / RUNS / "report.html",
                metric=given.get("metric", ""))
    return {"report": f"{RUNS}/report.html"}


_TOOLS: dict[str, tuple[Any, Callable[[Tools, Any], store.Plain]]] = {
    "list_components": (OfKind, list_components), "list_columns": (OfTable, list_columns),
    "list_runs": (Nothing, list_runs), "show_run": (OfRun, show_run), "validate": (OfConfig, validate),
    "run": (OfConfig, run), "compare": (OfRuns, compare_runs), "explain_error": (OfError, explain_error),
    "read_dossier": (OfRun, read_dossier), "write_report": (OfRuns, write_report)}
