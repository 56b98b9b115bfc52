"""Generalised linear models at the party: the sums over its rows that fits, standard errors and tests need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray  # noqa: TC002

from tequio.algorithms.statistics.design import make_design
from tequio.algorithms.statistics.exact_sums import (
    Block,
    ExactPayload,
    Layout,
    counts,
    sum_rows,
    triangle,
    upper,
    whole_reply,
)
from tequio.algorithms.statistics.families import (
    FamilyName,
    LinkName,
    log_likelihood,
    negative_binomial,
    overdispersion,
    predictor_at,
    rows_at,
    valid_outcomes,
)
from tequio.algorithms.statistics.small_cells import RULES, require
from tequio.errors import PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task

if TYPE_CHECKING:
    from tequio.algorithms.statistics.design import Agreed, Design
    from tequio.algorithms.statistics.families import Rows
    from tequio.federation.population import Party

    Column = NDArray[np.float64]

Sites = Literal["none", "fixed"]
Meat = Literal["HC0", "HC2", "HC3", "cluster"]

_INNER, _INNER_STOP, _EXTREME = 60, 1e-13, 1e-8


@record
class ModelSettings:
    """The model that all parties fit: how a row becomes columns, and what it adds to the sums.

    `columns` is how many columns of the formula are kept, `sites` whether each party has an intercept of its own.
    """

    formula: str
    family: FamilyName
    link: LinkName
    weights: str
    drop_unknown: bool
    sites: Sites
    columns: Count = 0


@record
class MeatSettings(ModelSettings):
    """Which outer products of scores are summed."""

    kind: Meat


class DesignPayload(ExactPayload):
    """What the columns need: levels and knots by label, and which columns are kept."""

    levels: dict[str, NDArray[np.float64]]
    knots: dict[str, NDArray[np.float64]]
    kept: NDArray[np.int64]


class CentredPayload(DesignPayload):
    """Around what columns are taken; the outcome last."""

    mean: NDArray[np.float64]


class PointPayload(CentredPayload):
    """Where the sums are taken: coefficients of standardised columns, and the overdispersion."""

    sd: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    alpha: float


class SecondPayload(PointPayload):
    """For second passes: the inverse of the information matrix, a direction, or the scale of the likelihood."""

    inverse: NDArray[np.float64]
    direction: NDArray[np.float64]
    scale: float


def party_design(party: Party, payload: DesignPayload, settings: ModelSettings) -> Design:
    """The party's columns, of which some are kept."""
    kept = payload["kept"]
    if len(kept) != settings.columns:
        raise PayloadError(f"{len(kept)} columns are kept, and {settings.columns} are announced")
    agreed: Agreed = {"levels": payload["levels"], "knots": payload["knots"]}
    design = make_design(party, party.data.train, settings.formula, agreed, weights=settings.weights,
                         drop_unknown=settings.drop_unknown)
    return design if len(kept) == design.columns.shape[1] else replace(design, columns=design.columns[:, kept])


class _At:
    """A party's rows at some coefficients, in standardised columns, with its own intercept where it has one.

    That intercept is eliminated here: columns are taken around their mean in working weights, which makes the sums
    those of a model with an indicator for each party, of which no entry crosses.
    """

    def __init__(self, party: Party, payload: PointPayload, settings: ModelSettings) -> None:
        self.design = party_design(party, payload, settings)
        require(self.design.broken)
        self.settings, self.alpha, self.own_leverage = settings, float(payload["alpha"]), 0.0
        self.y, self.w = self.design.outcome, self.design.weights
        self.z = (self.design.columns - payload["mean"][:-1]) / payload["sd"]
        self.eta = self.z @ payload["coefficients"] + self.design.offset
        self.flat = settings.sites == "fixed" and self._settle(float(payload["mean"][-1]))
        if self.flat:
            self.w = np.zeros(len(self.w))
        self.rows = self._rows(self.eta)
        self.weight = self.w * self.rows.weight
        if settings.sites == "fixed" and not self.flat:
            total = float(self.weight.sum())
            self.z, self.own_leverage = self.z - self.weight @ self.z / total, 1.0 / total

    def _rows(self, eta: Column) -> Rows:
        return rows_at(self.settings.family, self.settings.link, self.y, eta, self.alpha)

    def _settle(self, mean: float) -> bool:
        """Find the party's own intercept that fits best beside the coefficients: nobody else has to know it. True where
        there is none, since all outcomes are at an end of their range."""
        ends = {"binomial": (0.0, 1.0), "poisson": (0.0,), "negative-binomial": (0.0,)}.get(self.settings.family, ())
        if not self.w.any() or any(bool((self.y[self.w > 0] == end).all()) for end in ends):
            return True
        beside, own, step, before = self.eta, predictor_at(self.settings.link, mean), 0.0, np.inf
        for _ in range(_INNER):
            rows = self._rows(beside + own)
            deviance = float(self.w @ rows.deviance)
            if rows.wild.any() or deviance > before + 1e-9 * (abs(before) + 0.1):
                step /= 2
                own -= step
                continue
            before = deviance
            step = float(self.w @ rows.score / (self.w @ rows.weight))
            own += step
            if abs(step) <= _INNER_STOP * max(abs(own), 1.0):
                break
        self.eta = beside + own
        return False


