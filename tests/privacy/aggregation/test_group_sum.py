"""Sums in groups: the numbers of the hierarchy itself, and nothing accepted that does not add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError
from tequio.federation.exchange import Reply
from tequio.federation.task import fault_of
from tequio.privacy.aggregation.group_sum import _fault, hand_over, merge_group

BASE = {"seed": 2, "rounds": 2, "data": {"name": "digits", "partition": {"name": "dirichlet", "parties": 7},
                                         "one_class": "allow"},
        "learner": {"name": "mlp", "hidden": [8]}, "engine": {"name": "local", "workers": 1}}


def run(place: Any, **keys: Any) -> Any:
    return tequio.run({**BASE, **keys}, output={"folder": str(place)})


@pytest.mark.parametrize("algorithm", ["fedavg", "fedadam", "scaffold"])
def test_a_sum_in_groups_is_the_hierarchy_itself_bit_by_bit(tmp_path: Any, algorithm: str) -> None:
    tree = {"name": "hierarchical", "aggregators": 3}
    keys: dict[str, Any] = {"algorithm": algorithm, "topology": tree}
    plain, summed = run(tmp_path, **keys), run(tmp_path, **keys, stages=[{"name": "group-sum"}])
    assert plain.summary["model_sha256"] == summed.summary["model_sha256"]
    facts = [event["group_sum"] for event in summed.events if event["event"] == "aggregation"]
    assert {(fact["groups"], fact["summed"]) for fact in facts} == {(3, 7)}


def test_what_looks_at_single_updates_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="does not go with the stage 'group-sum'"):
        run(tmp_path, algorithm="q-fedavg", topology="hierarchical", stages=[{"name": "group-sum"}])


@pytest.mark.parametrize("stages", [[{"name": "central-dp", "noise": 1.0, "clip": 1.0}, {"name": "group-sum"}],
                                    [{"name": "group-sum"}, {"name": "verified"}]])
def test_what_counts_on_sums_in_whole_numbers_is_refused(tmp_path: Any, stages: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match=r"in groups|means of groups"):
        run(tmp_path, topology="hierarchical", stages=stages)


def test_parties_that_drop_out_between_the_exchanges_are_left_out(tmp_path: Any) -> None:
    result = run(tmp_path, topology="hierarchical", stages=[{"name": "group-sum"}],
                 rules={"dropout": 0.3, "quorum": 0.0}, seed=5)
    facts = [event["group_sum"] for event in result.events if event["event"] == "aggregation"]
    assert any(fact["summed"] < 7 for fact in facts)


def test_merging_is_the_weighted_mean_whatever_was_merged_before() -> None:
    handed = [{"mean": np.array([value], np.float32), "weight": weight, "parties": [party]}
              for party, (value, weight) in enumerate([(1.0, 1.0), (4.0, 2.0), (7.0, 1.0)])]
    merged = merge_group([merge_group(handed[:2]), handed[2]])
    assert merged["mean"].tolist() == [4.0]
    assert (merged["weight"], merged["parties"]) == (4.0, [0, 1, 2])
    assert merged["mean"].dtype == np.float64


@pytest.mark.parametrize(("said", "told"), [
    ({"mean": np.zeros(2), "weight": 3.0, "parties": [1, 2]}, ""),
    ({"merged": True}, ""),
    ({}, "handed nothing over"),
    ({"mean": np.zeros(2), "weight": 1.0, "parties": [2]}, "cannot stand for"),
    ({"mean": np.zeros(2), "weight": 1.0, "parties": [1, 9]}, "cannot stand for"),
    ({"mean": np.zeros(2), "weight": 1.0}, "cannot stand for"),
    ({"mean": np.zeros(3), "weight": 1.0, "parties": [1]}, "not 2 numbers"),
    ({"mean": np.zeros(2, np.int64), "weight": 1.0, "parties": [1]}, "not 2 numbers"),
    ({"mean": np.zeros(2), "weight": 9.0, "parties": [1]}, "does not weigh"),
])
def test_what_does_not_add_up_is_refused(said: dict[str, Any], told: str) -> None:
    fault = _fault(Reply(1, said), {1: 1.0, 2: 2.0}, 2)
    assert told in fault
    assert bool(told) == bool(fault)


def test_what_is_no_mean_at_all_is_no_reply_of_the_task() -> None:
    assert fault_of(hand_over.reply, {"mean": "x", "weight": 1.0, "parties": [1]}) == \
        "'mean' of its reply is not an array of floats"
