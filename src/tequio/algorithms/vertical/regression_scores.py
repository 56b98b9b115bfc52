"""What the parties of an encrypted regression do to work out its loss and to predict: the label holder learns both."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.quadratic import (
    NOT_CALIBRATED,
    calibrated,
    constants,
    in_units,
    one_against_rest,
    predictions,
    whole_loss,
)
from tequio.algorithms.vertical.regression_tasks import (
    HIDDEN,
    MASK,
    OPENED,
    EncryptedRequest,
    Hidden,
    KeptByLabels,
    KeySettings,
    OwnWeights,
    SecretSettings,
    changed,
    columns,
    drawing,
    key_of,
    of_class,
    under_pad,
    wanted,
)
from tequio.algorithms.vertical.rows import KeptScores, RowRequest, asked_rows
from tequio.federation.payload import Payload
from tequio.federation.task import Done, NoSettings, Reveals, record, task

if TYPE_CHECKING:
    from tequio.federation.population import Party

    Floats = NDArray[np.float64]


@record
class ScoreSettings(SecretSettings):
    """How many parties' parts are added up."""

    parties: int


class LossPads(TypedDict, total=False):
    """The pads on the sums that make the loss, until they have been opened."""

    pads: dict[str, Payload]


class ScorePad(TypedDict, total=False):
    """The pad on scores, until they have been opened."""

    pad: Payload


class ClassScores(TypedDict, total=False):
    """Of several classes, the probabilities of those that were worked out, each against the rest."""

    positive: list[NDArray[np.float64]]


class EncryptedLoss(TypedDict):
    """A party's part of the loss, encrypted."""

    loss: Payload


@task("regression.loss part", settings=SecretSettings, reply=EncryptedLoss, reveals=Reveals.NOTHING)
def loss_part(party: Party, payload: EncryptedRequest, settings: SecretSettings) -> EncryptedLoss:
    """This party's part of the scores times the residuals of half the curve, summed over the rows, encrypted."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    residuals = public.receive(payload["residual"], "the coordinator")
    product = public.product(residuals, _part_of_scores(party, payload, settings)[:, None], draw, public.values)
    return {"loss": public.send(product, draw)}


@task("regression.hide loss", settings=SecretSettings, reply=Hidden, reveals=Reveals.NOTHING)
def hide_loss(party: Party, payload: EncryptedRequest, settings: SecretSettings) -> Hidden:
    """At the label holder: put pads on the sum of the parts and, where there is a mask, on the constants that count."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    known = constants(settings.kind, wanted(party, asked_rows(party, payload), settings))
    to_hide = {"sum": public.receive(payload["loss"], "the coordinator")}
    if "mask" in payload:
        mask = public.receive(payload["mask"], "the coordinator")
        to_hide["constants"] = public.product(mask, known[:, None], draw, public.values)
    sent, pads = {}, {}
    for name, given in to_hide.items():
        sent[name], pads[name] = under_pad(party, public, given, draw)
    party.keep(LossPads, {"pads": pads})
    return {"hidden": sent}


class OpenedLoss(RowRequest, total=False):
    """What the key holder opened of the loss of the rows asked about."""

    opened: dict[str, Payload]


class MeanLoss(TypedDict):
    """The mean loss over rows, in clear."""

    loss: float


@task("regression.loss", settings=KeySettings, reply=MeanLoss, reveals=Reveals.METRICS)
def loss(party: Party, payload: OpenedLoss, settings: KeySettings) -> MeanLoss:
    """At the label holder: the mean loss of the rows, in the units of the target. It is no secret."""
    public, pads = key_of(party, settings), party.recall(LossPads)["pads"]
    found = {name: float(public.reveal(payload["opened"][name], pad)[0]) for name, pad in pads.items()}
    party.forget(LossPads)
    rows = wanted(party, asked_rows(party, payload), settings)
    constant = found.get("constants", float(constants(settings.kind, rows).sum()))
    scale = party.recall(KeptByLabels)["target"]
    return {"loss": in_units(settings.kind, (found["sum"] + constant) / len(rows), rows, scale)}


class ScoreParts(TypedDict):
    """A party's part of the scores, encrypted."""

    scores: Payload


@task("regression.part of scores", settings=ScoreSettings, reply=ScoreParts, reveals=Reveals.NOTHING)
def part_of_scores(party: Party, payload: RowRequest, settings: ScoreSettings) -> ScoreParts:
    """This party's part of the scores of the rows asked about, encrypted."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    part = public.encrypt_for_sums(_part_of_scores(party, payload, settings), draw, settings.parties)
    return {"scores": public.send(part, draw)}


class HiddenScores(TypedDict):
    """Encrypted scores under the label holder's pad."""

    hidden: Payload


