"""`tequio predict`: what a trained model says of new rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - typer reads the annotations when the command runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from tequio.experiments.predicting import Batch
    from tequio.learners.learner import Tally
    from tequio.models.model import Model

_MOST_CLASSES = 8


def predict(
    model: Annotated[str, typer.Argument(metavar="RUN_OR_MODEL", help="A run (its folder, its name under runs/, or "
                                         "'last') or the folder of a model.")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="New rows: CSV or Parquet, columns in any order.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all predictions as .csv or .parquet.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Also give the probability of every class.")] = False,
    party: Annotated[str, typer.Option(metavar="NAME", help="Ask this party's own model.")] = "",
    home: Annotated[Path | None, typer.Option(metavar="FOLDER", help="At a party, its folder: the coordinator has to "
                                              "have signed the model, and the party's own part is put to it.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say for each row why: a tree's rule, or the columns that "
                                          "count most.")] = False,
    unseen: Annotated[str, typer.Option(metavar="error|fill|skip", help="Values that the model cannot use: stop, take "
                                        "the usual value, or leave the row without an answer.")] = "error",
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that identifies rows; by default that of "
                                           "the run.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this id (repeat for more).")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Predict new rows with a trained model. Where the file holds the true values too, they are scored.

    Files of any size are answered batch by batch. Columns that the model does not know are named and left out. Where
    parties hold different columns, the file has those of all of them.
    """
    from tequio.experiments.predicting import default_id, opened, predictions, refuse_unknown
    from tequio.experiments.showing.prediction_files import written_to

    if out is not None and out.resolve() == data.resolve():
        raise ConfigError(f"'{out}' holds the rows to predict", remedy="choose another file for --out")
    found = opened(model, party, home)
    named = default_id(model, data) if id is None else id
    seen = Seen(top if out is not None or not as_json else None, frozenset(only or ()))
    with written_to(out) as write:
        for batch in predictions(found, data, unseen=unseen, id=named, proba=proba,  # type: ignore[arg-type]
                                 explain=explain):
            write(seen.add(batch))
        refuse_unknown(set(seen.only), seen.found)
    if as_json:
        typer.echo(json.dumps(_document(found, seen, out)))
    else:
        _show(found, seen, out, proba=proba)


@dataclass
class Seen:
    """What is remembered of batches that went by: the first rows, counts, and the tally of known rows."""

    most: int | None
    only: frozenset[str]
    lines: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    skipped: int = 0
    known: int = 0
    ignored: tuple[str, ...] = ()
    answers: Counter[Any] = field(default_factory=Counter)
    found: set[str] = field(default_factory=set)
    tallies: list[Tally] = field(default_factory=list)

    def add(self, batch: Batch) -> dict[str, Any]:
        """Take note of a batch; the columns to write, of wanted rows only."""
        from tequio.experiments.predicting import lines_of

        columns = batch.columns
        if self.only:
            keys = next(iter(columns.values())).astype(str)
            wanted = [key in self.only for key in keys]
            self.found |= set(keys[wanted])
            columns = {name: values[wanted] for name, values in columns.items()}
        count = len(next(iter(columns.values())))
        self.rows += count
        self.skipped += 0 if self.only else batch.skipped
        self.ignored = batch.ignored
        if batch.tally is not None and not self.only:
            self.tallies.append(batch.tally)
            self.known += batch.known
        main = columns.get("prediction", columns.get("cluster"))
        if main is not None and main.dtype.kind != "f":
            self.answers.update(main.tolist())
        room = count if self.most is None else max(self.most - len(self.lines), 0)
        if room:
            self.lines += lines_of({name: values[:room] for name, values in columns.items()})
        return columns

    def scores(self, model: Model) -> dict[str, float]:
        """The metrics of the rows whose true value is known."""
        from tequio.learners.metrics import merge, summarise

        return summarise(model.target, merge(self.tallies)) if self.tallies else {}


def _document(model: Model, seen: Seen, out: Path | None) -> dict[str, Any]:
    return {"model": dict(model.facts), "rows": seen.rows, "skipped": seen.skipped, "ignored": list(seen.ignored),
            "scored": seen.known, "scores": seen.scores(model),
            "predictions": seen.lines if out is None else seen.lines[:0], "out": None if out is None else str(out)}


def _show(model: Model, seen: Seen, out: Path | None, *, proba: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tequio.experiments.running.table import shown
    from tequio.experiments.showing.predictions import as_reasons, as_table

    console = Console(highlight=False)
    lines = seen.lines if seen.most is None else seen.lines[:seen.most]
    console.print(as_table(model, lines, seen.rows, console.width, proba=proba))
    if lines and "why" in lines[0]:
        console.print(as_reasons(lines))
        console.print()
    told = {"more": f"{seen.rows - len(lines):,} rows; --top N shows more, --out FILE writes all"
            if len(lines) < seen.rows and out is None else "",
            "answers": _counted(seen.answers), "skipped": f"{seen.skipped:,} rows with values that the model does not "
            "know" if seen.skipped else "", "ignored": ", ".join(seen.ignored),
            "scores": ", ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in _ordered(
                seen.scores(model)).items()),
            "scored": f"{seen.known:,} rows whose true value is known" if 0 < seen.known < seen.rows else ""}
    facts = Table.grid(padding=(0, 2))
    facts.add_column(min_width=8, no_wrap=True)
    for name, text in told.items():
        if text:
            facts.add_row(name, Text(text, overflow="fold"))
    console.print(facts)
    if out is not None:
        console.print(f"written   {out}", markup=False, soft_wrap=True)


def _ordered(scores: dict[str, float]) -> dict[str, float]:
    """The metric that counts most first."""
    from tequio.experiments.running.headline import main_metric

    main = main_metric(scores)
    return {name: scores[name] for name in sorted(scores, key=lambda name: name != main)}


def _counted(answers: Counter[Any]) -> str:
    """How many rows got which answer, the most frequent first."""
    answers = Counter({answer: count for answer, count in answers.items() if answer is not None})
    told = ", ".join(f"{answer} {count:,}" for answer, count in answers.most_common(_MOST_CLASSES))
    return f"{told}, ..." if len(answers) > _MOST_CLASSES else told
