"""Treatment effects at the party: propensities and outcome models of its own rows, of which only sums leave.

Rows are dealt to folds. The models of a fold are fitted on the rows of all others and answer for its own rows
(cross-fitting); with a single fold, the same rows do both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray  # noqa: TC002
from scipy.special import expit

from tequio.algorithms.statistics.design import Table
from tequio.algorithms.statistics.exact_sums import Block, Layout, counts, sum_rows, upper, whole_reply
from tequio.algorithms.statistics.families import FamilyName, LinkName, rows_at
from tequio.algorithms.statistics.glm_tasks import CentredPayload, ModelSettings, party_design
from tequio.algorithms.statistics.penalised import FoldSettings, folds_of
from tequio.algorithms.statistics.small_cells import RULES, SmallCells, flags_among, require
from tequio.errors import DataError, PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task

if TYPE_CHECKING:
    from tequio.federation.population import Party

    Array = NDArray[np.float64]

MODELS = 3
"""Of each fold: whether a row is treated, and the outcome of those that are and of those that are not."""

CELLS = 20


@record
class EffectSettings(FoldSettings):
    """The column of the treatment, and within which bounds propensities are kept."""

    treatment: str
    low: float
    high: float


class SdPayload(CentredPayload):
    """By what columns are standardised."""

    sd: NDArray[np.float64]


class NuisancePayload(SdPayload):
    """Coefficients of standardised columns, by fold and model."""

    coefficients: NDArray[np.float64]


class EffectPayload(NuisancePayload):
    """The means of both arms, their mean weights, and what estimating propensities adds to a row's influence."""

    means: NDArray[np.float64]
    weights: NDArray[np.float64]
    correction: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Rows:
    """A party's rows with a value in the treatment, the outcome and all covariates."""

    z: Array
    y: Array
    treated: NDArray[np.bool_]
    fold: NDArray[np.int64]
    broken: NDArray[np.int64]
    invalid: bool
    dropped: int

    def of(self, model: int) -> tuple[Array, NDArray[np.bool_], bool]:
        """What a model explains, by which rows, and whether that is the treatment."""
        if model == 0:
            return self.treated.astype(np.float64), np.ones(len(self.y), dtype=bool), True
        return self.y, self.treated if model == 1 else ~self.treated, False


def _rows(party: Party, payload: SdPayload, settings: EffectSettings) -> _Rows:
    design = party_design(party, payload, settings)
    treated = Table(party.data.train).column(settings.treatment)[design.kept]
    known = np.isfinite(treated)
    design = replace(design, columns=design.columns[known], outcome=design.outcome[known],
                     kept=design.kept[known], weights=design.weights[known], offset=design.offset[known])
    treated = treated[known]
    flags = flags_among(np.column_stack([design.columns, design.outcome, treated == 1]))
    broken = design.broken | SmallCells.of(party).broken(len(treated), design.columns.shape[1], flags)
    z = (design.columns - payload["mean"][:-1]) / payload["sd"]
    fold = folds_of(party, design, settings) if settings.folds > 1 else np.zeros(len(z), dtype=np.int64)
    return _Rows(z, design.outcome, treated == 1, fold, broken, not np.isin(treated, (0.0, 1.0)).all(),
                 design.dropped + int((~known).sum()))


ARMS = (*counts("n", "treated", "dropped", "invalid", "empty"), Block("refused", (len(RULES),), "count"))


@task("effect: arms", settings=EffectSettings, reply=SumsReply, reveals=Sums(guarded=True))
def arms_here(party: Party, payload: SdPayload, settings: EffectSettings) -> SumsReply:
    """Rows and treated rows; nothing but the letters of rules where one is broken."""
    rows = _rows(party, payload, settings)
    found: dict[str, Any] = {"n": 0, "treated": 0, "dropped": 0, "invalid": 0, "empty": 0, "refused": rows.broken}
    if not rows.broken.any():
        treated = int(rows.treated.sum())
        found |= {"n": len(rows.y), "treated": treated, "dropped": rows.dropped, "invalid": int(rows.invalid),
                  "empty": int(len(rows.y) > 0 and treated in (0, len(rows.y)))}
    return whole_reply(party, ARMS, payload, found)


