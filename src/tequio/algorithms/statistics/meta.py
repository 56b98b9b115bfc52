"""Meta-analysis over parties: each fits the model alone, and estimates are pooled instead of rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar, NotRequired, TypedDict, cast

import numpy as np
from annotated_types import Gt, Lt
from numpy.typing import NDArray

from tequio.algorithms.statistics.design import names_of
from tequio.algorithms.statistics.exact_sums import WHOLE, Block, ExactPayload, ExactSums, Layout, whole_reply
from tequio.algorithms.statistics.families import FamilyName, LinkName
from tequio.algorithms.statistics.fitting import ModelSpec, fit, prepare
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.meta_analysis import (
    Between,
    PowerSums,
    Study,
    between,
    meta_analysis,
    meta_of_sums,
)
from tequio.algorithms.statistics.statistic import ExactStatistic
from tequio.errors import ConfigError, DataError, PermissionDenied, RunError
from tequio.federation.sums import SumsReply, is_hidden
from tequio.federation.task import Reveals, Sums, record, task
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tequio.algorithms.statistics.meta_analysis import Pooled
    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.task import S, Task


@register("algorithm", "meta", paper="DerSimonian and Laird, 1986")
@dataclass(frozen=True, kw_only=True)
class Meta(ExactStatistic):
    """Fit the same model at each party alone, and pool the coefficients: fixed effect, or random effects by DL or REML.

    This is the answer where parties are to be compared, or differ in more than their rows; a model of the rows as if
    they were pooled is 'glm'. Each party's estimates are seen; under a hidden sum only what sums over them show, which
    is enough for 'fixed' and 'dl'.

    Parameters:
        formula: outcome and terms, as of 'glm'
        family: how the outcome is distributed around its mean
        link: what of the mean is linear (empty: the first that the family has)
        method: the variance between parties is taken to be 0 (fixed), or found by DerSimonian and Laird (dl) or by
            restricted maximum likelihood (reml)
        hartung_knapp: standard errors by Hartung and Knapp, with the t distribution
        adhoc: let these narrow no interval
        level: of confidence intervals
    """

    formula: str
    family: FamilyName = "gaussian"
    link: LinkName = ""
    method: Between = "reml"
    hartung_knapp: bool = False
    adhoc: bool = False
    level: Annotated[float, Gt(0), Lt(1)] = 0.95

    what: ClassVar[str] = "meta"

    def start(self, federation: Federation) -> State:
        """What does not go together is refused before any party fits."""
        if is_hidden(self.stages) and (self.method == "reml" or self.hartung_knapp):
            raise ConfigError("sums over parties are enough for a fixed effect and for DerSimonian and Laird only",
                              remedy="set algorithm.method = 'dl' and algorithm.hartung_knapp = false, or leave the "
                                     "stage out")
        if self.adhoc and not self.hartung_knapp:
            raise ConfigError("algorithm.adhoc would do nothing: it bounds the errors of Hartung and Knapp",
                              remedy="set algorithm.hartung_knapp = true, or leave adhoc out")
        self._names(federation.schema)
        return super().start(federation)

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """Let all fit, and pool."""
        return self._of_sums(sums, federation) if sums.hidden else self._of_studies(sums, federation)

    def _settings(self) -> OwnFitSettings:
        return OwnFitSettings(formula=self.formula, family=self.family, link=self.link)

    def _names(self, schema: Schema) -> list[str]:
        try:
            return names_of(read_formula(self.formula), schema, {"levels": {}, "knots": {}})
        except KeyError as cause:
            term = cause.args[0]
            raise ConfigError(f"the levels or knots of '{term}' are not known without asking parties",
                              remedy=f"declare its categories (data.categorical = ['{term}']), or leave splines "
                                     "out") from None

    def _of_studies(self, sums: ExactSums, federation: Federation) -> Payload:
        replies = federation.ask(sums.parties, own_fit, settings=self._settings(), stages=self.stages)
        studies: dict[str, list[Study]] = {name: [] for name in self._names(federation.schema)}
        failed = [federation.name(reply.party) for reply in replies if not reply.payload["fitted"]]
        for reply in replies:
            found = reply.payload
            if len(found["names"]) != len(found["estimates"]) or len(found["names"]) != len(found["variances"]):
                federation.refuse(replies, {reply.party: "it sent estimates that do not belong to its names"})
                continue
            for name, estimate, variance in zip(found["names"], found["estimates"].tolist(),
                                                found["variances"].tolist(), strict=True):
                if name in studies:
                    studies[name].append(Study(federation.name(reply.party), estimate, variance))
        pooled = {name: meta_analysis(some, self.method, hartung_knapp=self.hartung_knapp, adhoc=self.adhoc,
                                      level=self.level) for name, some in studies.items()
                  if sum(study.usable for study in some) > 1}
        if not pooled:
            raise DataError("one study is no meta-analysis",
                            remedy=f"look at why the model cannot be fitted at: {', '.join(failed)}" if failed else
                                   "ask two parties or more")
        alone = [name for name in studies if name not in pooled]
        notes = [*([f"not fitted, and left out: {', '.join(failed)}"] if failed else []),
                 *([f"without terms that fewer than two parties have: {', '.join(alone)}"] if alone else [])]
        return self._result(pooled, [study_row(name, study, weight) for name, one in pooled.items()
                                     for study, weight in zip(one.studies, one.weights, strict=True)], notes)

    def _of_sums(self, sums: ExactSums, federation: Federation) -> Payload:
        names, settings = self._names(federation.schema), self._settings()
        layout = powers_layout(len(names))

        first = sums.ask(powers_here, layout, {"tau2": np.zeros(len(names))}, settings)
        powers = [PowerSums(int(k), *one) for k, *one in zip(first["k"], *(first[name].tolist() for name in (
            "w", "wy", "wyy", "ww")), strict=True)]
        tau2 = np.array([between(one) if one.studies > 1 and self.method == "dl" else 0.0 for one in powers])
        second = sums.ask(powers_here, layout, {"tau2": tau2}, settings)
        pooled = {name: meta_of_sums("dl" if self.method == "dl" else "fixed", one,
                                     (float(second["w"][place]), float(second["wy"][place])), level=self.level)
                  for place, (name, one) in enumerate(zip(names, powers, strict=True)) if one.studies > 1}
        if not pooled:
            raise DataError("one study is no meta-analysis", remedy="ask parties at which the model can be fitted")
        return self._result(pooled, [], [f"pooled over {max(one.studies for one in powers)} parties; single estimates "
                                         "were not seen"])

    def _result(self, pooled: Mapping[str, Pooled], studies: list[Payload], notes: list[str]) -> Payload:
        rows = [pooled_row(name, one) for name, one in pooled.items()]
        return {"formula": self.formula, "family": self.family, "link": self.link, "method": self.method,
                "tables": {"pooled": rows}, "estimates": rows, "studies": studies, "notes": notes,
                "coefficients": np.array([row["estimate"] for row in rows])}


def pooled_row(name: str, one: Pooled) -> Payload:
    """A pooled coefficient, as tables of estimates have it; without what is no number."""
    row: Payload = {"term": name, "estimate": one.estimate, "std.error": one.std_error, "statistic": one.statistic,
                    "p.value": one.p_value, "conf.low": one.low, "conf.high": one.high, "tau2": one.tau2,
                    "tau2.low": one.tau2_low, "tau2.high": one.tau2_high, "Q": one.q, "Q.p.value": one.q_p_value,
                    "I2": one.i2, "prediction.low": one.prediction[0], "prediction.high": one.prediction[1]}
    return {key: value for key, value in row.items() if isinstance(value, str) or isfinite(value)}


def study_row(name: str, study: Study, weight: float) -> Payload:
    """What one party found."""
    return {"term": name, "study": study.name, "estimate": study.estimate, "std.error": sqrt(study.variance),
            "weight": weight}


@record
class OwnFitSettings:
    """The model that each party fits."""

    formula: str
    family: FamilyName
    link: LinkName


class OwnFit(TypedDict):
    """The coefficients of a party's own model and their variances; none where it could not be fitted."""

    fitted: bool
    names: list[str]
    estimates: NDArray[np.float64]
    variances: NDArray[np.float64]
    rows: NotRequired[int]