@task("regression.hide scores", settings=SecretSettings, reply=HiddenScores, reveals=Reveals.NOTHING)
def hide_scores(party: Party, payload: EncryptedRequest, settings: SecretSettings) -> HiddenScores:
    """At the label holder: put pads on the scores, which the key holder opens but may not see."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    signed, pad = under_pad(party, public, public.receive(payload["scores"], "the coordinator"), draw)
    party.keep(ScorePad, {"pad": pad})
    return {"hidden": signed}


class IsCalibrated(TypedDict):
    """Whether the calibration is up to date."""

    calibrated: bool


@task("regression.is calibrated", settings=NoSettings, reply=IsCalibrated, reveals=Reveals.NOTHING)
def is_calibrated(party: Party, payload: Payload, settings: NoSettings) -> IsCalibrated:
    """At the label holder: whether its calibration is that of the present weights."""
    return {"calibrated": party.recall(KeptByLabels).get("calibrated_in", -1) == party.round}


class OpenedScores(RowRequest, total=False):
    """Scores of the rows asked about, under the label holder's pad."""

    opened: Payload


@task("regression.calibrate", settings=KeySettings, reply=Done, reveals=Reveals.NOTHING)
def calibrate(party: Party, payload: OpenedScores, settings: KeySettings) -> Done:
    """At the label holder: what turns scores into log-odds, from those of rows whose labels it knows."""
    scores, kept = _revealed(party, payload, settings), party.recall(KeptByLabels)
    found = calibrated(settings.kind, scores, wanted(party, asked_rows(party, payload), settings))
    party.keep(KeptByLabels, {"calibration": changed(settings, kept.get("calibration", {}), found)})
    if settings.label == settings.classes - 1:
        party.keep(KeptByLabels, {"calibrated_in": party.round})
    return {}


@task("regression.recentre", settings=KeySettings, reply=Done, reveals=Reveals.NOTHING)
def recentre(party: Party, payload: OpenedScores, settings: KeySettings) -> Done:
    """At the label holder: keep the present scores of the training rows, around which the loss is expanded next."""
    scores, kept = _revealed(party, payload, settings), party.recall(KeptByLabels)
    party.keep(KeptByLabels, {"centre": changed(settings, kept.get("centre", {}), scores)})
    return {}


@task("regression.exact loss", settings=KeySettings, reply=MeanLoss, reveals=Reveals.METRICS)
def exact_loss(party: Party, payload: OpenedScores, settings: KeySettings) -> MeanLoss:
    """At the label holder: the mean loss, not cut, of rows whose scores were opened for it."""
    scores, rows = _revealed(party, payload, settings), wanted(party, asked_rows(party, payload), settings)
    return {"loss": in_units(settings.kind, whole_loss(settings.kind, scores, rows), rows,
                             party.recall(KeptByLabels)["target"])}


@task("regression.keep scores", settings=KeySettings, reply=Done, reveals=Reveals.NOTHING)
def keep_scores(party: Party, payload: OpenedScores, settings: KeySettings) -> Done:
    """At the label holder: the predictions of the rows asked about, kept until they are tallied or handed out. Of
    several classes, those of each wait for the last one."""
    scores, kept = _revealed(party, payload, settings), party.recall(KeptByLabels)
    calibration = of_class(settings, kept["calibration"]) if "calibration" in kept else NOT_CALIBRATED
    found = predictions(settings.kind, scores, kept["target"], calibration)
    if settings.classes > 1:
        waiting = [*(party.recall(ClassScores)["positive"] if settings.label else ()), found[:, 1]]
        party.keep(ClassScores, {"positive": waiting})
        if settings.label < settings.classes - 1:
            return {}
        party.forget(ClassScores)
        found = one_against_rest(waiting)
    party.keep(KeptScores, {"scores": np.ascontiguousarray(found)})
    return {}


def _part_of_scores(party: Party, request: RowRequest, settings: KeySettings) -> Floats:
    weights = of_class(settings, party.recall(OwnWeights)["weights"])
    part: Floats = columns(party, asked_rows(party, request)) @ weights
    return part


def _revealed(party: Party, payload: OpenedScores, settings: KeySettings) -> Floats:
    """The scores that the key holder opened, without the pad, which is used once."""
    pad = party.recall(ScorePad)["pad"]
    party.forget(ScorePad)
    return np.asarray(key_of(party, settings).reveal(payload["opened"], pad), np.float64)


_LOSS = "a sum of losses, encrypted"
_MEAN_LOSS = "the mean loss over rows, in clear"
describe(loss_part, mask=MASK, residual="residuals of the rows, encrypted: nothing without the private key", loss=_LOSS)
describe(hide_loss, mask=MASK, loss=_LOSS, hidden=HIDDEN)
describe(loss, mask=MASK, opened=OPENED, loss=_MEAN_LOSS)
describe(part_of_scores, scores="a party's part of the scores, encrypted")
describe(hide_scores, scores="scores, encrypted", hidden=HIDDEN)
describe(is_calibrated, calibrated="whether the calibration is up to date")
describe(calibrate, opened=OPENED)
describe(keep_scores, opened=OPENED)
describe(recentre, opened=OPENED)
describe(exact_loss, opened=OPENED, loss=_MEAN_LOSS)
