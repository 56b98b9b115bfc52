"""What the parties of an encrypted regression do in training. Who may see what is told in `regression.py`.

A party's state holds the public `key`, its `weights` (the label holder's begin with the intercept), and between two
tasks of a batch the `pad` that hides its gradient. The key holder's state holds the `secret` key and nothing else.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.quadratic import expanded, signs, target_scale
from tequio.algorithms.vertical.rows import asked_rows, common_rows, design
from tequio.errors import EncryptionError
from tequio.federation.task import task
from tequio.learners.dense import stepped
from tequio.privacy.encryption.fixed_point import FixedPoint
from tequio.privacy.encryption.randomness import source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.randomness import Source
    from tequio.privacy.encryption.scheme import Encrypted, PublicKey

    Settings = Mapping[str, Any]
    Floats = NDArray[np.float64]

# Slopes of the logistic function are at most a quarter.
_SLOPES = FixedPoint(16, 0)


@task("regression.make key")
def make_key(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the key holder: a new pair of keys; the public part leaves."""
    scheme = settings["scheme"]
    secret = scheme.generate(source(scheme.randomness, party.rng("key")))
    party.state["secret"] = secret.to_payload()
    return {"key": secret.public.to_payload()}


@task("regression.take key")
def take_key(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Check and keep the public key, and begin with weights of zero."""
    settings["scheme"].public_key(payload["key"])
    party.state["key"] = payload["key"]
    rows = common_rows(party, "train")
    party.state["weights"] = np.zeros(columns(party, rows).shape[1])
    party.state["optimizer"] = {}
    if holds_labels(party):
        party.state["target"] = target_scale(settings["kind"], rows.target)
    return {}


@task("regression.residual")
def residual(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Go down by the last batch's gradient, if it has been opened; then this party's part of the residuals, encrypted.

    After the last batch there is nothing to encrypt: a digest of the weights, which tells nothing else, ends the round.
    """
    if "opened" in payload:
        _descend(party, payload, settings)
    if payload.get("step") == 0:
        party.state["optimizer"] = {}
    if "part" not in payload:
        return {"weights": blake2b(party.state["weights"].tobytes(), digest_size=8).hexdigest()}
    rows, public, draw = asked_rows(party, payload), key_of(party, settings), drawing(party, payload, settings)
    known = settings["curve"] * (columns(party, rows) @ party.state["weights"])
    if holds_labels(party):
        known = known - settings["pull"] * wanted(party, rows, settings)
    return {"residual": public.send(_masked(payload, public, known, draw), draw)}


@task("regression.centred residual")
def centred_residual(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: residuals from encrypted scores, by the logistic loss expanded around scores it knows."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    scores = public.receive(payload["scores"], "the coordinator")
    positions = payload["positions"]
    slopes, offsets = expanded(party.state["centre"][positions], wanted(party, asked_rows(party, payload), settings))
    scaled = public.scale(scores, slopes, _SLOPES)
    offset = public.encrypt(offsets, draw, FixedPoint(scaled.fraction, public.values.whole))
    return {"residual": public.send(public.add(scaled, offset), draw)}


@task("regression.gradient")
def gradient(party: Party, payload: Payload, settings: Settings) -> Payload:
    """This party's part of the gradient, still encrypted, under a random pad that only this party knows."""
    public, draw = key_of(party, settings), drawing(party, payload, settings)
    residuals = public.receive(payload["residual"], "the coordinator")
    product = public.product(residuals, columns(party, asked_rows(party, payload)), draw)
    hidden, pad = public.hide(product, draw)
    party.state["pad"] = pad
    return {"gradient": public.send(hidden, draw)}


@task("regression.open")
def open_hidden(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the key holder: open what is asked for. All of it is hidden under the pad of the party that it is for."""
    secret = settings["scheme"].secret_key(party.state["secret"])
    return {"opened": {name: secret.open(secret.public.receive(given, f"party '{name}'"))
                       for name, given in payload["hidden"].items()}}


def columns(party: Party, rows: Dataset) -> Floats:
    """The party's columns as numbers, at the label holder with one of ones in front, for the intercept."""
    numbers = design(party, rows)
    return np.insert(numbers, 0, 1.0, axis=1) if holds_labels(party) else numbers


def wanted(party: Party, rows: Dataset, settings: Settings) -> Floats:
    """At the label holder: the target as the loss wants it."""
    return signs(settings["kind"], rows.target, party.state["target"])


def holds_labels(party: Party) -> bool:
    """Whether this is the label holder."""
    return party.rows.schema.target.kind != "none"


def key_of(party: Party, settings: Settings) -> PublicKey:
    """The public key that the party was given."""
    public: PublicKey = settings["scheme"].public_key(party.state["key"])
    return public


def drawing(party: Party, payload: Payload, settings: Settings) -> Source:
    """Random bits for one task: their stream, where they come from one, is that of the step and what it is for."""
    return source(settings["scheme"].randomness, party.rng(f"{settings['purpose']} {payload.get('step', 0)}"))


def _masked(payload: Payload, public: PublicKey, known: Floats, draw: Source) -> Encrypted:
    """Encrypted; where an encrypted mask says which rows count, that mask times what is known: others count nothing."""
    if "mask" not in payload:
        return public.encrypt(known, draw)
    return public.scale(public.receive(payload["mask"], "the coordinator"), known, public.values)


def _descend(party: Party, payload: Payload, settings: Settings) -> None:
    """One step of the optimizer on the mean gradient of the batch that was opened."""
    if "pad" not in party.state:
        raise EncryptionError(f"party '{party.name}' was sent an opened gradient that it never asked for",
                              remedy="go on from the last checkpoint: tequio run --resume RUN")
    pad, local = party.state.pop("pad"), settings["local"]
    mean = key_of(party, settings).reveal(payload["opened"], pad) / payload["rows"]
    if len(mean) != len(party.state["weights"]):
        raise EncryptionError(f"party '{party.name}' was sent a gradient of {len(mean)} columns for "
                              f"{len(party.state['weights'])}", remedy="go on from the last checkpoint")
    new, memory = stepped({"weights": party.state["weights"]}, {"weights": mean}, party.state["optimizer"], local,
                          local.rate(party.round))
    party.state["weights"], party.state["optimizer"] = new["weights"], memory
