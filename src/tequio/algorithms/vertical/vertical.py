"""What all vertical algorithms have in common: roles, alignment, rounds in which everyone is needed, evaluation.

An algorithm writes `prepare` (once, after the alignment), `step` (a round) and `scores` (what the parties together make
of some rows, known to the label holder only). Models stay where they are: each party keeps its part in its own state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from tequio.algorithms.vertical.alignment import TASKS_OF_REQUESTS, Alignment, align, find_common
from tequio.algorithms.vertical.answering import Part, Together, needed_of, together_of
from tequio.algorithms.vertical.conversation import (
    Conversation,
    PartyMissing,
    columns_of,
    conversation,
    describe,
    roles_of,
)
from tequio.algorithms.vertical.requests import deliver, end_request, hand_out
from tequio.algorithms.vertical.rows import QUERY, LabelAnswers, RowRequest, asked_rows, common_rows, taken_scores
from tequio.data.dataset import Array
from tequio.errors import ConfigError
from tequio.federation.algorithm import Algorithm, Answering, State
from tequio.federation.evaluation import check_any_tally
from tequio.federation.task import AnyTask, Done, NoSettings, Reveals, record, task
from tequio.learners.learner import Tally
from tequio.learners.metrics import check_tally, tally
from tequio.privacy.labels import randomised
from tequio.privacy.psi.ids import Comparison

if TYPE_CHECKING:
    from tequio.algorithms.vertical.requests import Told
    from tequio.data.dataset import Dataset
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

Request = dict[int, RowRequest]
"""Which rows are meant, said to each party in its own terms."""


class Predictions(TypedDict):
    """Predictions, and which of the asking party's own rows they belong to."""

    scores: Array
    rows: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class VerticalAlgorithm(Algorithm):
    """Parties with different columns of the same rows; every one of them is needed in every step.

    There is nothing to select, and no updates that stages, attacks or contributions could look at.

    Parameters:
        label_epsilon: let the label holder train on labels that it randomises once, each for this epsilon, which hides
            them from all others whatever crosses (0: on the true ones)
    """

    alignment: Alignment = "psi"
    compare: tuple[Comparison, ...] = ()
    label_epsilon: Annotated[float, Ge(0)] = 0.0

    across_columns: ClassVar[bool] = True
    adoptable: ClassVar[bool] = False
    own_training: ClassVar[bool] = False

    kept_to_score: ClassVar[Mapping[type, Sequence[str]]]
    """What a party's part of the model is: of each typed record that it keeps, the fields that scoring needs."""

    remembered_to_score: ClassVar[tuple[str, ...]] = ()
    """What of the state's memory scoring needs."""

    def agree(self, talk: Conversation, state: State) -> State:
        """Find the common rows and their order; `state.model["rows"]` holds their counts by part from then on."""
        return state.next({"rows": align(talk, self.alignment, self.compare)})

    @abstractmethod
    def prepare(self, talk: Conversation, state: State) -> State:
        """Once, when the rows are agreed: make keys and fresh models. `state.model` holds the counts of rows."""

    @abstractmethod
    def step(self, talk: Conversation, state: State) -> State:
        """One round."""

    @abstractmethod
    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Let the label holder work out scores of the rows asked about and keep them as `KeptScores`.

        They are what `Learner.predict` gives: probabilities (rows, classes), or numbers (rows,).
        """

    def start(self, federation: Federation) -> State:
        """Nothing is asked yet: the alignment waits for the first round in which everyone is there."""
        roles_of(federation)
        if self.label_epsilon and federation.schema.target.kind != "classes":
            raise ConfigError("randomised labels are classes, and the target is a number",
                              remedy="set algorithm.label_epsilon = 0")
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """Align where that is still to be done, then one step. Where a party is missing the round rests or fails."""
        with conversation(federation) as talk:
            try:
                return self.step(talk, state if state.model else self._aligned(talk, state))
            except PartyMissing as missing:
                if federation.rules.on_failure == "stop":
                    raise
                federation.record("paused", {"round": federation.round, "cause": missing.message})
                return state

    def answer(self, federation: Federation, state: State) -> Together | None:
        """All parties together, each by its part of the model."""
        return together_of(self, federation, state) if state.model else None

    def own_answer(self, party: Party, federation: Federation, state: State) -> Part:
        """At a party: its part of the model."""
        return Part(party.name, needed_of(party.state, self.kept_to_score))

    def answering(self, federation: Federation, state: State) -> Answering:
        """Every party, the key holder too, has a part and is needed."""
        if not state.model:
            return Answering()
        # Parties that vanish by chance do so to try the training out.
        with conversation(replace(federation, rules=replace(federation.rules, dropout=0.0))) as talk:
            self.get_ready(talk, state)
            return Answering("together", talk.roles.everyone)

    def get_ready(self, talk: Conversation, state: State) -> None:
        """Make what scoring needs of training rows, where the last round has not made it."""

    def scores_of(self, federation: Federation, state: State, rows: Dataset) -> Array:
        """The scores of rows that are all in one place; each party is handed its columns of them."""
        with conversation(federation) as talk:
            self.scores(talk, state, _handed_out(federation, talk.roles.holders, rows))
            return talk.ask_one(talk.roles.label_holder, hand_out)["scores"]

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """The label holder's tally on the common rows of a part."""
        roles = roles_of(federation)
        if not state.model or not state.model["rows"][part] or roles.label_holder not in parties:
            return {}
        return {roles.label_holder: self._tally(federation, state, {party: {"part": part} for party in roles.holders})}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """The tally on rows of the coordinator's own: each party is handed its columns of them, to try the model on."""
        if not state.model:
            return None
        roles = roles_of(federation)
        request = _handed_out(federation, roles.holders, rows)
        request[roles.label_holder]["target"] = rows.target
        return self._tally(federation, state, request)

    def predict(self, federation: Federation, state: State, asking: int | None = None) -> Predictions:
        """What the model makes of all rows that the parties hold now and have in common, for the party that asks.

        These may be other rows than those of the training; the parties align them again. By default the label holder
        asks.
        """
        with conversation(federation) as talk:
            holder = talk.roles.label_holder
            self._score_common(talk, state)
            scores = talk.ask_one(holder, hand_out)["scores"]
            asking = holder if asking is None else asking
            own = talk.ask(talk.roles.holders, end_request, each={asking: {"asking": True}})
            return {"scores": scores, "rows": own.of(asking)["rows"]}

    def predict_there(self, federation: Federation, state: State, tell: str = "") -> Told:
        """The same, but the answers go to the party of that name (by default the label holder) and to nobody else."""
        with conversation(federation) as talk:
            return deliver(talk, self._score_common(talk, state), tell)

    @classmethod
    def tasks_of_prediction(cls) -> tuple[AnyTask, ...]:
        """All that parties are asked to do where new rows are predicted, until there are answers; and to end it."""
        return (*TASKS_OF_REQUESTS, end_request)

    def _score_common(self, talk: Conversation, state: State) -> int:
        """Align the rows that the parties hold now, and let the label holder work out scores; how many they are."""
        rows = find_common(talk, self.alignment, self.compare, query=True)
        self.scores(talk, state, {party: {"part": QUERY} for party in talk.roles.holders})
        return rows

    def _aligned(self, talk: Conversation, state: State) -> State:
        state = self.agree(talk, state)
        talk.federation.record("aligned", {"round": talk.federation.round, "rows": state.model["rows"]})
        if self.label_epsilon:
            talk.ask_one(talk.roles.label_holder, randomise_labels, settings=LabelSettings(epsilon=self.label_epsilon))
        return self.prepare(talk, state)

    def _tally(self, federation: Federation, state: State, request: Request) -> Tally:
        with conversation(federation) as talk:
            self.scores(talk, state, request)
            holder = talk.roles.label_holder
            asked, common = request[holder], sum(state.model["rows"].values())
            rows = len(asked["features"]) if "features" in asked else common
            return talk.ask_one(holder, tally_scores, asked, check=lambda tally, whose: check_tally(
                federation.schema.target, tally, rows, whose))


