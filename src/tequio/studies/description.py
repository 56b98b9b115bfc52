"""What a study is: `study.toml` in a folder of its own, read and checked."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Len
from pydantic import Field, ValidationError, model_validator

from tequio.errors import ConfigError, nearest
from tequio.experiments.comparing.values import fits
from tequio.experiments.config.tables import Table
from tequio.experiments.config.toml import Given, read_toml
from tequio.registry import explain
from tequio.studies.verdicts import Direction, margin_for

FILE = "study.toml"
FOLDER_VARIABLE = "TEQUIO_STUDIES"

Text = Annotated[str, Len(1)]
Seeds = Annotated[int, Ge(1)]


class Cell(Table):
    """One number of a table: which run answers it by which metric, and what was published (`tequio.studies.verdicts`).

    `against` names a second run for metrics that compare two. `direction` is that of the metric unless given: `both` is
    for quantities of which neither more nor less is better. `published_sd` and `published_seeds` are the printed
    spread. `required` is a bound of our own in the place of a published value. A cell that is not `comparable` shows
    the published value without being judged by it; one that `repeats` another, of this study or as `STUDY: CELL`, is
    shown and not counted. No seed changes what is `deterministic`.
    """

    name: Text
    run: Text
    metric: Text = "test.accuracy"
    against: str = ""
    published: float | None = None
    published_sd: Annotated[float, Ge(0)] | None = None
    published_seeds: Annotated[int, Ge(2)] | None = None
    required: float | None = None
    direction: Direction | None = None
    deterministic: bool = False
    comparable: bool = True
    repeats: str = ""
    note: str = ""

    @model_validator(mode="after")
    def _numbers_fit(self) -> Cell:
        if self.published is not None and self.required is not None:
            raise ValueError(f"the cell '{self.name}' has a published value or a required one, not both")
        if (self.published_sd is None) != (self.published_seeds is None) or \
                (self.published is None and self.published_sd is not None):
            raise ValueError(f"the cell '{self.name}' needs published, published_sd and published_seeds together")
        return self


class Mean(Table):
    """The mean of all cells whose names fit a pattern with * and ?, such as one method's over all data."""

    name: Text
    cells: Text
    published: float | None = None
    repeats: str = ""
    note: str = ""


class Margin(Table):
    """How far from the published value still counts as the same, for the cells whose names fit: an absolute margin, or
    one in shares of the published value. The reason is printed."""

    cells: Text
    absolute: Annotated[float, Gt(0)] | None = None
    relative: Annotated[float, Gt(0)] | None = None
    why: Text

    @model_validator(mode="after")
    def _one_of_two(self) -> Margin:
        if (self.absolute is None) == (self.relative is None):
            raise ValueError(f"the margin of '{self.cells}' is either absolute or relative")
        return self


class Claim(Table):
    """What a source concludes, in our own words, and where; `holds` says it in cells (`tequio.studies.claims`).

    `other_data` says that these cells are not of the data that the source speaks of.
    """

    says: Text
    where: Text
    holds: Annotated[list[Text], Len(1)]
    other_data: bool = False
    note: str = ""


class Order(Table):
    """Methods that a table ranks: each is a part of the names of its cells, and the other parts name the problem."""

    methods: Annotated[list[Text], Len(2)]
    cells: Text = "*"


class Quick(Table):
    """The short form: what changes in every run's config, in some runs' besides, and on what it then runs."""

    note: Text
    seeds: Seeds = 1
    config: Given
    runs: dict[str, Given] = Field(default_factory=dict)


class Figure(Table):
    """A picture of some finished runs: of the first seed their centroids, what happened over rounds and time, trust
    scores, or how alike clusters are to those of the run in the same place of `against` (`jaccard`); as means over all
    finished seeds a `metric` of every party in each run against each other (`schools`). Or the critical differences of
    the study's contests."""

    kind: Literal["centroids", "timelines", "trust", "jaccard", "schools", "critical_differences"]
    runs: list[str] = Field(default_factory=list)
    against: list[str] = Field(default_factory=list)
    metric: str = "balanced_accuracy"

    @model_validator(mode="after")
    def _references_fit(self) -> Figure:
        if self.kind == "jaccard" and len(self.against) not in (1, len(self.runs)):
            raise ValueError("a figure of Jaccard indices needs, in 'against', one run for all runs or one for each")
        return self

    def reference(self, run: str) -> str:
        """What a run is compared with."""
        return self.against[0] if len(self.against) == 1 else self.against[self.runs.index(run)]


class Curves(Table):
    """Quantities drawn over another one. Cells are called `GROUP: QUANTITY`; a line joins the groups that fit its
    pattern, in the order of `x`, and every quantity of `y` has a panel."""

    x: Text
    y: Annotated[list[Text], Len(1)]
    lines: Annotated[dict[str, Text], Len(1)]


