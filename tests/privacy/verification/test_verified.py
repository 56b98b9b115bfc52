"""An honest aggregate is accepted by every party; a tampered one is refused, in the open and under masks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tequio
from tequio.cli.main import call
from tequio.errors import ConfigError, PartyError, PayloadError
from tequio.experiments.running.transcripts import TRANSCRIPT, verify_run
from tequio.privacy.verification import verified
from tequio.privacy.verification.proofs import digest_of_sum
from tequio.privacy.verification.transcript import Transcript

if TYPE_CHECKING:
    from pathlib import Path

WAYS: dict[str, list[dict[str, Any]]] = {
    "open": [], "masked": [{"name": "secure-sum"}],
    "compressed and masked": [{"name": "random-k", "fraction": 0.5}, {"name": "secure-sum", "bits": 64}]}
every_way = pytest.mark.parametrize("way", WAYS)


def run(tmp_path: Path, way: str, **keys: Any) -> Any:
    return tequio.run(data={"name": "digits", "partition": {"name": "iid", "parties": 5}}, learner="logistic",
                      **{"rounds": 2, "engine": {"workers": 1}, "evaluation": {"every": 2},
                         "stages": [*WAYS[way], {"name": "verified"}], "output": {"folder": str(tmp_path)}, **keys})


@every_way
def test_an_honest_run_is_proved_and_gives_the_same_model(tmp_path: Path, way: str) -> None:
    result = run(tmp_path, way)
    verdict = verify_run(result.folder)
    assert (verdict.sums, verdict.counted, verdict.receipts, verdict.findings) == (2, 0, 10, ())
    assert result.summary["model_sha256"] == run(tmp_path, way, stages=WAYS[way]).summary["model_sha256"]


def test_every_aggregate_of_a_round_is_proved(tmp_path: Path) -> None:
    verdict = verify_run(run(tmp_path, "masked", algorithm="scaffold").folder)
    assert (verdict.sums, verdict.receipts, verdict.findings) == (4, 20, ())


def test_parties_that_rest_follow_the_chain_later(tmp_path: Path) -> None:
    keys: Any = {"selector": {"name": "random", "count": 3}, "rounds": 4}
    verdict = verify_run(run(tmp_path, "masked", **keys).folder)
    assert (verdict.sums, verdict.receipts, verdict.findings) == (4, 12, ())


@every_way
def test_a_tampered_sum_is_refused_by_the_parties(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator publishes another sum, with digest and projection to match, and does not check itself."""
    honest = verified._claim

    def tampered(*given: Any) -> Any:
        whole, facts = honest(*given)
        whole = whole + (np.arange(len(whole)) == 3)
        return whole, {**facts, "digest": digest_of_sum(whole)}

    monkeypatch.setattr(verified, "_claim", tampered)
    monkeypatch.setattr(verified, "wrong_with_sum", lambda facts, whole: "")
    with pytest.raises(PartyError, match=r"not the sum of what was sent: the parts .* do not add up"):
        run(tmp_path, way)


@every_way
def test_an_update_that_is_left_out_or_replaced_is_noticed_by_its_party(tmp_path: Path, way: str,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    honest = verified._claim

    def replaced(*given: Any) -> Any:
        whole, facts = honest(*given)
        facts["commitments"][2] = facts["commitments"][1]
        return whole, facts

    monkeypatch.setattr(verified, "_claim", replaced)
    with pytest.raises(PartyError, match=r"party '2' .*another update than that of party '2' was counted"):
        run(tmp_path, way)

    def left_out(*given: Any) -> Any:
        whole, facts = honest(*given)
        for name in ("parties", "identities", "commitments", "commitment_signatures", "shares"):
            facts[name] = facts[name][:-1]
        return whole, facts

    monkeypatch.setattr(verified, "_claim", left_out)
    with pytest.raises(PartyError, match=r"party '4' .*the update of party '4' was not counted"):
        run(tmp_path, way)


def test_the_coordinator_that_sums_wrongly_finds_out_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = verified.Verified.after_aggregate

    def changed(self: verified.Verified, federation: Any, aggregated: Any) -> None:
        honest(self, federation, replace(aggregated, updates=[aggregated.updates[0]] * 5))

    monkeypatch.setattr(verified.Verified, "after_aggregate", changed)
    with pytest.raises(PayloadError, match="is not the sum of what was sent"):
        run(tmp_path, "open")


def test_a_chosen_challenge_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "challenge_of", lambda facts: "ab" * 32)
    with pytest.raises(PartyError, match="does not follow from what was sent"):
        run(tmp_path, "masked")


def test_a_rewritten_history_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Transcript.append

    def forgetful(self: Transcript, kind: str, facts: Any) -> Any:
        if kind == "sum" and facts["round"] == 2:
            self.lines[2] = {**self.lines[2], "body": {**self.lines[2]["body"], "proved": False}}
        return honest(self, kind, facts)

    monkeypatch.setattr(Transcript, "append", forgetful)
    with pytest.raises(PartyError, match="cannot be believed"):
        run(tmp_path, "open")


def test_a_gap_in_the_proof_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = verified._ask

    def without_one(federation: Any, parties: Any, task: Any, payload: Any, each: Any = None) -> Any:
        replies = honest(federation, parties, task, payload, each)
        return replace(replies, answers=replies.answers[1:]) if task.name == "verified.prove" else replies

    monkeypatch.setattr(verified, "_ask", without_one)
    verdict = verify_run(run(tmp_path, "masked").folder)
    assert (verdict.sums, verdict.counted, verdict.findings) == (0, 2, ())


def test_a_resumed_run_has_one_unbroken_transcript(tmp_path: Path) -> None:
    result = run(tmp_path, "masked")
    longer = tequio.run(resume=result.folder, rounds=4)
    verdict = verify_run(longer.folder)
    assert (verdict.sums, verdict.findings) == (4, ())


@pytest.mark.parametrize(("forge", "line", "complaint"), [
    (lambda lines: lines[:-1], 6, "cut off"), (lambda lines: lines[:2] + lines[3:], 3, "left out"),
    (lambda lines: [*lines[:3], lines[3].replace('"shares": [0.2', '"shares": [0.3'), *lines[4:]], 4, "changed"),
    (lambda lines: [*lines[:5], "not json"], 6, "no line"),
])
def test_the_command_names_the_line_that_was_tampered_with(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                           forge: Any, line: int, complaint: str) -> None:
    folder = run(tmp_path, "masked", algorithm={"name": "fedavg", "weights": "uniform"}).folder
    assert call(["verify", str(folder)]) == 0
    assert "2 sums proved" in capsys.readouterr().out
    path = folder / TRANSCRIPT
    forged = forge(path.read_text().splitlines())
    assert forged != path.read_text().splitlines()
    path.write_text("\n".join(forged) + "\n")
    assert call(["verify", str(folder)]) == 8
    assert f"line {line}" in (told := " ".join(capsys.readouterr().err.split()))
    assert complaint in told
    assert call(["verify", str(folder), "--json"]) == 8
    said = json.loads(capsys.readouterr().out)
    assert not said["sound"]
    assert said["findings"][0]["line"] == line - 1


def test_a_run_without_transcript_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path, "open", stages=[], rounds=1).folder
    assert call(["verify", str(folder)]) == 8
    assert "has no transcript" in capsys.readouterr().err


@pytest.mark.parametrize("keys", [{"aggregator": "median"}, {"algorithm": "q-fedavg"}])
def test_what_is_no_sum_cannot_be_proved(tmp_path: Path, keys: Any) -> None:
    with pytest.raises(ConfigError, match="proves weighted sums"):
        run(tmp_path, "open", **keys)
