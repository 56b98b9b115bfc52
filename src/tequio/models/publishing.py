"""A model that a coordinator publishes carries its signature, by which members of the federation know it again.

The coordinator signs the model's hash with the key of its own certificate. Who has joined the federation holds the
certificate of its authority, and accepts a signature only from the certificate that it gave the coordinator.

At a party the published model works offline, with the party's own part put to it: what a party keeps for itself never
left it, and after a run lies in its own folder.
"""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.engines.network.certificates import fingerprint, load_key
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.journal import Journal
from tequio.errors import ConfigError, PermissionDenied, RunError
from tequio.federation.evaluation import KeptAnswer
from tequio.federation.population import state_name
from tequio.learners.answers import unpack_answer
from tequio.models import folder as folders

if TYPE_CHECKING:
    from tequio.engines.network.certificates import Identity
    from tequio.learners.answers import Answer
    from tequio.models.model import Model

FILE = "signature.json"
_SIGNED = "tequio model\n"
_NAME = "coordinator"
"""Who signs. Parties cannot be called that, so none of their certificates will do."""


def publish(place: Path, out: Path, signer: Identity) -> str:
    """Copy a model, check it, and sign the copy; its hash. Parties' own models stay behind."""
    model = folders.find(place)
    if out.exists() and any(out.iterdir()):
        raise RunError(f"'{out}' is there already", remedy="choose another folder: --out FOLDER")
    document = folders.read_document(model)
    if document["parties"]:
        loaded = folders.load(model)
        sha256 = folders.save(loaded.of(_NAME), out)
    else:
        shutil.copytree(model, out, ignore=lambda _, names: [name for name in names if name == FILE],
                        dirs_exist_ok=True)
        sha256 = str(document["sha256"])
    sign(out, sha256, signer)
    return sha256


def sign(place: Path, sha256: str, signer: Identity) -> None:
    """Put a signature beside a model."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    made = load_key(signer.key).sign((_SIGNED + sha256).encode(), ec.ECDSA(hashes.SHA256()))
    (place / FILE).write_text(json.dumps({"sha256": sha256, "certificate": signer.certificate.decode(),
                                          "signature": base64.b64encode(made).decode()}, indent=1) + "\n")


def check_signature(place: Path, sha256: str, authority: bytes | None) -> None:
    """Refuse a model that the coordinator of this authority did not sign; without one, that no coordinator did."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    path = place / FILE
    if not path.is_file():
        raise PermissionDenied(f"the model in '{place}' is not signed",
                               remedy="ask the coordinator for one that it published: tequio coordinator publish RUN")
    try:
        told = json.loads(path.read_bytes())
        certificate = x509.load_pem_x509_certificate(str(told["certificate"]).encode())
        if authority is not None:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        names = [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        key = certificate.public_key()
        if names != [_NAME] or not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("it is not the coordinator's certificate that signed")
        key.verify(base64.b64decode(told["signature"], validate=True), (_SIGNED + sha256).encode(),
                   ec.ECDSA(hashes.SHA256()))
    except (KeyError, TypeError, ValueError, AttributeError, InvalidSignature) as cause:
        whose = "a coordinator" if authority is None else \
            f"this federation's coordinator ({fingerprint(authority)[:16]})"
        raise PermissionDenied(f"the signature of the model in '{place}' is not of {whose}: "
                               f"{str(cause) or type(cause).__name__}",
                               remedy="do not use it; ask the coordinator for the model again") from None


def authority_of(place: str | Path) -> bytes:
    """An authority's certificate: from its file, or from the folder of a party or coordinator."""
    path = Path(place)
    path = path / "authority.pem" if path.is_dir() else path
    try:
        return path.read_bytes()
    except OSError as cause:
        raise PermissionDenied(f"there is no certificate of an authority at '{path}': {cause.strerror}",
                               remedy="give a party's folder, or the file authority.pem in it") from None


def load_at_party(place: Path, home: Path) -> Model:
    """The model as this party answers with it."""
    found, party = folders.find(place), PartyHome(home)
    model = folders.load(found)
    check_signature(found, model.facts["sha256"], party.authority)
    answer = own_answer(model, party) or (model.common if model.speaks == "common" else None)
    if answer is None:
        raise ConfigError(f"the party in '{home}' has no model of its own from the run '{model.facts['run']}'",
                          remedy="use the folder that it took part with, or the common model: --party coordinator")
    return replace(model, common=answer, own={}, speaks="common", scored=(), party=party.facts["name"])


def own_answer(model: Model, party: PartyHome) -> Answer | None:
    """What the party kept of the run that made the model, of the last one if it was run again."""
    short = str(model.facts["config_hash"])[:8]
    runs = sorted(path for path in (party.folder / "runs").glob("*") if f"-{short}" in path.name)
    for path in reversed(runs):
        kept = Journal(path).last_state().get(state_name(KeptAnswer), {})
        if "answer" in kept:
            return unpack_answer(kept["answer"], model.reading.prepared_schema)
    return None
