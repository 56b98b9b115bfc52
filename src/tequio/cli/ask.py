"""`tequio ask`: questions about the rows of all parties, such as "mean(age), count by sex where city = 'Oaxaca'"."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.results import Result

_KEPT = ("name", "seed", "plugins", "data", "stages", "privacy", "rules", "availability", "devices", "engine", "output",
         "policy")


def ask(
    questions: Annotated[list[str], typer.Argument(metavar="QUESTION...", help="What to ask; each in quotes.")],
    parties: Annotated[str, typer.Option("--parties", metavar="CONFIG", help="A config or a run, whose parties are "
                                         "asked.")],
    scale: Annotated[list[str] | None, typer.Option(metavar="COLUMN=LOW:HIGH:STEP", help="What a column of numbers may "
                     "hold, and the step that thresholds lie on, such as age=0:100:5 (repeat for more).")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as "
                        "--set algorithm.floor=20 (repeat for more).")] = None,
    home: Annotated[Path | None, typer.Option(metavar="DIR", help="The coordinator's folder: ask real parties that "
                                              "dial in.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Ask questions about the rows of all parties; rows stay with them, and small cells are suppressed.

    Measures: count, sum, mean, sd, median, quantile(column, 0.9), share(condition). Then: by columns or bin(age, 40,
    60), where a condition.
    """
    from tequio.cli.run import printing, shown_progress
    from tequio.experiments import api
    from tequio.experiments.config.complete import complete
    from tequio.experiments.config.toml import write_toml
    from tequio.experiments.deploying.deploying import run_here_or_there

    given = asking_config(parties, questions, scale or [], settings or [])
    with printing(as_json) as write, shown_progress(quiet) as listen:
        if home is None:
            result = api.run_with_baselines(complete(given, source=parties), listen=listen)
        else:
            with TemporaryDirectory() as folder:
                file = Path(folder) / "ask.toml"
                file.write_text(write_toml(given), encoding="utf-8")
                result = run_here_or_there(home, file, [], None, listen, 0)
        if as_json:
            write(json.dumps({"answers": result.model["answers"], "revealed": result.model["revealed"],
                              "notes": result.model["notes"], "folder": str(result.folder)}))
    if not as_json:
        _show(result)


def asking_config(parties: str, questions: Sequence[str], scales: Sequence[str], settings: Sequence[str]) -> Given:
    """The config of a run that asks: data, policy and protection of another one, and nothing of its training."""
    from tequio.experiments.config.complete import read_given, with_key
    from tequio.experiments.config.toml import parse_setting
    from tequio.experiments.running.store import CONFIG, find_folder

    file = Path(parties) if parties.endswith(".toml") else find_folder(parties) / CONFIG
    whole = read_given(file, [])
    given: Given = {key: value for key, value in whole.items() if key in _KEPT}
    before = whole.get("algorithm", {})
    own = dict(before) if isinstance(before, dict) and before.get("name") == "ask" else {}
    declared = dict(own.get("scales", {}))
    for text in scales:
        declared.update([_scale(text)])
    given |= {"rounds": 1, "algorithm": {**own, "name": "ask", "questions": list(questions), "scales": declared}}
    data = given.get("data", {})
    given["data"] = {**(data if isinstance(data, dict) else {"name": data}), "prepare": []}
    for text in settings:
        given = with_key(given, *parse_setting(text))
    return given


def _scale(text: str) -> tuple[str, list[float]]:
    column, _, rest = text.partition("=")
    try:
        low, high, step = map(float, rest.split(":"))
    except ValueError:
        raise ConfigError(f"--scale {text} is not COLUMN=LOW:HIGH:STEP", remedy="such as --scale age=0:100:5") from None
    return column.strip(), [low, high, step]


def _show(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for answer in result.model["answers"]:
        console.print(f"\n{answer['question']}", markup=False)
        names = list(answer["rows"][0])
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            numeric = any(isinstance(row[name], int | float) for row in answer["rows"])
            table.add_column(name.replace("[", "\\["), justify="right" if numeric else "left")
        for row in answer["rows"]:
            table.add_row(*(_text(row[name]) for name in names))
        console.print(table)
        for note in answer["notes"]:
            console.print(f"→ {note}", markup=False)
    for note in result.model["notes"]:
        console.print(f"→ {note}", markup=False)
    console.print(f"\nfolder   {result.folder}", markup=False, soft_wrap=True)


def _text(value: float | int | str) -> str:
    shown = value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return shown.replace("[", "\\[")
