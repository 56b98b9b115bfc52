import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tequio.errors import RunError
from tequio.experiments.api import resume_run
from tequio.experiments.config.complete import complete, with_key
from tequio.experiments.running import recording, store
from tequio.experiments.running.recording import as_json
from tequio.experiments.running.results import model_sha256, read_model, write_model
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.store import Checkpoint, Pace, read_checkpoint, write_checkpoint
from tequio.federation.algorithm import State


class FullDisk:
    """Lets a number of bytes through and then has no room, like a disk that fills up in the middle of a write."""

    def __init__(self, monkeypatch, room):
        self.room, self._write = room, os.write
        monkeypatch.setattr(store.os, "write", self.write)

    def write(self, descriptor, data):
        if not os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].startswith((".checkpoint", "events")):
            return self._write(descriptor, data)
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(descriptor, data[:self.room])
        self.room -= written
        return written


@pytest.fixture
def checkpoint():
    state = State({"w": np.arange(3.0), "deep": {"b": np.array(2, dtype=np.int8)}}, {"selector": {"seen": [1, 2]}})
    return Checkpoint(4, state, {2: {"visits": 1}, 0: {"own": np.ones(2, np.float32)}}, {"seconds": 1.5, "best": None},
                      {"events.jsonl": 10})


def test_a_checkpoint_comes_back_as_it_was(tmp_path, checkpoint):
    assert read_checkpoint(tmp_path) is None
    write_checkpoint(tmp_path, checkpoint)
    back = read_checkpoint(tmp_path)
    assert (back.round, back.facts, back.kept) == (4, checkpoint.facts, checkpoint.kept)
    assert list(back.state.model["w"]) == [0, 1, 2]
    assert back.state.model["deep"]["b"].dtype == np.int8
    assert back.state.memory == {"selector": {"seen": [1, 2]}}
    assert list(back.parties) == [0, 2]
    assert back.parties[0]["own"].dtype == np.float32


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:20],
                                    lambda data: data[:-5] + b"#" + data[-4:], lambda data: b""])
def test_a_damaged_checkpoint_is_never_read_as_a_whole_one(tmp_path, checkpoint, damage):
    write_checkpoint(tmp_path, checkpoint)
    path = tmp_path / store.CHECKPOINT
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunError, match="is damaged or of another version"):
        read_checkpoint(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    store.write_whole(path, b"old")
    FullDisk(monkeypatch, room=2)
    with pytest.raises(RunError, match=r"checkpoint' cannot be written: No space left on device") as caught:
        store.write_whole(path, b"new content")
    assert f"tequio run --resume {tmp_path}" in caught.value.remedy
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("room", [900, 2500, 4000])
def test_a_full_disk_ends_a_run_that_can_go_on_later(given, room):
    config = complete({**with_key(given, "output.checkpoint_every", 1), "rounds": 6,
                       "algorithm": {"name": "toy_stumble"}})
    whole = run_config(config)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(patch, room)
        with pytest.raises(RunError, match="No space left on device"):
            run_config(config, listen=lambda kind, facts: seen.append((kind, facts)))
    resumed = resume_run(dict(seen)["start"]["folder"], None, {})
    assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]
    assert [row["round"] for row in resumed.metrics] == [1, 2, 3, 4, 5, 6]


def test_a_folder_that_may_not_be_written_is_named(tmp_path, given):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file' cannot be written: .*set output\.folder to another one"):
        run_config(complete(with_key(given, "output.folder", str(tmp_path / "file"))))


def test_a_journal_goes_on_where_a_checkpoint_was(tmp_path):
    path = tmp_path / "events.jsonl"
    journal = recording.Journal(path)
    journal.add("one")
    kept = journal.flush(sync=True)
    journal.add("two, which the checkpoint does not know")
    journal.close()
    again = recording.Journal(path, keep=kept)
    again.add("other two")
    again.close()
    assert path.read_text() == "one\nother two\n"
    with pytest.raises(RunError, match="is shorter than its checkpoint says"):
        recording.Journal(path, keep=1000)


def test_two_processes_cannot_write_one_run(tmp_path):
    journal = recording.Journal(tmp_path / "events.jsonl")
    program = ("from pathlib import Path; from tequio.experiments.running.recording import Journal; "
               f"Journal(Path(r'{tmp_path}/events.jsonl'))")
    second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    journal.close()
    assert "another process is writing" in second.stderr
    recording.Journal(tmp_path / "events.jsonl").close()


def test_runs_are_found_by_path_by_name_and_as_the_last(given, tmp_path):
    first = run_config(complete(given))
    second = run_config(complete({**given, "seed": 1}))
    assert store.find_folder(first.folder) == first.folder
    assert store.find_folder(first.folder.name) == first.folder
    assert store.find_folder("last") == second.folder
    with pytest.raises(RunError, match="'nothing' is not a run folder"):
        store.find_folder("nothing")


def test_two_runs_in_one_second_get_two_folders(tmp_path):
    names = {store.new_folder(tmp_path, "toy", "abcdef0123456789").name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("toy-") and "abcdef01" in name for name in names)


def test_the_pace_of_checkpoints_follows_the_config_or_their_cost(monkeypatch):
    assert [round for round in range(1, 10) if Pace(4).due(round)] == [4, 8]
    now = [0.0]
    monkeypatch.setattr("tequio.experiments.running.store.time.perf_counter", lambda: now[0])
    pace = Pace(0)
    assert pace.due(1)
    pace.took(0.1)
    now[0] = 2.9
    assert not pace.due(2)
    now[0] = 3.0
    assert pace.due(3)


def test_the_fingerprint_of_a_model_sees_names_types_shapes_and_values():
    model = {"a": np.arange(4.0), "b": {"c": np.ones(2)}}
    same = {"b": {"c": np.ones(2)}, "a": np.asfortranarray(np.arange(4.0))}
    assert model_sha256(model) == model_sha256(same)
    others = [{"a": np.arange(4.0), "b": {"d": np.ones(2)}}, {"a": np.arange(4), "b": {"c": np.ones(2)}},
              {"a": np.arange(4.0).reshape(2, 2), "b": {"c": np.ones(2)}},
              {"a": np.arange(4.0), "b": {"c": np.zeros(2)}}, {"a": np.arange(4.0), "b": {"c": [1.0, 1.0]}}]
    assert len({model_sha256(other) for other in [model, *others]}) == 6


def test_a_model_of_arrays_is_safetensors_and_any_other_json(tmp_path):
    assert write_model(tmp_path, {"w": {"x": np.eye(2)}}).name == "model.safetensors"
    assert read_model(tmp_path)["w/x"].tolist() == [[1, 0], [0, 1]]
    (tmp_path / "model.safetensors").unlink()
    tree = {"split": "age", "limit": np.float64(3.5), "leaves": [np.arange(2), None]}
    assert write_model(tmp_path, tree).name == "model.json"
    assert read_model(tmp_path) == {"split": "age", "limit": 3.5, "leaves": [[0, 1], None]}


def test_events_are_plain_json_whatever_they_hold():
    facts = {"array": np.arange(2), "nan": float("nan"), 3: np.float32(0.5), "path": os.curdir,
             "more": (1, {"x": np.inf})}
    assert json.loads(json.dumps(as_json(facts), allow_nan=False)) == {
        "array": [0, 1], "nan": None, "3": 0.5, "path": ".", "more": [1, {"x": None}]}
