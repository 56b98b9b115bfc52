"""A hostile party sends any reply: spec 005, section 6. It fails by name, and the others' run goes on without it."""

from __future__ import annotations

import csv
import io
import json
import struct
import warnings
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from contracts.test_algorithms import ALGORITHMS, ONE_PARTY_ONLY, Play, is_vertical
from fuzz import replies as forgery
from tequio.cli import errors as screen
from tequio.engines.inline import InlineEngine
from tequio.engines.network import wire
from tequio.engines.network.files import check_party_name
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries, verify
from tequio.errors import ConfigError, PartyError, PayloadError, QuorumError, TequioError
from tequio.experiments.running.measuring import party_table, pooled
from tequio.experiments.running.table import Table, read_csv
from tequio.federation import payload as payloads
from tequio.federation.exchange import Replies, Reply
from tequio.federation.task import find_task, installed_tasks, most_rows
from tequio.learners.metrics import check_tally, merge, summarise, tally
from tequio.privacy.compression.low_rank import LowRank
from tequio.privacy.compression.packing import DeltaZstd
from tequio.privacy.compression.sparse import TopK
from tequio.views.report import _warnings

GUILTY = 1
BINARY, SEVERAL, LABELS, NUMBER, NONE = forgery.TARGETS


class Hostile(InlineEngine):
    """Runs everything honestly, but for what party 1 replies to one task."""

    def __init__(self, task: str, forge: Any) -> None:
        super().__init__()
        self.task, self.forge = task, forge

    def collect(self) -> Any:
        task, outcome = self._waiting[0].task, super().collect()
        if task != self.task:
            return outcome
        answers = tuple(replace(reply, payload=self.forge(reply.payload)) if reply.party == GUILTY else reply
                        for reply in outcome.replies)
        return replace(outcome, replies=answers, columns=None)


def played(forge: Any, name: str = "fedavg", task: str = "train") -> Play:
    """Two rounds of an algorithm and an evaluation beside a party that forges its replies."""
    play = Play(name, Hostile(task, forge), on_failure="continue", quorum=0.5).rounds(2)
    people = play.federation
    tallies = play.algorithm.evaluate(people, play.state, "test", people.eligible())
    play.measured = summarise(people.schema.target, pooled(people, tallies))
    play.table = party_table(people, tallies)
    return play


def failed(play: Play) -> set[tuple[str, str]]:
    return {(facts["party"], facts["cause"]) for kind, facts in play.events if kind == "failure"}


def huge(payload: Any, value: float) -> Any:
    return {**payload, "update": {name: np.full_like(array, value) for name, array in payload["update"].items()}}


@pytest.mark.parametrize(("forge", "words"), [
    (lambda payload: {}, "its reply has no '"),
    (lambda payload: {**payload, "rows": float("nan")}, "'rows' of its reply is not a whole number"),
    (lambda payload: {**payload, "rows": "many"}, "'rows' of its reply is not a whole number"),
    (lambda payload: {**payload, "rows": -5}, "'rows' of its reply is not a whole number"),
    (lambda payload: {**payload, "rows": 1e300}, "'rows' of its reply is not a whole number"),
    (lambda payload: {**payload, "rows": 21}, "'rows' of its reply is 21, but the party reported 20 rows"),
    (lambda payload: {**payload, "steps": 1 << 62}, "'steps' of its reply is not a whole number"),
    (lambda payload: {**payload, "loss": float("inf")}, "its reply has values that are not finite"),
    (lambda payload: huge(payload, np.nan), "its reply has values that are not finite"),
    (lambda payload: huge(payload, 3e38), "would do away with the model"),
    (lambda payload: huge(payload, 1e18), "would do away with the model"),
    (lambda payload: huge(payload, -1e9), "would do away with the model"),
    (lambda payload: {**payload, "update": {name: array.astype(np.int64) for name, array in payload["update"].items()}},
     "'update' of its reply is not named arrays of floats"),
    (lambda payload: {**payload, "update": {}}, "does not fit the model"),
])
def test_a_reply_to_training_that_cannot_be_fails_its_party_and_nobody_else(forge: Any, words: str) -> None:
    """An empty reply, rows that are none, integer updates and one of 3e38 stopped everybody or were accepted."""
    play = played(forge)
    causes = failed(play)
    assert {party for party, _ in causes} == {str(GUILTY)}
    assert all(words in cause for _, cause in causes)
    assert all(np.isfinite(values).all() and values.any() for values in play.state.model.values())
    assert 0.5 < play.measured["accuracy"] <= 1


