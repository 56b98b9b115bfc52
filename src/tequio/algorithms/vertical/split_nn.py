"""A neural network that is cut between parties.

Vepakomma, Gupta, Swedish, Raskar: Split learning for health: distributed deep learning without sharing raw patient
data, 2018; with several parties at the bottom as in Ceballos, Sharma, Mugica et al.: SplitNN-driven vertical
partitioning, 2020. Without noise it is the composed network trained in one place, batch for batch: each activation is
sent up and its gradient down. A party's step on one batch and its activations of the next are one exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NotRequired, TypedDict

import numpy as np
from annotated_types import Ge, Gt, MinLen
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import columns_of, describe
from tequio.algorithms.vertical.rows import CommonRows, KeptScores, RowRequest, asked_rows, design
from tequio.algorithms.vertical.vertical import Request, VerticalAlgorithm
from tequio.errors import ConfigError, DataError
from tequio.federation.aggregation import shapes_of
from tequio.federation.algorithm import part
from tequio.federation.task import Count, Done, Reveals, record, task
from tequio.learners.batched_layers import Activation
from tequio.learners.dense import (
    Memory,
    Passed,
    backward,
    forward,
    fresh_stack,
    loss_and_delta,
    scores_of_outputs,
    stepped,
)
from tequio.learners.descent import batch_rows, loss_for, outputs_for, row_orders, target_array
from tequio.learners.learner import Arrays, LocalTraining
from tequio.privacy.labels import Protection, protected
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.data.dataset import Dataset
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.task import AnyTask, Task

Matrix = NDArray[np.float32]
Width = Annotated[int, Ge(1)]
Combination = Literal["concatenate", "sum", "mean"]


@record
class BuildSettings:
    """Widths of the layers below and above the cut."""

    bottom: tuple[Width, ...]
    top: tuple[Width, ...]


@record
class SplitSettings:
    """How parts of the network work and learn; see the parameters of `SplitNN`."""

    activation: Activation
    combine: Combination
    local: LocalTraining
    activation_noise: float
    protection: Protection
    protection_strength: float


class Bottom(TypedDict, total=False):
    """What a party with columns keeps: its layers and the memory of its optimizer."""

    layers: Arrays
    optimizer: Memory


class Top(TypedDict, total=False):
    """What the label holder keeps beside its bottom: the layers above the cut, and the loss of the round so far."""

    layers: Arrays
    optimizer: Memory
    loss_sum: float
    rows_seen: int


@register("algorithm", "split-nn", paper="Vepakomma et al., 2018")
@dataclass(frozen=True, kw_only=True)
class SplitNN(VerticalAlgorithm):
    """Each party runs the bottom of a network on its columns; the label holder joins them, runs the top and learns.

    In every batch activations of the cut layer go to the label holder and their gradients come back, both through the
    coordinator; rows, labels and weights stay. A round is `local.epochs` passes over the common training rows, or
    `local.steps` batches. All keys of [local] act, on each part of the network by itself: `local.clip_norm` bounds the
    gradient of each part. The gradients can reveal labels by their length and direction; `protection` puts noise
    against that on them.

    Parameters:
        alignment: find common rows by private set intersection (psi), or take all as they stand (agreed)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        bottom: widths of the layers below the cut
        cut: width of the cut layer, one for all parties with columns or one for each party
        top: widths of the layers above the cut
        activation: what follows each layer but those at the cut and at the end
        combine: how the parties' activations are joined
        activation_noise: standard deviation of the noise that a party puts on its activations
        protection: noise that the label holder puts on gradients, so that they do not reveal labels
        protection_strength: power of isotropic and Marvell noise (1: as much as what it hides)
    """

    kept_to_score: ClassVar[Mapping[type, Sequence[str]]] = {
        CommonRows: ("scale",), Bottom: ("layers",), Top: ("layers",)}

    local: LocalTraining = part(factory=LocalTraining)
    bottom: tuple[Width, ...] = (32,)
    cut: Annotated[tuple[Width, ...], MinLen(1)] = (16,)
    top: tuple[Width, ...] = (32,)
    activation: Activation = "relu"
    combine: Combination = "concatenate"
    activation_noise: Annotated[float, Ge(0)] = 0.0
    protection: Protection = "none"
    protection_strength: Annotated[float, Gt(0)] = 1.0

    def start(self, federation: Federation) -> State:
        """Refuse cuts that cannot be joined, before anything is sent."""
        state = super().start(federation)
        holders = [party for party in federation.everyone() if len(columns_of(federation, int(party)))]
        if len(self.cut) not in (1, len(holders)):
            raise ConfigError(f"algorithm.cut has {len(self.cut)} widths for {len(holders)} parties with columns",
                              remedy="give one width, or one per party")
        if self.combine != "concatenate" and len(set(self.cut)) > 1:
            raise ConfigError(f"activations of different widths cannot be joined by '{self.combine}'",
                              remedy="set algorithm.combine = 'concatenate'")
        if self.protection == "marvell" and len(federation.schema.target.names) != 2:
            raise ConfigError("the protection 'marvell' is for two classes",
                              remedy="set algorithm.protection = 'max-norm' or 'isotropic'")
        return state

    def prepare(self, talk: Conversation, state: State) -> State:
        """Every party builds its own layers; nobody sends any."""
        roles, federation = talk.roles, talk.federation
        having = [party for party in roles.holders if len(columns_of(federation, party))]
        cuts = self.cut if len(self.cut) > 1 else self.cut * len(having)
        widths = dict.fromkeys(roles.holders, 0) | dict(zip(having, cuts, strict=True))
        each: dict[int, Payload] = {party: {"cut": width} for party, width in widths.items()}
        each[roles.label_holder]["joined"] = sum(cuts) if self.combine == "concatenate" else max(cuts)
        talk.ask(roles.holders, build, each=each, settings=BuildSettings(bottom=self.bottom, top=self.top))
        return state.next({**state.model, "cut": {federation.name(party): width for party, width in widths.items()}})

    def step(self, talk: Conversation, state: State) -> State:
        """All batches of the round."""
        others = talk.roles.others
        gradients: dict[int, Payload] = {}
        for number, positions in enumerate(self._batches(talk.federation, state.model["rows"]["train"])):
            asked: Payload = {"part": "train", "positions": positions, "step": number, "first": number == 0}
            each = {party: {**asked, **gradients.get(party, {})} for party in others}
            sent = self._activations(talk, state, step, each)
            learnt = talk.ask_one(talk.roles.label_holder, learn_top, {**asked, "activations": sent},
                                  settings=self._settings())
            if shapes_of(learnt["gradients"]) != shapes_of(sent):
                talk.refuse(learn_top, talk.roles.label_holder, "it sent gradients that do not fit the activations")
            gradients = {party: {"gradient": learnt["gradients"][str(party)]} for party in others}
        if others:
            talk.ask(others, step, each=gradients, settings=self._settings())
        return state

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Activations of the rows asked about go to the label holder, which keeps the outputs of the top."""
        sent = self._activations(talk, state, activate, {party: request[party] for party in talk.roles.others})
        holder = talk.roles.label_holder
        talk.ask_one(holder, score, {**request[holder], "activations": sent}, settings=self._settings())

    @classmethod
    def tasks_of_prediction(cls) -> tuple[AnyTask, ...]:
        """Activations, and the top on them."""
        return (*super().tasks_of_prediction(), activate, score)

    def _activations(self, talk: Conversation, state: State, task: Task[SplitSettings, Activations],
                     each: Mapping[int, RowRequest | Payload]) -> dict[str, Matrix]:
        """The activations of all parties without labels, by their numbers; those of a wrong shape are refused."""
        if not each:
            return {}
        replies = talk.ask(each, task, each=each, settings=self._settings())
        for reply in replies:
            if "activations" not in reply.payload:
                talk.refuse(task, reply.party, "it sent no activations")
            width, shape = state.model["cut"][talk.federation.name(reply.party)], reply.payload["activations"].shape
            asked = each[reply.party]
            rows = len(asked["positions"]) if "positions" in asked else len(replies[0].payload["activations"])
            if shape != (rows, width):
                talk.refuse(task, reply.party, f"it sent activations of shape {shape}, and not {(rows, width)}")
        return {str(reply.party): reply.payload["activations"] for reply in replies}

    def _batches(self, federation: Federation, rows: int) -> list[NDArray[np.int64]]:
        size = batch_rows(rows, self.local)
        return [order[start:start + size] for order in row_orders(rows, self.local, federation.rng("batches"))
                for start in range(0, len(order), size)]

    def _settings(self) -> SplitSettings:
        return SplitSettings(activation=self.activation, combine=self.combine, local=self.local,
                             activation_noise=self.activation_noise, protection=self.protection,
                             protection_strength=self.protection_strength)


