"""The stage by which parties can check that their updates were counted and that the aggregate is their sum.

Each party commits to its update when it sends it. After the aggregation the coordinator publishes who was counted with
which share and the exact sum in whole numbers; a challenge follows from all that; parties commit to the product of
their own numbers with the challenge; and the product of these commitments is that of the sum, or the sum is false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from tequio.errors import ConfigError, PayloadError
from tequio.federation.stages import Stage, StageSpec, vectors_in
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.aggregation.keys import fresh_key, identity_of, signature, signing_public
from tequio.privacy.updates import Held, as_one, with_extra_counts
from tequio.privacy.verification.proofs import (
    Committed,
    Facts,
    blinding_of,
    challenge_of,
    check_line,
    commitment_words,
    complete,
    digest_of_sum,
    digest_of_update,
    new_blinding,
    projection,
    prove_part,
    wrong_with_sum,
)
from tequio.privacy.verification.transcript import Chain
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload, R
    from tequio.federation.population import Party
    from tequio.federation.stages import Aggregated
    from tequio.federation.task import NoSettings, Task
    from tequio.privacy.verification.transcript import Line, Transcript

_BITS, _LARGEST = 64, float(1 << 20)


@register("stage", "verified", paper="Pedersen, 1991; Bonawitz et al., 2017")
@dataclass(frozen=True)
class Verified(Stage):
    """Parties check that their updates were counted and that the aggregate is the weighted sum of what was sent.

    The proofs go into the run's transcript, signed line by line: `tequio verify RUN` checks them again.
    """

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model", "hidden"), proves=True)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Commit to every update of the payload, whether it crosses or is held."""
        held = party.recall(Held).get("vectors", {})
        vectors = {**{name: as_one(payload[name]) for name in vectors_in(payload)}, **held}
        salts = {name: fresh_key() for name in vectors}
        blindings = {name: new_blinding() for name in vectors}
        party.keep(Committed, {"round": party.round, "vectors": vectors, "salts": salts, "blindings": blindings})
        seed = identity_of(party)
        digests = {name: digest_of_update(salts[name], vector) for name, vector in vectors.items()}
        signed = {name: signature(seed, commitment_words(party.round, name, digest)).hex()
                  for name, digest in digests.items()}
        payload = with_extra_counts(party, payload, {name: blindings[name] for name in held}) if held else payload
        return {**payload, "verified": {
            "identity": signing_public(seed).hex(), "digests": digests, "signatures": signed,
            "seen": party.recall(Chain).get("index", -1)}}

    def after_aggregate(self, federation: Federation, aggregated: Aggregated) -> None:
        """Publish the sum with its proof, and have the parties check it."""
        notary: Transcript | None = federation.notary
        if notary is None:
            raise ConfigError("nobody keeps a transcript here", remedy="set federation.notary = Transcript()")
        whole, facts = _claim(aggregated, federation.round)
        facts["challenge"] = challenge_of(facts)
        _add_parts(federation, facts, aggregated)
        facts["projection"] = str(projection(bytes.fromhex(facts["challenge"]), whole))
        wrong = wrong_with_sum(facts, whole)
        if wrong:
            raise PayloadError(f"the aggregate of round {federation.round} is not the sum of what was sent: {wrong}",
                               remedy="leave out parties that do not keep to the protocol")
        line = notary.append("sum", facts)
        _collect_receipts(federation, notary, line, whole, aggregated)


def _claim(aggregated: Aggregated, round: int) -> tuple[NDArray[np.int64], Facts]:
    """The exact sum, and what is said about it before the challenge is known."""
    said = {reply.party: reply.payload["verified"] for reply in aggregated.replies}
    name, parties = aggregated.name, [int(party) for party in aggregated.parties]
    if aggregated.summed is not None:
        ring, whole = aggregated.summed.ring, aggregated.summed.whole
    else:
        ring = (_BITS, _LARGEST, len(parties))
        made = Ring.of(*ring)
        encoded = [made.encoded(as_one(update), float(share))
                   for update, share in zip(aggregated.updates, aggregated.shares, strict=True)]
        whole = made.signed(np.sum(encoded, axis=0, dtype=made.kind))
    return whole, {
        "round": round, "name": name, "parties": parties, "identities": [said[party]["identity"] for party in parties],
        "commitments": [said[party]["digests"][name] for party in parties],
        "commitment_signatures": [said[party]["signatures"][name] for party in parties],
        "shares": [float(share) for share in aggregated.shares], "ring": list(ring), "digest": digest_of_sum(whole)}


def _add_parts(federation: Federation, facts: Facts, aggregated: Aggregated) -> None:
    """Ask each party for its part of the proof; the blindings were summed with hidden updates, or are told now."""
    is_open = aggregated.summed is None
    replies = _ask(federation, aggregated.parties, prove_part, {"facts": facts, "open": is_open})
    parts = {reply.party: reply.payload for reply in replies}
    facts["parts"] = [parts[party]["part"] if party in parts else "" for party in facts["parties"]]
    facts["part_signatures"] = [parts[party]["signature"] if party in parts else "" for party in facts["parties"]]
    counts: NDArray[np.int64] = aggregated.summed.extra_counts if aggregated.summed is not None else np.sum(
        [np.asarray(part["blinding"], dtype=np.int64) for part in parts.values()], axis=0)
    facts["blinding"] = str(blinding_of(counts))


def _collect_receipts(federation: Federation, notary: Transcript, line: Line, whole: NDArray[np.int64],
                      aggregated: Aggregated) -> None:
    """Every party that was counted checks the line, and signs that it did."""
    seen = {reply.party: int(reply.payload["verified"]["seen"]) for reply in aggregated.replies}
    # A round may end in several sums: a party has then seen lines since it sent its updates.
    latest = {int(party): max(seen[int(party)], _last_checked(notary, int(party))) for party in aggregated.parties}
    each = {party: {"links": notary.links(place, line["index"]), "since": place} for party, place in latest.items()}
    replies = _ask(federation, aggregated.parties, check_line,
                   {"line": line, "sum": whole, "coordinator": notary.public.hex()}, each)
    notary.append("receipts", {"round": federation.round, "about": line["index"],
                               "proved": complete(cast("Facts", line["body"])), "parties": replies.parties.tolist(),
                               "signatures": [reply.payload["signature"] for reply in replies]})


def _last_checked(notary: Transcript, party: int) -> int:
    """The last line that a party has signed a receipt for in this transcript."""
    for line in reversed(notary.lines):
        if line["body"]["kind"] == "receipts" and party in line["body"]["parties"]:
            return int(line["body"]["about"])
    return -1


def _ask(federation: Federation, parties: NDArray[np.int64], task: Task[NoSettings, R], payload: Payload,
         each: dict[int, Payload] | None = None) -> Replies[R]:
    """Whoever does not answer leaves a gap in the proof, and does not stop the run."""
    quiet = replace(federation.off_the_clock(), rules=replace(federation.rules, dropout=0.0, quorum=0.0))
    return quiet.ask(parties, task, payload, each=each)