def with_entry(name: str, value: Any) -> Any:
    return lambda payload: {**payload, name: value}


def with_sum(name: str, value: Any) -> Any:
    return lambda payload: {"sums": {**payload["sums"], name: value}}


CONFUSION = np.array([[-35_087_720, 35_087_724], [0, 0]])


@pytest.mark.parametrize(("forge", "words"), [
    (with_entry("confusion", CONFUSION), "counts below 0 or above its 4 rows"),
    (with_entry("confusion", np.zeros((2, 2), np.int64)), "a confusion of 0 rows instead of 4"),
    (with_entry("confusion", np.ones((3, 3), np.int64)), "no table of whole numbers of shape (2, 2)"),
    (with_entry("confusion", np.ones((2, 2))), "no table of whole numbers of shape (2, 2)"),
    (with_entry("confusion", "right"), "no table of whole numbers"),
    (with_entry("score_histogram", np.zeros((2, 1001), np.int64)), "scores of other rows"),
    (with_entry("rows", 21), "is not of 0 to 119 rows"), (with_entry("rows", -1), "rows"),
    (with_entry("rows", 4.0), "rows"), (with_entry("loss_sum", -1.0), "a 'loss_sum' that no rows add up to"),
    (with_entry("loss_sum", 1e305), "a 'loss_sum' that no rows add up to"),
    (with_entry("loss_sum", np.zeros(2)), "a 'loss_sum' that no rows add up to"),
    (with_entry("loss_sum", float("nan")), "not finite"), (with_entry("more", 1), "an entry 'more'"),
    (lambda payload: {"rows": payload["rows"], "squared_error": 1.0}, "an entry 'squared_error'"),
    (lambda payload: {name: value for name, value in payload.items() if name != "confusion"}, "has no 'confusion'"),
])
def test_a_tally_that_no_rows_have_fails_its_party_and_metrics_are_of_the_rest(forge: Any, words: str) -> None:
    """Malformed tallies stopped the run; a negative confusion gave an accuracy of -35,087,719."""
    honest = played(lambda payload: payload, task="evaluate")
    if "119" in words:
        words = f"is not of 0 to {most_rows(int(honest.federation.sizes[GUILTY]))} rows"
    play = played(forge, task="evaluate")
    assert {party for party, _ in failed(play)} == {str(GUILTY)}
    assert all(words in cause for _, cause in failed(play))
    assert play.table["party"] == [name for name in honest.table["party"] if name != str(GUILTY)]
    assert 0 <= play.measured["accuracy"] <= 1


@pytest.mark.parametrize("forge", [with_entry("rows", 1 << 62), with_entry("confusion", CONFUSION)])
def test_where_the_rules_say_stop_the_party_is_named(forge: Any) -> None:
    play = Play("fedavg", Hostile("evaluate", forge)).rounds(1)
    with pytest.raises(TequioError, match=r"party '1' failed in round 1 at task 'evaluate'.*on_failure = 'continue'"):
        play.algorithm.evaluate(play.federation, play.state, "test", play.federation.eligible())


def test_a_party_that_leaves_sums_out_takes_no_metric_from_the_others() -> None:
    """A policy may keep losses and scores at home; a hostile party may leave them out to stop a rule that needs one."""
    honest = played(lambda payload: payload, task="evaluate")
    without = played(lambda payload: {name: payload[name] for name in ("rows", "confusion")}, task="evaluate")
    assert failed(without) == set()
    assert without.measured.keys() == honest.measured.keys()
    assert without.measured["accuracy"] == honest.measured["accuracy"]
    rows = [row for row in honest.table.rows if row["party"] != str(GUILTY)]
    assert without.measured["loss"] == pytest.approx(np.average([row["loss"] for row in rows],
                                                                weights=[row["rows"] for row in rows]))
    assert "loss" not in next(row for row in without.table.rows if row["party"] == str(GUILTY))


