"""A candidate takes over in stages, as its outcomes allow: 1 %, 10 %, 50 % of the ids, then all.

Each look compares the outcomes of the candidate with those of the version in production since the trial began, inside
each stage, so that a change over time is not taken for a difference between versions. Its bounds hold at all looks
together, however many there are. The candidate moves up

    from 1 %    if it is surely not worse by twice the margin or more,
    from 10 %   if it is surely not worse by the margin or more,
    from 50 %   if it is surely better,

and has at least 30 outcomes in the stage. It is withdrawn if it is surely worse, or surely breaks a bound. Otherwise it
stays where it is. The rule is fixed when the trial begins.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import ConfigError, nearest
from tequio.models.audit import locked
from tequio.models.outcomes import HIGHER_IS_BETTER, METRICS, SHARES, read_outcomes
from tequio.models.statistics import always_valid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.models.audit import Entry
    from tequio.models.outcomes import Outcome
    from tequio.models.registry import ModelRegistry

STAGES = (0.01, 0.1, 0.5, 1.0)
FEWEST = 30
"""Outcomes of the candidate that a stage needs before anything is decided."""
MARGIN = 0.05
_MARGINS = ((0.5, 0.0), (0.1, 1.0), (0.0, 2.0))
_HOPELESS = 10_000_000
_BOUND = re.compile(r"(\w+)(?:\[(\w+)=([^\]]*)\])?\s*(>=|<=)\s*(-?[\d.]+(?:e-?\d+)?)")


@dataclass(frozen=True)
class Rule:
    """What a trial goes by, from its beginning to its end."""

    metric: str
    confidence: float
    margin: float
    bounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What the outcomes say so far. `difference` is turned so that more is better for the candidate.

    `low` and `high` bound it, each with the rule's confidence over all looks. `in_stage` counts the outcomes that the
    candidate has at the present stage, `variances` are those of one outcome of production and candidate.
    """

    production: int
    candidate: int
    production_mean: float
    candidate_mean: float
    difference: float
    low: float
    high: float
    information: float
    in_stage: int
    variances: tuple[float, float]


@dataclass(frozen=True)
class Step:
    """What a look led to. `needed` is about how many more outcomes of the candidate would decide; none: no telling."""

    decision: Literal["up", "stay", "withdrawn"]
    version: int
    before: float
    after: float
    why: str
    evidence: Evidence | None = None
    needed: int | None = None


def step_up(registry: ModelRegistry, *, metric: str = "", confidence: float | None = None, margin: float | None = None,
            bounds: Sequence[str] = ()) -> Step:
    """Look at the outcomes so far, and move the candidate one stage up, leave it, or withdraw it."""
    with locked(registry.folder):
        state = registry.state
        if not state["candidate"] or not state["production"]:
            raise ConfigError(_nothing_to_compare(registry, state),
                              remedy=f"add a run: tequio models add {registry.name} RUN" if state["production"] else
                              f"put the first version into production: tequio models promote {registry.name}")
        registry.check(state["candidate"])
        rule = _rule(registry, state, metric, confidence, margin, tuple(bounds))
        if not state["share"]:
            registry.require_use(state["candidate"])
            return _begun(registry, state, rule)
        step = decide(rule, float(state["share"]), int(state["candidate"]), *_strata(registry, state))
        facts = _plain(step)
        if step.decision == "up" and step.after == 1.0:
            registry.put_into_production(state, step.why, facts)
            return step
        gone = {"candidate": 0, "share": 0.0, "trial": None}
        after = {**state, **(gone if step.decision == "withdrawn" else {"share": step.after, "trial": asdict(rule)})}
        what = {"up": "share", "stay": "looked", "withdrawn": "withdrawn"}[step.decision]
        registry.audit.add(what, after, version=step.version, why=step.why, facts=facts)
        return step


