"""What the tree algorithms share: their parts, rows that fit the agreed schema, fitting, and a start for boosting.

For boosting a party remembers the margins of its training rows, so only trees that it has not yet seen are sent to it.
The coordinator remembers how many that are, because a party may miss rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.data.dataset import Dataset, schema_from_json, schema_to_json
from tequio.errors import DataError, PayloadError, QuorumError, TequioError
from tequio.federation.algorithm import Algorithm, Attacked, part
from tequio.federation.evaluation import OwnModel
from tequio.federation.payload import Payload
from tequio.federation.selection import AllParties, Selector
from tequio.federation.stages import Stage
from tequio.federation.sums import Named, SumsReply, sum_over_rows
from tequio.federation.task import Reveals, Rows, Sums, most_rows, record, task
from tequio.learners.trees.boosted import BoostedTrees, base_margins, gradients, objective_for
from tequio.learners.trees.learner import TreeLearner, numeric_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Learner


@dataclass(frozen=True, kw_only=True)
class TreeAlgorithm(Algorithm):
    """What tree algorithms are composed of, besides their learner: who takes part, and whose rows are poisoned."""

    selector: Selector = part(factory=AllParties)
    attack: Stage | None = part(None)

    attackable: ClassVar[frozenset[Attacked]] = frozenset({"rows"})

    @property
    def poisoning(self) -> tuple[Stage, ...]:
        """What is done where parties work on their rows: hostile ones swap theirs."""
        return () if self.attack is None else (self.attack,)


@dataclass(frozen=True, kw_only=True)
class SummingTrees(TreeAlgorithm):
    """The same for algorithms that send sums over rows, which stages such as 'dp-sums' work on."""

    stages: tuple[Stage, ...] = part(())

    sends: ClassVar[frozenset[Literal["updates", "sums"]]] = frozenset({"sums"})

    @property
    def way(self) -> tuple[Stage, ...]:
        """The attack first, so that every other stage sees what is really sent."""
        return (*self.poisoning, *self.stages)


@record
class AgreedSettings:
    """The schema that the federation agreed on, as text, which a party compares with that of its own rows."""

    agreed: str


@record
class FitSettings(AgreedSettings):
    """By which learner a model is fitted."""

    learner: TreeLearner


class FittedReply(TypedDict):
    """A model of the party's rows."""

    model: Payload
    rows: Rows


class RowsReply(TypedDict):
    """How many rows a party has fitted its model to."""

    rows: Rows


class LocalTree(TypedDict, total=False):
    """The tree that a party fitted to its own rows, where it was handed another one later on."""

    tree: Payload


def agreed(federation: Federation) -> str:
    """The agreed schema as it is sent to parties."""
    return _as_text(federation.schema)


def agreed_rows(party: Party, settings: AgreedSettings) -> Dataset:
    """The party's training rows, if there are any and their columns are those that were agreed on."""
    rows = party.data.train
    difference = _difference(rows.schema, _schema(settings.agreed))
    if difference:
        raise DataError(f"the data of party '{party.name}' does not fit the schema that was agreed on: {difference}",
                        remedy="prepare the party's data with the agreed schema")
    if not len(rows):
        raise DataError(f"party '{party.name}' has no rows to train on",
                        remedy="raise rules.minimum_rows so that it is not chosen")
    return rows


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
    for index, (mine, theirs) in enumerate(zip(own.features, expected.features, strict=True)):
        if mine.name != theirs.name:
            return f"column {index} is '{mine.name}' instead of '{theirs.name}'"
        if mine != theirs:
            return f"column '{mine.name}' has other categories"
    return "its target differs" if own.target != expected.target else "its rows have another shape"


@task("trees: fit", settings=FitSettings, reply=FittedReply, reveals=Reveals.STRUCTURE)
def fit(party: Party, payload: Payload, settings: FitSettings) -> FittedReply:
    """A model of the party's own rows."""
    rows = agreed_rows(party, settings)
    return {"model": settings.learner.fit(rows, party.rng("fit")).to_payload(), "rows": len(rows)}


@task("trees: fit own model", settings=FitSettings, reply=RowsReply, reveals=Reveals.COUNTS)
def fit_own(party: Party, payload: Payload, settings: FitSettings) -> RowsReply:
    """The same, but the party keeps the model for itself."""
    rows = agreed_rows(party, settings)
    party.keep(OwnModel, {"model": settings.learner.fit(rows, party.rng("fit")).to_payload()})
    return {"rows": len(rows)}


def check_usable(learner: Learner | TreeLearner, schema: Schema, model: Payload, whose: str) -> None:
    """Refuse a model that the learner cannot predict with."""
    kind = np.float64 if schema.target.kind == "number" else np.int64
    shape = (0, len(schema.target.names)) if schema.target.kind == "multilabel" else 0
    target = None if schema.target.kind == "none" else np.zeros(shape, dtype=kind)
    nothing = Dataset.of(schema, np.zeros((0, *schema.shape)), target)
    try:
        learner.predict(model, nothing)
    except TequioError as cause:
        raise PayloadError(cause.message.replace("a party", whose), remedy=cause.remedy) from None
    except Exception as cause:
        raise PayloadError(f"{whose} sent a model that cannot be used: {cause!r}") from None


UNSEEN = -1
"""Trees that a party has seen which does not even know the start."""

_BY_NODE = ("feature", "threshold", "children", "value", "gain")


class News(TypedDict):
    """Trees of the model that a party has not seen; `afresh` where it has seen none, or cannot know its rows."""

    news: Payload
    afresh: bool