def test_what_all_parties_keep_to_themselves_is_not_reported() -> None:
    scores, truth = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0])
    whole = tally(NUMBER, scores, truth)
    coarse = {name: whole[name] for name in ("rows", "squared_error", "absolute_error")}
    check_tally(NUMBER, coarse, 3, "a party")
    assert summarise(NUMBER, coarse) == pytest.approx({"rmse": (1 / 3) ** 0.5, "mae": 1 / 3})
    assert summarise(NUMBER, {"rows": 3}) == summarise(BINARY, {"rows": 3}) == {}
    both = merge([whole, coarse])  # of the sums that give R squared two are known of three rows, and one of six
    assert summarise(NUMBER, both) == pytest.approx({"loss": 1 / 3, "rmse": (1 / 3) ** 0.5, "mae": 1 / 3})


@pytest.mark.parametrize(("target", "changes"), [
    (LABELS, {"hamming_errors": 31}), (LABELS, {"exact_matches": 11}), (LABELS, {"top_errors": 11}),
    (LABELS, {"labelled_rows": 0}), (LABELS, {"true_positives": np.array([11, 0, 0])}),
    (LABELS, {"label_rows": np.array([10, 10])}), (LABELS, {"ranking_loss_sum": 10.5}),
    (LABELS, {"coverage_sum": 31.0}), (LABELS, {"average_precision_sum": -1.0}), (LABELS, {"decisions": 5}),
    (NUMBER, {"squared_error": -1.0}), (NUMBER, {"target_sum": 1e3}), (NUMBER, {"target_squares": 0.0}),
    (NUMBER, {"confusion": np.ones((2, 2), np.int64)}), (NONE, {"inertia_sum": -1e-9}), (NONE, {"rows": True}),
    (SEVERAL, {"score_histogram": np.zeros((2, 1001), np.int64)}), (SEVERAL, {"rows": 9})])
def test_tallies_of_every_kind_of_target_are_checked(target: Any, changes: dict[str, Any]) -> None:
    sound = forgery._tally_of(target)
    check_tally(target, sound, 10, "a party")
    check_tally(target, {}, 10, "a party")
    with pytest.raises(PayloadError, match="a party sent a tally that"):
        check_tally(target, sound, 9, "a party")
    with pytest.raises(PayloadError, match="a party sent a tally that"):
        check_tally(target, {**sound, **changes}, 10, "a party")


@pytest.mark.parametrize(("name", "task", "forge"), [
    ("statistics", "statistics: summary", with_entry("squares", np.full(4, -1.0))),
    ("statistics", "statistics: summary", with_entry("mean", np.full(4, 1e200))),
    ("statistics", "statistics: brackets", with_sum("up_to", np.full((4, 3, 17), 200))),
    ("statistics", "statistics: brackets", with_sum("up_to", np.tile(np.arange(17)[::-1], (4, 3, 1)))),
    ("statistics", "statistics: brackets", with_sum("rows", np.full(4, -1))),
    ("statistics", "statistics: labels", with_sum("labels", np.full(2, 20))),
    ("statistics", "statistics: labels", with_sum("labels", np.full(3, 1))),
    ("kmeans", "kmeans: move centroids", with_sum("counts", np.full(2, -3.0))),
    ("kmeans", "kmeans: move centroids", with_sum("counts", np.full(2, 0.5))),
    ("histogram-gbdt", "histogram-gbdt: sum gradients",
     lambda payload: {"sums": {**payload["sums"], "curvature": -payload["sums"]["curvature"] - 1}}),
    ("histogram-gbdt", "boosting: total targets", with_sum("totals", np.array([-4.0, 24.0]))),
    ("federated-id3", "federated-id3: count",
     lambda payload: {"sums": {"counts": payload["sums"]["counts"] + 0.5}})])
def test_counts_and_sums_that_no_rows_have_fail_their_party(name: str, task: str, forge: Any) -> None:
    play = Play(name, Hostile(task, forge), on_failure="continue", quorum=0.5).rounds(1)
    assert {party for party, _ in failed(play)} == {str(GUILTY)}