def decide(rule: Rule, share: float, version: int, production: Sequence[Sequence[Outcome]],
           candidate: Sequence[Sequence[Outcome]]) -> Step:
    """What the outcomes of both versions, one sequence per stage so far, say about the next step."""
    if min(sum(map(len, production)), sum(map(len, candidate)), len(candidate[-1])) < FEWEST:
        few, other = len(candidate[-1]), sum(map(len, production))
        return Step("stay", version, share, share,
                    f"too few outcomes to decide: the candidate has {few:,} at this stage, production {other:,} since "
                    f"the trial began; {FEWEST} each are needed", needed=max(FEWEST - few, 0))
    evidence = look(rule, production, candidate)
    allowed = rule.margin * next(times for least, times in _MARGINS if share >= least)
    numbers = (f"{rule.metric} {evidence.candidate_mean:.3f} of {evidence.candidate:,} outcomes against "
               f"{evidence.production_mean:.3f} of {evidence.production:,}: difference {evidence.difference:+.3f}, at "
               f"least {evidence.low:+.3f}, at most {evidence.high:+.3f}")
    broken = [told for bound in rule.bounds if (told := _broken(bound, rule, candidate))]
    worse = "is surely worse" if evidence.high < 0 else ""
    surely = next((told for told in broken if told.startswith("surely")), worse)
    if surely:
        return Step("withdrawn", version, share, 0.0, f"it {surely}: {numbers}", evidence)
    if broken:
        return Step("stay", version, share, share, f"it {broken[0]}: {numbers}", evidence)
    if evidence.low > -allowed and (allowed or evidence.low > 0):
        following = next((stage for stage in STAGES if stage > share), 1.0)
        enough = f"surely not worse by {allowed:g} or more" if allowed else "surely better"
        return Step("up", version, share, following, f"it is {enough}: {numbers}", evidence)
    needed = _needed(rule, evidence, share, allowed)
    wanted = f"that it is not worse by {allowed:g} or more" if allowed else "that it is better"
    return Step("stay", version, share, share, f"it is not yet sure {wanted}: {numbers}", evidence, needed)


def look(rule: Rule, production: Sequence[Sequence[Outcome]], candidate: Sequence[Sequence[Outcome]]) -> Evidence:
    """The difference inside stages, weighted by how much each stage knows, with bounds for any number of looks."""
    turn = 1.0 if HIGHER_IS_BETTER[rule.metric] else -1.0
    old, new = ([np.array([one.values[rule.metric] for one in stage]) for stage in stages]
                for stages in (production, candidate))
    variances = (_variance(np.concatenate(old)), _variance(np.concatenate(new)))
    weights, differences = [], []
    for before, after in zip(old, new, strict=True):
        spread = variances[0] / max(len(before), 1) + variances[1] / max(len(after), 1)
        if len(before) and len(after) and spread:
            weights.append(1 / spread)
            differences.append(turn * float(after.mean() - before.mean()))
    information = sum(weights)
    difference = sum(weight * one for weight, one in zip(weights, differences, strict=True)) / information \
        if information else 0.0
    off = always_valid(information, rule.margin, 1 - rule.confidence) if information else float("inf")
    means = [float(np.concatenate(stages).mean()) for stages in (old, new)]
    return Evidence(sum(map(len, old)), sum(map(len, new)), means[0], means[1], difference, difference - off,
                    difference + off, information, len(new[-1]), variances)


def _variance(values: NDArray[np.float64]) -> float:
    """Of one outcome. A success and a failure are added to shares, so that few outcomes alike are not taken for all."""
    if np.isin(values, (0, 1)).all():
        share = (float(values.sum()) + 1) / (len(values) + 2)
        return share * (1 - share)
    return float(values.var(ddof=1))


def _broken(bound: str, rule: Rule, candidate: Sequence[Sequence[Outcome]]) -> str:
    """How the candidate breaks a bound, in words that begin with 'surely' where chance cannot be to blame."""
    metric, column, level, sign, limit = _parsed(bound)
    values = np.array([one.values[metric] for stage in candidate for one in stage
                       if not column or one.groups.get(column) == level])
    if len(values) < FEWEST:
        return f"has {len(values)} outcomes for the bound {bound}, which needs {FEWEST}"
    beyond = float(values.mean()) - limit if sign == ">=" else limit - float(values.mean())
    off = always_valid(len(values) / _variance(values), rule.margin, 1 - rule.confidence) if _variance(values) else 0.0
    told = f"the bound {bound} with {values.mean():.3f} of {len(values):,} outcomes"
    return f"surely breaks {told}" if beyond + off < 0 else f"does not meet {told}" if beyond < 0 else ""


def _needed(rule: Rule, evidence: Evidence, share: float, allowed: float) -> int | None:
    """About how many more outcomes of the candidate decide, if the difference stays what it is."""
    distance = max(evidence.difference + allowed, -evidence.difference)
    if distance <= 0:
        return None
    each = 1 / (evidence.variances[1] + evidence.variances[0] * share / (1 - share)) if share < 1 else 0.0
    few, many = 0, _HOPELESS
    while few < many:
        middle = (few + many) // 2
        off = always_valid(evidence.information + middle * each, rule.margin, 1 - rule.confidence)
        few, many = (few, middle) if off < distance else (middle + 1, many)
    return few if few < _HOPELESS else None


