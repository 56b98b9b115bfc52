"""The partition explorer: deal a dataset and see who holds what, as a shaded table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.skew import measure_skew
from tequio.errors import TequioError
from tequio.experiments.running.scenario import make_scenario
from tequio.views.heatmap import heatmap_of
from tequio.views.web.kit import dashboard_of, page
from tequio.views.web.reading import read_config
from tequio.views.web.submission import WHOLE, read_submission, typed_from

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.experiments.config.tables import Config
    from tequio.views.web.submission import Submission


_TABLES = ("data", "data.partition")


def show(request: Request) -> Response:
    """The form and, once a dataset is chosen or a run is named, what it deals to whom."""
    asked = {key: value for key, value in request.query_params.items() if key.startswith(("seed", "data."))}
    run = request.query_params.get("run", "")
    if run:
        given = read_config(dashboard_of(request).folder(run))
        asked = {key: text for key, text in typed_from(given).items() if key.startswith(("seed", "data."))}
    found = read_submission(asked)
    shared = _shared(found) if asked else None
    return page(request, "partition.html", status=422 if found.errors and asked else 200, values=found.values,
                errors=found.errors if asked else {}, shared=shared, run=run,
                sections=[section for section in found.sections if section.table in _TABLES],
                seed=next(one for one in found.sections[0].fields if one.key == "seed"))


def _shared(found: Submission) -> Shared | None:
    if found.config is None:
        return None
    try:
        return share_out(found.config)
    except TequioError as cause:
        found.errors[WHOLE] = str(cause)
        return None


MOST_PARTIES, MOST_CLASSES = 100, 40
_SHADES = 9


@dataclass(frozen=True)
class Cell:
    """How many rows of a class a party has, and how dark that is."""

    count: int
    shade: str


@dataclass(frozen=True)
class Holding:
    """One party: its cells, its rows, and the columns it holds where not every party holds all."""

    party: str
    rows: int
    cells: tuple[Cell, ...]
    columns: str = ""


@dataclass(frozen=True)
class Shared:
    """A dataset as it is dealt. `left_out` are classes too rare to show, `of_parties` how many parties there are."""

    title: str
    target: str
    classes: tuple[str, ...]
    left_out: int
    holdings: tuple[Holding, ...]
    of_parties: int
    skew: dict[str, float]


def share_out(config: Config) -> Shared:
    """Deal the data as a run of this config would."""
    # A run would refuse parties of one class; here is where to see them.
    allowed = config.model_copy(update={"data": config.data.model_copy(update={"one_class": "allow"})})
    population = make_scenario(allowed).population
    dealt, dataset = population.partition, population.dataset
    title = f"{dataset.name} dealt to {len(dealt):,} parties: {config.data.partition['name']}"
    heat = heatmap_of(dataset, dealt, most=MOST_PARTIES, title=title)
    kept = np.sort(np.argsort(-heat.counts.sum(axis=0), kind="stable")[:MOST_CLASSES])
    largest = max(int(heat.counts.max(initial=0)), 1)
    columns = _columns(dataset.schema.names, dealt)
    holdings = [Holding(party, int(rows), tuple(_cell(int(count), largest) for count in counts[kept]),
                        columns.get(party, ""))
                for party, rows, counts in zip(heat.parties, heat.sizes, heat.counts, strict=True)]
    skew = {name: value for name, value in measure_skew(dataset, dealt).summary().items() if value == value}
    return Shared(title, heat.target, tuple(heat.classes[place] for place in kept), len(heat.classes) - len(kept),
                  tuple(holdings), heat.of_parties, skew)


def _cell(count: int, largest: int) -> Cell:
    # The square root keeps small parties visible beside large ones.
    step = min(int((count / largest) ** 0.5 * _SHADES) + 1, _SHADES)
    return Cell(count, f"s{step}" if count else "")


def _columns(names: Any, dealt: Any) -> dict[str, str]:
    if dealt.columns is None:
        return {}
    return {dealt.name(party): ", ".join(names[column] for column in dealt.columns[party])
            + ("" if dealt.holds_target is None or dealt.holds_target[party] else " (without the target)")
            for party in range(len(dealt))}
