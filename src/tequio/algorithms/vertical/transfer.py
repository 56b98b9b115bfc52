"""Transfer between parties that have few rows in common: what one party's labels teach reaches the others' columns.

Liu, Kang, Xing, Chen, Yang: A secure federated transfer learning framework, IEEE Intelligent Systems 2020.

Every party maps its columns to a representation u of the same width. The label holder sums its rows up in one vector a
class, centre = mean(y u) over all its rows, common or not, with y = 1 for rows of the class and -1 for others. A row of
another party scores centre . u, by that party's columns alone. Over the common training rows the loss is

    log 2 - y s / 2 + s^2 / 8 + alignment |u - u of the label holder|^2,

the logistic loss cut after its square, as in the paper, and how far both sides' representations of a row are apart. The
paper exchanges the parts of that gradient under encryption; here representations and their gradients cross in clear, as
in `split-nn`, which is what the tasks say that they reveal. What the parties without labels have of rows that are not
common goes into how they standardise their columns, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NotRequired, TypedDict

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from tequio.algorithms.vertical.answering import Part, needed_of
from tequio.algorithms.vertical.conversation import columns_of, describe, roles_of
from tequio.algorithms.vertical.quadratic import one_against_rest, predictions, signs
from tequio.algorithms.vertical.rows import (
    CommonRows,
    KeptScores,
    RowRequest,
    as_numbers,
    asked_rows,
    common_rows,
    design,
    fit_scale,
)
from tequio.algorithms.vertical.vertical import Request, VerticalAlgorithm
from tequio.errors import ConfigError, DataError
from tequio.federation.aggregation import shapes_of
from tequio.federation.algorithm import part
from tequio.federation.population import state_name
from tequio.federation.task import Count, Done, NoSettings, Reveals, record, task
from tequio.learners.batched_layers import Activation
from tequio.learners.dense import Memory, backward, forward, fresh_stack, stepped
from tequio.learners.descent import batch_rows, row_orders
from tequio.learners.learner import Arrays, LocalTraining
from tequio.privacy.labels import randomised
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.data.dataset import Array, Dataset, Schema
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.task import AnyTask

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
Width = Annotated[int, Ge(1)]


@record
class NetSettings:
    """Widths of a party's layers, and what an answer about a label may reveal (0: labels as they are)."""

    hidden: tuple[Width, ...]
    width: Width
    epsilon: float


@record
class TransferSettings:
    """How the layers work and learn; see the parameters of `Transfer`."""

    activation: Activation
    local: LocalTraining
    alignment: float


class Net(TypedDict, total=False):
    """What a party keeps: its layers, the memory of its optimizer and, without labels, the label holder's centre."""

    layers: Arrays
    optimizer: Memory
    centre: Floats


class OtherLabels(TypedDict, total=False):
    """At the label holder: what it says the labels of its rows are that are not common, where it hides them."""

    labels: NDArray[np.integer]


class PendingRows(TypedDict, total=False):
    """The batch whose gradient is still to come."""

    positions: NDArray[np.int64]


