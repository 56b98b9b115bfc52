"""What vertical algorithms share: aligned rows, agreed parts, evaluation at the label holder, missing parties."""

from __future__ import annotations

import numpy as np
import pytest
from joint import (
    JointSum,
    Transcript,
    assert_no_ids,
    assert_no_rows,
    dealt,
    federation_of,
    kept,
    people,
    play,
    said,
)

from tequio.algorithms.vertical.intersection import OwnSide
from tequio.algorithms.vertical.rows import PARTS, CommonRows, QueryRows
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition, Split
from tequio.errors import ConfigError, DataError, PartyError, QuorumError, TequioError
from tequio.federation.algorithm import part_types
from tequio.federation.population import Population
from tequio.learners.metrics import summarise, tally


def ids_of(population, federation, party):
    """The ids of a party's common rows in its own order of agreement."""
    mine = population.partition.view(population.dataset, party)
    return mine.ids[kept(federation.engine.states()[party], CommonRows)["rows"]]


@pytest.mark.parametrize("parties", [1, 2, 3])
@pytest.mark.parametrize("overlap", [1.0, 0.4])
def test_parties_agree_on_one_order_of_the_common_rows(parties, overlap):
    population = dealt(parties=parties, overlap=overlap)
    federation = federation_of(population)
    play(JointSum(), federation)
    orders = [ids_of(population, federation, party) for party in range(parties)]
    held = [set(population.partition.view(population.dataset, party).ids.tolist()) for party in range(parties)]
    assert set(orders[0].tolist()) == set.intersection(*held)
    for order in orders[1:]:
        np.testing.assert_array_equal(order, orders[0])
    parts = [kept(federation.engine.states()[party], CommonRows)["part"] for party in range(parties)]
    assert all((part == parts[0]).all() for part in parts)
    assert [int((parts[0] == code).sum()) for code in range(3)][1:] == [round(0.2 * len(orders[0]))] * 2


def test_the_agreed_order_is_the_same_again_though_the_masks_are_not():
    first, again = (federation_of(dealt()) for _ in range(2))
    for federation in (first, again):
        play(JointSum(), federation)
    for one, other in zip(first.engine.states().values(), again.engine.states().values(), strict=True):
        np.testing.assert_array_equal(kept(one, CommonRows)["rows"], kept(other, CommonRows)["rows"])
    sealed, others = ([value for name, sender, _, value in said(each.engine)
                       if name == "intersection.show" and sender != "coordinator"] for each in (first, again))
    assert len(sealed) == 2
    assert not set(sealed) & set(others)


@pytest.mark.parametrize("parties", [2, 3])
def test_nothing_of_the_alignment_shows_an_id_a_row_or_a_secret(parties):
    population = dealt(parties=parties)
    federation = federation_of(population)
    play(JointSum(), federation)
    assert_no_ids(federation.engine, population)
    assert_no_rows(federation.engine, population)
    for state in federation.engine.states().values():
        assert not kept(state, OwnSide)


def test_the_label_holder_tallies_the_common_rows_of_a_part():
    population = dealt(overlap=0.5)
    federation = federation_of(population)
    algorithm = JointSum()
    state = play(algorithm, federation)
    found = algorithm.evaluate(federation, state, "test", federation.everyone())
    rows = population.dataset
    common = ids_of(population, federation, 0)
    part = kept(federation.engine.states()[0], CommonRows)["part"]
    place = {identity: row for row, identity in enumerate(rows.ids.tolist())}
    order = np.array([place[identity] for identity in common.tolist()])
    train = rows.features[order[part == PARTS.index("train")]]
    chosen = order[part == PARTS.index("test")]
    score = ((rows.features[chosen] - train.mean(0)) / train.std(0)).sum(1)
    positive = 1 / (1 + np.exp(-score))
    expected = tally(rows.schema.target, np.stack([1 - positive, positive], 1), rows.target[chosen])
    assert list(found) == [0]
    assert summarise(rows.schema.target, found[0]) == pytest.approx(summarise(rows.schema.target, expected))


def test_the_coordinators_own_rows_can_be_scored():
    population = dealt(overlap=1.0)
    federation = federation_of(population)
    algorithm = JointSum()
    state = play(algorithm, federation)
    fresh = people(30, seed=5)
    assert algorithm.score(federation, state, fresh)["rows"] == 30


def test_new_rows_are_aligned_and_predicted_in_the_order_of_the_label_holder():
    population = dealt(overlap=0.5)
    federation = federation_of(population)
    algorithm = JointSum()
    state = play(algorithm, federation)
    newcomers = dealt(people(40, seed=9), overlap=0.25, seed=3)
    asking = federation_of(newcomers)
    asking.engine.restore(federation.engine.states())
    found = algorithm.predict(asking, state)
    assert len(found["scores"]) == 10
    assert (np.diff(found["rows"]) > 0).all()
    other = algorithm.predict(asking, state, asking=1)
    np.testing.assert_array_equal(other["scores"], found["scores"])
    own, others = (newcomers.whole(party).ids[rows] for party, rows in ((0, found["rows"]), (1, other["rows"])))
    np.testing.assert_array_equal(own, others)
    assert not any(kept(state, QueryRows) for state in asking.engine.states().values())
    assert_no_ids(asking.engine, newcomers)