def flood(arrays: int) -> bytes:
    """A payload of empty arrays."""
    header = msgspec.json.encode({str(index): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
                                  for index in range(arrays)})
    skeleton = msgspec.msgpack.encode({str(index): {"\x00array": str(index)} for index in range(arrays)})
    return payloads.MAGIC + struct.pack("<I", len(skeleton)) + skeleton + len(header).to_bytes(8, "little") + header


def test_200_000_empty_arrays_are_refused_before_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """They took 4.4 s."""
    assert len(payloads.decode(flood(1000))) == 1000
    monkeypatch.setattr(payloads, "_array", None)
    with pytest.raises(PayloadError, match="there are more than 65536 of them"):
        payloads.decode(flood(200_000))
    with pytest.raises(PayloadError, match="more than 65536 arrays"):
        payloads.check({"many": [np.zeros(0)] * 65_537})


@pytest.mark.parametrize(("stage", "content"), [
    (DeltaZstd(), lambda: {"packed": __import__("zstandard").ZstdCompressor().compress(bytes(1 << 28))}),
    (TopK(fraction=1e-6), lambda: {"values": np.ones(268, np.float32), "gaps": np.ones(268, np.uint32), "rest": {},
                                   "layout": [["w", "<f4", [1 << 28]]]}),
    (LowRank(rank=1), lambda: {"shapes": {"w": ["<f4", [1 << 14, 1 << 14]]}, "names": ["w"],
                               "left w": np.ones((1 << 14, 1), np.float32),
                               "right w": np.ones((1 << 14, 1), np.float32)})])
def test_a_compressed_update_unpacks_to_no_more_than_the_model_allows(stage: Any, content: Any) -> None:
    """What it grows to is bounded by what the party was sent, and not by what it says; it may grow 1,000-fold."""
    update = {"by": {DeltaZstd: "delta-zstd", TopK: "top-k", LowRank: "low-rank"}[type(stage)], **content()}
    found = stage.receive(Replies((Reply(GUILTY, {"update": update}, bytes_down=1000),)), 1, 0)
    assert not found.answers
    assert [(failure.party, "the model sent allows 1048576" in failure.cause) for failure in found.failures] == [
        (GUILTY, True)]


