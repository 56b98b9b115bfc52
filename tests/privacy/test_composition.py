"""Every pair of registered stages either composes with a meaning that is tested here, or is refused with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import tequio
from tequio.errors import ConfigError
from tequio.federation.composition import why_not
from tequio.federation.stages import Stage, StageSpec
from tequio.privacy.compression.sparse import TopK
from tequio.privacy.rows import SilentTraining
from tequio.registry import build

from .ways import Way, distance, length, mean, updates


def made(name: str) -> Any:
    return build("stage", name)


@dataclass(frozen=True)
class Clip(Stage):
    @property
    def spec(self):
        return StageSpec(bounds=True)


@dataclass(frozen=True)
class Noise(SilentTraining):
    @property
    def spec(self):
        return StageSpec()


@dataclass(frozen=True)
class Undeclared(Stage):
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