def totals_layout(columns: int) -> Layout:
    """Rows, those left out, parties that refuse by a rule or have outcomes of another family, and sums of columns."""
    return (*counts("n", "dropped", "invalid"), Block("refused", (len(RULES),), "count"), Block("Sw"),
            Block("Sx", (columns,), each=True), Block("Sy"))


@task("glm: totals", settings=ModelSettings, reply=SumsReply, reveals=Sums(guarded=True))
def totals_here(party: Party, payload: DesignPayload, settings: ModelSettings) -> SumsReply:
    """Rows and sums of columns; nothing but the letters of rules where one is broken."""
    design, layout = party_design(party, payload, settings), totals_layout(settings.columns)
    if design.broken.any():
        nothing = {block.name: np.zeros(block.shape) for block in layout}
        return whole_reply(party, layout, payload, {**nothing, "refused": design.broken})
    x, y, w = design.columns, design.outcome, design.weights
    invalid = not valid_outcomes(settings.family, y).all() or bool((w < 0).any())
    sums = sum_rows(len(design), lambda rows: {"Sw": w[rows].sum(), "Sx": w[rows] @ x[rows], "Sy": w[rows] @ y[rows]})
    return whole_reply(party, layout, payload, {**sums, "n": len(design), "dropped": design.dropped,
                                                "invalid": int(invalid), "refused": design.broken})


def spreads_layout(columns: int) -> Layout:
    """Sums of squares around the means, the outcome's last."""
    return (Block("Sxx", (columns + 1,), each=True),)


@task("glm: spreads", settings=ModelSettings, reply=SumsReply, reveals=Sums(guarded=True))
def spreads_here(party: Party, payload: CentredPayload, settings: ModelSettings) -> SumsReply:
    """Squares of the columns and of the outcome around the common means."""
    design, mean = party_design(party, payload, settings), payload["mean"]
    require(design.broken)
    both, w = np.column_stack([design.columns, design.outcome]), design.weights
    return whole_reply(party, spreads_layout(settings.columns), payload, sum_rows(
        len(design), lambda rows: {"Sxx": w[rows] @ np.square(both[rows] - mean)}))


def scores_layout(settings: ModelSettings) -> Layout:
    """What an iteration needs."""
    p = settings.columns
    more = (Block("ga"), Block("haa"), Block("hba", (p,)), Block("ll")) \
        if settings.family == "negative-binomial" else ()
    sites = counts("flat") if settings.sites == "fixed" else ()
    return (triangle("H", p), Block("u", (p,)), Block("dev"), Block("chi"), *more, *counts("wild"), *sites)