@register("algorithm", "transfer", paper="Liu et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Transfer(VerticalAlgorithm):
    """Parties without labels learn to score their rows by their own columns, from few rows in common with who has them.

    For the partitions 'rows-and-columns' and 'columns'. The label holder learns from all its rows, the others from the
    common ones. A round is `local.epochs` passes over the common training rows, or `local.steps` batches; all keys of
    [local] act, on each party's layers by themselves. A party without labels answers alone: `--party NAME`.

    Parameters:
        alignment: find common rows by private set intersection (psi), or take all as they stand (agreed)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        hidden: widths of each party's hidden layers (empty: the representation is linear in the columns)
        width: width of the representation
        activation: what follows each hidden layer
        pull: how much it counts that both sides' representations of a common row are alike
    """

    kept_to_score: ClassVar[Mapping[type, Sequence[str]]] = {CommonRows: ("scale",), Net: ("layers", "centre")}

    local: LocalTraining = part(factory=LocalTraining)
    hidden: tuple[Width, ...] = ()
    width: Width = 16
    activation: Activation = "tanh"
    pull: Annotated[float, Ge(0)] = 0.1

    def start(self, federation: Federation) -> State:
        """Refuse what cannot work, before anything is sent."""
        state, roles = super().start(federation), roles_of(federation)
        if federation.schema.target.kind != "classes":
            raise ConfigError("the algorithm 'transfer' is for classes, and the target is a number",
                              remedy="use 'vertical-linear' or 'split-nn' on the common rows")
        without = [federation.name(party) for party in roles.holders if not len(columns_of(federation, party))]
        if without or not roles.others:
            raise ConfigError(f"party '{without[0]}' has no columns, and every party represents rows by its own"
                              if without else "there is no party without labels that anything could be transferred to",
                              remedy="deal columns to at least two parties: [data.partition] name = 'rows-and-columns'")
        return state

    def prepare(self, talk: Conversation, state: State) -> State:
        """Every party builds its own layers; nobody sends any."""
        talk.ask(talk.roles.holders, begin, settings=NetSettings(hidden=self.hidden, width=self.width,
                                                                 epsilon=self.label_epsilon))
        return self._summed_up(talk, state)

    def step(self, talk: Conversation, state: State) -> State:
        """All batches of the round; then the others get the label holder's centre."""
        roles, settings = talk.roles, self._settings()
        gradients: dict[int, Payload] = {}
        for number, positions in enumerate(self._batches(talk.federation, state.model["rows"]["train"])):
            asked: Payload = {"part": "train", "positions": positions, "step": number}
            each = {party: {**asked, **gradients.get(party, {})} for party in roles.others}
            sent: dict[str, Matrix] = {}
            for reply in talk.ask(roles.others, represent, each=each, settings=settings):
                found = reply.payload.get("represented")
                if found is None or found.shape != (len(positions), self.width) or not np.isfinite(found).all():
                    talk.refuse(represent, reply.party, f"it sent no representation of {len(positions)} rows of width "
                                                        f"{self.width}")
                    continue
                sent[str(reply.party)] = found
            learnt = talk.ask_one(roles.label_holder, learn, {**asked, "represented": sent}, settings=settings)
            if shapes_of(learnt["gradients"]) != shapes_of(sent):
                talk.refuse(learn, roles.label_holder, "it sent gradients that do not fit the representations")
            gradients = {party: {"gradient": learnt["gradients"][str(party)]} for party in roles.others}
        talk.ask(roles.others, represent, each=gradients, settings=settings)
        return self._summed_up(talk, state)

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """The others score the rows by their own columns; the label holder keeps the mean, to compare with labels."""
        others, holder = talk.roles.others, talk.roles.label_holder
        replies = talk.ask(others, score, each={party: request[party] for party in others}, settings=self._settings())
        classes = len(talk.federation.schema.target.names)
        for reply in replies:
            given = reply.payload["margins"]
            if given.shape[1:] != (classes if classes > 2 else 1,) or not np.isfinite(given).all():
                talk.refuse(score, reply.party, f"it sent no log-odds of {classes} classes")
        margins = {str(reply.party): reply.payload["margins"] for reply in replies}
        talk.ask_one(holder, keep_scores, {**request[holder], "margins": margins})

    def own_answer(self, party: Party, federation: Federation, state: State) -> Part:
        """At a party: its part of the model, which at one without labels answers by itself."""
        kept = needed_of(party.state, self.kept_to_score)
        if party.index == roles_of(federation).label_holder:
            return Part(party.name, kept)
        names = tuple(federation.schema.names[column] for column in columns_of(federation, party.index))
        return TransferPart(party.name, kept, names, self.activation)

    @classmethod
    def tasks_of_prediction(cls) -> tuple[AnyTask, ...]:
        """Scores of the parties without labels."""
        return (*super().tasks_of_prediction(), score, keep_scores)

    def _summed_up(self, talk: Conversation, state: State) -> State:
        """Hand the label holder's centre to the others; a digest of it stands for the model."""
        centre = talk.ask_one(talk.roles.label_holder, sum_up, settings=self._settings())["centre"]
        talk.ask(talk.roles.others, take_centre, {"centre": centre})
        digest = blake2b(np.ascontiguousarray(centre).tobytes(), digest_size=16).hexdigest()
        return state.next({**state.model, "centre": digest})

    def _batches(self, federation: Federation, rows: int) -> list[NDArray[np.int64]]:
        size = batch_rows(rows, self.local)
        return [order[start:start + size] for order in row_orders(rows, self.local, federation.rng("batches"))
                for start in range(0, len(order), size)]

    def _settings(self) -> TransferSettings:
        return TransferSettings(activation=self.activation, local=self.local, alignment=self.pull)


@dataclass(frozen=True, eq=False)
class TransferPart(Part):
    """The part of a party without labels: it scores rows by its own columns, and asks nobody."""

    kind: ClassVar[str] = "transfer"
    columns: tuple[str, ...] = field(default=())
    activation: Activation = "tanh"

    @property
    def needed(self) -> tuple[str, ...]:
        """The party's own columns."""
        return self.columns

    def scores(self, rows: Dataset) -> Array:
        """Probabilities of the classes."""
        mine = rows.select([rows.schema.column(name) for name in self.columns], with_target=False)
        net, scale = self.state[state_name(Net)], self.state[state_name(CommonRows)]["scale"]
        return probabilities(_margins(net, as_numbers(mine, scale), self.activation))

    def to_payload(self) -> Payload:
        """And which columns these are."""
        return {**super().to_payload(), "columns": list(self.columns), "activation": self.activation}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> TransferPart:
        """Back from plain data."""
        return cls(str(payload["party"]), dict(payload["state"]), tuple(payload["columns"]), payload["activation"])


@task("transfer.begin", settings=NetSettings, reply=Done, reveals=Reveals.NOTHING)
def begin(party: Party, payload: Payload, settings: NetSettings) -> Done:
    """Fresh layers; columns are standardised by all own rows that are not kept for validation and testing."""
    others, common = _not_common(party), common_rows(party, "train")
    held_out = party.recall(CommonRows)
    own = party.rows.take(np.setdiff1d(np.arange(len(party.rows)), held_out["rows"][held_out["part"] > 0]))
    party.keep(CommonRows, {"scale": fit_scale(own)})
    if settings.epsilon and party.rows.schema.target.kind != "none":
        coins = party.coins("randomised labels of other rows", lasting=True)
        party.keep(OtherLabels, {"labels": randomised(others, settings.epsilon, coins)})
    widths = (design(party, common).shape[1], *settings.hidden, settings.width)
    party.keep(Net, {"layers": fresh_stack(widths, party.rng("layers")), "optimizer": {}})
    return {}


class Batch(RowRequest, total=False):
    """A batch of common rows, and the gradients of the one before."""

    gradient: Matrix


class Represented(TypedDict):
    """A party's representation of each row of a batch; none at the end of a round."""

    represented: NotRequired[Matrix]


@task("transfer.represent", settings=TransferSettings, reply=Represented, reveals=Reveals.SCORES)
def represent(party: Party, payload: Batch, settings: TransferSettings) -> Represented:
    """At a party without labels: go down the gradient of the batch before, and represent the rows of the next."""
    if payload.get("step") == 0:
        _begin_round(party, settings)
    if "gradient" in payload:
        pending = party.recall(PendingRows)["positions"]
        if payload["gradient"].shape != (len(pending), _width(party)):
            raise DataError(f"party '{party.name}' got gradients of shape {payload['gradient'].shape} for "
                            f"{len(pending)} rows of width {_width(party)}",
                            remedy="both sides need the same settings")
        before = asked_rows(party, {"part": "train", "positions": pending})
        _descend(party, design(party, before), payload["gradient"], settings)
    if "positions" not in payload:
        party.forget(PendingRows)
        return {}
    party.keep(PendingRows, {"positions": payload["positions"]})
    rows = design(party, asked_rows(party, payload))
    return {"represented": forward(party.recall(Net)["layers"], rows, settings.activation).output}


class LearnRequest(RowRequest, total=False):
    """A batch with the others' representations, by the number of the party."""

    represented: dict[str, Matrix]


class Learnt(TypedDict):
    """The gradients of the others' representations, by the number of the party, and the loss of the batch."""

    gradients: dict[str, Matrix]
    rows: Count
    loss: float


@task("transfer.learn", settings=TransferSettings, reply=Learnt, reveals=Reveals.SCORES)
def learn(party: Party, payload: LearnRequest, settings: TransferSettings) -> Learnt:
    """At the label holder: one step on all own rows, and the gradients of the others' representations."""
    if payload["step"] == 0:
        _begin_round(party, settings)
    rows, wanted = _own_rows(party)
    others = len(rows) - len(common_rows(party, "train"))
    places = others + payload["positions"]
    own = forward(party.recall(Net)["layers"], rows, settings.activation).output.astype(np.float64)
    if any(len(theirs) != len(places) for theirs in payload["represented"].values()):
        raise DataError("the parties sent representations of different numbers of rows",
                        remedy="align the parties again")
    centre = wanted.T @ own / len(own)
    by_centre, by_own, loss = np.zeros_like(centre), np.zeros_like(own), 0.0
    gradients: dict[str, Matrix] = {}
    for name, theirs in payload["represented"].items():
        margins, apart = theirs @ centre.T, theirs - own[places]
        residual = (margins / 4 - wanted[places] / 2) / margins.size
        gradients[name] = (residual @ centre + 2 * settings.alignment * apart / len(places)).astype(np.float32)
        by_centre += residual.T @ theirs
        np.add.at(by_own, places, -2 * settings.alignment * apart / len(places))
        loss += float((np.log(2) - wanted[places] * margins / 2 + margins ** 2 / 8).mean()
                      + settings.alignment * np.square(apart).sum() / len(places))
    _descend(party, rows, by_own + wanted @ by_centre / len(own), settings)
    return {"gradients": gradients, "rows": len(places), "loss": loss}


class Centre(TypedDict):
    """The label holder's rows summed up: a vector a class."""

    centre: Floats


@task("transfer.sum up", settings=TransferSettings, reply=Centre, reveals=Reveals.STRUCTURE)
def sum_up(party: Party, payload: Payload, settings: TransferSettings) -> Centre:
    """At the label holder: the mean over all its rows of label times representation."""
    rows, wanted = _own_rows(party)
    own = forward(party.recall(Net)["layers"], rows, settings.activation).output
    return {"centre": wanted.T @ own / len(own)}


@task("transfer.take centre", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def take_centre(party: Party, payload: Centre, settings: NoSettings) -> Done:
    """At a party without labels: keep what it scores its rows by."""
    if payload["centre"].ndim != 2 or payload["centre"].shape[1] != _width(party):
        raise DataError(f"party '{party.name}' got a centre of shape {payload['centre'].shape} for representations of "
                        f"width {_width(party)}", remedy="both sides need the same settings")
    party.keep(Net, {"centre": payload["centre"]})
    return {}


class Margins(TypedDict):
    """What a party makes of rows by its own columns: the log-odds of each class."""

    margins: Floats


@task("transfer.score", settings=TransferSettings, reply=Margins, reveals=Reveals.SCORES)
def score(party: Party, payload: RowRequest, settings: TransferSettings) -> Margins:
    """At a party without labels: log-odds of the rows asked about."""
    rows = design(party, asked_rows(party, payload))
    return {"margins": _margins(party.recall(Net), rows, settings.activation)}


class ScoredRows(RowRequest, total=False):
    """Rows with what the others make of them, by the number of the party."""

    margins: dict[str, Floats]


@task("transfer.keep scores", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def keep_scores(party: Party, payload: ScoredRows, settings: NoSettings) -> Done:
    """At the label holder: keep the mean of what the others make of the rows asked about."""
    rows, shapes = len(asked_rows(party, payload)), {given.shape for given in payload["margins"].values()}
    if len(shapes) != 1 or next(iter(shapes))[0] != rows:
        raise DataError(f"the parties scored other rows than the {rows} that were asked about",
                        remedy="align the parties again")
    party.keep(KeptScores, {"scores": probabilities(np.mean(list(payload["margins"].values()), axis=0))})
    return {}


def probabilities(margins: Floats) -> Floats:
    """Of two classes by their one margin, of more by each against the rest."""
    each = [predictions("logistic", column, {"mean": 0.0, "deviation": 1.0}, {"slope": 1.0, "shift": 0.0})
            for column in np.ascontiguousarray(margins.T, np.float64)]
    return np.ascontiguousarray(each[0] if len(each) == 1 else one_against_rest([one[:, 1] for one in each]))


def _margins(net: Mapping[str, Any], rows: Floats, activation: Activation) -> Floats:
    represented = forward(net["layers"], rows, activation).output
    margins: Floats = represented @ np.asarray(net["centre"], np.float64).T
    return margins


def _not_common(party: Party) -> Dataset:
    return party.rows.take(np.setdiff1d(np.arange(len(party.rows)), party.recall(CommonRows)["rows"]))


def _own_rows(party: Party) -> tuple[Floats, Floats]:
    """At the label holder: all rows that it learns from, the common ones last, and 1 or -1 for each class."""
    others, common = _not_common(party), common_rows(party, "train")
    said = party.recall(OtherLabels).get("labels", others.target)
    labels, classes = np.concatenate([said, common.target]), len(party.rows.schema.target.names)
    wanted = [signs("logistic", labels == label, {"mean": 0.0, "deviation": 1.0})
              for label in (range(classes) if classes > 2 else [1])]
    return np.concatenate([design(party, others), design(party, common)]), np.stack(wanted, axis=1)


def _width(party: Party) -> int:
    return int(list(party.recall(Net)["layers"].values())[-1].shape[0])


def _begin_round(party: Party, settings: TransferSettings) -> None:
    if settings.local.optimizer_memory == "fresh":
        party.keep(Net, {"optimizer": {}})


def _descend(party: Party, rows: Floats, delta: Array, settings: TransferSettings) -> None:
    kept, local = party.recall(Net), settings.local
    passed = forward(kept["layers"], rows, settings.activation)
    gradients, _ = backward(kept["layers"], passed, delta, settings.activation)
    layers, memory = stepped(kept["layers"], gradients, kept["optimizer"], local, local.rate(party.round))
    party.keep(Net, {"layers": layers, "optimizer": memory})


_REPRESENTED = "a party's representation of each row: a transformation of its columns"
_CENTRE = "the mean over all rows of the label holder of label times representation"
describe(represent, gradient="how the loss changes with the own representations, row by row: reveals labels",
         represented=_REPRESENTED)
describe(learn, represented=_REPRESENTED, loss="the loss of the batch", rows="how many rows that loss is of",
         gradients="how the loss changes with the others' representations, row by row: reveals labels")
describe(sum_up, centre=_CENTRE)
describe(take_centre, centre=_CENTRE)
describe(score, margins="log-odds of each row")
describe(keep_scores, margins="log-odds of each row")