class PendingBatch(TypedDict, total=False):
    """The batch whose gradients are still to come."""

    positions: NDArray[np.int64]


class Widths(TypedDict):
    """Width of the party's cut layer and, at the label holder, of the joined ones."""

    cut: int
    joined: NotRequired[int]


class OwnColumns(TypedDict):
    """How many columns, as numbers, the party has."""

    columns: Count


@task("split-nn.build", settings=BuildSettings, reply=OwnColumns, reveals=Reveals.NOTHING)
def build(party: Party, payload: Widths, settings: BuildSettings) -> OwnColumns:
    """Fresh layers: a bottom where the party has columns, the top where `joined` says how wide its input is."""
    inputs = design(party, asked_rows(party, {"part": "train"})).shape[1]
    if inputs:
        widths = (inputs, *settings.bottom, payload["cut"])
        party.keep(Bottom, {"layers": fresh_stack(widths, party.rng("bottom")), "optimizer": {}})
    if "joined" in payload:
        widths = (payload["joined"], *settings.top, outputs_for(party.rows.schema.target))
        party.keep(Top, {"layers": fresh_stack(widths, party.rng("top")), "optimizer": {}})
    return {"columns": inputs}


class Batch(RowRequest, total=False):
    """A batch, whether it is the first of its round, and the gradients of the one before."""

    first: bool
    gradient: Matrix


