"""Why a model answers a row as it does, in a line: a tree's path, a linear model's largest contributions, votes.

Thresholds and values are those of the rows as people have them, not of the prepared ones. Where a model has no short
reason, `reason_for` says so, and what can be done instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.personal.flprotector import Routed
from tequio.algorithms.trees.voting import Vote
from tequio.data.preprocessing.categories import Ordinal
from tequio.data.preprocessing.scaling import Log1p, MinMax, Standardise
from tequio.errors import ConfigError
from tequio.learners.answers import One
from tequio.learners.linear import LogisticRegression, SGDClassifier, SGDRegressor
from tequio.learners.trees.explain import explain
from tequio.learners.trees.learner import TreeLearner, model_from_payload, rows_of
from tequio.learners.trees.text import rows_text, share_text
from tequio.learners.trees.tree import Tree
from tequio.learners.trees.votes import boosted_from_xgboost, votes_on
from tequio.learners.zoo import Logistic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.data.preprocessing import Fitted, Preparation, Statistics
    from tequio.learners.answers import Answer
    from tequio.models.model import Model

    Reasons = Callable[[Dataset], list[str]]

_INSTEAD = ("train a model that has reasons beside it and compare the two: learner = 'logistic' for weights, "
            "learner = 'cart' for a rule per row")


def reason_for(model: Model, most: int = 3) -> Reasons:
    """What gives each of some raw rows its reason; refused where the model has none that fits a line.

    `most` is how many contributions of a linear model are named.
    """
    reading, party = model.reading, model.party
    empty = reading.rows_of(np.zeros((0, *reading.schema.shape), reading.dtype))
    why = _reasons(model.answer, Backwards(reading.own.get(party, reading.preparation), empty), most)
    return lambda rows: why(reading.prepared(rows, party)) if len(rows) else []


class Backwards:
    """From prepared columns to those that people have: what their numbers were, and which categories they stand for."""

    def __init__(self, fitted: Fitted, rows: Dataset) -> None:
        self.stages: list[tuple[Preparation, Statistics, dict[str, int]]] = []
        self.domains: dict[str, tuple[str, ...]] = {}
        self._raw = frozenset(rows.schema.names)
        for step, statistics in zip(fitted.steps, fitted.statistics, strict=True):
            domains = {feature.name: feature.domain for feature in rows.schema.features if feature.domain}
            numbers = [feature.name for feature in rows.schema.features if feature.domain is None]
            self.stages.append((step, statistics, {name: place for place, name in enumerate(numbers)}))
            rows = step.apply(rows, statistics)
            if isinstance(step, Ordinal):
                self.domains = domains

    def number(self, name: str, value: float) -> float:
        """What a prepared number was before the preparation."""
        for step, statistics, places in reversed(self.stages):
            if name not in places:
                continue
            place = places[name]
            if isinstance(step, Log1p):
                value = float(np.expm1(value))
            elif isinstance(step, Standardise):
                value = value * float(statistics["scale"][place]) + float(statistics["mean"][place])
            elif isinstance(step, MinMax):
                low, high = float(statistics["low"][place]), float(statistics["high"][place])
                value = value * (high - low if high > low else 1.0) + low
        return value

    def is_category(self, name: str) -> bool:
        """Whether a column stands for one category: colour=red."""
        return name not in self._raw

    def bounds(self, name: str, low: float, high: float) -> str:
        """In words, low < column <= high."""
        if self.is_category(name):
            column, _, category = name.partition("=")
            return f"{column} == {category}" if low > -np.inf else f"{column} != {category}"
        domain = self.domains.get(name)
        if domain is not None:
            first, last = 0 if low == -np.inf else int(np.floor(low)) + 1, min(high, len(domain) - 1)
            return f"{name} == {' or '.join(domain[first:int(np.floor(last)) + 1])}"
        if low == -np.inf:
            return f"{name} <= {high:.6g}"
        return f"{name} > {low:.6g}" if high == np.inf else f"{low:.6g} < {name} <= {high:.6g}"

    def value(self, name: str, value: float) -> str:
        """A column with the value that a row has in it."""
        plain = self.number(name, value)
        if self.is_category(name):
            return name if plain > 0.5 else name.replace("=", "!=", 1)
        domain = self.domains.get(name)
        return f"{name}={plain:.4g}" if domain is None else f"{name}={domain[round(plain)]}"


def _reasons(answer: Answer, back: Backwards, most: int) -> Reasons:
    if isinstance(answer, Routed):
        return lambda rows: _routed(answer, back, rows, most)
    if isinstance(answer, Vote):
        return lambda rows: _voted(answer, rows)
    if not isinstance(answer, One):
        raise ConfigError("no single rule or weight decides here: several parts answer together",
                          remedy="ask for one party's part (--party NAME), or see what trees of a vertical run decide: "
                          "tequio explain RUN --party NAME")
    if answer.clusters:
        return lambda rows: _nearest(answer.model["centroids"], rows)
    if isinstance(answer.learner, TreeLearner):
        return lambda rows: _by_trees(answer.model, back, rows)
    if isinstance(answer.learner, LogisticRegression | SGDClassifier | SGDRegressor):
        return lambda rows: _contributions(answer.model["coef"], back, rows, answer.scores(rows), most)
    if isinstance(answer.learner, Logistic):
        return lambda rows: _contributions(answer.model["output.weight"], back, rows, answer.scores(rows), most)
    raise ConfigError("a neural network has no reason that fits a line: every value counts in every answer",
                      remedy=_INSTEAD)


def _by_trees(payload: Mapping[str, Any], back: Backwards, rows: Dataset) -> list[str]:
    schema = rows.schema
    if payload.get("kind") == "xgboost":
        model: Any = boosted_from_xgboost(payload["document"], schema)
    else:
        model = model_from_payload(payload, features=len(schema.features), classes=schema.target.size)
    if not isinstance(model, Tree):
        return [str(votes_on(model, row, schema)) for row in rows_of(rows)]
    return [_rule(model, row, schema, back) for row in rows_of(rows)]


def _rule(tree: Tree, row: NDArray[Any], schema: Schema, back: Backwards) -> str:
    """The row's path as one rule, with the bounds of a column put together."""
    found = explain(tree, row, schema)
    limits: dict[str, tuple[float, float]] = {}
    parts: dict[str, str] = {}
    gaps: dict[str, bool] = {}
    for condition in found.conditions:
        name = condition.feature
        if condition.relation not in ("<=", ">"):
            parts[name] = str(condition)
            continue
        low, high = limits.get(name, (-np.inf, np.inf))
        bound = back.number(name, float(condition.value))
        limits[name] = (max(low, bound), high) if condition.relation == ">" else (low, min(high, bound))
        gaps[name] = gaps.get(name, True) and condition.or_missing
        parts[name] = f"{back.bounds(name, *limits[name])}{' or missing' if gaps[name] else ''}"
    because = f"if {' and '.join(parts.values())} then {found.prediction}" if parts else f"always {found.prediction}"
    share = f"{share_text(found.shares[found.prediction])} of " if found.shares else ""
    return f"{because} ({share}{rows_text(found.support)})" + (
        f"; {found.fallback}" if found.fallback else "")


