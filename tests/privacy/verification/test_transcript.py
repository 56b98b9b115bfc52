from __future__ import annotations

import copy
from typing import Any

import pytest

from tequio.errors import PayloadError
from tequio.privacy.verification.transcript import Transcript, broken_lines, digest_of, follow


def written(count: int = 5) -> Transcript:
    transcript = Transcript()
    for number in range(count - 1):
        transcript.append("note", {"round": number, "value": number * 0.1})
    return transcript


def findings(lines: list[Any]) -> list[tuple[int, str]]:
    return [(found.line, found.what) for found in broken_lines(lines)]


def test_a_whole_transcript_is_sound() -> None:
    assert findings(written().lines) == []
    assert findings(written(1).lines or Transcript().lines) == [(0, "it does not name the coordinator's key")]


def changed(lines: list[Any], place: int, **facts: Any) -> list[Any]:
    copied = copy.deepcopy(lines)
    copied[place]["body"].update(facts)
    return copied


def rehashed(lines: list[Any], place: int) -> list[Any]:
    """A forger without the key can mend hashes, but not signatures."""
    from tequio.privacy.verification.transcript import chained
    copied = changed(lines, place, value=7)
    for line, before in zip(copied[place:], copied[place - 1:], strict=False):
        line["previous"] = before["hash"]
        line["hash"] = chained(before["hash"], digest_of(line["index"], line["body"]))
    return copied


@pytest.mark.parametrize(("forge", "place", "complaint"), [
    (lambda lines: changed(lines, 3, value=7), 3, "changed after"), (lambda lines: rehashed(lines, 2), 2, "not signed"),
    (lambda lines: lines[:2] + lines[3:], 2, "left out"),
    (lambda lines: [*lines[:2], lines[1], *lines[2:]], 2, "added"),
    (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 1, "moved"),
    (lambda lines: [*lines[:4], {**lines[4], "signature": lines[3]["signature"]}], 4, "not signed"),
    (lambda lines: [*lines[:2], {"body": {}}, *lines[3:]], 2, "no line"),
    (lambda lines: [*lines[:3], *written().lines[3:]], 3, "does not follow"),
])
def test_tampering_is_found_at_its_line(forge: Any, place: int, complaint: str) -> None:
    found = findings(forge(written().lines))
    assert [line for line, _ in found] == [place]
    assert complaint in found[0][1]


def test_a_whole_other_transcript_is_told_by_the_known_key() -> None:
    mine = written()
    assert [found.line for found in broken_lines(written().lines, mine.public)] == [0]


def test_a_party_follows_the_chain_over_lines_it_has_not_seen() -> None:
    transcript = written(6)
    known = {"coordinator": transcript.public.hex(), "index": 1, "hash": transcript.lines[1]["hash"]}
    follow(known, transcript.lines[5], transcript.links(1, 5))
    follow({"coordinator": transcript.public.hex()}, transcript.lines[2], transcript.links(-1, 2))
    with pytest.raises(PayloadError, match="cannot be believed"):
        follow(known, transcript.lines[5], transcript.links(1, 4))


def test_a_history_that_was_rewritten_is_noticed_by_whoever_saw_the_old_one() -> None:
    seed = b"s" * 32
    told, other = Transcript(seed), Transcript(seed)
    for transcript, value in ((told, 1), (other, 2)):
        transcript.append("note", {"value": value})
        transcript.append("note", {"value": 3})
    known = {"coordinator": told.public.hex(), "index": 1, "hash": told.lines[1]["hash"]}
    follow(known, told.lines[2], [])
    with pytest.raises(PayloadError, match="does not follow"):
        follow(known, other.lines[2], [])
