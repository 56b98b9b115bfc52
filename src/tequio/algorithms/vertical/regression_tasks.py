"""What the parties of an encrypted regression do in training; `regression.py` says who may see what.

A party keeps the public key, its weights (the label holder's begin with the intercept), and between two tasks of a
batch the pad that hides its gradient. The key holder keeps the secret key and nothing else. Ciphertexts reveal nothing;
what was opened reveals something only to the party whose pad is on it. That party signs what it has put its pad on, and
the key holder opens nothing else: a coordinator that passes on a party's own ciphertext reads nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.quadratic import (
    Calibration,
    Kind,
    TargetScale,
    expanded,
    signs,
    target_scale,
)
from tequio.algorithms.vertical.rows import RowRequest, asked_rows, common_rows, design
from tequio.errors import EncryptionError, PermissionDenied
from tequio.federation.payload import Payload
from tequio.federation.task import Done, Reveals, record, task
from tequio.learners.dense import Memory, stepped
from tequio.learners.learner import LocalTraining
from tequio.privacy.aggregation.encodings import content
from tequio.privacy.aggregation.identities import check_signed, signed_by
from tequio.privacy.encryption.numbers import FixedPoint, source
from tequio.privacy.encryption.scheme import Scheme

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.federation.population import Party
    from tequio.privacy.encryption.numbers import Source
    from tequio.privacy.encryption.scheme import Encrypted, PublicKey

    Floats = NDArray[np.float64]

# Slopes of the logistic function are at most a quarter, and those of rates e^4.
_SLOPES: dict[Kind, FixedPoint] = {"logistic": FixedPoint(16, 0), "poisson": FixedPoint(16, 6)}

V = TypeVar("V")
ByClass = dict[str, V]
"""Of several classes, one value for each; otherwise values stand by themselves."""


@runtime_checkable
class Encryption(Scheme, Protocol):
    """An encryption, as settings hold it."""


@record
class KeySettings:
    """The encryption, which loss and, of several classes, which of them against all others."""

    scheme: Encryption
    kind: Kind
    classes: int = 1
    label: int = 0


@record
class SecretSettings(KeySettings):
    """What random bits are drawn for: their stream, where they come from one, is named by it."""

    purpose: str


@record
class ResidualSettings(SecretSettings):
    """The residual is `curve` times the score minus `pull` times the target; training is by mini-batches."""

    curve: float
    pull: float
    local: LocalTraining


class OwnWeights(TypedDict, total=False):
    """What a party keeps: the key, its weights, and the memory of its optimizer."""

    key: Payload
    weights: NDArray[np.float64] | ByClass[NDArray[np.float64]]
    optimizer: Memory | ByClass[Memory]


class GradientPad(TypedDict, total=False):
    """The pad on a party's part of the last gradient, until it has been opened."""

    pad: Payload


class KeptSecret(TypedDict, total=False):
    """What the key holder keeps: the key, and how many ciphertexts it has opened by it."""

    secret: Payload
    opened: int


class KeptByLabels(TypedDict, total=False):
    """What the label holder keeps beside its weights.

    The scale of its target, the scores that the loss is expanded around, and a calibration with the round that it was
    made in.
    """

    target: TargetScale
    centre: NDArray[np.float64] | ByClass[NDArray[np.float64]]
    calibration: Calibration | ByClass[Calibration]
    calibrated_in: int


class Key(TypedDict):
    """The public key."""

    key: Payload


class ToOpen(TypedDict):
    """How many ciphertexts are about to be opened, and the fingerprint of the key that the coordinator has."""

    openings: int
    has: str


@task("regression.make key", settings=KeySettings, reply=Key, reveals=Reveals.NOTHING)
def make_key(party: Party, payload: ToOpen, settings: KeySettings) -> Key:
    """At the key holder: the public part of a key that may open that many ciphertexts; a new one if need be.

    Nothing is sent where that is the key that the coordinator has.
    """
    kept, scheme = party.recall(KeptSecret), settings.scheme
    if kept and kept["opened"] + payload["openings"] <= scheme.openings:
        public = scheme.secret_key(kept["secret"]).public
        return {"key": {} if public.fingerprint == payload["has"] else public.to_payload()}
    secret = scheme.generate(source(scheme.randomness, party.rng("key")))
    party.keep(KeptSecret, {"secret": secret.to_payload(), "opened": 0})
    return {"key": secret.public.to_payload()}


@task("regression.take key", settings=KeySettings, reply=Done, reveals=Reveals.NOTHING)
def take_key(party: Party, payload: Key, settings: KeySettings) -> Done:
    """Check and keep the public key, and begin with weights of zero."""
    settings.scheme.public_key(payload["key"])
    rows = common_rows(party, "train")
    none, labels = np.zeros(columns(party, rows).shape[1]), [str(label) for label in range(settings.classes)]
    party.keep(OwnWeights, {"key": payload["key"], "weights": none, "optimizer": {}} if settings.classes < 2 else {
        "key": payload["key"], "weights": dict.fromkeys(labels, none), "optimizer": {label: {} for label in labels}})
    if holds_labels(party):
        party.keep(KeptByLabels, {"target": target_scale(settings.kind, rows.target)})
    return {}


