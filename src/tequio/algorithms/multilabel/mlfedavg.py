"""MLFedAvg: federated averaging where every party learns other labels; its baseline, and MLFedAvg-plus.

D. Delgado Bejarano: Aprendizaje multi-etiqueta en entornos federados, master's thesis, University of Seville, 2024.

Parties share the core of a network and keep a head for their own labels. The printed formula of aggregation 0 lacks its
1/K, and with a fraction of the parties the weights are those of the parties that answered.

MLFedAvg-plus. MLFedAvg loses F1 to parties that train alone, because rare labels are never predicted and because its
model is judged where averaging has just pulled it away from the party's own rows. Five changes, each with a switch:

- the loss of a label's positive rows is weighed by how rare they are at the party;
- the federation's core is the start of a personal phase, in which every party trains core and head on its own rows;
- of the networks it meets there, from the federated one on, a party keeps the best on its validation rows;
- beside it every party trains a second network from nothing, and both predict together by their mean: what one learned
  from the others' rows and what the other learned from the party's own labels alone rarely fail on the same rows;
- each label is decided at a border that the party chooses on its validation rows.

Nothing more crosses than in MLFedAvg: heads, borders and weights stay with the party.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.algorithms.multilabel.heads import fresh_core, widest_head
from tequio.algorithms.multilabel.scoring import ThroughHeads
from tequio.algorithms.multilabel.tasks import (
    Accuracy,
    ChoosingSettings,
    ChosenBy,
    JudgeSettings,
    OwnSettings,
    SharedSettings,
    adopt_core,
    set_network_aside,
    train_own_network,
    train_shared,
)
from tequio.federation.algorithm import Attacked, State, part
from tequio.federation.averaging import Averaging, averaging_round, select
from tequio.federation.selection import AllParties, Selector
from tequio.learners.learner import LocalTraining
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.federation.averaging import Averaged, Weigh
    from tequio.federation.evaluation import Part
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Arrays

Aggregation = Literal[0, 1, 2]
"""Weigh parties alike, by their training rows, or by rows times labels."""

Reading = Literal["off", "rounds", "cumulative"]

PATIENCE, DONE, WORSE = "patience", "personal phase done", "worse"
"""Stop reasons."""

_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class SharedCore(ThroughHeads, Averaging):
    """Averages the core; there is no common model that contributions could be judged by."""

    attackable: ClassVar[frozenset[Attacked]] = frozenset({"updates", "cohort"})  # not classes
    coordinator_trains: ClassVar[bool] = False
    contribution: None = field(default=None, init=False)

    def federated_round(self, federation: Federation, state: State, settings: SharedSettings, aggregation: Aggregation,
                        rule: EarlyStopping) -> State:
        """Select, train cores with heads, average the cores, and note how the validation rows fare."""

        def step(averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
            answered = averaged.replies.parties
            return averaged.following(), {
                "trained": np.union1d(state.memory["trained"], answered[answered >= 0]),
                "history": rule.remembered(state.memory["history"], averaged.replies)}

        by_labels: Weigh = partial(aggregation_weights, rule=2)
        return averaging_round(self, federation, state, train_shared, settings, step=step, buffers_by="size",
                               weights=("uniform", "size", by_labels)[aggregation])


@register("algorithm", "mlfedavg", paper="Delgado, 2024")
@dataclass(frozen=True, kw_only=True)
class MLFedAvg(SharedCore):
    """Average the core of a network; every party keeps a head for the labels that only it knows.

    Parameters:
        aggregation: weigh parties alike (0), by training rows (1), or by training rows times labels (2)
        stopping: stop when validation loss and accuracy both get worse twice in a row: by means of each round (rounds,
            as printed), by means over all rounds so far (cumulative, as the author's numbers imply), or never (off)
        stopping_accuracy: what counts as accuracy there: subset_accuracy, or argmax_agreement as the author measured
        minimum_rounds: earliest round to stop after
        evaluated: judge the aggregated core with each party's head, or the network that the party trained last (local)
    """

    aggregation: Aggregation = 0
    stopping: Reading = "rounds"
    stopping_accuracy: Accuracy = "subset_accuracy"
    minimum_rounds: Annotated[int, Ge(3)] = 10
    evaluated: Literal["aggregated", "local"] = "aggregated"

    def start(self, federation: Federation) -> State:
        """A fresh core. Heads begin at the parties, when each trains for the first time."""
        return State(fresh_core(self.learner, federation), {"history": {}, "finished": "", "trained": _NOBODY})

    def round(self, federation: Federation, state: State) -> State:
        """A federated round; the validation rows may end the run."""
        settings = SharedSettings(learner=self.learner, local=self.local, width=widest_head(federation), balance=0.0,
                                  accuracy=self.stopping_accuracy, keep_core=self.evaluated == "local")
        rule = EarlyStopping(self.stopping, self.minimum_rounds)
        after = self.federated_round(federation, state, settings, self.aggregation, rule)
        return after.next(finished=rule.reason(after.memory["history"]))

    def finished(self, state: State) -> str:
        """Whether the parties' validation rows say enough."""
        return str(state.memory["finished"])

    def evaluation_settings(self, federation: Federation, part: Part = "test") -> JudgeSettings:
        """Which network of a party is judged, and how."""
        return JudgeSettings(learner=self.learner, part=part, width=widest_head(federation), evaluated=self.evaluated,
                             calibrate=False)


def aggregation_weights(replies: Replies[Any], rule: Aggregation) -> NDArray[np.float64]:
    """How much each party's core weighs, before the weights are made to sum to one."""
    rows, labels = replies.values("rows").astype(np.float64), replies.values("labels").astype(np.float64)
    return {0: np.ones(len(replies)), 1: rows, 2: rows * labels}[rule]


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop a federation by its parties' validation rows: when the mean loss and the mean accuracy over parties
    both got worse in two rounds in a row. The author's numbers imply means over all rounds so far, from round 10 on.

    Parameters:
        reading: off; means of each round (as printed); or means over all rounds so far (as in the author's code)
        minimum_rounds: earliest round to stop after
    """

    reading: Reading = "rounds"
    minimum_rounds: Annotated[int, Ge(3)] = 10

    def remembered(self, history: Mapping[str, Sequence[float]], replies: Replies[Any]) -> dict[str, list[float]]:
        """The history with this round's means over the parties that have validation rows."""
        wanted = {"validation_loss", "validation_accuracy"}
        judged = [payload for payload in replies.payloads if wanted <= payload.keys()]
        if not judged:
            return {name: list(values) for name, values in history.items()}
        means = {name: float(np.mean([payload[f"validation_{name}"] for payload in judged]))
                 for name in ("loss", "accuracy")}
        return {name: [*history.get(name, ()), mean] for name, mean in means.items()}

    def reason(self, history: Mapping[str, Sequence[float]]) -> str:
        """Why to stop after the last round of the history; empty to go on."""
        losses, accuracies = history.get("loss", ()), history.get("accuracy", ())
        if self.reading == "off" or len(losses) < self.minimum_rounds:
            return ""
        if self.reading == "cumulative":
            losses, accuracies = _running_means(losses), _running_means(accuracies)
        worse = losses[-1] > losses[-2] > losses[-3] and accuracies[-1] < accuracies[-2] < accuracies[-3]
        return WORSE if worse else ""


def _running_means(values: Sequence[float]) -> list[float]:
    means: NDArray[np.float64] = np.cumsum(values) / np.arange(1, len(values) + 1)
    return [float(mean) for mean in means[-3:]]


@register("algorithm", "mlfedavg-alone", paper="Delgado, 2024")
@dataclass(frozen=True, kw_only=True)
class MLFedAvgAlone(ThroughHeads):
    """Each party trains a network for its own labels and shares nothing: what MLFedAvg is compared with.

    Networks are of the same shape as in MLFedAvg and begin at the parties. A party goes on until its validation loss
    has not improved for `patience` rounds. The thesis's text takes the stop round of the federated run as patience and
    allows 1,000 epochs; its code trains for exactly that many epochs: there, set rounds to it and patience to 0. The
    run's result is the core of a network that nobody has trained, as there is no common one.

    Parameters:
        patience: rounds without a better validation loss after which a party stops (0: never)
        restore: judge the network with the best validation rows instead of the last one
        chosen_by: what patience and the best network go by: validation loss, or F1 over the party's labels
        balance: weigh positive rows of a label by (negatives / positives) to this power; 0 leaves the loss as it is
        calibrate: choose each label's decision border on validation rows instead of one half
    """

    local: LocalTraining = part(factory=LocalTraining)
    selector: Selector = part(factory=AllParties)

    shows_replies: ClassVar[bool] = False

    patience: Annotated[int, Ge(0)] = 0
    restore: bool = False
    chosen_by: ChosenBy = "loss"
    balance: Annotated[float, Ge(0)] = 0.0
    calibrate: bool = False

    def start(self, federation: Federation) -> State:
        """Nobody has trained or finished yet."""
        return State(fresh_core(self.learner, federation), {"done": _NOBODY, "trained": _NOBODY, "finished": ""})

    def round(self, federation: Federation, state: State) -> State:
        """Every chosen party that has not finished trains its network on."""
        chosen = select(self, federation, state)
        settings = OwnSettings(learner=self.learner, local=self.local, width=widest_head(federation),
                               balance=self.balance, patience=self.patience, chosen_by=self.chosen_by,
                               calibrate=self.calibrate)
        after = trained_on(federation, state, np.setdiff1d(chosen.parties, state.memory["done"]), settings)
        everyone = len(np.setdiff1d(federation.eligible(), after.memory["done"])) == 0
        return after.next(selector=chosen.memory, finished=PATIENCE if everyone else "")

    def finished(self, state: State) -> str:
        """Whether every party has stopped."""
        return str(state.memory["finished"])

    def evaluation_settings(self, federation: Federation, part: Part = "test") -> JudgeSettings:
        """Which network of a party is judged, and how."""
        return JudgeSettings(learner=self.learner, part=part, width=widest_head(federation), calibrate=self.calibrate,
                             evaluated="best" if self.restore else "local")


def trained_on(federation: Federation, state: State, parties: NDArray[np.int64],
               settings: OwnSettings) -> State:
    """Let parties train their own networks on, and remember who is done and who has ever trained."""
    replies = federation.ask(parties, train_own_network, settings=settings)
    stopped = np.array([reply.party for reply in replies if reply.payload["finished"]], dtype=np.int64)
    return state.next(done=np.union1d(state.memory["done"], stopped),
                      trained=np.union1d(state.memory["trained"], replies.parties))


@register("algorithm", "mlfedavg-plus")
@dataclass(frozen=True, kw_only=True)
class MLFedAvgPlus(SharedCore):
    """MLFedAvg with weighed rare labels, a personal phase and chosen decision borders.

    Parameters:
        aggregation: weigh parties alike (0), by training rows (1), or by training rows times labels (2)
        stopping: stop rule that ends the federated phase: by means of each round (rounds), over all rounds so far
            (cumulative), or never (off)
        stopping_accuracy: what counts as accuracy there: subset_accuracy or argmax_agreement
        minimum_rounds: earliest round to end the federated phase after
        federated_rounds: longest federated phase
        personal_rounds: longest personal phase (0: none)
        second_rounds: longest phase in which every party trains a second network from nothing; both then predict
            together, by the mean of their probabilities (0: none)
        patience: rounds without a better network after which such a phase of a party ends (0: never)
        chosen_by: what the best network goes by on validation rows: loss, or F1 over the party's labels
        balance: weigh positive rows of a label by (negatives / positives) to this power; 0 leaves the loss as it is
        calibrate: choose each label's decision border on validation rows instead of one half
    """

    aggregation: Aggregation = 0
    stopping: Reading = "rounds"
    stopping_accuracy: Accuracy = "subset_accuracy"
    minimum_rounds: Annotated[int, Ge(3)] = 10
    federated_rounds: Annotated[int, Ge(1)] = 100
    personal_rounds: Annotated[int, Ge(0)] = 100
    second_rounds: Annotated[int, Ge(0)] = 100
    patience: Annotated[int, Ge(0)] = 40
    chosen_by: ChosenBy = "f1"
    balance: Annotated[float, Ge(0)] = 0.5
    calibrate: bool = True

    def start(self, federation: Federation) -> State:
        """A fresh core. Heads begin at the parties, when each trains for the first time."""
        return State(fresh_core(self.learner, federation),
                     {"history": {}, "trained": _NOBODY, **self._begin("federated", 0)})

    def round(self, federation: Federation, state: State) -> State:
        """A federated round until the stop rule ends that phase, then those of the parties' own networks."""
        return (self._federated if state.memory["phase"] == "federated" else self._own)(federation, state)

    def finished(self, state: State) -> str:
        """Whether every party has come to the end of its last phase."""
        return DONE if state.memory["phase"] == "done" else ""

    def _federated(self, federation: Federation, state: State) -> State:
        settings = SharedSettings(learner=self.learner, local=self.local, width=widest_head(federation),
                                  balance=self.balance, accuracy=self.stopping_accuracy, keep_core=False)
        rule = EarlyStopping(self.stopping, self.minimum_rounds)
        after = self.federated_round(federation, state, settings, self.aggregation, rule)
        if not rule.reason(after.memory["history"]) and federation.round < self.federated_rounds:
            return after
        federation.ask(federation.eligible(), adopt_core, {"model": after.model}, settings=ChoosingSettings(
            learner=self.learner, width=widest_head(federation), chosen_by=self.chosen_by, calibrate=self.calibrate))
        return after.next(**self._next_phase("federated", federation.round))

    def _own(self, federation: Federation, state: State) -> State:
        """A round of the parties' own networks; a phase ends with its last round, or when all have finished."""
        phase, begun = state.memory["phase"], state.memory["begun"]
        if phase == "second" and federation.round == begun + 1:
            federation.ask(federation.eligible(), set_network_aside)
        settings = OwnSettings(learner=self.learner, local=self.local, width=widest_head(federation),
                               balance=self.balance, patience=self.patience, chosen_by=self.chosen_by,
                               calibrate=self.calibrate)
        active = np.setdiff1d(federation.eligible(), state.memory["done"])
        after = trained_on(federation, state, active, settings)
        longest = self.personal_rounds if phase == "personal" else self.second_rounds
        ends = federation.round - begun >= longest or len(after.memory["done"]) == len(federation.eligible())
        return after.next(**self._next_phase(phase, federation.round)) if ends else after

    def _next_phase(self, phase: str, round: int) -> dict[str, Any]:
        """The phase after one that has ended: those of no rounds are left out."""
        phases = {"personal": self.personal_rounds, "second": self.second_rounds}
        later = list(phases)[list(phases).index(phase) + 1:] if phase in phases else list(phases)
        return self._begin(next((name for name in later if phases[name]), "done"), round)

    def _begin(self, phase: str, round: int) -> dict[str, Any]:
        return {"phase": phase, "begun": round, "done": _NOBODY}

    def evaluation_settings(self, federation: Federation, part: Part = "test") -> JudgeSettings:
        """Which network of a party is judged, and how."""
        return JudgeSettings(learner=self.learner, part=part, width=widest_head(federation), calibrate=self.calibrate,
                             evaluated="best")