class Contest(Table):
    """Methods compared by rank on every problem (a run's data) and seed, with Friedman's and Nemenyi's tests.

    `methods` lists the runs of each method, problem by problem in the same order. `RUN: NAME` is the baseline of that
    name beside a run. `metrics` gives each problem a metric of its own, where problems are parties of the same runs; a
    method then lists its run once. `published` is the printed p-value, and `ranks` the published mean ranks in the
    order of methods.
    """

    name: Text
    metric: str = ""
    metrics: list[Text] = Field(default_factory=list)
    methods: dict[str, Annotated[list[str], Len(1)]]
    published: float | None = None
    ranks: list[float] = Field(default_factory=list)
    note: str = ""

    @model_validator(mode="after")
    def _methods_fit(self) -> Contest:
        if len(self.methods) < 2 or len({len(runs) for runs in self.methods.values()}) > 1:
            raise ValueError(f"the contest '{self.name}' needs two or more methods with equally many runs")
        if bool(self.metric) == bool(self.metrics):
            raise ValueError(f"the contest '{self.name}' needs either a metric or metrics")
        if self.metrics and any(len(runs) not in (1, len(self.metrics)) for runs in self.methods.values()):
            raise ValueError(f"the contest '{self.name}' has {len(self.metrics)} metrics: list one run a method, or "
                             "one for each of them")
        return self

    def problems(self) -> list[tuple[str, tuple[str, ...]]]:
        """Of every problem the metric and the runs, one a method."""
        count = len(self.metrics) or len(next(iter(self.methods.values())))
        runs = [given * count if len(given) == 1 else given for given in self.methods.values()]
        return list(zip(self.metrics or [self.metric] * count, zip(*runs, strict=True), strict=True))


class Study(Table):
    """A study. `config` is what all runs share; each of `runs` says what it changes.

    Studies with the same `store` share their finished runs, which else are kept under the study's own name.
    """

    name: str = ""
    title: Text
    source: Text
    notes: list[str] = Field(default_factory=list)
    seeds: Seeds = 5
    config: Given = Field(default_factory=dict)
    runs: dict[str, Given]
    cells: list[Cell] = Field(default_factory=list)
    means: list[Mean] = Field(default_factory=list)
    contests: list[Contest] = Field(default_factory=list)
    claims: list[Claim] = Field(default_factory=list)
    orders: list[Order] = Field(default_factory=list)
    margins: list[Margin] = Field(default_factory=list)
    store: str = ""
    quick: Quick
    figure: Figure | None = None
    curves: Curves | None = None

    @model_validator(mode="after")
    def _names_fit(self) -> Study:
        names = [line.name for line in self.lines]
        if len(set(names)) < len(names):
            raise ValueError(f"two lines are called '{next(name for name in names if names.count(name) > 1)}'")
        if not self.cells and not self.contests:
            raise ValueError("a study has cells or contests")
        drawn = [*self.figure.runs, *self.figure.against] if self.figure else []
        for run in (*self.runs_of_cells(), *drawn):
            if run not in self.runs:
                raise ValueError(f"there is no run called '{run}': {nearest(run, self.runs)}")
        for run in drawn:
            if run not in self.runs_of_cells():
                raise ValueError(f"the figure draws the run '{run}', which no cell asks for")
        for mean in self.means:
            if len({cell.metric for cell in self.cells_of(mean)}) != 1:
                raise ValueError(f"the mean '{mean.name}' is of cells with different metrics, or of none")
        return self

    def cells_of(self, mean: Mean) -> list[Cell]:
        """The cells that a mean is taken of."""
        return [cell for cell in self.cells if fits(cell.name, mean.cells)]

    @property
    def lines(self) -> list[Cell | Mean]:
        """All lines of the table: the cells, then the means over some of them."""
        return [*self.cells, *self.means]

    def margin_of(self, line: str, metric: str, published: float) -> float:
        """How far from the published value still counts as the same."""
        own = next((margin for margin in self.margins if fits(line, margin.cells)), None)
        if own is None:
            return margin_for(metric, published)
        return own.absolute if own.absolute is not None else (own.relative or 0.0) * abs(published)

    def runs_of_cells(self) -> list[str]:
        """Names of the runs that cells and contests ask for, each once, in the order of the table."""
        asked = [run for cell in self.cells for run in (cell.run, cell.against) if run]
        asked += [run for contest in self.contests for runs in contest.methods.values() for run in runs]
        return list(dict.fromkeys(run_and_baseline(run)[0] for run in asked))


def run_and_baseline(name: str) -> tuple[str, str]:
    """`RUN: NAME` as the run and the baseline beside it; the baseline is empty for the run itself."""
    run, _, baseline = name.partition(": ")
    return run, baseline


def studies_folder() -> Path:
    """`$TEQUIO_STUDIES`, else `studies` in the working folder, else the studies that are installed with tequio."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    installed = Path(str(files("tequio_studies"))).resolve()
    places = [Path(chosen).expanduser()] if chosen else [Path("studies"), installed]
    for place in places:
        if next(place.rglob(FILE), None) is not None:
            return place
    raise ConfigError(f"there are no studies in {' or '.join(f'{str(place)!r}' for place in places)}",
                      remedy=f"set {FOLDER_VARIABLE} to a folder with studies")


def study_names(folder: Path) -> list[str]:
    """All studies of a folder; a study's name is its path there."""
    return sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob(FILE))


def load_study(name: str, folder: Path) -> Study:
    """The study of that name."""
    path = folder / name / FILE
    if not path.is_file():
        raise ConfigError(f"there is no study called '{name}'", remedy=nearest(name, study_names(folder)))
    content = _included(path)
    try:
        return Study.model_validate({**content, "name": name})
    except ValidationError as cause:
        raise ConfigError(f"{name}/{FILE}: {_complaint(cause)}", remedy="see studies/README.md") from None


def _included(path: Path) -> Given:
    """A study file on top of the one that its key `include` names, with which several studies share what is alike."""
    content = read_toml(path)
    base = content.pop("include", "")
    return read_toml(path.parent / base) | content if base else content


def _complaint(cause: ValidationError) -> str:
    first = cause.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"there is no key '{place}'"
    return first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else explain(cause)
