"""What the tree algorithms share: the learner that they need, rows that fit the agreed schema, and fitting a model."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tequio.components import name_of
from tequio.data.dataset import Dataset
from tequio.data.schema import schema_from_json, schema_to_json
from tequio.errors import ConfigError, DataError, PayloadError, TequioError
from tequio.federation.task import task
from tequio.learners.trees.learner import TreeLearner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tequio.data.schema import Schema
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

Needed = TypeVar("Needed")


def needed_learner(algorithm: Algorithm, kind: type[Needed]) -> Needed:
    """The algorithm's learner, if it is of the one kind that the algorithm can work with."""
    learner: object = algorithm.parts.learner
    if not isinstance(learner, kind):
        given = name_of(type(learner)) if learner is not None else "none"
        raise ConfigError(f"'{name_of(type(algorithm))}' needs the learner '{name_of(kind)}', not '{given}'",
                          remedy=f"set learner.name = '{name_of(kind)}'")
    return learner


def fits_trees(algorithm: Algorithm) -> bool:
    """Whether the learner fits a model in one go, so that there is nothing to start from and nothing to train on."""
    return isinstance(algorithm.parts.learner, TreeLearner)


def agreed(federation: Federation) -> dict[str, str]:
    """Settings that let a party compare its own columns with those that the federation agreed on."""
    return {"schema": _as_text(federation.schema)}


def agreed_rows(party: Party, settings: Mapping[str, Any]) -> Dataset:
    """The party's training rows, if there are any and their columns are those that were agreed on."""
    rows = party.data.train
    difference = _difference(rows.schema, _schema(settings["schema"]))
    if difference:
        raise DataError(f"the data of party '{party.name}' does not fit the schema that was agreed on: {difference}",
                        remedy="prepare the party's data with the agreed schema")
    if not len(rows):
        raise DataError(f"party '{party.name}' has no rows to train on",
                        remedy="raise rules.minimum_rows so that it is not chosen")
    return rows


@task("trees: fit")
def fit(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """A model of the party's own rows, by the learner in the settings."""
    rows = agreed_rows(party, settings)
    return {"model": settings["learner"].fit(rows, party.rng("fit")).to_payload(), "rows": len(rows)}


@task("trees: fit own model")
def fit_own(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The same, but the party keeps the model for itself."""
    rows = agreed_rows(party, settings)
    party.state["own_model"] = settings["learner"].fit(rows, party.rng("fit")).to_payload()
    return {"rows": len(rows)}


def usable_by(learner: Any, schema: Schema) -> Callable[[Payload, str], None]:
    """A check of replies that carry a `model`: it can be used if the learner can predict with it."""
    nothing = no_rows(schema)

    def check(payload: Payload, whose: str) -> None:
        try:
            learner.predict(payload["model"], nothing)
        except TequioError as cause:
            raise PayloadError(cause.message.replace("a party", whose), remedy=cause.remedy) from None
        except Exception as cause:
            raise PayloadError(f"{whose} sent a model that cannot be used: {cause!r}") from None

    return check


def no_rows(schema: Schema) -> Dataset:
    """A dataset of that schema without a row."""
    kind = np.float64 if schema.target.kind == "number" else np.int64
    shape = (0, len(schema.target.names)) if schema.target.kind == "multilabel" else 0
    target = None if schema.target.kind == "none" else np.zeros(shape, dtype=kind)
    return Dataset.of(schema, np.zeros((0, *schema.shape)), target)


@lru_cache(maxsize=16)
def _as_text(schema: Schema) -> str:
    return schema_to_json(schema)


@lru_cache(maxsize=16)
def _schema(text: str) -> Schema:
    return schema_from_json(text)


def _difference(own: Schema, expected: Schema) -> str:
    if own == expected:
        return ""
    if len(own.features) != len(expected.features):
        return f"it has {len(own.features)} columns instead of {len(expected.features)}"
    for place, (mine, theirs) in enumerate(zip(own.features, expected.features, strict=True)):
        if mine.name != theirs.name:
            return f"column {place} is '{mine.name}' instead of '{theirs.name}'"
        if mine != theirs:
            return f"column '{mine.name}' has other categories"
    return "its target differs" if own.target != expected.target else "its rows have another shape"
