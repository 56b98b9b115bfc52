"""Every pair of registered stages either composes with a meaning that is tested here, or is refused with the reason."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tequio import registry
from tequio.errors import ConfigError
from tequio.federation.composition import check_stages, why_not
from tequio.federation.stages import StageSpec
from tequio.privacy.accounting import Release
from tequio.registry import build

from .passages import LOUD, PARTIES, QUIET, SPREAD, passed
from .ways import Way, distance, length, updates

STAGES = set(registry.names("stage"))

LOSSY = {"top-k": 0.95, "random-k": 4.0, "quantise": 0.02, "low-rank": 0.95}
"""How far a round may be off, as a share of the update's length."""

SMALLER = {"top-k": 0.5, "random-k": 0.5, "quantise": 0.5, "low-rank": 0.5}
"""At most so much crosses of what would without."""

COMPRESSING = {*LOSSY, "delta-zstd"}
HIDING = {"secure-sum", "one-shot-sum", "group-sum"}
NOISING = set(LOUD)
AT_COORDINATOR = {"central-dp", "dp-ftrl", "dp-mf"}
BOUNDING = {*AT_COORDINATOR, "distributed-dp", "local-dp"}
ON_MODELS = {"central-dp", "dp-ftrl", "dp-mf", "distributed-dp", "local-dp", "dp-sums"}

REFUSED: list[tuple[set[str], set[str], str]] = [
    (AT_COORDINATOR | {"distributed-dp"}, {"group-sum"}, "'group-sum' adds up in groups"),
    ({"group-sum"}, {"verified"}, "makes means of groups"),
    (STAGES - {"attack"}, {"attack"}, "works on what the task made, so it comes before"),
    (NOISING, NOISING, "both add noise for privacy, and one account is kept"),
    (AT_COORDINATOR | {"distributed-dp"}, {"quantise", "random-k", "top-k", "low-rank"},
     "may send more than the bound"),
    (AT_COORDINATOR, {"verified"}, "could not tell the noise"),
    ({"verified"}, AT_COORDINATOR, "could not tell the noise"),
    ({"verified"}, COMPRESSING | HIDING | NOISING, "commits to what crosses, so it comes after"),
    ({"top-k", "low-rank", "quantise", "delta-zstd"}, HIDING, "looks at each update"),
    (HIDING, HIDING, "hidden numbers, which only a sum reveals"),
    (HIDING, COMPRESSING | ON_MODELS | {"randomised-response"}, "hidden numbers, which only a sum reveals"),
    ({"quantise"}, {"top-k", "random-k", "low-rank"} | ON_MODELS | {"randomised-response", "verified"},
     "codes for numbers"),
    ({"delta-zstd"}, {"top-k", "random-k", "low-rank", "quantise"} | ON_MODELS | {"randomised-response", "verified"},
     "packed bytes"),
    ({"top-k", "low-rank"}, {"top-k", "random-k", "low-rank"} | ON_MODELS | {"randomised-response", "verified"},
     "each party's own"),
    ({"random-k"}, {"low-rank", "verified"} | ON_MODELS, "fewer numbers, in places that all parties share"),
    ({"distributed-dp"}, STAGES - HIDING, "a stage that hides updates, such as 'secure-sum', has to come after"),
    (STAGES, {"distributed-dp"}, "a stage that hides updates, such as 'secure-sum', has to come after"),
]
"""Which stages before which others are refused, and why; the first line that names a pair counts."""


def made(name: str) -> Any:
    return build("stage", name)


def expected_reason(first: str, second: str) -> str:
    if first == second:
        return "is there twice"
    return next((why for firsts, seconds, why in REFUSED if first in firsts and second in seconds), "")


PAIRS = list(itertools.product(sorted(STAGES), sorted(STAGES)))
COMPOSED = [pair for pair in PAIRS if not expected_reason(*pair)]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_stage_declares_its_spec(name: str) -> None:
    assert isinstance(made(name).spec, StageSpec)


@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if expected_reason(*pair)],
                         ids=lambda name: name)
def test_a_refused_pair_is_told_why(first: str, second: str) -> None:
    stages = [made(first), made(second)]
    assert expected_reason(first, second) in why_not(stages)
    with pytest.raises(ConfigError, match="do not go together"):
        check_stages(stages)


def test_nobody_is_refused_without_a_line_in_the_table() -> None:
    assert [pair for pair in COMPOSED if why_not([made(name) for name in pair])] == []
    assert len(COMPOSED) > 70


def others(pair: tuple[str, str], names: Any) -> tuple[str, ...]:
    return tuple(name for name in pair if name not in names)


@pytest.mark.parametrize("pair", COMPOSED, ids=" then ".join)
def test_without_noise_a_pair_does_what_its_lossy_stages_do(pair: tuple[str, str]) -> None:
    found, expected = passed(*pair).model, passed(*(name for name in pair if name in LOSSY)).model
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=2e-5)


@pytest.mark.parametrize("pair", [pair for pair in COMPOSED if set(pair) & HIDING], ids=" then ".join)
def test_behind_a_hiding_stage_no_update_reaches_the_coordinator(pair: tuple[str, str]) -> None:
    passage = passed(*pair)
    assert not any(isinstance(value, np.ndarray) for payload in passage.replies.payloads
                   for value in payload["update"].values())
    assert any(task.startswith(("secure-sum.", "one-shot-sum.", "group-sum.")) for task in passage.tasks)


