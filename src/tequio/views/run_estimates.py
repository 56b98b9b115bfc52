"""What a finished run has estimated, as tables and pictures: which rows, on which scale, and how to describe it.

Each algorithm that estimates has one reader here: it makes `Estimates` of what the run's model holds. One that has more
to show than a table and a forest plot, such as curves, adds its picture to `PICTURES`.
"""

from __future__ import annotations

import json
from math import exp
from typing import TYPE_CHECKING

from tequio.errors import ConfigError, nearest
from tequio.experiments.running.store import ENVIRONMENT
from tequio.views.estimates import Estimates, methods_paragraph
from tequio.views.forest import ForestLine, forest_plot, funnel_plot
from tequio.views.survival_curves import survival_plot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.figure import Figure

    from tequio.experiments.running.results import Result
    from tequio.experiments.running.table import Cell
    from tequio.federation.payload import Payload

_RATIOS = {("binomial", ""): "Odds ratio", ("binomial", "logit"): "Odds ratio", ("poisson", ""): "Rate ratio",
           ("poisson", "log"): "Rate ratio", ("negative-binomial", ""): "Rate ratio",
           ("negative-binomial", "log"): "Rate ratio", ("binomial", "cloglog"): "Hazard ratio",
           ("gamma", ""): "Ratio of means", ("gamma", "log"): "Ratio of means"}
_METHODS = {"fixed": "Fixed effect", "dl": "Random effects (DerSimonian-Laird)", "reml": "Random effects (REML)"}
_TIDY = {"se": "std.error", "t": "statistic", "z": "statistic", "p": "p.value", "low": "conf.low",
           "high": "conf.high"}


def estimates_of(result: Result) -> Estimates:
    """The estimates of a run."""
    return _READERS[_algorithm(result)](result)


def forest_of(result: Result, term: str = "") -> Figure:
    """The forest plot of a run: its terms, or of a meta-analysis the parties for one term."""
    found = estimates_of(result)
    if _algorithm(result) == "kaplan-meier":
        raise ConfigError("survival curves have no forest plot", remedy="draw them: --kind survival")
    if _algorithm(result) == "meta":
        return _forest_of_parties(result, found, term)
    lines = [ForestLine(str(row["term"]), _number(row, "estimate"), _number(row, "conf.low"), _number(row, "conf.high"))
             for row in found.rows if row["term"] != "const"]
    return forest_plot(lines, x=found.ratio or "Estimate", ratio=bool(found.ratio))


def funnel_of(result: Result, term: str = "") -> Figure:
    """The funnel plot of one term of a meta-analysis."""
    if _algorithm(result) != "meta":
        raise ConfigError(f"a funnel plot is of a meta-analysis, and this is a run of '{_algorithm(result)}'",
                          remedy="run it with algorithm.name = 'meta'")
    found = estimates_of(result)
    studies, pooled = _studies(result, found, term)
    return funnel_plot([study["estimate"] for study in studies], [study["std.error"] for study in studies],
                       _number(pooled, "estimate"), x=found.ratio or "Estimate", ratio=bool(found.ratio))


def survival_of(result: Result, term: str = "") -> Figure:
    """The survival curves of a run, with the numbers at risk."""
    if _algorithm(result) != "kaplan-meier":
        raise ConfigError(f"survival curves are of 'kaplan-meier', and this is a run of '{_algorithm(result)}'",
                          remedy="run it with algorithm.name = 'kaplan-meier'")
    time = str(result.model["formula"]).partition("(")[2].partition(",")[0]
    return survival_plot(result.model["tables"]["survival"], x=time.strip().capitalize())


PICTURES: Mapping[str, Callable[[Result, str], Figure]] = {
    "forest": forest_of, "funnel": funnel_of, "survival": survival_of}
"""What can be drawn of a run, by name; the text is the term that it is of."""


def methods_of(result: Result) -> str:
    """The paragraph for the methods section of a paper."""
    found, summary, config = estimates_of(result), result.summary, result.config
    algorithm = config.algorithm
    formula = algorithm.get("formula")
    what = {"cox": f"A proportional-hazards regression ({formula}) was fitted"
                   f"{', stratified by site' if algorithm.get('baseline') == 'by-site' else ''}.",
            "kaplan-meier": f"Survival ({formula}) was estimated by Kaplan and Meier's method.",
            "effect": f"The average effect of '{algorithm.get('treatment')}' ({formula}) was estimated by "
                      f"{str(algorithm.get('method')).upper()}.",
            "glm": f"A {algorithm.get('family')} regression ({formula}) was fitted.",
            "meta": f"The same {algorithm.get('family')} regression ({formula}) was fitted at each "
                    f"site, and coefficients were pooled ({_METHODS.get(str(algorithm.get('method')), '')}).",
            "test": f"Tests: {'; '.join(str(row['term']) for row in found.rows)}."}[_algorithm(result)]
    hidden = any(stage.get("name") in ("secure-sum", "one-shot-sum", "group-sum") for stage in config.stages)
    environment = json.loads((result.folder / ENVIRONMENT).read_text(encoding="utf-8"))
    known = {**environment["packages"], **environment}
    versions = {name: str(known[name]) for name in ("tequio", "python", "numpy", "scipy") if name in known}
    rows = found.glance.get("nobs")
    return methods_paragraph(what, parties=summary["parties"], rows=rows if isinstance(rows, int) else None,
                             hidden=hidden, pooled=_algorithm(result) != "meta", versions=versions,
                             run=result.folder.name, config_hash=str(summary.get("config_hash", "")),
                             result_hash=str(summary.get("model_sha256", "")))


