"""The federation as a whole predicts every label: through the heads of all parties, which stay where they are.

On their own rows parties only count. Rows of the coordinator go to the parties, and their scores of those come back.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tequio.algorithms.multilabel.tasks import (
    Heads,
    evaluate_own_rows,
    fingerprint_own,
    heads_here,
    keep_heads,
    packed,
    score_received_rows,
)
from tequio.federation.algorithm import Algorithm, Answering, part
from tequio.federation.evaluation import tallies_in
from tequio.learners.learner import Learner
from tequio.learners.metrics import tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.multilabel.tasks import JudgeSettings
    from tequio.data.dataset import Dataset
    from tequio.federation.algorithm import State
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Tally


@dataclass(frozen=True, kw_only=True)
class ThroughHeads(Algorithm):
    """An algorithm whose parties each judge rows with a network for their own labels."""

    learner: Learner = part()

    adoptable: ClassVar[bool] = False

    @abstractmethod
    def evaluation_settings(self, federation: Federation, part: Part = "test") -> JudgeSettings:
        """Which network of a party is judged, and how."""

    def answer(self, federation: Federation, state: State) -> None:
        """There is no common model: the parties answer together, each for its labels."""

    def own_answer(self, party: Party, federation: Federation, state: State) -> Heads | None:
        """The party's networks, for the labels that it knows."""
        return heads_here(party, state.model, self.evaluation_settings(federation))

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """Each keeps its networks."""
        federation.ask(parties, keep_heads, {"model": state.model}, settings=self.evaluation_settings(federation))

    def answering(self, federation: Federation, state: State) -> Answering:
        """All parties that may take part, together."""
        return Answering("joint", tuple(federation.eligible().tolist()))

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally on its own rows, over its own labels."""
        replies = federation.ask(parties, evaluate_own_rows, {"model": state.model},
                                 settings=self.evaluation_settings(federation, part))
        return tallies_in(replies)

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """All labels of the coordinator's rows, through the heads of all parties."""
        scores = score_rows(federation, state.model, rows, self.evaluation_settings(federation))
        return joint_tally(federation, scores, rows)

    def score_at_parties(self, federation: Federation, state: State, rows: Dataset) -> dict[str, dict[int, Tally]]:
        """Each party's labels of the coordinator's rows."""
        scores = score_rows(federation, state.model, rows, self.evaluation_settings(federation))
        return tallies_at_parties(federation, scores, rows)

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """A hash of the networks that each party predicts with, of those that ever trained."""
        replies = federation.ask(state.memory["trained"], fingerprint_own, {"model": state.model},
                                 settings=self.evaluation_settings(federation))
        return [payload["sha256"] for payload in replies.payloads]


def labels_of(federation: Federation, party: int) -> NDArray[np.int64]:
    """The labels that a party knows."""
    labels = federation.population.partition.labels
    return np.arange(federation.schema.target.size) if labels is None else labels[party]


def score_rows(federation: Federation, core: Payload, rows: Dataset,
               settings: JudgeSettings) -> dict[int, NDArray[Any]]:
    """Every party's scores of the coordinator's rows, (rows, its labels)."""
    replies = federation.ask(federation.eligible(), score_received_rows, {"model": core, "rows": packed(rows)},
                             settings=settings)
    return {reply.party: reply.payload["scores"] for reply in replies if reply.payload}


def joint_tally(federation: Federation, scores: Mapping[int, NDArray[Any]], rows: Dataset) -> Tally | None:
    """The tally of all labels together; a label that several parties know gets the mean of their scores.

    A label that nobody knows is never predicted.
    """
    if not scores:
        return None
    target = federation.schema.target
    sums, counts = np.zeros((len(rows), target.size)), np.zeros(target.size)
    for party, own in scores.items():
        labels = labels_of(federation, party)
        sums[:, labels] += own
        counts[labels] += 1
    return tally(target, sums / np.maximum(counts, 1), rows.target)


def tallies_at_parties(federation: Federation, scores: Mapping[int, NDArray[Any]],
                       rows: Dataset) -> dict[str, dict[int, Tally]]:
    """Each party's tally on the coordinator's rows over its own labels, in both readings.

    `common`: rows that have at least one of the party's labels, as in the published numbers; `common_all`: all rows.
    """
    found: dict[str, dict[int, Tally]] = {"common": {}, "common_all": {}}
    for party, own in scores.items():
        mine = rows.select_labels(list(labels_of(federation, party)))
        truth = mine.target
        some = truth.any(axis=1)
        found["common_all"][party] = tally(mine.schema.target, own, truth)
        if some.any():
            found["common"][party] = tally(mine.schema.target, own[some], truth[some])
    return found
