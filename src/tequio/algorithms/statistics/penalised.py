"""Ridge, lasso and elastic-net paths of generalised linear models, with cross-validation over folds within parties.

The training sets of all folds, and all rows, are fitted side by side: one ask brings the sums of each at coefficients
of its own. Gaussian models need a single ask, since these sums give every error on every path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval, Le

from tequio.algorithms.statistics.design import CONSTANT, Table
from tequio.algorithms.statistics.exact_sums import (
    Block,
    Layout,
    sum_rows,
    symmetric,
    upper,
    whole_reply,
)
from tequio.algorithms.statistics.families import FamilyName, LinkName, rows_at
from tequio.algorithms.statistics.fitting import ModelSpec, prepare, start
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.glm_tasks import ModelSettings, PointPayload, party_design
from tequio.algorithms.statistics.small_cells import SmallCells, flags_among, require
from tequio.algorithms.statistics.statistic import ExactStatistic, require_columns
from tequio.errors import ConfigError, DataError, RunError
from tequio.federation.algorithm import State
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.statistics.design import Design
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.algorithms.statistics.fitting import Frame
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

    Vector = NDArray[np.float64]

_MOST_STEPS, _STOP = 100, 1e-9
_MOST_SWEEPS, _SWEEPS, _SLACK = 1000, 5, 1e-12


@record
class FoldSettings(ModelSettings):
    """Into how many folds rows are dealt: by a column that holds their numbers, or by a hash of each row's id."""

    folds: Count
    fold_column: str


