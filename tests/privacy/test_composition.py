"""Every pair of registered stages either composes with a meaning that is tested here, or is refused with the reason."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import tequio
from tequio import registry
from tequio.components import build
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.federation.algorithm import Algorithm, Parts, State
from tequio.federation.composition import check_stages, why_not
from tequio.federation.federation import Federation
from tequio.federation.stages import Trait
from tequio.federation.task import task
from tequio.privacy.compression.sparse import TopK
from tequio.privacy.verification.transcript import Transcript

from .ways import Way, distance, length, mean, population, updates

STAGES = registry.names("stage")
PAIRS = list(itertools.product(STAGES, STAGES))


def made(name: str) -> Any:
    return build("stage", name)


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_declares_its_trait(name: str) -> None:
    assert isinstance(made(name).trait, Trait)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[" then ".join(pair) for pair in PAIRS])
def test_a_pair_composes_or_is_refused_with_a_reason(first: str, second: str) -> None:
    reason = why_not([made(first), made(second)])
    if reason:
        assert f"'{second}'" in reason
        with pytest.raises(ConfigError, match="do not go together"):
            check_stages([made(first), made(second)])
    else:
        assert first != second
        assert not made(first).trait.hides or made(second).trait.takes.count("hidden")


LOSSY = {"top-k": 0.95, "random-k": 4.0, "quantise": 0.02, "low-rank": 0.95}
"""How far a round may be off, as a share of the update's length."""

COMPRESSING = [*LOSSY, "delta-zstd"]

HARMLESS: dict[str, dict[str, Any]] = {
    "attack": {}, "central-dp": {"noise": 0.0, "clip": 1e6}, "local-dp": {"noise": 0.0, "clip": 1e6}, "attested": {},
    "verified": {}, "secure-sum": {}, "encrypted-sum": {}, "delta-zstd": {}}
"""Stages set up so that they change no number by more than rounding."""


@task("privacy tests: send something")
def send_something(party: Any, payload: Any, settings: Any) -> Any:
    return {"update": updates(1, seed=party.index)[0], "rows": 1, "steps": 1, "loss": 0.0}


class Mean(Algorithm):
    def start(self, federation: Federation) -> State:
        return State({name: np.zeros_like(values) for name, values in updates(1)[0].items()})

    def round(self, federation: Federation, state: State) -> State:
        replies = federation.ask(federation.everyone(), send_something, {}, stages=self.parts.stages)
        return State(self.aggregate(federation, state, replies).update)


@cache
def aggregate(*names: str) -> dict[str, np.ndarray]:
    """What becomes of the updates of five parties on their way through some stages."""
    stages = tuple(build("stage", name, HARMLESS.get(name, {})) for name in names)
    engine, people = InlineEngine(), population(5)
    engine.open(people)
    federation = Federation(people, engine, round=1, notary=Transcript())
    algorithm = Mean(parts=Parts(stages=stages))
    return algorithm.round(federation, algorithm.start(federation)).model


@pytest.mark.parametrize(("first", "second"), [
    pair for pair in PAIRS if set(pair) <= {*HARMLESS, *LOSSY} and set(pair) & set(HARMLESS)
    and not why_not([made(pair[0]), made(pair[1])])], ids=" then ".join)
def test_a_stage_that_changes_no_number_leaves_what_the_other_one_does(first: str, second: str) -> None:
    other = (second,) if first in HARMLESS else (first,)
    expected, found = aggregate(*(name for name in other if name not in HARMLESS)), aggregate(first, second)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5)


@pytest.mark.parametrize(("first", "second"), [pair for pair in itertools.permutations(COMPRESSING, 2)
                                               if not why_not([made(pair[0]), made(pair[1])])])
def test_composed_compression_undoes_both_and_crosses_smaller(first: str, second: str) -> None:
    alone, both, one = Way(made(first)), Way(made(first), made(second)), updates(1)[0]
    alone.carry([one])
    back = both.carry([one])[0]
    assert both.bytes_up < alone.bytes_up + 120
    off = sum(LOSSY.get(name, 0.0) for name in (first, second)) + LOSSY.get(first, 0) * LOSSY.get(second, 0)
    assert {name: values.shape for name, values in back.items()} == {"weight": (40, 30), "bias": (30,)}
    assert distance(back, one) <= (off + 1e-6) * length(one)


@pytest.mark.parametrize(("first", "second", "why"), [
    ("quantise", "top-k", "codes for numbers"), ("delta-zstd", "quantise", "packed bytes"),
    ("top-k", "low-rank", "each party's own"), ("low-rank", "random-k", "each party's own"),
    ("top-k", "attack", "comes before"), ("top-k", "secure-sum", "looks at each"),
    ("secure-sum", "top-k", "hidden"),
    ("secure-sum", "delta-zstd", "hidden"), ("quantise", "secure-sum", "looks at each"),
    ("central-dp", "verified", "from tampering"),
    ("verified", "secure-sum", "comes after"), ("central-dp", "local-dp", "both add noise"),
    ("central-dp", "random-k", "more than the bound"), ("secure-sum", "local-dp", "hidden"),
    ("quantise", "quantise", "twice"),
])
def test_reasons_are_told(first: str, second: str, why: str) -> None:
    assert why in why_not([made(first), made(second)])


@dataclass(frozen=True)
class Clip:
    trait = Trait(bounds=True)


@dataclass(frozen=True)
class Noise:
    trait = Trait(noise="party")


@dataclass(frozen=True)
class Undeclared:
    pass


@pytest.mark.parametrize(("stages", "why"), [
    ([Clip(), Noise()], ""), ([Noise(), Clip()], "clip before noise"), ([Noise(), TopK()], ""),
    ([Clip(), TopK()], "more than the bound"), ([Clip(), TopK(error_feedback=False)], ""),
    ([Undeclared(), Clip()], "does not declare"), ([Undeclared()], ""), ([], ""),
])
def test_rules_of_order(stages: list[Any], why: str) -> None:
    reason = why_not(stages)
    assert why in reason if why else not reason


def test_a_config_is_refused_before_any_work(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"'top-k' works on numbers .* and 'quantise' before it leaves codes"):
        tequio.run(data="digits", rounds=1, stages=[{"name": "quantise"}, {"name": "top-k"}],
                   output={"folder": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_a_run_with_compression_is_the_same_on_any_number_of_workers(tmp_path: Any) -> None:
    stages = ["top-k", "quantise", "delta-zstd"]

    def run(workers: int) -> Any:
        return tequio.run(data={"name": "digits", "partition": {"name": "iid", "parties": 6}}, rounds=3,
                          stages=[{"name": name} for name in stages], engine={"workers": workers},
                          output={"folder": str(tmp_path)}).summary

    one, two = run(1), run(2)
    assert one["model_sha256"] == two["model_sha256"]
    assert one["bytes_up"] == two["bytes_up"]


def test_a_mean_of_compressed_updates_is_near_the_mean() -> None:
    given = updates(20)
    assert distance(mean(Way(made("quantise"), parties=20).carry(given)), mean(given)) < 0.01 * length(given[0])