class Activations(TypedDict):
    """Outputs of a party's bottom; none at the end of a round."""

    activations: NotRequired[Matrix]


@task("split-nn.step", settings=SplitSettings, reply=Activations, reveals=Reveals.SCORES)
def step(party: Party, payload: Batch, settings: SplitSettings) -> Activations:
    """At a party without labels: go down the gradient of the batch before, and send activations of the next."""
    if payload.get("first"):
        _begin_round(party, settings)
    if "gradient" in payload:
        pending = party.recall(PendingBatch)["positions"]
        rows = design(party, asked_rows(party, {"part": "train", "positions": pending}))
        passed = forward(party.recall(Bottom)["layers"], rows, settings.activation)
        if payload["gradient"].shape != passed.output.shape:
            raise DataError(f"party '{party.name}' got gradients of shape {payload['gradient'].shape} for activations "
                            f"of shape {passed.output.shape}", remedy="both sides need the same settings")
        _descend(party, passed, payload["gradient"], settings)
    if "positions" not in payload:
        party.forget(PendingBatch)
        return {}
    party.keep(PendingBatch, {"positions": payload["positions"]})
    return {"activations": _activations(party, payload, settings)}


@task("split-nn.activate", settings=SplitSettings, reply=Activations, reveals=Reveals.SCORES)
def activate(party: Party, payload: RowRequest, settings: SplitSettings) -> Activations:
    """Activations of the rows asked about, where nothing is learnt from them."""
    return {"activations": _activations(party, payload, settings)}


class TopRequest(RowRequest, total=False):
    """Rows with the activations of the other parties, by the number of the party."""

    first: bool
    activations: dict[str, Matrix]


class Learnt(TypedDict):
    """The gradients of the others' activations, by the number of the party, and the mean loss of the round so far."""

    gradients: dict[str, Matrix]
    rows: Count
    loss: float


@task("split-nn.top", settings=SplitSettings, reply=Learnt, reveals=Reveals.SCORES)
def learn_top(party: Party, payload: TopRequest, settings: SplitSettings) -> Learnt:
    """At the label holder: one step of the top (and of its own bottom), and the gradients of all activations."""
    if payload["first"]:
        _begin_round(party, settings)
        party.keep(Top, {"loss_sum": 0.0, "rows_seen": 0})
        if settings.local.optimizer_memory == "fresh":
            party.keep(Top, {"optimizer": {}})
    rows, kept, local = asked_rows(party, payload), party.recall(Top), settings.local
    own = _own_pass(party, rows, settings)
    blocks = _blocks(party, payload, own)
    passed = forward(kept["layers"], _joined(blocks, settings.combine), settings.activation)
    kind = loss_for(rows.schema.target, passed.output.shape[1])
    loss, delta = loss_and_delta(kind, passed.output, target_array(kind, rows.target))
    gradients, back = backward(kept["layers"], passed, delta, settings.activation)
    layers, memory = stepped(kept["layers"], gradients, kept["optimizer"], local, local.rate(party.round))
    shares = _shares(blocks, back, settings.combine)
    if own is not None:
        _descend(party, own, shares.pop(str(party.index)), settings)
    loss_sum, rows_seen = kept["loss_sum"] + loss * len(rows), kept["rows_seen"] + len(rows)
    party.keep(Top, {"layers": layers, "optimizer": memory, "loss_sum": loss_sum, "rows_seen": rows_seen})
    return {"gradients": _guarded(party, payload, shares, rows, settings), "rows": rows_seen,
            "loss": loss_sum / rows_seen}