class KnownMargins(TypedDict, total=False):
    """What a party keeps while a model is boosted: the margins of its training rows by all trees so far."""

    margins: NDArray[np.float64]


def common_start(federation: Federation, parties: NDArray[np.int64], stages: Sequence[Stage] = ()) -> BoostedTrees:
    """An ensemble without trees that predicts the class shares, or the mean, of all these parties' rows."""
    objective = objective_for(federation.schema.target)
    totals, rows = common_totals(federation, parties, stages)
    return BoostedTrees(objective, base_margins(objective, totals, rows))


def blank_start(schema: Schema) -> BoostedTrees:
    """An ensemble without trees that takes all classes for equally likely."""
    objective = objective_for(schema.target)
    return BoostedTrees(objective, base_margins(objective, np.ones(schema.target.size), schema.target.size))


def common_totals(federation: Federation, parties: NDArray[np.int64],
                  stages: Sequence[Stage] = ()) -> tuple[NDArray[np.float64], int]:
    """Rows of each class, or the sum of the numbers, of all these parties together; and how many rows these are."""
    size, counted = federation.schema.target.size, federation.schema.target.kind != "number"

    def check(sums: Named, whose: str) -> None:
        if sums["rows"] < 1 or (counted and (sums["totals"] < 0).any()):
            raise PayloadError(f"{whose} sent totals that are not {size} numbers with the number of rows")

    found = sum_over_rows(federation, parties, total_targets, settings=AgreedSettings(agreed=agreed(federation)),
                          shapes={"totals": (size,), "rows": ()}, stages=stages, check=check)
    if not len(found):
        raise QuorumError("no party reported its target totals, so there is nothing to start from",
                          remedy="lower rules.dropout, or find out why parties fail")
    return found["totals"], int(found["rows"])


def _moved_totals(settings: AgreedSettings, schema: Schema) -> Mapping[str, float]:
    return {"totals": inf if schema.target.kind == "number" else 1.0, "rows": 1.0}


def _check_rows(reply: SumsReply, federation: Federation, party: int) -> None:
    """Refuse more rows than the party has, where it says how many it has in the open."""
    rows = reply["sums"].get("rows")
    if isinstance(rows, np.ndarray) and (rows > most_rows(int(federation.sizes[party]))).any():
        raise PayloadError(f"party '{federation.name(party)}' sent totals of more rows than it has")


@task("boosting: total targets", settings=AgreedSettings, reply=SumsReply, reveals=Sums(_moved_totals),
      check=_check_rows)
def total_targets(party: Party, payload: Payload, settings: AgreedSettings) -> SumsReply:
    """Rows, and rows of each class or the sum of the numbers."""
    rows = agreed_rows(party, settings)
    target, count = rows.schema.target, np.array(len(rows))
    if target.kind == "number":
        return {"sums": {"totals": np.array([rows.target.sum()], dtype=np.float64), "rows": count}}
    return {"sums": {"totals": np.bincount(rows.target, minlength=target.size), "rows": count}}


def nobody_has_seen(federation: Federation) -> NDArray[np.int64]:
    """How many trees each party has seen, at the start."""
    return np.full(len(federation), UNSEEN, dtype=np.int64)


def seen_trees(federation: Federation, state: State, attack: Stage | None) -> NDArray[np.int64]:
    """How many trees each party has seen. Poisoned rows may be others in every round, so nobody knows their margins."""
    seen: NDArray[np.int64] = state.memory["seen"]
    return seen.copy() if attack is None else nobody_has_seen(federation)


def news(model: Payload, parties: NDArray[np.int64], seen: NDArray[np.int64]) -> dict[int, Payload]:
    """What each party has to be sent: the trees of the model that it has not seen (`News`)."""
    since = {int(count): _since(model, max(int(count), 0)) for count in np.unique(seen[parties])}
    return {int(party): {"news": since[int(seen[party])], "afresh": bool(seen[party] == UNSEEN)} for party in parties}


def _since(model: Payload, trees: int) -> Payload:
    """The ensemble without its first trees."""
    nodes = int(model["sizes"][:trees].sum())
    return {**model, "sizes": model["sizes"][trees:], **{name: model[name][nodes:] for name in _BY_NODE}}


def with_trees(model: Payload, more: Payload) -> Payload:
    """The ensemble with the trees of another one at its end; both are sound."""
    return {**model, **{name: np.concatenate([model[name], more[name]]) for name in ("sizes", *_BY_NODE)}}


def learn_news(party: Party, rows: Dataset, payload: News) -> None:
    """At the party: bring the margins of its rows up to date."""
    model = ensemble_from(payload["news"], rows.schema, "the coordinator")
    margins = model.margins(numeric_rows(rows, "boosted-trees"))
    if not payload["afresh"]:
        margins += party.recall(KnownMargins)["margins"] - model.base
    party.keep(KnownMargins, {"margins": margins})


def derivatives(party: Party, rows: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At the party: (rows, outputs) first and second derivatives of the loss at the margins that it keeps."""
    return gradients(objective_for(rows.schema.target), party.recall(KnownMargins)["margins"], rows.target)


def ensemble_from(payload: Payload, schema: Schema, whose: str) -> BoostedTrees:
    """The ensemble in a payload, if it is sound and fits the data."""
    return BoostedTrees.from_payload(payload, features=len(schema.features), classes=schema.target.size, whose=whose)


def check_sums(sums: Named, whose: str) -> None:
    """Refuse second derivatives that no loss has."""
    if (sums["curvature"] < 0).any():
        raise PayloadError(f"{whose} sent something that is not sums of gradients: negative second derivatives")