@record
class LabelSettings:
    """What an answer may tell about a label."""

    epsilon: float


@task("vertical.randomise labels", settings=LabelSettings, reply=Done, reveals=Reveals.NOTHING)
def randomise_labels(party: Party, payload: Payload, settings: LabelSettings) -> Done:
    """At the label holder: decide once what it says the labels of its training rows are (Warner, 1965)."""
    coins = party.coins("randomised labels", lasting=True)
    party.keep(LabelAnswers, {"labels": randomised(common_rows(party, "train"), settings.epsilon, coins)})
    return {}


def _handed_out(federation: Federation, holders: Sequence[int], rows: Dataset) -> Request:
    """For each party its columns of some rows."""
    return {party: {"features": rows.features[:, columns_of(federation, party)]} for party in holders}


@task("vertical.tally", settings=NoSettings, reply=Tally, reveals=Reveals.METRICS, check=check_any_tally)
def tally_scores(party: Party, payload: RowRequest, settings: NoSettings) -> Tally:
    """At the label holder: compare the scores it worked out with the true target. Counts leave, not scores."""
    rows = asked_rows(party, payload)
    return dict(tally(rows.schema.target, taken_scores(party), rows.target))


_COUNTS = "counts over all rows of a part"
describe(tally_scores, rows=_COUNTS, loss_sum=_COUNTS, confusion=_COUNTS, score_histogram=_COUNTS,
         squared_error=_COUNTS, absolute_error=_COUNTS, target_sum=_COUNTS, target_squares=_COUNTS)