def _of_glm(result: Result) -> Estimates:
    return _of_table(result, "coefficients", {"null.deviance": "null deviance", "logLik": "log-likelihood",
                                              "AIC": "AIC", "BIC": "BIC", "deviance": "deviance"}, _ratio(result.model))


def _of_cox(result: Result) -> Estimates:
    return _of_table(result, "coefficients", {"logLik": "log partial likelihood",
                                              "concordance": "concordance within sites"}, "Hazard ratio")


def _of_effect(result: Result) -> Estimates:
    return _of_table(result, "effect", {}, "")


def _of_table(result: Result, table: str, glance: Mapping[str, str], ratio: str) -> Estimates:
    """A table of the model, and facts of its fit by their names in broom."""
    model = result.model
    rows = [{_TIDY.get(name, name): value for name, value in row.items() if name in ("term", "estimate", *_TIDY)}
            for row in model["tables"][table]]
    facts = {row["quantity"]: row["value"] for row in model["tables"]["fit"]}
    counts = {ours: round(facts[theirs]) for ours, theirs in (("df.residual", "degrees of freedom"), ("nobs", "rows"),
                                                              ("nevent", "events")) if theirs in facts}
    return Estimates(str(model["formula"]), rows, {**counts, **{ours: facts[theirs] for ours, theirs in glance.items()
                                                                if theirs in facts}},
                     ratio, float(result.config.algorithm["level"]), model["notes"])


def _of_curves(result: Result) -> Estimates:
    rows = [{"term": f"{row['group']}, {row['time']:g}" if row["group"] else f"{row['time']:g}",
             "estimate": row["survival"], "std.error": row["se"], "conf.low": row["low"], "conf.high": row["high"],
             "time": row["time"], "strata": row["group"], "n.risk": row["at risk"], "n.event": row["events"],
             "n.censor": row["censored"]} for row in result.model["tables"]["survival"]]
    return Estimates(str(result.model["formula"]), rows, {"nobs": int(result.model["rows"])},
                     level=float(result.config.algorithm["level"]), notes=result.model["notes"])


def _of_meta(result: Result) -> Estimates:
    model = result.model
    titled = f"{_METHODS[model['method']]}: {model['formula']}"
    notes = [f"{row['term']}: I2 {row['I2']:.0f}%, tau2 {row['tau2']:.3g}" + (
        f", prediction interval {_prediction(row, bool(_ratio(model)))}" if "prediction.low" in row else "") + "."
        for row in model["estimates"]]
    parties = len({study["study"] for study in model["studies"]}) or None
    return Estimates(titled, model["estimates"], {"nstudies": parties},
                     _ratio(model), float(result.config.algorithm["level"]), [*notes, *model["notes"]])


def _prediction(row: Mapping[str, Cell], ratio: bool) -> str:
    low, high = (_number(row, f"prediction.{end}") for end in ("low", "high"))
    return f"{exp(low):.3g} to {exp(high):.3g}" if ratio else f"{low:.3g} to {high:.3g}"


def _of_tests(result: Result) -> Estimates:
    return Estimates("Tests", result.model["estimates"], level=float(result.config.algorithm["level"]),
                     notes=result.model["notes"])


_READERS: Mapping[str, Callable[[Result], Estimates]] = {
    "cox": _of_cox, "effect": _of_effect, "glm": _of_glm, "kaplan-meier": _of_curves, "meta": _of_meta,
    "test": _of_tests}


def has_estimates(result: Result) -> bool:
    """Whether there is a table of estimates to print."""
    return str(result.config.algorithm["name"]) in _READERS


def _algorithm(result: Result) -> str:
    name = str(result.config.algorithm["name"])
    if name not in _READERS:
        raise ConfigError(f"a run of '{name}' has no table of estimates",
                          remedy=f"choose a run of: {', '.join(sorted(_READERS))}")
    return name


def _ratio(model: Payload) -> str:
    return _RATIOS.get((model["family"], model["link"]), "")


def _number(row: Mapping[str, Cell], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else float("nan")


def _studies(result: Result, found: Estimates, term: str) -> tuple[list[Payload], Mapping[str, Cell]]:
    """What the parties found for a term, and the pooled estimate: the first one after the constant if none is named."""
    names = [str(row["term"]) for row in found.rows]
    chosen = term or next((name for name in names if name != "const"), names[0])
    if chosen not in names:
        raise ConfigError(f"there is no term '{chosen}'", remedy=nearest(chosen, names))
    studies = [study for study in result.model["studies"] if study["term"] == chosen]
    if not studies:
        raise ConfigError("what single parties found was not seen in this run",
                          remedy="run it without a stage that hides sums")
    return studies, found.rows[names.index(chosen)]


def _forest_of_parties(result: Result, found: Estimates, term: str) -> Figure:
    from scipy.stats import norm

    studies, pooled = _studies(result, found, term)
    far = float(norm.ppf(0.5 + found.level / 2))
    lines = [ForestLine(study["study"], study["estimate"], study["estimate"] - far * study["std.error"],
                        study["estimate"] + far * study["std.error"], study["weight"]) for study in studies]
    prediction = (_number(pooled, "prediction.low"), _number(pooled, "prediction.high"))
    lines.append(ForestLine(_METHODS[result.model["method"]], _number(pooled, "estimate"), _number(pooled, "conf.low"),
                            _number(pooled, "conf.high"), summary=True, prediction=prediction))
    return forest_plot(lines, x=f"{found.ratio or 'Estimate'}: {pooled['term']}", ratio=bool(found.ratio))
