"""Whole runs in which a stage hides updates: the same numbers, any engine, and refusals before work starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tequio
from privacy.ways import population
from tequio.errors import ConfigError, QuorumError
from tequio.experiments.running.results import read_model
from tequio.federation.population import Party
from tequio.privacy.aggregation.secure_sum import SecureSum
from tequio.registry import entries

SUMMING = sorted(entry.name for entry in entries("algorithm")
                 if entry.component.sums_only and "updates" in entry.component.sends)
HIDDEN = [{"name": "secure-sum"}]
NEED_OTHER_DATA = {"fedbn", "mlfedavg", "mlfedavg-plus"}
"""Which ask for convolutions, and for several labels a row."""

WEIGHED_BY_THE_COORDINATOR = {"agnostic", "fednova"}
"""Which weigh parties by what they learn of each (fednova in its default)."""


def run(tmp_path: Any, **keys: Any) -> Any:
    return tequio.run(data={"name": "digits", "partition": {"name": "dirichlet", "parties": 6}}, **{
        "learner": "logistic", "rounds": 2, "engine": {"workers": 1}, "evaluation": {"every": 2},
        "output": {"folder": str(tmp_path)}, **keys})


def model(result: Any) -> dict[str, np.ndarray]:
    return read_model(result.folder)


def test_every_algorithm_that_sums_is_known() -> None:
    assert {"fedavg", "fedprox", "fednova", "scaffold", "fedadam", "fedavgm", "feddyn", "ditto"} <= set(SUMMING)


@pytest.mark.parametrize("algorithm", [name for name in SUMMING
                                       if name not in NEED_OTHER_DATA | WEIGHED_BY_THE_COORDINATOR])
def test_an_algorithm_gives_the_same_model_as_in_the_open(tmp_path: Any, algorithm: str) -> None:
    keys: Any = {"algorithm": algorithm, "learner": {"name": "mlp", "hidden": [8]}} \
        if algorithm in ("fedper", "fedrep") else {"algorithm": algorithm}
    plain, hidden = model(run(tmp_path, **keys)), model(run(tmp_path, **keys, stages=HIDDEN))
    for name, values in plain.items():
        np.testing.assert_allclose(hidden[name], values, atol=2e-4)


@pytest.mark.parametrize("algorithm", sorted(WEIGHED_BY_THE_COORDINATOR))
def test_weights_that_only_the_coordinator_knows_are_refused(tmp_path: Any, algorithm: str) -> None:
    with pytest.raises(ConfigError, match="under the stage 'secure-sum' parties weigh themselves"):
        run(tmp_path, algorithm=algorithm, stages=HIDDEN, rounds=1)


def test_fednova_hides_changes_of_parties_that_weigh_alike(tmp_path: Any) -> None:
    keys: Any = {"algorithm": {"name": "fednova", "weights": "uniform"}}
    plain, hidden = model(run(tmp_path, **keys)), model(run(tmp_path, **keys, stages=HIDDEN))
    for name, values in plain.items():
        np.testing.assert_allclose(hidden[name], values, atol=2e-4)


def test_numbers_of_rows_stay_with_their_parties() -> None:
    party = Party(0, 1, {}, population(4))
    sent = SecureSum().send(party, {"update": {"w": np.ones(3, np.float32)}, "rows": 17, "steps": 9, "loss": 0.5})
    assert (sent["rows"], sent["steps"], sent["loss"]) == (1, 1, 0.5)


def test_the_numbers_do_not_depend_on_keys_or_workers(tmp_path: Any) -> None:
    shas = {run(tmp_path, stages=HIDDEN, engine={"workers": workers}).summary["model_sha256"] for workers in (1, 1, 2)}
    assert len(shas) == 1


def test_compression_before_the_mask_saves_bytes_and_means_the_same(tmp_path: Any) -> None:
    fewer = {"name": "random-k", "fraction": 0.25}
    keys: Any = {"learner": {"name": "mlp", "hidden": [64]}}
    open_ = run(tmp_path, **keys, stages=[fewer])
    whole, hidden = run(tmp_path, **keys, stages=HIDDEN), run(tmp_path, **keys, stages=[fewer, *HIDDEN])
    for name, values in model(open_).items():
        np.testing.assert_allclose(model(hidden)[name], values, atol=1e-4)
    assert hidden.summary["bytes_up"] < 0.45 * whole.summary["bytes_up"]


def test_encrypted_sums_are_the_masked_sums(tmp_path: Any) -> None:
    pytest.importorskip("tenseal")
    masked, encrypted = run(tmp_path, stages=HIDDEN), run(tmp_path, stages=[{"name": "one-shot-sum"}])
    for name, values in model(masked).items():
        np.testing.assert_allclose(model(encrypted)[name], values, atol=1e-6)


def test_drop_outs_are_survived_or_stop_the_run(tmp_path: Any) -> None:
    survived = run(tmp_path, stages=HIDDEN, rules={"dropout": 0.05, "quorum": 0.0}, seed=4)
    assert survived.summary["rounds"] == 2
    with pytest.raises(QuorumError, match=r"secure sum|joint randomness"):
        run(tmp_path, stages=HIDDEN, rules={"dropout": 0.5, "quorum": 0.0})


@pytest.mark.parametrize(("keys", "why"), [
    ({"aggregator": "median"}, "compares updates"), ({"aggregator": {"name": "krum"}}, "compares updates"),
    ({"rules": {"largest_update": 3.0}}, "measures each update"), ({"rules": {"replays": "refuse"}}, "earlier ones"),
    ({"contribution": "leave-one-out"}, "with and without a party"), ({"selector": "greedyfed"}, "values parties"),
    ({"algorithm": "q-fedavg"}, "what each party sent"),
    ({"algorithm": "fedasync", "devices": "mobile"}, "what each party sent"),
    ({"topology": "hierarchical"}, "one coordinator"), ({"attack": {"name": "alie"}}, "would have to know all updates"),
])
@pytest.mark.parametrize("stage", ["secure-sum", "one-shot-sum"])
def test_what_needs_single_updates_is_refused_with_the_reason(tmp_path: Any, keys: Any, why: str, stage: str) -> None:
    with pytest.raises(ConfigError, match=rf"does not go with the stage '{stage}'.*{why}"):
        run(tmp_path, **keys, stages=[{"name": stage}])
    assert not list(tmp_path.iterdir())


def test_an_attack_on_rows_or_on_its_own_update_can_hide(tmp_path: Any) -> None:
    attack = {"name": "sign-flip", "parties": ["1"]}
    plain, hidden = run(tmp_path, attack=attack), run(tmp_path, attack=attack, stages=HIDDEN)
    for name, values in model(plain).items():
        np.testing.assert_allclose(model(hidden)[name], values, atol=1e-4)
