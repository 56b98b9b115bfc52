"""What a model says of new rows, batch by batch, as a table in memory or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs.column import id_columns
from tequio.data.inputs.reading import opened_csv
from tequio.errors import ConfigError, DataError, RunError
from tequio.experiments.api import load
from tequio.experiments.config.complete import load_config
from tequio.experiments.running.results import Result
from tequio.experiments.running.store import CONFIG, find_folder
from tequio.experiments.running.table import Table
from tequio.models.model import COORDINATOR, Model
from tequio.models.sources import column_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Tally
    from tequio.models.rows import Asked, Unseen

WHY = "why"


@dataclass(frozen=True)
class Batch:
    """Some answered rows as columns; `tally` counts those whose true value is known."""

    columns: dict[str, NDArray[Any]]
    rows: int
    skipped: int
    ignored: tuple[str, ...] = ()
    tally: Tally | None = None
    known: int = 0


def predict(model: Model | Result | str | Path, rows: Any, *, party: str = "", unseen: Unseen = "error",
            id: str | None = None, ids: Sequence[object] = (), proba: bool = False, explain: bool = False) -> Table:
    """What a model says of new rows: one line each with its id, the prediction, and how sure it is.

    `model` is a model, a result, or a run by its folder, its name or 'last'. `rows` are a file or an object with the
    columns that the model looks at: of a vertical model those of all parties, of which each answers for its own.
    `party` asks for that party's own model. `id` names the column that identifies rows (default: as in the run; without
    one, rows are numbered), and `ids` picks some of them. `unseen` says what becomes of values that the model cannot
    use; `proba` adds the probability of every class, `explain` a column that says why.
    """
    found = opened(model, party)
    named = default_id(model, rows) if id is None else id
    wanted, table = {str(value) for value in ids}, Table()
    for batch in predictions(found, rows, unseen=unseen, id=named, proba=proba, explain=explain, truth=False):
        for line in lines_of(batch.columns):
            if not wanted or str(line[next(iter(line))]) in wanted:
                table.add(line)
    first = table.columns[0] if table.columns else ""
    refuse_unknown(wanted, {str(row[first]) for row in table} if wanted else set())
    return table


def opened(model: Model | Result | str | Path, party: str = "", home: Path | None = None) -> Model:
    """The model that is meant; at a party, whose folder is `home`, one that its coordinator signed."""
    if home is not None and isinstance(model, str | Path):
        from tequio.models.publishing import load_at_party

        if party not in ("", COORDINATOR):
            raise ConfigError("a party answers with its own model", remedy="leave --party out")
        return load(model, party=party, authority=home) if party else load_at_party(Path(model), home)
    found = model if isinstance(model, Model) else model.trained if isinstance(model, Result) else load(model)
    return found.of(party) if party else found


def default_id(model: Model | Result | str | Path, rows: Any) -> str:
    """The column that identified rows in the run, where the new rows have it too."""
    if isinstance(model, Model):
        return ""
    try:
        folder = model.folder if isinstance(model, Result) else find_folder(model)
        name = str(load_config(folder / CONFIG).data.parameters.get("id") or "")
    except (ConfigError, RunError, OSError):  # a model that was handed over without its run
        return ""
    names = _names(rows)
    return name if names and all(one in names for one in id_columns(name, names)) else ""


def predictions(model: Model, rows: Any, *, unseen: Unseen = "error", id: str = "", proba: bool = False,
                explain: bool = False, truth: bool = True) -> Iterator[Batch]:
    """Answers with their columns, batch by batch. `truth` also looks for true values, and scores where there are."""
    why = reasons(model) if explain else None
    if proba and (model.target.kind not in ("classes", "multilabel") or model.clusters):
        raise ConfigError("this model gives no probabilities", remedy="leave --proba out")
    first = 0
    for part, scores in model.answered(rows, unseen=unseen, id=id, with_target=truth and not model.clusters):
        keys = np.arange(first, first + part.given) if part.given_ids is None else part.given_ids
        columns = {"row" if part.given_ids is None else "id": keys, **_answers(model, part, scores, proba)}
        known = part.rows.take(part.known) if part.known is not None and part.known.any() else None
        if part.known is not None and model.target.kind != "multilabel":
            columns["truth"] = _truth(model, part)
        if why is not None:
            columns[WHY] = _placed(why(part.rows), part)
        first += part.given
        yield Batch(columns, part.given, part.given - len(part.places), part.ignored,
                    None if known is None else model.tally(known), 0 if known is None else len(known))


def reasons(model: Model) -> Callable[[Dataset], list[str]]:
    """Why a model answers as it does, a line per row; refused where it has no short reason."""
    from tequio.models.reasons import reason_for

    return reason_for(model)


def lines_of(columns: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, Any]]:
    """Columns as rows of plain values; a skipped row has none."""
    values = [values.tolist() for values in columns.values()]
    for line in zip(*values, strict=True):
        yield {name: None if isinstance(value, float) and np.isnan(value) else value
               for name, value in zip(columns, line, strict=True)}


def refuse_unknown(wanted: set[str], found: set[str]) -> None:
    """Refuse ids that no row has."""
    if unknown := wanted - found:
        raise DataError(f"{len(unknown)} of the {len(wanted)} ids asked about are not in the new rows",
                        remedy="name the column that identifies rows: --id COLUMN")


def _answers(model: Model, part: Asked, scores: NDArray[Any], proba: bool) -> dict[str, NDArray[Any]]:
    decided, kind = model.decided(part, scores), model.target.kind
    if model.clusters:
        return {"cluster": decided}
    if kind == "multilabel":
        names = [model.target.names[label] for label in model.answer.labels(model.target.size)]
        shown = _spread(scores, part) if proba else decided
        return {name: shown[:, place] for place, name in enumerate(names)}
    if kind != "classes":
        return {"prediction": decided}
    probabilities = _spread(np.asarray(scores, dtype=np.float64), part)
    every = {f"P({name})": probabilities[:, place] for place, name in enumerate(model.target.names)} if proba else {}
    return {"prediction": decided, "probability": probabilities.max(axis=1), **every}


def _truth(model: Model, part: Asked) -> NDArray[Any]:
    """True values in the words of the target, empty where there is none."""
    assert part.known is not None
    values = model.classes[part.rows.target] if model.target.kind == "classes" else part.rows.target
    return _placed([value if known else None for value, known in zip(values.tolist(), part.known, strict=True)], part)


def _placed(values: Sequence[Any], part: Asked) -> NDArray[Any]:
    whole = np.full(part.given, None, dtype=object)
    whole[part.places] = values
    return whole


def _spread(values: NDArray[Any], part: Asked) -> NDArray[Any]:
    if len(part.places) == part.given:
        return values
    whole = np.full((part.given, *values.shape[1:]), np.nan)
    whole[part.places] = values
    return whole


def _names(rows: Any) -> list[str]:
    """The columns of what people hand over, as far as these have names."""
    if isinstance(rows, Mapping):
        return [str(name) for name in rows]
    if not isinstance(rows, str | Path):
        return column_names(rows)
    path = Path(rows)
    if path.suffix == ".parquet" and path.is_file():
        from pyarrow import parquet

        return [str(name) for name in parquet.read_schema(path).names]
    if not path.is_file():
        return []
    with opened_csv(path) as (header, _):
        return header