def _contributions(weights: NDArray[Any], back: Backwards, rows: Dataset, scores: NDArray[Any],
                   most: int) -> list[str]:
    """The columns that moved a row's answer most: value times weight, for the answer against the next likely one."""
    schema, values = rows.schema, np.asarray(rows_of(rows), dtype=np.float64)
    weights = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if schema.target.kind == "multilabel":
        raise ConfigError("each label of this model has weights of its own, which do not fit a line",
                          remedy=_INSTEAD.replace("train a model", "train a model of one label"))
    if len(weights) == 1 and schema.target.kind == "classes":  # one output for two classes
        weights = np.concatenate([np.zeros_like(weights), weights])
    texts = []
    for row, score in zip(values, scores, strict=True):
        if schema.target.kind == "classes":
            best, second = (int(place) for place in np.argsort(-score, kind="stable")[:2])
            direction, head = weights[best] - weights[second], (f"{schema.target.names[best]} over "
                                                                f"{schema.target.names[second]}")
        else:
            direction, head = weights[0], f"{float(np.ravel(score)[0]):.6g}"
        earned = row * direction
        chosen = [int(place) for place in np.argsort(-np.abs(earned), kind="stable")[:most] if earned[place]]
        told = [f"{back.value(schema.names[place], float(row[place]))} {earned[place]:+.3g}" for place in chosen]
        texts.append(f"{head}: {', '.join(told) or 'no column matters, only where it starts from'}")
    return texts


def _routed(answer: Routed, back: Backwards, rows: Dataset, most: int) -> list[str]:
    """Which of a party's two models answers a row, and why it says so where it can say."""
    texts = []
    for place, mine in enumerate(answer.owned(rows)):
        used = answer.own if mine and answer.own is not None else answer.common
        head = "own model" if mine else "common model"
        try:
            inner = _reasons(One(answer.learner, used), back, most)(rows.take(np.array([place])))
            texts.append(f"{head}: {inner[0]}")
        except ConfigError:
            texts.append(f"answered by the party's {head}")
    return texts


def _voted(answer: Vote, rows: Dataset) -> list[str]:
    """How many members are for each class, or how far their numbers lie apart."""
    names = rows.schema.target.names
    members = [np.asarray(answer.learners[member["learner"]].predict(member["model"], rows))
               for member in answer.model["members"]]
    if not names:
        return [f"{len(members)} members say {low:.6g} to {high:.6g}"
                for low, high in zip(np.min(members, axis=0).ravel(), np.max(members, axis=0).ravel(), strict=True)]
    chosen = np.stack([scores.argmax(axis=1) for scores in members])
    counts = [np.bincount(votes, minlength=len(names)) for votes in chosen.T]
    return [", ".join(f"{count[place]} for {names[place]}" for place in np.argsort(-count, kind="stable")
                      if count[place]) + f" of {len(members)} members" for count in counts]


def _nearest(centroids: NDArray[np.float64], rows: Dataset) -> list[str]:
    distances = np.sqrt(((rows_of(rows)[:, None, :] - centroids[None]) ** 2).sum(axis=2))
    texts = []
    for row in distances:
        order = np.argsort(row, kind="stable")
        beside = f", the next one is {order[1]} at {row[order[1]]:.4g}" if len(order) > 1 else ""
        texts.append(f"centre of cluster {order[0]} is {row[order[0]]:.4g} away{beside}")
    return texts
