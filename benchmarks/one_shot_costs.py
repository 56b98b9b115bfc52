"""What a one-shot sum costs: ``python benchmarks/one_shot_costs.py [--parties 100 1000 10000] [--numbers 100000]``.

The code that parties, members of the committee and the coordinator run, on one core, in seconds of the processor: a
party's message is made in full a few times, a member checks the boxes of the whole cohort, and the coordinator hashes,
passes on, checks and adds all messages. Ciphertexts of the whole cohort do not fit into memory, so that a few are added
again and again. Nothing crosses a link, and signatures are verified as often as in a deployment.
"""

from __future__ import annotations

import argparse
import secrets
import time
from hashlib import sha256
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.federation.population import Roster
from tequio.privacy.aggregation import identities, ring_lwe
from tequio.privacy.aggregation import one_shot_tasks as tasks
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING
from tequio.privacy.aggregation.identities import SIGNATURE_BYTES, signed_by
from tequio.privacy.aggregation.joint_randomness import Cohort
from tequio.privacy.aggregation.keys import KEY_BYTES, fresh_key, public_of
from tequio.privacy.aggregation.one_shot_sum import OneShotSum, disagreements
from tequio.privacy.aggregation.own_weights import SumSettings
from tequio.privacy.aggregation.secure_sum_tasks import pieces

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS, DIFFERENT = 5, 20
ABSENT = 10
"""One in so many parties drops out."""


def costs(parties: int, numbers: int) -> dict[str, float]:
    """Milliseconds of a party, seconds and megabytes of a member, seconds and gigabytes of the coordinator."""
    stage, roster = OneShotSum(), Roster(secrets.token_bytes(32), parties)
    cohort = Cohort.of(range(parties), roster, stage)
    settings = SumSettings(stage=stage, local=NO_TRAINING, room=parties, by_rows=True, cap=1.0, fewest=cohort.fewest)
    here = tasks.one_shot(roster, cohort, secrets.token_bytes(32), 1, "update", settings)
    members: list[Any] = [SimpleNamespace(roster=roster, index=party) for party in here.committee]
    private = [fresh_key() for _ in members]
    publics = [public_of(key) for key in private]
    signatures = [signed_by(member, here.offer_part(member.index, key))
                  for member, key in zip(members, publics, strict=True)]
    plain = np.random.default_rng(0).integers(0, 1 << 32, numbers, dtype=np.uint64).astype(np.uint32)
    ring_lwe.encrypt(here.ring, ring_lwe.small(ring_lwe.DEGREE), plain)  # the public polynomials are made once a run

    def message() -> Any:
        identities._is_valid.cache_clear()
        keys = tasks._checked_keys(here, {"name": "update", "keys": b"".join(publics),
                                          "signatures": b"".join(signatures)})
        return tasks._encrypted(here, members[0], keys, plain)

    full = [measured(message) for _ in range(TURNS)]
    left = np.delete(np.arange(parties), np.arange(0, parties, ABSENT))
    short = plain[:1]
    sent = [tasks._encrypted(here, _party(roster, int(party)), publics, short) for party in left]
    payload = {"name": "update", "members": b"", "publics": b"".join(one["public"] for one in sent),
               "hashes": b"".join(sha256(one["boxes"]).digest() for one in sent),
               "signatures": b"".join(one["signature"] for one in sent),
               "boxes": b"".join(one["boxes"][:here.box_bytes] for one in sent)}
    member, (shares, _, bad) = measured(lambda: tasks._opened_shares(here, members[0], private[0], left, payload))
    assert not bad
    opening, _ = measured(lambda: shares.sum(axis=0, dtype=np.int64))
    ciphertexts = [full[place % TURNS][1]["ciphertext"] for place in range(DIFFERENT)]
    true = here.packing.shared(np.zeros(len(left) * tasks.CHECKS * here.packing.secrets, dtype=np.int64))
    answers = {party: {"sums": true[place].astype(np.uint32).reshape(len(left), tasks.CHECKS), "bad": []}
               for place, party in enumerate(here.committee)}
    coordinator, _ = measured(lambda: coordinated(here, left.tolist(), sent, ciphertexts, answers))
    box = here.box_bytes
    return {"committee": len(members), "quorum": here.packing.needed, "up_kb": (
        8 * numbers + len(members) * box + KEY_BYTES + SIGNATURE_BYTES) / 1e3,
        "party_ms": 1e3 * median(seconds for seconds, _ in full),
        "member_mb": len(left) * (box + 2 * KEY_BYTES + SIGNATURE_BYTES) / 1e6, "member_s": member + opening,
        "coordinator_s": coordinator,
        "gb": len(left) * (8 * numbers + 2 * len(members) * box + len(members) * (
            KEY_BYTES + SIGNATURE_BYTES + 2 * KEY_BYTES + SIGNATURE_BYTES)) / 1e9}


def coordinated(here: tasks.OneShot, left: list[int], sent: list[Any], ciphertexts: list[Any], answers: Any) -> None:
    """All that the coordinator does with the messages of a cohort, with its committee answering in full."""
    for place, one in enumerate(sent):
        sha256(one["boxes"]).digest()
        assert ciphertexts[place % DIFFERENT].max() < ring_lwe.MODULUS
    boxes = [pieces(one["boxes"], here.box_bytes) for one in sent]
    for place in range(len(here.committee)):
        b"".join(one[place] for one in boxes)
    assert disagreements(here, left, answers) == (set(), None)
    total = np.zeros(len(ciphertexts[0]), dtype=np.uint64)
    for place in range(len(sent)):
        ring_lwe.add(total, ciphertexts[place % DIFFERENT], place + 1)
    ring_lwe._times_public(here.ring, ring_lwe.small(ring_lwe.DEGREE), len(total))


def measured(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, and what came of it."""
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def _party(roster: Roster, party: int) -> Any:
    return SimpleNamespace(roster=roster, index=party)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parties", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--numbers", type=int, default=100_000)
    given = parser.parse_args()
    print("| parties | committee, quorum | up KB | party ms | member MB and s | coordinator s | GB through it |")
    print("|---|---|---|---|---|---|---|")
    for parties in given.parties:
        found = costs(parties, given.numbers)
        print(f"| {parties:,} | {found['committee']}, {found['quorum']} | {found['up_kb']:.0f} | "
              f"{found['party_ms']:.0f} | {found['member_mb']:.1f}, {found['member_s']:.2f} | "
              f"{found['coordinator_s']:.2f} | {found['gb']:.2f} |",
              flush=True)


if __name__ == "__main__":
    main()
