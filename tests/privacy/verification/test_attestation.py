from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tequio
from tequio.errors import PartyError, PermissionDenied
from tequio.privacy.verification import attestation
from tequio.privacy.verification.attestation import Attested, SoftwareAttestor, measured_package

if TYPE_CHECKING:
    from pathlib import Path


def run(tmp_path: Path, **keys: Any) -> Any:
    return tequio.run(data={"name": "digits", "partition": {"name": "iid", "parties": 4}}, learner="logistic", **{
        "rounds": 2, "engine": {"workers": 1}, "output": {"folder": str(tmp_path)}, "evaluation": {"every": 2},
        "stages": [{"name": "attested"}], **keys})


def test_updates_cross_after_an_attestation_and_are_the_same(tmp_path: Path) -> None:
    assert run(tmp_path).summary["model_sha256"] == run(tmp_path, stages=[]).summary["model_sha256"]


def test_it_goes_with_masks(tmp_path: Path) -> None:
    masked = [{"name": "secure-sum"}]
    assert run(tmp_path, stages=[{"name": "attested"}, *masked]).summary["model_sha256"] == \
        run(tmp_path, stages=[*masked, {"name": "attested"}]).summary["model_sha256"]


def test_other_code_gets_no_update(tmp_path: Path) -> None:
    with pytest.raises(PartyError, match=r"runs other code .* than party '0' agreed to"):
        run(tmp_path, stages=[{"name": "attested", "measurement": "0" * 64}])


@pytest.mark.parametrize("statement", [{}, {"measurement": measured_package(), "signature": bytes(64)},
                                       SoftwareAttestor().attest(b"another challenge")])
def test_a_forged_or_replayed_statement_is_refused(statement: Any) -> None:
    with pytest.raises(PermissionDenied, match="forged, or answers another challenge"):
        SoftwareAttestor().verify(statement, b"challenge")


def test_a_coordinator_that_attests_nothing_gets_no_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attested, "prepare", lambda self, federation, parties: None)
    with pytest.raises(PartyError, match="has seen no attestation"):
        run(tmp_path)


def test_changed_files_change_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text("a = 1\n")
    monkeypatch.setattr(tequio, "__path__", [str(tmp_path)])
    first = attestation.measured_package.__wrapped__()
    (tmp_path / "one.py").write_text("a = 2\n")
    assert attestation.measured_package.__wrapped__() != first