@task("glm: scores", settings=ModelSettings, reply=SumsReply, reveals=Sums(guarded=True))
def scores_here(party: Party, payload: PointPayload, settings: ModelSettings) -> SumsReply:
    """The information matrix, the score, the deviance, and what else an iteration needs."""
    at, negative = _At(party, payload, settings), settings.family == "negative-binomial"
    w, rows, z = at.w, at.rows, at.z
    pull = w * rows.score

    def block(some: slice) -> dict[str, Any]:
        found = {"H": upper((z[some] * at.weight[some, None]).T @ z[some]), "u": pull[some] @ z[some],
                 "dev": w[some] @ rows.deviance[some], "chi": w[some] @ rows.pearson[some],
                 "wild": int(rows.wild[some].sum())}
        if not negative:
            return found
        over = overdispersion(at.y[some], rows.mean[some], at.alpha)
        return {**found, "ga": w[some] @ over.score, "haa": w[some] @ over.information,
                "hba": (w[some] * over.mixed) @ z[some],
                "ll": w[some] @ negative_binomial(at.y[some], rows.mean[some], at.alpha)}

    return whole_reply(party, scores_layout(settings), payload, {
        **sum_rows(len(w), block), "flat": int(at.flat and len(w) > 0)})


def meat_layout(settings: MeatSettings) -> Layout:
    """The middle of a sandwich."""
    leverages = (Block("Sh"), *counts("extreme")) if settings.kind in ("HC2", "HC3") else ()
    return (triangle("M", settings.columns), *leverages, *counts("clusters"))


@task("glm: meat", settings=MeatSettings, reply=SumsReply, reveals=Sums(guarded=True))
def meat_here(party: Party, payload: SecondPayload, settings: MeatSettings) -> SumsReply:
    """Outer products of scores: of rows, of rows over what their leverage leaves, or of the party's own score."""
    at, layout = _At(party, payload, settings), meat_layout(settings)
    scores, clusters = at.z * (at.w * at.rows.score)[:, None], int(len(at.design) > 0)
    if settings.kind == "cluster":
        own = sum_rows(len(scores), lambda rows: {"g": scores[rows].sum(axis=0)})["g"]
        return whole_reply(party, layout, payload, {"M": upper(np.outer(own, own)), "clusters": clusters})
    left, extreme, leverage = np.ones(len(scores)), np.zeros(len(scores), dtype=bool), np.zeros(len(scores))
    if settings.kind != "HC0":
        leverage = at.weight * (np.einsum("ij,ij->i", at.z @ payload["inverse"], at.z) + at.own_leverage)
        extreme = leverage > 1 - _EXTREME
        left = np.where(extreme, 1.0, 1 - leverage) ** (1 if settings.kind == "HC2" else 2)

    def block(rows: slice) -> dict[str, Any]:
        return {"M": upper((scores[rows] / left[rows, None]).T @ scores[rows]), "Sh": leverage[rows].sum(),
                "extreme": int(extreme[rows].sum())}

    return whole_reply(party, layout, payload, {**sum_rows(len(scores), block), "clusters": clusters})


LIKELIHOOD = (Block("ll"),)


@task("glm: likelihood", settings=ModelSettings, reply=SumsReply, reveals=Sums(guarded=True))
def likelihood_here(party: Party, payload: SecondPayload, settings: ModelSettings) -> SumsReply:
    """The log-likelihood with its constants."""
    at = _At(party, payload, settings)
    found = log_likelihood(settings.family, at.y, at.rows.mean, float(payload["scale"]), at.alpha, at.rows.deviance)
    return whole_reply(party, LIKELIHOOD, payload, sum_rows(
        len(found), lambda some: {"ll": at.w[some] @ found[some]}))


SEPARATION = counts("against", "tied", "along")
_TIED = 1e-3


@task("glm: separation", settings=ModelSettings, reply=SumsReply, reveals=Sums(guarded=True))
def separation_here(party: Party, payload: SecondPayload, settings: ModelSettings) -> SumsReply:
    """Whether any row here speaks against a direction in which the coefficients grow, for it, or neither."""
    design = party_design(party, payload, settings)
    require(design.broken)
    z = (design.columns - payload["mean"][:-1]) / payload["sd"]
    length = float(np.sqrt(payload["direction"] @ payload["direction"]))
    moved = z @ payload["direction"] / length
    # A count above 0 holds its row's mean where it is, whichever way that would move.
    along = (2 * design.outcome - 1) * moved if settings.family == "binomial" else np.where(
        design.outcome > 0, -np.abs(moved), -moved)
    return whole_reply(party, SEPARATION, payload, {
        "against": int((along < -_TIED).any()), "tied": int((np.abs(along) <= _TIED).any()),
        "along": int((along > _TIED).any())})