def fold_layout(settings: FoldSettings) -> Layout:
    """For each training set, and for all rows, the sums of an iteration; and what each fold's rows deviate by."""
    sets, p = settings.folds + 1, settings.columns
    return (Block("H", (sets, p * (p + 1) // 2)), Block("u", (sets, p)), Block("dev", (sets,)),
            Block("held", (settings.folds,)), Block("rows", (settings.folds,), "count"))


@task("glm: folds", settings=FoldSettings, reply=SumsReply, reveals=Sums(guarded=True))
def folds_here(party: Party, payload: PointPayload, settings: FoldSettings) -> SumsReply:
    """The sums of each training set at its own coefficients, and how far its model is off on the fold left out."""
    design = party_design(party, payload, settings)
    require(design.broken)
    fold, folds = folds_of(party, design, settings), settings.folds
    z, y, w = (design.columns - payload["mean"][:-1]) / payload["sd"], design.outcome, design.weights
    found: dict[str, list[Any]] = {"H": [], "u": [], "dev": [], "held": []}
    for place, coefficients in enumerate(payload["coefficients"].reshape(folds + 1, -1)):
        at = rows_at(settings.family, settings.link, y, z @ coefficients + design.offset)
        out = fold == place
        own, held = np.where(out, 0.0, w), np.where(out, w, 0.0)
        bulk, pull, deviance = own * at.weight, own * at.score, at.deviance
        for name, value in sum_rows(len(y), partial(_set_sums, z, bulk, pull, own, held, deviance)).items():
            found[name].append(value)
    return whole_reply(party, fold_layout(settings), payload, {
        **{name: np.array(values) for name, values in found.items()}, "held": np.array(found["held"][:-1]),
        "rows": np.bincount(fold, minlength=folds)})


def _set_sums(z: NDArray[np.float64], bulk: Vector, pull: Vector, own: Vector, held: Vector, deviance: Vector,
              some: slice) -> dict[str, Any]:
    """What some rows add to the sums of a training set, and to the deviance of its fold."""
    return {"H": upper((z[some] * bulk[some, None]).T @ z[some]), "u": pull[some] @ z[some],
            "dev": own[some] @ deviance[some], "held": held[some] @ deviance[some]}


def folds_of(party: Party, design: Design, settings: FoldSettings) -> NDArray[np.int64]:
    """The fold of each row. Where a fold would be too few rows or hold small cells, all rows are in one."""
    rows, rules = party.data.train, SmallCells.of(party)
    if settings.fold_column:
        values = Table(rows).column(settings.fold_column)[design.kept]
        if not (np.isin(values, np.arange(settings.folds))).all():
            raise DataError(f"'{settings.fold_column}' holds other numbers than those of {settings.folds} folds",
                            remedy="number the folds from 0")
        found = values.astype(np.int64)
    else:
        found = np.array([_drawn(str(one), settings.folds) for one in rows.ids[design.kept].tolist()], dtype=np.int64)
    flags = flags_among(np.column_stack([design.columns, design.outcome]))
    parts = [found == place for place in range(settings.folds)]
    sound = all(not rules.broken(int(part.sum()), 0, flags[part]).any() for part in parts)
    return found if sound else np.full(len(found), _drawn(party.name, settings.folds))


def _drawn(name: str, folds: int) -> int:
    """A fold by a hash, which no other row or party has a say in."""
    return int.from_bytes(sha256(f"fold|{name}".encode()).digest()[:8], "little") % folds


@register("algorithm", "penalised-glm", paper="Friedman, Hastie and Tibshirani, 2010")
@dataclass(frozen=True, kw_only=True)
class PenalisedGlm(ExactStatistic):
    """Ridge, lasso or elastic net of all parties' rows, with its penalty chosen by cross-validation over all of them.

    The deviance, halved and per row, plus lambda times (mix |b| + (1 - mix) b^2 / 2) of standardised columns is least;
    the constant is free. The same to the last bit under a stage that hides sums.

    Parameters:
        formula: outcome and terms, as in 'glm'
        family: how the outcome is distributed around its mean
        link: what of the mean is linear (empty: the first that the family has)
        weights: the column by which rows weigh (empty: all alike)
        mix: 1 is the lasso, 0 is ridge, and between them lies the elastic net
        penalties: values of lambda to try, from the largest down (none: as many as `steps`, from the one at which
            nothing is left down to a thousandth of it)
        steps: how many values of lambda are tried
        folds: of the cross-validation
        fold_column: a column that holds the number of each row's fold (empty: by a hash of the row's id)
        choice: the lambda of the least error, or the largest one within a standard error of it
        unknown_levels: what becomes of rows with a level that was not agreed on
        minimum_count: rows that a level of a number needs at a party to be agreed on
    """

    formula: str
    family: FamilyName = "gaussian"
    link: LinkName = ""
    weights: str = ""
    mix: Annotated[float, Interval(ge=0, le=1)] = 1.0
    penalties: tuple[Annotated[float, Gt(0)], ...] = ()
    steps: Annotated[int, Ge(2), Le(1000)] = 50
    folds: Annotated[int, Ge(2), Le(100)] = 5
    fold_column: str = ""
    choice: Literal["best", "1se"] = "best"
    unknown_levels: Literal["refuse", "drop"] = "refuse"
    minimum_count: Annotated[int, Ge(1)] = 5

    what: ClassVar[str] = "penalised-glm"

    def start(self, federation: Federation) -> State:
        """Refuse what is not there."""
        if self.family == "negative-binomial":
            raise ConfigError("algorithm.family = 'negative-binomial' has no path: alpha is fitted with coefficients",
                              remedy="set algorithm.family = 'poisson'")
        require_columns(federation.schema, (*read_formula(self.formula).columns, self.weights, self.fold_column))
        return State({})

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """Find the path once."""
        spec = ModelSpec(formula=self.formula, family=self.family, link=self.link, weights=self.weights,
                         unknown_levels=self.unknown_levels, minimum_count=self.minimum_count)
        frame = prepare(sums, federation.schema, spec)
        if CONSTANT not in frame.names or len(frame.names) < 2:
            raise ConfigError("a path needs a constant, and a column beside it",
                              remedy="leave '- 1' out of the formula")
        settings = FoldSettings(**vars(frame.settings), folds=self.folds, fold_column=self.fold_column)
        path = _Path(sums, frame, settings, self.mix)
        lambdas = np.array(sorted(self.penalties, reverse=True)) if self.penalties else np.geomspace(
            1.0, 1e-3, self.steps) * path.largest()
        errors, coefficients = path.along(lambdas)
        # Folds weigh by their rows, in the mean and in its standard error.
        mean = np.average(errors, axis=1, weights=path.now["rows"])
        spread = np.sqrt(np.average(np.square(errors - mean[:, None]), axis=1, weights=path.now["rows"]) /
                         (self.folds - 1))
        best = int(mean.argmin())
        place = best if self.choice == "best" else int(np.flatnonzero(mean <= mean[best] + spread[best])[0])
        chosen = coefficients[place]
        names, free = list(frame.names), np.array([name == CONSTANT for name in frame.names])
        original = frame.back() @ chosen
        table = [{"lambda": float(penalty), "columns": int((own[~free] != 0).sum()), "error": float(error),
                  "se": float(own_spread)} for penalty, own, error, own_spread in zip(
                      lambdas, coefficients, mean, spread, strict=True)]
        rows = [{"term": name, "estimate": float(value), "standardised": float(own)}
                for name, value, own in zip(names, original, chosen, strict=True)]
        return {"formula": self.formula, "family": self.family, "link": frame.settings.link, "names": names,
                "coefficients": original, "standardised": chosen, "lambda": float(lambdas[place]), "chosen": place,
                "path": coefficients, "lambdas": lambdas, "errors": errors,
                "tables": {"coefficients": rows, "path": table},
                "notes": [*frame.notes, "there are no standard errors: a penalty pulls coefficients to 0, and the data "
                          "have chosen it"]}


@dataclass(eq=False)
class _Path:
    """The training sets of all folds and all rows, side by side."""

    sums: ExactSums
    frame: Frame
    settings: FoldSettings
    mix: float

    def __post_init__(self) -> None:
        self.free = np.array([name == CONSTANT for name in self.frame.names])
        self.first = np.tile(start(self.sums, self.frame), (self.settings.folds + 1, 1))
        self.now = self.asked(self.first)
        self.rows = np.append(self.now["rows"].sum() - self.now["rows"], self.now["rows"].sum()).astype(np.float64)
        if not (self.now["rows"] > 0).all():
            raise DataError("a fold has no rows", remedy="ask for fewer: algorithm.folds")

    def asked(self, coefficients: NDArray[np.float64]) -> dict[str, Any]:
        """The sums of each set at its own coefficients."""
        return self.sums.ask(folds_here, fold_layout(self.settings), self.frame.at(coefficients.reshape(-1)),
                             self.settings)

    def largest(self) -> float:
        """The least lambda at which no column is left; a thousandth of the mix stands for ridge, which leaves all."""
        return float(np.abs(self.now["u"][-1][~self.free]).max() / self.rows[-1] / max(self.mix, 1e-3))

    def along(self, lambdas: Vector) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Errors by lambda and fold, and the coefficients of all rows by lambda."""
        errors, found, at = [], [], self.first.copy()
        for penalty in lambdas:
            at, held = self._quadratic(at, penalty) if self.frame.spec.family == "gaussian" else \
                self._iterated(at, penalty)
            errors.append(held / self.now["rows"])
            found.append(at[-1].copy())
        return np.array(errors), np.array(found)

    def _quadratic(self, at: NDArray[np.float64], penalty: float) -> tuple[NDArray[np.float64], Vector]:
        """Gaussian: the sums at the start say everything about everywhere."""
        new = self._descended(self.now, self.first, at, penalty)
        step = new - self.first
        matrices = [symmetric(one) for one in self.now["H"]]
        whole = matrices[-1]
        held = [self.now["held"][place] - 2 * one @ (self.now["u"][-1] - self.now["u"][place])
                + one @ (whole - matrices[place]) @ one for place, one in enumerate(step[:-1])]
        return new, np.array(held)

    def _iterated(self, at: NDArray[np.float64], penalty: float) -> tuple[NDArray[np.float64], Vector]:
        """Others: Newton's method, each step by coordinate descent, halved where the objective rises."""
        found = self.asked(at)
        for _ in range(_MOST_STEPS):
            new = self._descended(found, at, at, penalty)
            step, before = new - at, self._objective(found, at, penalty)
            information = np.array([symmetric(one) for one in found["H"]])
            moved = np.sqrt(np.einsum("ki,kij,kj->k", step, information, step).max())
            for _ in range(30):
                later = self.asked(at + step)
                worse = self._objective(later, at + step, penalty) > before + 1e-10 * (np.abs(before) + 0.1)
                if not worse.any():
                    break
                step[worse] /= 2
            at, found = at + step, later
            if moved <= _STOP:
                return at, found["held"]
        raise RunError(f"'penalised-glm' did not converge in {_MOST_STEPS} iterations at lambda {penalty:.3g}",
                       remedy="look at separation, or set algorithm.penalties to larger values")

    def _objective(self, found: dict[str, Any], at: NDArray[np.float64], penalty: float) -> Vector:
        own = at[:, ~self.free]
        return np.asarray(found["dev"] / self.rows / 2 + penalty * (
            self.mix * np.abs(own).sum(axis=1) + (1 - self.mix) / 2 * np.square(own).sum(axis=1)))

    def _descended(self, found: dict[str, Any], at: NDArray[np.float64], start: NDArray[np.float64],
                   penalty: float) -> NDArray[np.float64]:
        """The minimum of each set's quadratic approximation around `at` with the penalty."""
        pulls = np.where(self.free, 0.0, penalty)
        return np.array([descended(symmetric(h) / rows, u / rows, b, first, pulls * self.mix, pulls * (1 - self.mix))
                         for h, u, b, first, rows in zip(found["H"], found["u"], at, start, self.rows, strict=True)])


def descended(information: NDArray[np.float64], score: Vector, at: Vector, start: Vector, flat: Vector,
              round_: Vector) -> Vector:
    """The minimum of (b - at)'H(b - at)/2 - u'(b - at) + flat |b| + round b^2/2. Coordinate descent from `start` finds
    which entries are not 0 and their signs; these say where it is, by a system of equations."""
    b, curved = start.copy(), information + np.diag(round_)
    pull = score + information @ at
    slope = pull - curved @ b
    for _ in range(_MOST_SWEEPS):
        for _ in range(_SWEEPS):
            for place in np.flatnonzero(np.diag(curved) > 0).tolist():
                wish = slope[place] + curved[place, place] * b[place]
                new = np.sign(wish) * max(abs(wish) - flat[place], 0.0) / curved[place, place]
                if new != b[place]:
                    slope -= curved[:, place] * (new - b[place])
                    b[place] = new
        left = np.flatnonzero(b)
        exact, signs = np.zeros(len(b)), np.sign(b[left])
        exact[left] = np.linalg.lstsq(curved[np.ix_(left, left)], pull[left] - flat[left] * signs, rcond=None)[0]
        rest = np.abs(pull - curved @ exact) - flat
        rest[left] = 0.0
        if (np.sign(exact[left]) == signs).all() and (rest <= _SLACK * np.abs(pull).max()).all():
            return exact
        slope = pull - curved @ b
    raise RunError("the descent over coordinates did not end", remedy="leave out columns that follow from others")