@pytest.mark.parametrize("name", [task.name for task in installed_tasks() if task.name in forgery._names()])
def test_no_reply_to_any_task_does_more_than_fail_its_party(name: str) -> None:
    """Of every task: a missing or surplus key, a wrong type, shape or number, nested nonsense."""
    task, rng = find_task(name), np.random.default_rng(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for world in forgery.federations().values():
            honest = forgery.valid(task, world.schema.target)
            refused = [forgery.asked(task, world, honest, forged).cause for forged in (
                None, [], 3, "reply", np.ones(2), {"surplus": 1}, *({key: value for key, value in honest.items()
                                                                   if key != left} for left in honest))]
            assert all(refused[:5])
            for _ in range(10):
                forgery.asked(task, world, honest, forgery.changed(honest, rng))


def test_forged_replies_never_bring_in_a_number_that_cannot_be() -> None:
    """5,000 of the 100,000 that the whole fuzz makes; see `tests/fuzz/replies.py`."""
    found = forgery.run(5000, say=lambda line: None)
    assert found["refused"] > 3000
    assert found["accepted"] > 100  # a changed text, or a number that the party may well mean


@pytest.mark.slow
def test_100_000_forged_replies_never_bring_in_a_number_that_cannot_be() -> None:
    assert sum(forgery.run(100_000, seed=1, say=lambda line: None).values()) == 100_000


class Erratic(InlineEngine):
    """Party 1 forges one of its replies, in any task."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng, self.wait = np.random.default_rng(seed), seed % 6

    def collect(self) -> Any:
        outcome = super().collect()
        return replace(outcome, columns=None, replies=tuple(
            replace(reply, payload=self._forged(reply.payload)) if reply.party == GUILTY else reply
            for reply in outcome.replies))

    def _forged(self, payload: Any) -> Any:
        self.wait -= 1
        if self.wait != -1:
            return payload
        try:
            return payloads.decode(payloads.encode(forgery.changed(payload, self.rng)))
        except PayloadError:
            return {"surplus": 1}


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ONE_PARTY_ONLY])
def test_no_algorithm_ends_for_another_reason_than_that_the_quorum_is_not_met(name: str) -> None:
    """Where every party is needed a hostile one stops the work, but by its name."""
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                play = Play(name, Erratic(seed), on_failure="continue", quorum=0.0).rounds(2)
                tallies = play.algorithm.evaluate(play.federation, play.state, "test", play.federation.eligible())
                if tallies:
                    pooled(play.federation, tallies)
            except TequioError as cause:
                assert is_vertical(name) or isinstance(cause, QuorumError), f"seed {seed}: {cause}"



SPITEFUL = ("\x1b[2J\x1b[31mall is well", "one\nparty 'north' approved", "rub\rout\x08\x07",
            "<script>alert(1)</script>", "\u202egnp.exe", "=HYPERLINK(\"http://x\")", "a\x00b", "\x9b31m")
"""Texts that would do something in a terminal, a log, a page or a spreadsheet."""


@pytest.mark.parametrize("name", [*SPITEFUL, "", ".hidden", "../up", "-x", "+1", "@here", "a" * 64, "a/b", "tab\tbed"])
def test_a_party_cannot_be_called_what_does_something_elsewhere(name: str) -> None:
    with pytest.raises(ConfigError, match="a party cannot be called"):
        check_party_name(name)


@pytest.mark.parametrize("text", SPITEFUL)
@pytest.mark.parametrize("message", [
    lambda text: wire.TaskFailed("r", 1, "d", text, text), lambda text: wire.Declined("r", text, text),
    lambda text: wire.Waiting("r", text), lambda text: wire.Ready("r", 3, text),
    lambda text: wire.Hello("north", 1, 3, text, 10, "{}")])
def test_texts_of_parties_arrive_without_control_characters(message: Any, text: str) -> None:
    found, _ = wire.from_party(wire.frame(message(text)))
    shown = [getattr(found, name) for name in found.__struct_fields__ if isinstance(getattr(found, name), str)]
    assert all(value.isprintable() for value in shown)
    if text.isprintable():
        assert text in shown  # what only a page or a spreadsheet would act on stays, and is escaped there


def test_an_error_text_of_a_party_moves_nothing_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    for text in SPITEFUL:
        found, _ = wire.from_party(wire.frame(wire.TaskFailed("r", 1, "d", text)))
        assert isinstance(found, wire.TaskFailed)
        screen.show(PartyError(f"party 'north' failed: {found.cause}", party="north", round=1, task="train",
                               cause=found.cause), debug=False)
    assert all(letter.isprintable() or letter == "\n" for letter in capsys.readouterr().err)


def test_what_parties_say_stays_on_its_line_of_the_logs(tmp_path: Any) -> None:
    stream = io.StringIO()
    log = Telemetry(AuditLog(tmp_path / "audit.jsonl"), stream)
    for text in SPITEFUL:
        log.note("run declined", party="north", cause=text)
    lines = stream.getvalue().splitlines()
    assert [json.loads(line)["cause"] for line in lines] == list(SPITEFUL)
    assert all(line.isprintable() for line in lines)
    assert [entry["cause"] for entry in entries(tmp_path / "audit.jsonl")] == list(SPITEFUL)
    assert verify(tmp_path / "audit.jsonl") == len(SPITEFUL)
    assert (tmp_path / "audit.jsonl").read_bytes().count(b"\n") == len(SPITEFUL)


def test_what_parties_say_is_text_in_a_report() -> None:
    class Told:
        warnings: list[str] = []
        events = [{"event": "failure", "message": text} for text in SPITEFUL]

    page = _warnings(Told())  # type: ignore[arg-type]
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_no_cell_of_a_table_is_a_formula(tmp_path: Any) -> None:
    """Categories and classes are named by the data of parties; a spreadsheet computes what begins with = + - or @."""
    names = ["=1+1", "+cmd", "-2+3", "@sum", "\tx", "fine", "<=50K", "-5 to 5"]
    table = Table()
    for name in names:
        table.add({"party": "north", "category": name, "=column": -1.5})
    (tmp_path / "table.csv").write_text(table.to_csv(), encoding="utf-8")
    cells = [cell for row in csv.reader(io.StringIO(table.to_csv())) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t")) and cell != "-1.5"] == []
    again = read_csv(tmp_path / "table.csv")
    assert (again.columns, again["category"]) == (table.columns, names)