@task("regression.change key", settings=KeySettings, reply=Done, reveals=Reveals.NOTHING)
def change_key(party: Party, payload: Key, settings: KeySettings) -> Done:
    """Check and keep another public key; weights stay."""
    settings.scheme.public_key(payload["key"])
    party.keep(OwnWeights, {"key": payload["key"]})
    return {}


class EncryptedRequest(RowRequest, total=False):
    """What is known under encryption of the rows asked about; the mask says which of them count."""

    mask: Payload
    residual: Payload
    scores: Payload
    loss: Payload


class ResidualRequest(EncryptedRequest, total=False):
    """The next batch, and what was opened of the one before, with its number of rows."""

    opened: Payload
    rows: int


class Residual(TypedDict):
    """A party's part of the residuals, or after the last batch a digest of its weights."""

    residual: NotRequired[Payload]
    weights: NotRequired[str]


@task("regression.residual", settings=ResidualSettings, reply=Residual, reveals=Reveals.NOTHING)
def residual(party: Party, payload: ResidualRequest, settings: ResidualSettings) -> Residual:
    """Go down by the last batch's gradient, if it has been opened; then this party's part of the residuals, encrypted.

    After the last batch there is nothing to encrypt: a digest of the weights, which reveals nothing, ends the round.
    """
    if "opened" in payload:
        _descend(party, payload["opened"], payload["rows"], settings)
    if payload.get("step") == 0 and settings.local.optimizer_memory == "fresh":
        party.keep(OwnWeights, {"optimizer": changed(settings, party.recall(OwnWeights)["optimizer"], Memory())})
    weights = of_class(settings, party.recall(OwnWeights)["weights"])
    if "part" not in payload:
        return {"weights": blake2b(weights.tobytes(), digest_size=8).hexdigest()}
    rows, public, draw = asked_rows(party, payload), key_of(party, settings), drawing(party, payload, settings)
    known = settings.curve * (columns(party, rows) @ weights)
    if holds_labels(party):
        known = known - settings.pull * wanted(party, rows, settings)
    return {"residual": public.send(_masked(payload, public, known, draw), draw)}


@task("regression.centred residual", settings=SecretSettings, reply=Residual, reveals=Reveals.NOTHING)
def centred_residual(party: Party, payload: EncryptedRequest, settings: SecretSettings) -> Residual:
    """At the label holder: residuals from encrypted scores, by the whole loss expanded around scores it knows."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    scores = public.receive(payload["scores"], "the coordinator")
    centres = of_class(settings, party.recall(KeptByLabels)["centre"])[payload["positions"]]
    slopes, offsets = expanded(settings.kind, centres, wanted(party, asked_rows(party, payload), settings))
    scaled = public.scale(scores, slopes, _SLOPES[settings.kind])
    offset = public.encrypt(offsets, draw, FixedPoint(scaled.fraction, public.values.whole))
    return {"residual": public.send(public.add(scaled, offset), draw)}


class HiddenGradient(TypedDict):
    """A party's part of the gradient, encrypted and under its pad."""

    gradient: Payload


@task("regression.gradient", settings=SecretSettings, reply=HiddenGradient, reveals=Reveals.NOTHING)
def gradient(party: Party, payload: EncryptedRequest, settings: SecretSettings) -> HiddenGradient:
    """This party's part of the gradient, still encrypted, under a random pad that only this party knows."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    residuals = public.receive(payload["residual"], "the coordinator")
    product = public.product(residuals, columns(party, asked_rows(party, payload)), draw)
    signed, pad = under_pad(party, public, product, draw)
    party.keep(GradientPad, {"pad": pad})
    return {"gradient": signed}


def under_pad(party: Party, public: PublicKey, given: Encrypted, draw: Source) -> tuple[Payload, Payload]:
    """Ciphertexts under a pad, signed by the party whose pad it is, and the pad."""
    hidden, pad = public.hide(given, draw)
    values = public.send(hidden, draw)
    signature = signed_by(party, pad_part(party, party.index, values))
    return {"values": values, "party": party.index, "signature": signature}, pad


def pad_part(party: Party, signer: int, values: Payload) -> bytes:
    """What a party signs under values that it has put its pad on."""
    return content("under pad", party.roster.agreed, signer, values["digest"])


class Hidden(TypedDict):
    """Encrypted values under pads, each signed by the party whose pad it is, by name."""

    hidden: dict[str, Payload]


class Opened(TypedDict):
    """What the key holder opened, still under the pads, by the same names."""

    opened: dict[str, Payload]


@task("regression.open", settings=KeySettings, reply=Opened, reveals=Reveals.NOTHING)
def open_hidden(party: Party, payload: Hidden, settings: KeySettings) -> Opened:
    """At the key holder: open what is asked for, if the party that it is for has signed that it is under its pad.

    Where what is opened says something about the key, it is counted, and the key opens no more than it may.
    """
    kept, most = party.recall(KeptSecret), settings.scheme.openings
    secret = settings.scheme.secret_key(kept["secret"])
    given = {}
    for name, part in payload["hidden"].items():
        given[name] = secret.public.receive(part["values"], f"party '{name}'")
        check_signed(party.roster, part["party"], part["signature"], pad_part(party, part["party"], part["values"]),
                     "values to be opened")
    opened = kept["opened"] + sum(len(part.content) for part in given.values())
    if 0 < most < opened:
        raise PermissionDenied(f"a key that may open {most} ciphertexts has opened {kept['opened']}, and was asked to "
                               f"open {opened - kept['opened']} more", remedy="set encryption.openings higher")
    party.keep(KeptSecret, {"opened": opened})
    return {"opened": {name: secret.open(part) for name, part in given.items()}}


def columns(party: Party, rows: Dataset) -> Floats:
    """The party's columns as numbers, at the label holder with one of ones in front, for the intercept."""
    numbers = design(party, rows)
    return np.insert(numbers, 0, 1.0, axis=1) if holds_labels(party) else numbers