# Why a fit fails may say something of single rows, so that only the failure is reported.
@task("meta: own fit", settings=OwnFitSettings, reply=OwnFit, reveals=Reveals.STRUCTURE)
def own_fit(party: Party, payload: Payload, settings: OwnFitSettings) -> OwnFit:
    """Fit the model to the party's own rows, by the rules of its owner about small cells."""
    found = _fitted(party, settings)
    if found is None:
        return {"fitted": False, "names": [], "estimates": np.zeros(0), "variances": np.zeros(0)}
    names, estimates, variances = found
    return {"fitted": True, "names": names, "estimates": estimates, "variances": variances}


class PowersPayload(ExactPayload):
    """The variance between parties in each weight."""

    tau2: NDArray[np.float64]


class PowersState(TypedDict, total=False):
    """The variances between parties that were asked about in this run."""

    asked: list[str]


_MOST_VARIANCES = 2


def powers_layout(size: int) -> Layout:
    """Sums over parties of weights and weighted estimates, by coefficient."""
    return (Block("k", (size,), "count"), *(Block(name, (size,), each=True) for name in ("w", "wy", "wyy", "ww")))


@task("meta: powers", settings=OwnFitSettings, reply=SumsReply, reveals=Sums(guarded=True))
def powers_here(party: Party, payload: PowersPayload, settings: OwnFitSettings) -> SumsReply:
    """The party's share of these sums; zeros for what it could not estimate."""
    # Totals at many variances would be as many equations for what single parties found.
    variance, asked = payload["tau2"].tobytes().hex(), party.recall(PowersState).get("asked", [])
    if variance not in asked and len(asked) == _MOST_VARIANCES:
        raise PermissionDenied(f"a run of 'meta' asks about {_MOST_VARIANCES} variances between parties at most",
                               remedy="ask as 'meta' does: without one, and with the one that was found")
    party.keep(PowersState, {"asked": sorted({*asked, variance})})
    known = names_of(read_formula(settings.formula), party.data.train.schema, {"levels": {}, "knots": {}})
    k, w, y = np.zeros(len(known), dtype=np.int64), np.zeros(len(known)), np.zeros(len(known))
    names, estimates, variances = _fitted(party, settings) or ([], np.zeros(0), np.zeros(0))
    for name, estimate, variance in zip(names, estimates.tolist(), variances.tolist(), strict=True):
        if Study("", estimate, variance).usable:
            place = known.index(name)
            k[place], y[place], w[place] = 1, estimate, 1 / (variance + payload["tau2"][place])
    return whole_reply(party, powers_layout(len(known)), payload,
                       {"k": k, "w": w, "wy": w * y, "wyy": w * y * y, "ww": w * w})


def _fitted(party: Party, settings: OwnFitSettings) -> tuple[list[str], NDArray[np.float64],
                                                             NDArray[np.float64]] | None:
    sums = _OwnSums(party)
    spec = ModelSpec(formula=settings.formula, family=settings.family, link=settings.link, aliased="drop")
    try:
        model = fit(sums, prepare(sums, party.data.train.schema, spec))
    except (DataError, RunError):
        return None
    return list(model.frame.names), model.coefficients, np.diag(model.covariance).copy()


@dataclass(frozen=True)
class _Roster:
    """What is left of a federation where a party asks itself: how many parties there are."""

    parties: int

    def __len__(self) -> int:
        return self.parties


class _OwnSums(ExactSums):
    """Sums over the rows of one party, asked by itself: nothing leaves."""

    def __init__(self, party: Party) -> None:
        super().__init__("meta", cast("Federation", _Roster(party.roster.parties)), np.array([party.index]))
        self._party = party

    def _total(self, task: Task[S, SumsReply], size: int, payload: Mapping[str, Any], settings: S, layout: Layout,
               flags: int) -> NDArray[np.int64]:
        return task(self._party, payload, settings)["sums"][WHOLE].view(np.int64)
