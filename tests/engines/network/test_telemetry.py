"""What others can bring about at will is written a number of times, and then summed up, in bounded memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tequio.engines.network import telemetry
from tequio.engines.network.telemetry import Allowance, AuditLog, Telemetry, address_of, entries


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_an_allowance_is_a_burst_and_then_a_rate(clock):
    allowance = Allowance(burst=3, per_second=0.5)
    assert [allowance.spend("north") for _ in range(4)] == [True, True, True, False]
    assert allowance.spend("south")
    clock.seconds = 2.0
    assert [allowance.spend("north", 0), allowance.spend("north"), allowance.spend("north")] == [True, True, False]
    clock.seconds = 1000.0
    assert sum(allowance.spend("north") for _ in range(9)) == 3


def test_an_allowance_remembers_a_bounded_number_of_callers(clock):
    allowance = Allowance(burst=1, per_second=0.0)
    for caller in range(10_000):
        allowance.spend(caller)
    assert len(allowance._left) == 4096


@pytest.mark.parametrize(("peer", "address"), [
    ("ipv4:192.0.2.7:51234", "192.0.2.7"), ("ipv6:%5B2001:db8:0:1::7%5D:51234", "2001:db8:0:1::/64"),
    ("ipv6:[::1]:51234", "::/64"), ("unix:", ""), ("", "")])
def test_callers_are_known_by_their_address(peer, address):
    assert address_of(peer) == address


def test_a_burst_is_summed_up_by_event_and_party(tmp_path, clock):
    log = tmp_path / "audit.jsonl"
    sink = Telemetry(AuditLog(log))
    for _ in range(1_000):
        sink.note("unexpected message", party="north")
        sink.note("task done", run="a run")
    sink.note("unexpected message", party="south")
    sink.sum_up()
    sink.sum_up()  # nothing was left out since
    found = entries(log)
    assert sum(entry["event"] == "task done" for entry in found) == 1_000  # work is never left out
    assert sum(entry.get("party") == "north" for entry in found) == 100
    assert sum(entry.get("party") == "south" for entry in found) == 1
    assert [(entry["what"], entry["who"], entry["count"], entry["text"]) for entry in found
            if entry["event"] == "left out"] == [("unexpected message", "north", 900,
                                                  "900 more of these were left out")]


def test_strangers_from_many_addresses_fill_no_disk(tmp_path, clock):
    sink = Telemetry(AuditLog(tmp_path / "audit.jsonl"))
    for host in range(5_000):
        sink.note("link refused", peer=f"ipv4:10.0.{host // 256}.{host % 256}:1000", cause="no such party")
    sink.note("link refused", party="north", cause="an old version")
    sink.sum_up()
    found = entries(tmp_path / "audit.jsonl")
    assert sum(entry["event"] == "link refused" for entry in found) == 1_001
    left_out = [entry for entry in found if entry["event"] == "left out"]
    assert sum(entry["count"] for entry in left_out) == 4_000
    assert len(left_out) == 257