@pytest.mark.parametrize("pair", [pair for pair in COMPOSED if "verified" in pair], ids=" then ".join)
def test_a_verified_pair_leaves_a_proof_and_receipts(pair: tuple[str, str]) -> None:
    assert passed(*pair).lines == ("start", "sum", "receipts")


@pytest.mark.parametrize("pair", [pair for pair in COMPOSED if "attested" in pair], ids=" then ".join)
def test_an_attested_pair_sends_nothing_before_the_code_was_checked(pair: tuple[str, str]) -> None:
    tasks = passed(*pair).tasks
    assert tasks.index("attested.check") < tasks.index("privacy tests: send something")


@pytest.mark.parametrize("pair", [pair for pair in COMPOSED if set(pair) & set(SMALLER) and not set(pair) & HIDING],
                         ids=" then ".join)
def test_a_compressing_stage_makes_the_other_ones_bytes_fewer(pair: tuple[str, str]) -> None:
    small = [name for name in pair if name in SMALLER]
    rest = others(pair, [small[-1]])
    # 'verified' and 'attested' have exchanges of their own, which are no smaller
    extra = 3000 * PARTIES if {"attested", "verified"} & set(pair) else 0
    if rest and rest[0] in SMALLER:
        assert passed(*pair).bytes_up < passed(*rest).bytes_up + 120 * PARTIES
    else:
        assert passed(*pair).bytes_up < SMALLER[small[-1]] * passed(*rest).bytes_up + extra


NOISED = [pair for pair in COMPOSED if set(pair) & set(LOUD)]


@pytest.mark.parametrize("pair", NOISED, ids=" then ".join)
def test_a_noised_pair_writes_one_line_into_the_ledger(pair: tuple[str, str]) -> None:
    ledger = passed(*pair, loud=True).ledger
    assert ledger is not None
    assert [(entry.round, entry.chosen) for entry in ledger.entries] == [(1, PARTIES)]
    name = next(name for name in pair if name in LOUD)
    charged = {"randomised-response": 2.0, "distributed-dp": 0.1 * (5 / 4) ** 0.5}.get(name, LOUD[name].get("noise"))
    assert ledger.entries[0].noise == pytest.approx(charged)
    assert not ledger.owed


@pytest.mark.parametrize("pair", [pair for pair in NOISED if set(pair) & set(SPREAD)], ids=" then ".join)
def test_a_noised_pair_has_the_noise_that_was_asked_for(pair: tuple[str, str]) -> None:
    spread, other = (next(SPREAD[name] for name in pair if name in SPREAD), others(pair, SPREAD)[0])
    found, plain = passed(*pair, loud=True).model, passed().model
    if other in LOSSY:
        noised = length(plain) + spread * 1230**0.5 * PARTIES**0.5
        assert spread * 1230**0.5 * 0.1 < distance(found, plain) < (1 + LOSSY[other]) * noised
    else:
        noise = np.concatenate([(found[name] - plain[name]).ravel() for name in plain])
        assert noise.std() == pytest.approx(spread, rel=0.08)


@pytest.mark.parametrize("pair", [pair for pair in NOISED if "randomised-response" in pair], ids=" then ".join)
def test_parties_behind_randomised_labels_tell_of_their_answers_only(pair: tuple[str, str]) -> None:
    told, true = (float(passed(*pair, loud=loud).model["bias"].mean()) for loud in (True, False))
    lost = sum(LOSSY.get(name, 0.0) for name in pair)
    # shares of labels from 0 to 0.8, with a mean of 0.4, each true with a chance of 0.62
    if not lost:
        assert true == pytest.approx(0.4, abs=0.03)
        assert told == pytest.approx(0.4 * 0.62 + 0.6 * 0.38, abs=0.03)
    assert told != true


@pytest.mark.parametrize("pair", [pair for pair in NOISED if "silent-training" in pair], ids=" then ".join)
def test_nothing_is_said_about_private_training(pair: tuple[str, str]) -> None:
    assert not any("loss" in payload for payload in passed(*pair).replies.payloads)


def test_what_one_row_buys_is_what_the_ledger_says() -> None:
    """The same line costs the same, whichever stage stands beside the mechanism."""
    for first, second in (pair for pair in NOISED if "local-dp" in pair):
        ledger = passed(first, second, loud=True).ledger
        assert ledger is not None
        assert ledger.mechanism.spent(ledger.entries, ledger.context) == [{Release(0.01): 1}]


@pytest.mark.parametrize(("first", "second"), [pair for pair in itertools.permutations(sorted(COMPRESSING), 2)
                                               if not expected_reason(*pair)], ids=lambda name: name)
def test_composed_compression_undoes_both_and_crosses_smaller(first: str, second: str) -> None:
    alone, both, one = Way(made(first)), Way(made(first), made(second)), updates(1)[0]
    alone.carry([one])
    back = both.carry([one])[0]
    assert both.bytes_up < alone.bytes_up + 120
    off = sum(LOSSY.get(name, 0.0) for name in (first, second)) + LOSSY.get(first, 0) * LOSSY.get(second, 0)
    assert {name: values.shape for name, values in back.items()} == {"weight": (40, 30), "bias": (30,)}
    assert distance(back, one) <= (off + 1e-6) * length(one)


def test_every_quiet_stage_has_a_loud_twin() -> None:
    assert QUIET.keys() == LOUD.keys() == {name for name in STAGES if made(name).mechanism is not None}