def wanted(party: Party, rows: Dataset, settings: KeySettings) -> Floats:
    """At the label holder: the target as the loss wants it; of several classes, whether a row is of this one."""
    target = rows.target if settings.classes < 2 else rows.target == settings.label
    return signs(settings.kind, target, party.recall(KeptByLabels)["target"])


def of_class(settings: KeySettings, kept: V | ByClass[V]) -> V:
    """What a party keeps for the class that is asked about."""
    return cast("V", kept if settings.classes < 2 else cast("ByClass[V]", kept)[str(settings.label)])


def changed(settings: KeySettings, kept: V | ByClass[V], value: V) -> V | ByClass[V]:
    """The same with another value for that class."""
    return value if settings.classes < 2 else {**cast("ByClass[V]", kept), str(settings.label): value}


def holds_labels(party: Party) -> bool:
    """Whether this is the label holder."""
    return party.rows.schema.target.kind != "none"


def key_of(party: Party, settings: KeySettings) -> PublicKey:
    """The public key that the party was given."""
    return settings.scheme.public_key(party.recall(OwnWeights)["key"])


def drawing(party: Party, request: RowRequest, settings: SecretSettings) -> Source:
    """Random bits for one task: their stream, where they come from one, is that of the step and what it is for."""
    whose = "" if settings.classes < 2 else f" of class {settings.label}"
    return source(settings.scheme.randomness, party.rng(f"{settings.purpose} {request.get('step', 0)}{whose}"))


def _masked(request: ResidualRequest, public: PublicKey, known: Floats, draw: Source) -> Encrypted:
    """Encrypted; where an encrypted mask says which rows count, that mask times what is known: others count nothing."""
    if "mask" not in request:
        return public.encrypt(known, draw)
    return public.scale(public.receive(request["mask"], "the coordinator"), known, public.values)


def _descend(party: Party, opened: Payload, rows: int, settings: ResidualSettings) -> None:
    """One step of the optimizer on the mean gradient of the batch that was opened."""
    kept, local = party.recall(OwnWeights), settings.local
    pad = party.recall(GradientPad)
    if not pad:
        raise EncryptionError(f"party '{party.name}' was sent an opened gradient that it never asked for",
                              remedy="resume from the last checkpoint: tequio run --resume RUN")
    mean, weights = key_of(party, settings).reveal(opened, pad["pad"]) / rows, of_class(settings, kept["weights"])
    if len(mean) != len(weights):
        raise EncryptionError(f"party '{party.name}' was sent a gradient of {len(mean)} columns for {len(weights)}",
                              remedy="resume from the last checkpoint")
    before = of_class(settings, kept["optimizer"])
    new, memory = stepped({"weights": weights}, {"weights": mean}, before, local, local.rate(party.round))
    party.keep(OwnWeights, {"weights": changed(settings, kept["weights"], new["weights"]),
                            "optimizer": changed(settings, kept["optimizer"], memory)})
    party.forget(GradientPad)


_KEY = "the public key"
_RESIDUAL = "residuals of the batch, encrypted: nothing without the private key"
HIDDEN = "values encrypted and under a pad of the party that they are for: nothing"
OPENED = "decrypted values under the receiver's own pad: its part of a gradient, or scores at the label holder"
MASK = "which rows of the batch are common, encrypted: nothing without the private key"
describe(make_key, openings="how many ciphertexts are about to be opened", has="a fingerprint of the public key",
         key=_KEY)
describe(change_key, key=_KEY)
describe(take_key, key=_KEY)
describe(residual, mask=MASK, opened=OPENED, rows="how many rows the batch has", residual=_RESIDUAL,
         weights="a fingerprint of the own weights")
describe(centred_residual, scores="scores, encrypted", residual=_RESIDUAL)
describe(gradient, residual=_RESIDUAL, gradient=HIDDEN)
describe(open_hidden, hidden=HIDDEN,
         opened="decrypted values under pads of the parties that they are for: nothing but their number")