def _strata(registry: ModelRegistry, state: Entry) -> tuple[list[list[Outcome]], list[list[Outcome]]]:
    """The outcomes of production and candidate, one list per stretch of the trial with the same share."""
    begins: list[str] = []
    last: tuple[object, ...] = ()
    for entry in registry.audit.entries():
        now = tuple(entry["state"][name] for name in ("production", "candidate", "share"))
        if now != last:
            begins = [*begins, entry["time"]] if now[:2] == (state["production"], state["candidate"]) and now[2] else []
        last = now
    numbers = {registry.version(state[role]).sha256: role for role in ("production", "candidate")}
    found: dict[str, list[list[Outcome]]] = {role: [[] for _ in begins] for role in numbers.values()}
    for one in read_outcomes(registry):
        stage = int(np.searchsorted(begins, one.time, side="right")) - 1
        if one.version in numbers and stage >= 0:
            found[numbers[one.version]][stage].append(one)
    return found["production"], found["candidate"]


def _rule(registry: ModelRegistry, state: Entry, metric: str, confidence: float | None, margin: float | None,
          bounds: tuple[str, ...]) -> Rule:
    """The rule of the trial; it cannot be changed once outcomes may have been seen."""
    if state["trial"]:
        rule = Rule(**{**state["trial"], "bounds": tuple(state["trial"]["bounds"])})
        asked = {"metric": metric or rule.metric, "confidence": rule.confidence if confidence is None else confidence,
                 "margin": rule.margin if margin is None else margin, "bounds": bounds or rule.bounds}
        for name, value in asked.items():
            if value != asdict(rule)[name]:
                raise ConfigError(f"the trial of version {state['candidate']} began with {name} {asdict(rule)[name]}, "
                                  f"not {value}", remedy="a rule that changes while outcomes come in proves nothing: "
                                  f"leave the option out, or begin anew: tequio models split {registry.name} 0")
        return rule
    known = METRICS.get(registry.version(state["candidate"]).schema.target.kind, ())
    for name in (*([metric] if metric else []), *(_parsed(bound)[0] for bound in bounds)):
        if name not in known:
            raise ConfigError(f"outcomes of this model have no '{name}'", remedy=nearest(name, known))
    chosen = metric or known[0]
    if confidence is not None and not 0.5 < confidence < 1:
        raise ConfigError(f"a confidence is between 0.5 and 1, not {confidence:g}", remedy="such as --confidence 0.95")
    if margin is not None and margin <= 0:
        raise ConfigError(f"a margin is above 0, not {margin:g}", remedy=f"such as --margin {MARGIN}")
    return Rule(chosen, 0.95 if confidence is None else confidence,
                _usual_margin(registry, state, chosen) if margin is None else margin, bounds)


def _usual_margin(registry: ModelRegistry, state: Entry, metric: str) -> float:
    if metric in SHARES:
        return MARGIN
    version = registry.version(state["production"]).sha256
    known = [one.values[metric] for one in read_outcomes(registry) if one.version == version]
    if not known or not sum(known):
        raise ConfigError(f"how much worse is still acceptable is not known for '{metric}'",
                          remedy=f"say it in the unit of {metric}: --margin NUMBER")
    return MARGIN * abs(float(np.mean(known)))


def _parsed(bound: str) -> tuple[str, str, str, str, float]:
    found = _BOUND.fullmatch(bound.strip())
    if found is None or found[1] not in HIGHER_IS_BETTER:
        raise ConfigError(f"'{bound}' is no bound", remedy="write it as accuracy>=0.9, brier<=0.2 or "
                          f"accuracy[sex=f]>=0.8; metrics: {', '.join(HIGHER_IS_BETTER)}")
    sign = ">=" if HIGHER_IS_BETTER[found[1]] else "<="
    if found[4] != sign:
        raise ConfigError(f"'{bound}' asks for a bad model: {'more' if sign == '>=' else 'less'} {found[1]} is better",
                          remedy=f"write {found[1]}{sign}{found[5]}")
    return found[1], found[2] or "", found[3] or "", found[4], float(found[5])


def _begun(registry: ModelRegistry, state: Entry, rule: Rule) -> Step:
    why = (f"the trial begins: {rule.metric}, confidence {rule.confidence:g}, margin {rule.margin:g}"
           + "".join(f", bound {bound}" for bound in rule.bounds))
    after = {**state, "share": STAGES[0], "trial": asdict(rule)}
    registry.audit.add("share", after, version=state["candidate"], why=why)
    return Step("up", int(state["candidate"]), 0.0, STAGES[0], why)


def _nothing_to_compare(registry: ModelRegistry, state: Entry) -> str:
    if not state["production"]:
        return f"the model '{registry.name}' has no version in production to compare with"
    last = registry.audit.entries()[-1]
    gone = f": version {last['version']} was withdrawn, {last['why']}" if last["what"] == "withdrawn" else ""
    return f"the model '{registry.name}' has no candidate{gone}"


def _plain(step: Step) -> dict[str, object]:
    facts = asdict(step)
    facts["evidence"] = None if step.evidence is None else {
        name: value for name, value in asdict(step.evidence).items() if value not in (float("inf"), float("-inf"))}
    return facts