def test_everyone_who_is_needed_for_a_prediction_and_does_not_answer_is_named():
    population = dealt(called=("bank", "insurer"))
    federation = federation_of(population)
    state = play(JointSum(), federation)
    offline = federation_of(population, dropout=1.0)
    offline.engine.restore(federation.engine.states())
    with pytest.raises(QuorumError, match=r"without party 'bank' .*'insurer'"):
        JointSum().predict(offline, state)


def test_a_missing_party_stops_the_run_with_its_name():
    population = dealt(called=("bank", "insurer"))
    federation = federation_of(population, dropout=1.0)
    with pytest.raises(QuorumError, match=r"cannot go on without party 'bank' \(label holder; gave no answer\), "
                                          r"'insurer' \(feature party; gave no answer\)"):
        play(JointSum(), federation)


def test_a_round_without_a_party_rests_where_that_is_allowed():
    events = []
    federation = federation_of(dealt(), dropout=0.5, on_failure="continue", quorum=0.5,
                               record=lambda kind, facts: events.append((kind, facts)))
    state = play(JointSum(), federation, rounds=12)
    paused = [facts for kind, facts in events if kind == "paused"]
    assert 0 < len(paused) < 12
    assert state.memory["steps"] == 12 - len(paused)


def test_a_failing_party_is_named_with_its_cause():
    dataset = people()
    broken = Dataset.of(dataset.schema, dataset.features, dataset.target, ids=np.zeros(len(dataset), np.int64))
    with pytest.raises(PartyError, match=r"party '0' .* 59 of the 60 ids of party '0' are repeated"):
        play(JointSum(), federation_of(dealt(broken, overlap=1.0)))


def test_parties_without_common_ids_are_told_so():
    with pytest.raises(TequioError, match="no ids in common"):
        play(JointSum(), federation_of(dealt(overlap=0.0)))


def test_parties_that_agreed_before_need_no_intersection():
    federation = federation_of(dealt(overlap=1.0))
    play(JointSum(alignment="agreed"), federation)
    states = federation.engine.states()
    np.testing.assert_array_equal(*(kept(states[party], CommonRows)["rows"] for party in (0, 1)))
    with pytest.raises(DataError, match="do not hold the same rows: '0' has 45, '1' has 44"):
        play(JointSum(alignment="agreed"), federation_of(dealt(people(59), overlap=0.5)))


def test_what_crossed_is_on_record_by_task_and_party():
    events = []
    federation = federation_of(dealt(key_holder=True), record=lambda kind, facts: events.append((kind, facts)))
    play(JointSum(), federation)
    told = {(facts["task"], facts["party"]): facts for kind, facts in events if kind == "messages"}
    shown = told["intersection.show", "1"]
    assert shown["role"] == "feature party"
    assert shown["up"] == {"box": {"kind": "bytes", "shape": [3216], "amount": 3216}}  # 45 ids padded to 100
    assert shown["bytes_up"] > 100 * 32
    assert told["vertical.deal parts", "0"]["role"] == "label holder"
    assert all(facts["times"] == 0 for (_, party), facts in told.items() if party == "key holder")
    assert all(facts["waiting_seconds"] >= 0 for facts in told.values())
    assert sum(facts["bytes_up"] for facts in told.values()) == federation.traffic.bytes_up


def test_other_partitions_are_refused_and_there_is_nothing_to_select():
    dataset = people()
    rows = Population(dataset, Partition.of([np.arange(30), np.arange(30, 60)]), Split())
    with pytest.raises(ConfigError, match="different columns"):
        play(JointSum(), federation_of(rows))
    assert part_types(JointSum) == {}


def test_a_key_holder_is_a_party_without_rows_or_columns():
    population = dealt(key_holder=True, called=("bank", "insurer"))
    assert [population.name(party) for party in range(3)] == ["bank", "insurer", "key holder"]
    assert len(population.view(2).train) == 0
    assert population.partition.key_holder == 2
    population.partition.check(10)


def test_the_label_holder_may_have_no_columns():
    population = dealt(names=((), ("c0", "c1"), ("c2",)), overlap=1.0)
    federation = federation_of(population)
    algorithm = JointSum()
    state = play(algorithm, federation)
    assert algorithm.evaluate(federation, state, "test", federation.everyone())[0]["rows"] == 12


def test_the_transcript_keeps_both_directions():
    engine = Transcript()
    federation = federation_of(dealt(), engine=engine)
    play(JointSum(), federation)
    assert {sender for _, sender, _, _ in engine.messages} == {"coordinator", 0, 1}