@task("split-nn.score", settings=SplitSettings, reply=Done, reveals=Reveals.NOTHING)
def score(party: Party, payload: TopRequest, settings: SplitSettings) -> Done:
    """At the label holder: keep the scores of the rows asked about."""
    rows = asked_rows(party, payload)
    blocks = _blocks(party, payload, _own_pass(party, rows, settings))
    joined = _joined(blocks, settings.combine)
    outputs = forward(party.recall(Top)["layers"], joined, settings.activation).output
    target = party.rows.schema.target
    party.keep(KeptScores, {"scores": scores_of_outputs(loss_for(target, outputs.shape[1]), outputs, target)})
    return {}


def _begin_round(party: Party, settings: SplitSettings) -> None:
    if settings.local.optimizer_memory == "fresh":
        party.keep(Bottom, {"optimizer": {}})


def _activations(party: Party, request: RowRequest, settings: SplitSettings) -> Matrix:
    rows = design(party, asked_rows(party, request))
    output = forward(party.recall(Bottom)["layers"], rows, settings.activation).output
    if not settings.activation_noise:
        return output
    rng = party.rng(f"activations {request.get('step', 'asked')}")
    return output + np.float32(settings.activation_noise) * rng.standard_normal(output.shape, dtype=np.float32)


def _own_pass(party: Party, rows: Dataset, settings: SplitSettings) -> Passed | None:
    bottom = party.recall(Bottom).get("layers")
    return None if bottom is None else forward(bottom, design(party, rows), settings.activation)


def _descend(party: Party, passed: Passed, delta: Matrix, settings: SplitSettings) -> None:
    kept, local = party.recall(Bottom), settings.local
    gradients, _ = backward(kept["layers"], passed, delta, settings.activation)
    layers, memory = stepped(kept["layers"], gradients, kept["optimizer"], local, local.rate(party.round))
    party.keep(Bottom, {"layers": layers, "optimizer": memory})


def _blocks(party: Party, payload: TopRequest, own: Passed | None) -> dict[str, Matrix]:
    """Activations by the number of their party, in party order."""
    blocks = dict(payload["activations"])
    if own is not None:
        blocks[str(party.index)] = own.output
    if len({len(block) for block in blocks.values()}) > 1:
        raise DataError("the parties sent activations of different numbers of rows", remedy="align the parties again")
    return {name: blocks[name] for name in sorted(blocks, key=int)}


def _joined(blocks: dict[str, Matrix], combine: Combination) -> Matrix:
    if combine == "concatenate":
        return np.concatenate(list(blocks.values()), axis=1)
    total: Matrix = np.sum(list(blocks.values()), axis=0, dtype=np.float32)
    return total if combine == "sum" else total / np.float32(len(blocks))


def _shares(blocks: dict[str, Matrix], back: Matrix, combine: Combination) -> dict[str, Matrix]:
    """The gradient of each party's activations, from that of the joined ones."""
    if combine == "concatenate":
        ends = np.cumsum([block.shape[1] for block in blocks.values()])[:-1]
        return dict(zip(blocks, np.split(back, ends, axis=1), strict=True))
    return dict.fromkeys(blocks, back if combine == "sum" else back / np.float32(len(blocks)))


def _guarded(party: Party, payload: TopRequest, shares: dict[str, Matrix], rows: Dataset,
             settings: SplitSettings) -> dict[str, Matrix]:
    """The gradients as they may leave the label holder."""
    if settings.protection == "none":
        return {name: np.ascontiguousarray(share) for name, share in shares.items()}
    positive = rows.target == 1 if rows.schema.target.kind == "classes" else np.zeros(len(rows), dtype=bool)
    rng = party.rng(f"label protection {payload['step']}")
    return {name: protected(share, positive, settings.protection, settings.protection_strength, rng)
            for name, share in shares.items()}


_ACTIVATIONS = "outputs of a bottom, row by row: a transformation of the columns below it"
_GRADIENT = "how the loss changes with the own activations, row by row: may reveal labels, see `protection`"
describe(build, cut="width of the cut layer", joined="width of the top's input",
         columns="how many columns the party has")
describe(step, first="whether a round begins", gradient=_GRADIENT, activations=_ACTIVATIONS)
describe(activate, activations=_ACTIVATIONS)
describe(learn_top, first="whether a round begins", activations=_ACTIVATIONS, gradients=_GRADIENT,
         loss="mean loss of the round so far", rows="how many rows that loss is of")
describe(score, activations=_ACTIVATIONS)