def nuisance_layout(settings: EffectSettings) -> Layout:
    """What an iteration of all models needs."""
    sets, p = settings.folds * MODELS, settings.columns
    return (Block("H", (sets, p * (p + 1) // 2)), Block("u", (sets, p)), Block("dev", (sets,)))


@task("effect: nuisances", settings=EffectSettings, reply=SumsReply, reveals=Sums(guarded=True))
def nuisances_here(party: Party, payload: NuisancePayload, settings: EffectSettings) -> SumsReply:
    """The sums of Fisher scoring, of each model on the rows that it is fitted on."""
    rows = _rows(party, payload, settings)
    require(rows.broken)
    found: dict[str, list[Any]] = {"H": [], "u": [], "dev": []}
    for place, coefficients in enumerate(payload["coefficients"].reshape(settings.folds * MODELS, -1)):
        fold, model = divmod(place, MODELS)
        y, some, treatment = rows.of(model)
        if settings.folds > 1:
            some = some & (rows.fold != fold)
        z = rows.z[some]
        family, link = _law(settings, treatment)
        at = rows_at(family, link, y[some], z @ coefficients)

        def block(part: slice, z: Array = z, at: Any = at) -> dict[str, Any]:
            return {"H": upper((z[part] * at.weight[part, None]).T @ z[part]), "u": at.score[part] @ z[part],
                    "dev": float(at.deviance[part].sum())}

        for name, value in sum_rows(len(z), block).items():
            found[name].append(value)
    return whole_reply(party, nuisance_layout(settings), payload, {
        name: np.array(values) for name, values in found.items()})


def _law(settings: ModelSettings, treatment: bool) -> tuple[FamilyName, LinkName]:
    return ("binomial", "logit") if treatment else (settings.family, settings.link)


@dataclass(frozen=True, eq=False)
class _Answers:
    """What the models of each row's fold say: its propensity, and its outcome with and without the treatment."""

    rows: _Rows
    e: Array
    q1: Array
    q0: Array
    cut: NDArray[np.bool_]

    @property
    def weight(self) -> Array:
        """One over the propensity of the arm that the row is in."""
        return np.where(self.rows.treated, 1 / self.e, 1 / (1 - self.e))

    @property
    def doubly(self) -> tuple[Array, Array]:
        """By row, the augmented outcome with and without the treatment."""
        treated, y = self.rows.treated, self.rows.y
        return (self.q1 + np.where(treated, (y - self.q1) / self.e, 0.0),
                self.q0 + np.where(treated, 0.0, (y - self.q0) / (1 - self.e)))


def _answers(party: Party, payload: NuisancePayload, settings: EffectSettings) -> _Answers:
    rows = _rows(party, payload, settings)
    require(rows.broken)
    coefficients = payload["coefficients"].reshape(settings.folds, MODELS, -1)[rows.fold]
    e, y1, y0 = (np.einsum("ij,ij->i", rows.z, coefficients[:, model]) for model in range(MODELS))
    raw = expit(e)
    kept = np.clip(raw, settings.low, settings.high)
    mean = expit if settings.family == "binomial" else np.asarray
    return _Answers(rows, kept, mean(y1), mean(y0), kept != raw)


def means_layout(settings: EffectSettings) -> Layout:
    """By arm (treated first): rows, weights, weighted outcomes, augmented outcomes; sums and squares of columns, plain
    and weighted; propensities by cell; rows whose propensity was cut."""
    p = settings.columns
    return (*counts("cut"), Block("cells", (2, CELLS), "count"), Block("Sw", (2,)), Block("Sw2", (2,)),
            Block("SwY", (2,)), Block("Sphi", (2,)), Block("Sx", (2, p)), Block("Sxx", (2, p)), Block("Swx", (2, p)))


@task("effect: means", settings=EffectSettings, reply=SumsReply, reveals=Sums(guarded=True))
def means_here(party: Party, payload: NuisancePayload, settings: EffectSettings) -> SumsReply:
    """Sums by arm. Cells of propensities that hold a few rows are sent as empty."""
    at, arms = _answers(party, payload, settings), []
    rows, least = at.rows, SmallCells.of(party).minimum_count
    place = np.minimum((at.e * CELLS).astype(np.int64), CELLS - 1)
    cells = np.stack([np.bincount(place[arm], minlength=CELLS) for arm in (rows.treated, ~rows.treated)])
    for arm, phi in zip((rows.treated, ~rows.treated), at.doubly, strict=True):
        w = np.where(arm, at.weight, 0.0)

        def block(part: slice, arm: NDArray[np.bool_] = arm, phi: Array = phi, w: Array = w) -> dict[str, Any]:
            plain, z = arm[part].astype(np.float64), rows.z[part]
            return {"Sw": w[part].sum(), "Sw2": w[part] @ w[part], "SwY": w[part] @ rows.y[part],
                    "Sphi": phi[part].sum(), "Sx": plain @ z, "Sxx": plain @ np.square(z), "Swx": w[part] @ z}

        arms.append(sum_rows(len(w), block))
    return whole_reply(party, means_layout(settings), payload, {
        **{name: np.array([arm[name] for arm in arms]) for name in arms[0]},
        "cells": np.where(cells < least, 0, cells), "cut": int(at.cut.sum())})


def slopes_layout(settings: EffectSettings) -> Layout:
    """How the weighted means move with the coefficients of the propensities."""
    return (Block("d", (2, settings.columns)),)


@task("effect: slopes", settings=EffectSettings, reply=SumsReply, reveals=Sums(guarded=True))
def slopes_here(party: Party, payload: EffectPayload, settings: EffectSettings) -> SumsReply:
    """The derivatives of the sums of weighted residuals, by arm."""
    at = _answers(party, payload, settings)
    rows, means = at.rows, payload["means"]
    move = np.where(at.cut, 0.0, np.where(rows.treated, -(1 - at.e) / at.e, at.e / (1 - at.e)))
    pulls = [np.where(arm, (rows.y - mean) * move, 0.0)
             for arm, mean in zip((rows.treated, ~rows.treated), means, strict=True)]
    return whole_reply(party, slopes_layout(settings), payload, sum_rows(
        len(move), lambda part: {"d": np.array([pull[part] @ rows.z[part] for pull in pulls])}))


SPREAD = (Block("psi2", (3,)),)


@record
class SpreadSettings(EffectSettings):
    """Of which estimate."""

    method: Literal["ipw", "aipw"]


@task("effect: spread", settings=SpreadSettings, reply=SumsReply, reveals=Sums(guarded=True))
def spread_here(party: Party, payload: EffectPayload, settings: SpreadSettings) -> SumsReply:
    """Squares of rows' influences on the mean with the treatment, without it, and on their difference."""
    at = _answers(party, payload, settings)
    rows, means, average = at.rows, payload["means"], payload["weights"]
    if settings.method == "aipw":
        one, none = (phi - mean for phi, mean in zip(at.doubly, means, strict=True))
    else:
        raw = expit(rows.z @ payload["coefficients"].reshape(settings.folds * MODELS, -1)[0])
        score = (rows.treated - raw)[:, None] * rows.z
        one = np.where(rows.treated, (rows.y - means[0]) * at.weight, 0.0) / average[0]
        none = np.where(rows.treated, 0.0, (rows.y - means[1]) * at.weight) / average[1]
        one, none = one + score @ payload["correction"][0], none + score @ payload["correction"][1]
    both = np.column_stack([one, none, one - none])
    return whole_reply(party, SPREAD, payload, sum_rows(
        len(both), lambda part: {"psi2": np.square(both[part]).sum(axis=0)}))


class StrataPayload(NuisancePayload):
    """The propensities between strata, and around what outcomes are taken, by arm and stratum."""

    cuts: NDArray[np.float64]
    centre: NDArray[np.float64]


@record
class StrataSettings(EffectSettings):
    """How many strata."""

    strata: Count


def strata_layout(settings: StrataSettings) -> Layout:
    """Rows, outcomes and their squares by arm and stratum."""
    shape = (2, settings.strata)
    return (Block("rows", shape, "count"), Block("Y", shape), Block("YY", shape))


@task("effect: strata", settings=StrataSettings, reply=SumsReply, reveals=Sums(guarded=True))
def strata_here(party: Party, payload: StrataPayload, settings: StrataSettings) -> SumsReply:
    """Outcomes by arm among rows of similar propensity."""
    at = _answers(party, payload, settings)
    if payload["centre"].shape != (2, settings.strata) or len(payload["cuts"]) != settings.strata - 1:
        raise PayloadError(f"there are other strata than the {settings.strata} that were announced")
    place = np.searchsorted(payload["cuts"], at.e, side="right") + settings.strata * ~at.rows.treated
    size, off = 2 * settings.strata, at.rows.y - payload["centre"].reshape(-1)[place]
    rows = np.bincount(place, minlength=size)
    if not SmallCells.of(party).enough(rows):
        raise DataError("a stratum holds too few rows of an arm here (rule c)", remedy="ask for fewer strata")
    found = {"rows": rows, "Y": np.bincount(place, off, size), "YY": np.bincount(place, off ** 2, size)}
    return whole_reply(party, strata_layout(settings), payload, {
        name: values.reshape(2, -1) for name, values in found.items()})
