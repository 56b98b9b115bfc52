"""The encryption of an algorithm, and the label holder's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.algorithms.vertical.trees.sums import in_the_clear
from tequio.components import build, name_of
from tequio.errors import ConfigError
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

_EXACT = ("paillier", "plain")


def made_encryption(given: str | dict[str, Any]) -> Any:
    """The scheme that a config names; sums have to be exact, or trees would differ from run to run."""
    table = {"name": given} if isinstance(given, str) else dict(given)
    scheme = build("encryption", table.pop("name", "paillier"), table, where="algorithm.encryption")
    if name_of(type(scheme)) not in _EXACT:
        raise ConfigError(f"trees need exact sums, and the encryption '{name_of(type(scheme))}' rounds them",
                          remedy="set algorithm.encryption = 'paillier' (or 'plain', without encryption)")
    return scheme


@task("vertical trees: make keys")
def make_keys(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """At the label holder: a new key pair, of which the secret part never leaves."""
    if not in_the_clear(settings):
        from tequio.privacy.encryption.randomness import source

        scheme = settings["encryption"]
        secret = scheme.generate(source(scheme.randomness, party.rng("keys")))
        party.state["key"] = secret.to_payload()
    return {}
