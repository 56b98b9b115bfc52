"""The local engine: worker processes give what one process gives, and no fault goes unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tequio import registry
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.local import Local
from tequio.engines.sharing import open_population, write_population
from tequio.engines.worker import Segment, pack, pack_whole, unpack, unpack_whole
from tequio.errors import EngineError, PartyError, QuorumError
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population

PLUGIN = str(Path(__file__).with_name("parties.py"))


@pytest.fixture(scope="module")
def tasks():
    registry.load_plugins([PLUGIN])
    return sys.modules["tequio_plugin_parties"]


@pytest.fixture(scope="module")
def serving():
    """Gives engines that are open, one for each number of workers and of parties."""
    engines = {}

    def open_for(population, workers):
        key = workers, len(population.sizes)
        if key not in engines:
            engines[key] = Local(workers=workers).create()
            engines[key].open(population)
        engines[key].restore({})
        return engines[key]

    yield open_for
    for engine in engines.values():
        engine.close()


@pytest.fixture(params=[(1, 0, 0), (2, 0, 0), (2, 0, 10**9), (2, 10**9, 10**9)],
                ids=["inline", "two workers", "light orders shared", "trifling orders here"])
def federate(request, tasks, serving, monkeypatch):
    workers, trifling, light = request.param
    monkeypatch.setattr("tequio.engines.local._TRIFLING_WORK", trifling)
    monkeypatch.setattr("tequio.engines.local._LIGHT_WORK", light)

    def make(population, **rules):
        engine = serving(population, workers)
        if workers > 1:
            monkeypatch.setattr(engine, "_light_orders", 0)  # every second light order stays here, counted from this
        return Federation(population, engine, seed=3, rules=Rules(**rules))

    return make


def test_replies_come_in_party_order_with_exact_values(federate, tasks):
    federation = federate(tasks.population(10))
    shift = {"shift": np.ones(3, np.float32)}
    replies = federation.ask([7, 0, 9], tasks.column_sum, shift, settings=tasks.Shift(add=1))
    assert replies.parties.tolist() == [0, 7, 9]
    # party p holds rows 4p..4p+3 of a table that counts up: column c sums to 4 * (12p + c) + 18
    expected = [[4 * (12 * party + column) + 18 + 2 for column in range(3)] for party in (0, 7, 9)]
    assert [reply.payload["sum"].tolist() for reply in replies] == expected


def test_large_replies_come_back_whole(federate, tasks):
    federation = federate(tasks.population(10))
    shift = np.arange(120_000, dtype=np.float32).reshape(-1, 3)
    replies = federation.ask([0, 4, 5, 9], tasks.column_sum, {"shift": shift})
    assert replies.parties.tolist() == [0, 4, 5, 9]
    for party, reply in zip([0, 4, 5, 9], replies, strict=True):
        sums = [4 * (12 * party + column) + 18 for column in range(3)]
        np.testing.assert_array_equal(reply.payload["sum"], shift + np.array(sums, np.float32))


def test_state_outlives_the_round_and_streams_do_not_depend_on_the_engine(federate, tasks):
    federation = federate(tasks.population(9))
    federation.ask(federation.everyone(), tasks.count_calls)
    federation.round = 2
    replies = federation.ask(federation.everyone(), tasks.count_calls)
    assert replies.values("calls").tolist() == [2] * 9
    from tequio.federation.rng import stream

    expected = np.array([stream(3, "noise", 2, party).random(2) for party in range(9)])
    np.testing.assert_array_equal(replies.values("noise"), expected)
    assert federation.engine.states()[4]["calls"] == 2


def test_restored_states_are_used(federate, tasks):
    federation = federate(tasks.population(3))
    federation.engine.restore({1: {"calls": 41}})
    assert federation.ask([0, 1], tasks.count_calls).values("calls").tolist() == [1, 42]


def test_a_failing_party_is_named_and_its_state_untouched(federate, tasks):
    federation = federate(tasks.population(10))
    federation.round = 2
    with pytest.raises(PartyError, match=r"party '3' failed in round 2 at task 'engine test.fail at': ValueError"):
        federation.ask(federation.everyone(), tasks.fail_at, settings=tasks.Unlucky(parties=(3, 8)))
    assert 3 not in federation.engine.states()


def test_the_round_goes_on_without_failing_parties_while_the_quorum_holds(federate, tasks):
    federation = federate(tasks.population(10), on_failure="continue", quorum=0.8)
    replies = federation.ask(federation.everyone(), tasks.fail_at, settings=tasks.Unlucky(parties=(3, 8)))
    assert replies.parties.tolist() == [0, 1, 2, 4, 5, 6, 7, 9]
    assert [failure.party for failure in replies.failures] == [3, 8]
    with pytest.raises(QuorumError, match=r"only 7 of 10 parties answered"):
        federation.ask(federation.everyone(), tasks.fail_at, settings=tasks.Unlucky(parties=(1, 2, 3)))


def test_bytes_are_those_of_the_encoded_payloads(federate, tasks):
    from tequio.federation.payload import encode

    federation = federate(tasks.population(2))
    payload = {"shift": np.ones(3, np.float32)}
    replies = federation.ask([0, 1], tasks.column_sum, payload)
    assert federation.traffic.bytes_down == 2 * len(encode(payload))
    assert federation.traffic.bytes_up == sum(len(encode(reply.payload)) for reply in replies)


def test_a_dead_worker_is_an_error_that_names_the_task(tasks):
    engine = Local(workers=2).create()
    engine.open(tasks.population(4))
    try:
        with pytest.raises(EngineError, match=r"killed by signal 9 while it ran task 'engine test.die'"):
            Federation(tasks.population(4), engine).ask([1], tasks.die)
    finally:
        engine.close()


def test_nothing_is_left_in_memory_when_the_coordinator_is_killed(tasks):
    script = (f"import sys, os; sys.path.insert(0, {str(Path(__file__).parent)!r}); from tequio import registry\n"
              f"registry.load_plugins([{PLUGIN!r}]); import tequio_plugin_parties as tasks\n"
              "from tequio.engines.local import Local; from tequio.federation.federation import Federation\n"
              "engine = Local(workers=2).create(); engine.open(tasks.population(4))\n"
              "Federation(tasks.population(4), engine).ask([0, 1, 2, 3], tasks.nothing)\n"
              "pids = [str(worker.process.pid) for worker in engine._workers]\n"
              "print(engine._folder, *pids, flush=True); os.kill(os.getpid(), 9)")
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout
    folder, *pids = printed.split()
    for pid in pids:  # the workers end by themselves; wait for them through /proc, not by a clock
        _wait_for_exit(int(pid))
    assert not Path(folder).exists()


def _wait_for_exit(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    select.select([handle], [], [], 30)
    os.close(handle)


def test_a_population_survives_sharing(tmp_path):
    schema = Schema((Feature("age"), Feature("sex", ("f", "m"))), Target("classes", ("low", "high"), "risk"))
    features = np.array([[30, 0], [40, 1], [50, 1]], np.float64)
    dataset = Dataset.of(schema, features, [0, 1, 1], ids=["x", "y", "z"], groups=["h1", "h1", "h2"])
    partition = Partition.of([np.array([0, 1]), np.array([2])], names=("one", "two"), categories=("a", "b"),
                             columns=(np.array([0]), np.array([1])), holds_target=(False, True))
    write_population(Population(dataset, partition, Split(0.0, 0.0), 5, {1: {"local": {"epochs": 2}}}), tmp_path)
    opened = open_population(tmp_path)
    assert opened.dataset.schema == schema
    assert (opened.name(1), opened.seed, opened.overrides[1]) == ("two", 5, {"local": {"epochs": 2}})
    assert opened.view(1).train.features.tolist() == [[1.0]]
    assert opened.view(1).train.ids.tolist() == ["z"]
    assert opened.view(0).train.schema.target.kind == "none"


def test_sparse_data_stays_sparse_when_shared(tmp_path):
    matrix = sparse.random(20, 50, density=0.1, format="csr", random_state=0, dtype=np.float32)
    schema = Schema.of_numbers([f"f{index}" for index in range(50)], Target("number"))
    dataset = Dataset.of(schema, matrix, np.arange(20.0))
    write_population(Population(dataset, Partition.of([np.arange(20)]), Split(0.0, 0.0)), tmp_path)
    rows = open_population(tmp_path).view(0).train
    assert rows.is_sparse
    assert (rows.features != matrix).nnz == 0


def in_shared_memory(message, folder):
    return unpack(pack(message, Segment(folder / "segment")), Segment(folder / "segment"), copy=True)


def in_one_piece(message, folder):
    return unpack_whole(pack_whole(message), copy=False)


@pytest.mark.parametrize("sent", [in_shared_memory, in_one_piece])
def test_messages_survive_the_way(sent, tmp_path):
    message = {"a": [{"x": np.arange(5)}, {"x": np.zeros((0, 3))}], "b": {"y": np.float32([[1, 2]])}, "n": 3, "s": "é"}
    opened = sent(message, tmp_path)
    assert opened["a"][0]["x"].tolist() == [0, 1, 2, 3, 4]
    assert opened["a"][1]["x"].shape == (0, 3)
    assert (opened["b"]["y"].tolist(), opened["n"], opened["s"]) == ([[1.0, 2.0]], 3, "é")


def test_a_message_in_one_piece_may_hold_no_arrays_and_is_read_without_a_copy():
    assert unpack_whole(pack_whole({"n": 3}), copy=False) == {"n": 3}
    data = pack_whole({"x": np.arange(5), "y": np.ones(3)})
    opened = unpack_whole(data, copy=False)
    assert all(np.shares_memory(values, np.frombuffer(data, np.uint8)) for values in opened.values())
    assert all(values.flags.aligned and not values.flags.writeable for values in opened.values())


def test_a_segment_grows_and_old_views_stay_valid(tmp_path):
    writer, reader = Segment(tmp_path / "segment"), Segment(tmp_path / "segment")
    first = unpack(pack({"x": np.full(10, 1.0)}, writer), reader, copy=True)
    second = unpack(pack({"x": np.full(100_000, 2.0)}, writer), reader, copy=False)
    assert first["x"].tolist() == [1.0] * 10
    assert second["x"].sum() == 200_000
