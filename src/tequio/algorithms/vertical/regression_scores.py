"""What the parties of an encrypted regression do to tell its loss and to predict: the label holder learns both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.quadratic import NOT_CALIBRATED, calibrated, constants, logistic_loss, predictions
from tequio.algorithms.vertical.regression_tasks import columns, drawing, key_of, wanted
from tequio.algorithms.vertical.rows import asked_rows
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]


@task("regression.loss part")
def loss_part(party: Party, payload: Payload, settings: Settings) -> Payload:
    """This party's part of the scores times the residuals of half the curve, summed over the rows, encrypted."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    residuals = public.receive(payload["residual"], "the coordinator")
    part = columns(party, asked_rows(party, payload)) @ party.state["weights"]
    product = public.product(residuals, part[:, None], draw, public.values)
    return {"loss": public.send(product, draw)}


@task("regression.hide loss")
def hide_loss(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: put pads on the sum of the parts and, where there is a mask, on the constants that count."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    known = constants(settings["kind"], wanted(party, asked_rows(party, payload), settings))
    hidden = {"sum": public.receive(payload["loss"], "the coordinator")}
    if "mask" in payload:
        mask = public.receive(payload["mask"], "the coordinator")
        hidden["constants"] = public.product(mask, known[:, None], draw, public.values)
    sent, pads = {}, {}
    for name, given in hidden.items():
        covered, pads[name] = public.hide(given, draw)
        sent[name] = public.send(covered, draw)
    party.state["loss pads"] = pads
    return {"hidden": sent}


@task("regression.loss")
def loss(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the mean loss of the rows, in the units of the target. It is no secret."""
    public, pads = key_of(party, settings), party.state.pop("loss pads")
    found = {name: float(public.reveal(payload["opened"][name], pads[name])[0]) for name in pads}
    rows = wanted(party, asked_rows(party, payload), settings)
    constant = found.get("constants", float(constants(settings["kind"], rows).sum()))
    return {"loss": (found["sum"] + constant) / len(rows) * party.state["target"]["deviation"] ** 2}


@task("regression.part of scores")
def part_of_scores(party: Party, payload: Payload, settings: Settings) -> Payload:
    """This party's part of the scores of the rows asked about, encrypted."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    part = columns(party, asked_rows(party, payload)) @ party.state["weights"]
    return {"scores": public.send(public.encrypt_for_sums(part, draw, settings["parties"]), draw)}


@task("regression.hide scores")
def hide_scores(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: put pads on the scores, which the key holder opens but may not see."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    hidden, pad = public.hide(public.receive(payload["scores"], "the coordinator"), draw)
    party.state["score pads"] = pad
    return {"hidden": public.send(hidden, draw)}


@task("regression.is calibrated")
def is_calibrated(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: whether its calibration is that of the present weights."""
    return {"calibrated": party.state.get("calibrated in", -1) == party.round}


@task("regression.calibrate")
def calibrate(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: what turns scores into log-odds, from those of rows whose labels it knows."""
    scores = key_of(party, settings).reveal(payload["opened"], party.state.pop("score pads"))
    party.state["calibration"] = calibrated(scores, wanted(party, asked_rows(party, payload), settings))
    party.state["calibrated in"] = party.round
    return {}


@task("regression.recentre")
def recentre(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: keep the present scores of the training rows, around which the loss is expanded anew."""
    party.state["centre"] = key_of(party, settings).reveal(payload["opened"], party.state.pop("score pads"))
    return {}


@task("regression.exact loss")
def exact_loss(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the mean logistic loss of rows whose scores it was told."""
    scores = key_of(party, settings).reveal(payload["opened"], party.state.pop("score pads"))
    return {"loss": logistic_loss(scores, wanted(party, asked_rows(party, payload), settings))}


@task("regression.keep scores")
def keep_scores(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the predictions of the rows asked about, kept for whoever may have them."""
    scores = key_of(party, settings).reveal(payload["opened"], party.state.pop("score pads"))
    found = predictions(settings["kind"], scores, party.state["target"],
                        party.state.get("calibration", NOT_CALIBRATED))
    party.state["scores"] = np.ascontiguousarray(found)
    return {}
