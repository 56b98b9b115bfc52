"""What the parties of a split network do: bottoms at the parties with columns, the top at the label holder.

A party's state holds `bottom`, the label holder's `top` too; `pending` is the batch whose gradients are still to come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.meaning import tells
from tequio.algorithms.vertical.rows import asked_rows, design
from tequio.errors import DataError
from tequio.federation.task import task
from tequio.learners.dense import backward, forward, fresh_stack, loss_and_delta, scores_of_outputs, stepped
from tequio.learners.losses import loss_for, outputs_for, target_array
from tequio.privacy.label_protection import protected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.dense import Passed
    from tequio.learners.learner import Arrays

    Settings = Mapping[str, Any]
    Matrix = NDArray[np.float32]


@task("split-nn.build")
def build(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Fresh layers: a bottom where the party has columns, the top where `joined` says how wide its input is."""
    inputs = design(party, asked_rows(party, {"part": "train"})).shape[1]
    if inputs:
        widths = (inputs, *settings["bottom"], payload["cut"])
        party.state["bottom"] = fresh_stack(widths, party.rng("bottom"))
    if "joined" in payload:
        outputs = outputs_for(party.rows.schema.target)
        party.state["top"] = fresh_stack((payload["joined"], *settings["top"], outputs), party.rng("top"))
    return {"columns": inputs}


@task("split-nn.step")
def step(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At a party without labels: go down the gradient of the batch before, and send activations of the next."""
    if payload.get("first"):
        party.state["optimizer"] = {}
    if "gradient" in payload:
        rows = design(party, asked_rows(party, {"part": "train", "positions": party.state["pending"]}))
        passed = forward(party.state["bottom"], rows, settings["activation"])
        if payload["gradient"].shape != passed.output.shape:
            raise DataError(f"party '{party.name}' got gradients of shape {payload['gradient'].shape} for activations "
                            f"of shape {passed.output.shape}", remedy="both sides need the same settings")
        _descend(party, passed, payload["gradient"], settings)
    if "positions" not in payload:
        party.state.pop("pending", None)
        return {}
    party.state["pending"] = payload["positions"]
    return {"activations": _activations(party, payload, settings, settings["activation_noise"])}


@task("split-nn.activate")
def activate(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Activations of the rows asked about, where nothing is learnt from them."""
    return {"activations": _activations(party, payload, settings, settings["activation_noise"])}


@task("split-nn.top")
def learn_top(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: one step of the top (and of its own bottom), and the gradients of all activations.

    The loss is the mean over the round so far.
    """
    if payload["first"]:
        party.state |= {"optimizer": {}, "top optimizer": {}, "loss sum": 0.0, "rows seen": 0}
    rows = asked_rows(party, payload)
    own = _own_pass(party, rows, settings)
    blocks = _blocks(party, payload, own)
    joined = _joined(blocks, settings["combine"])
    passed = forward(party.state["top"], joined, settings["activation"])
    kind = loss_for(rows.schema.target, passed.output.shape[1])
    loss, delta = loss_and_delta(kind, passed.output, target_array(kind, rows.target))
    gradients, back = backward(party.state["top"], passed, delta, settings["activation"])
    local = settings["local"]
    party.state["top"], party.state["top optimizer"] = stepped(
        party.state["top"], gradients, party.state["top optimizer"], local, local.rate(party.round))
    shares = _shares(blocks, back, settings["combine"])
    if own is not None:
        _descend(party, own, shares.pop(str(party.index)), settings)
    party.state["loss sum"] += loss * len(rows)
    party.state["rows seen"] += len(rows)
    return {"gradients": _guarded(party, payload, shares, rows, settings), "rows": party.state["rows seen"],
            "loss": party.state["loss sum"] / party.state["rows seen"]}


@task("split-nn.score")
def score(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: keep the scores of the rows asked about."""
    rows = asked_rows(party, payload)
    blocks = _blocks(party, payload, _own_pass(party, rows, settings))
    outputs = forward(party.state["top"], _joined(blocks, settings["combine"]), settings["activation"]).output
    target = party.rows.schema.target
    party.state["scores"] = scores_of_outputs(loss_for(target, outputs.shape[1]), outputs, target)
    return {}


def _activations(party: Party, payload: Payload, settings: Settings, noise: float) -> Matrix:
    output = forward(party.state["bottom"], design(party, asked_rows(party, payload)), settings["activation"]).output
    if not noise:
        return output
    return output + np.float32(noise) * party.rng(f"activations {payload.get('step', 'asked')}").standard_normal(
        output.shape, dtype=np.float32)


def _own_pass(party: Party, rows: Dataset, settings: Settings) -> Passed | None:
    bottom = party.state.get("bottom")
    return None if bottom is None else forward(bottom, design(party, rows), settings["activation"])


def _descend(party: Party, passed: Passed, delta: NDArray[Any], settings: Settings) -> None:
    local = settings["local"]
    gradients, _ = backward(party.state["bottom"], passed, delta, settings["activation"])
    party.state["bottom"], party.state["optimizer"] = stepped(
        party.state["bottom"], gradients, party.state["optimizer"], local, local.rate(party.round))


def _blocks(party: Party, payload: Payload, own: Passed | None) -> dict[str, Matrix]:
    """Activations by the number of their party, in party order."""
    blocks = dict(payload["activations"])
    if own is not None:
        blocks[str(party.index)] = own.output
    if len({len(block) for block in blocks.values()}) > 1:
        raise DataError("the parties sent activations of different numbers of rows", remedy="align the parties anew")
    return {name: blocks[name] for name in sorted(blocks, key=int)}


def _joined(blocks: dict[str, Matrix], how: str) -> Matrix:
    if how == "concatenate":
        return np.concatenate(list(blocks.values()), axis=1)
    total: Matrix = np.sum(list(blocks.values()), axis=0, dtype=np.float32)
    return total if how == "sum" else total / np.float32(len(blocks))


def _shares(blocks: dict[str, Matrix], back: Matrix, how: str) -> dict[str, Matrix]:
    """The gradient of each party's activations, from that of the joined ones."""
    if how == "concatenate":
        ends = np.cumsum([block.shape[1] for block in blocks.values()])[:-1]
        return dict(zip(blocks, np.split(back, ends, axis=1), strict=True))
    return dict.fromkeys(blocks, back if how == "sum" else back / np.float32(len(blocks)))


def _guarded(party: Party, payload: Payload, shares: Arrays, rows: Dataset, settings: Settings) -> Arrays:
    """The gradients as they may leave the label holder."""
    how = settings["protection"]
    if how == "none":
        return {name: np.ascontiguousarray(share) for name, share in shares.items()}
    positive = rows.target == 1 if rows.schema.target.kind == "classes" else np.zeros(len(rows), dtype=bool)
    rng = party.rng(f"label protection {payload['step']}")
    return {name: protected(share, positive, how, settings["protection_strength"], rng)
            for name, share in shares.items()}


_ACTIVATIONS = "outputs of a bottom, row by row: a transformation of the columns below it"
_GRADIENT = "how the loss changes with the own activations, row by row: may tell labels, see `protection`"
tells(build, cut="width of the cut layer", joined="width of the top's input", columns="how many columns the party has")
tells(step, first="whether a round begins", gradient=_GRADIENT, activations=_ACTIVATIONS)
tells(activate, activations=_ACTIVATIONS)
tells(learn_top, first="whether a round begins", activations=_ACTIVATIONS, gradients=_GRADIENT,
      loss="mean loss of the round so far", rows="how many rows that loss is of")
tells(score, activations=_ACTIVATIONS)
