"""Rounds of a finished run played again, to see whether they end with the same bits."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete, load_config, resolved
from tequio.experiments.running import store
from tequio.experiments.running.results import Result
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.transcripts import KEY, TRANSCRIPT, read_lines
from tequio.federation import payload


@dataclass(frozen=True)
class Stretch:
    """Rounds that were played again, the file that says how they ended, and whether they ended so."""

    first: int
    last: int
    file: str
    same: bool

    @property
    def words(self) -> str:
        """How it came out."""
        return "the same" if self.same else "not the same"


def replay_rounds(folder: Path, count: int) -> list[Stretch]:
    """Play stretches of rounds again, drawn at random: from one kept checkpoint to the next, or else the whole run."""
    result = Result(folder)
    elsewhere = result.config.data.name in ("parties", "given")
    if elsewhere or result.summary["stopped"] in ("seconds", "diverged") or result.privacy:
        why = "its rows are elsewhere" if elsewhere else "its noise or its end does not follow from the seed"
        raise ConfigError(f"the run '{folder.name}' cannot be played again here: {why}", remedy="leave --replay out")
    kept = store.kept_checkpoints(folder)
    begun = {0} if any(event["event"] == "start" for event in result.events) else set()
    stretches = list(pairwise(sorted({*begun, *kept, result.summary["rounds"]})))
    if not stretches:
        raise ConfigError(f"the run '{folder.name}' kept no checkpoint to play rounds again from",
                          remedy="leave --replay out")
    drawn = np.random.default_rng().choice(len(stretches), min(count, len(stretches)), replace=False)
    return [_replayed(result, kept, *stretches[place]) for place in sorted(drawn.tolist())]


def _replayed(result: Result, kept: dict[int, Path], first: int, last: int) -> Stretch:
    with tempfile.TemporaryDirectory() as place:
        again = Path(place) / result.folder.name
        again.mkdir()
        _take_transcript(result.folder, again, first)
        if first:
            checkpoint = store.read_checkpoint(kept[first])
            assert checkpoint is not None
            store.write_checkpoint(again, replace(checkpoint, kept={store.EVENTS: 0, store.METRICS: 0}))
        given = resolved(load_config(result.folder / store.CONFIG)) | {"rounds": last, "baselines": []}
        given["output"] = {**given["output"], "folder": place, "keep_every": 0, "track": []}
        played = run_config(complete(given), folder=again)
        if last in kept:
            file = f"{store.CHECKPOINTS}/{last}/{store.CHECKPOINT}"
            return Stretch(first + 1, last, file, _state_of(again) == _state_of(kept[last]))
        same = played.summary["model_sha256"] == result.summary["model_sha256"]
        return Stretch(first + 1, last, store.SUMMARY, same)


def _state_of(folder: Path) -> bytes:
    """The algorithm's state in a checkpoint, as bytes; parties' own states hold keys, which are drawn afresh."""
    found = store.read_checkpoint(folder)
    assert found is not None
    return payload.encode({"model": found.state.model, "memory": dict(found.state.memory)})


def _take_transcript(folder: Path, again: Path, round: int) -> None:
    """What was signed by the end of a round, and the key by which parties know the coordinator again."""
    if not (folder / TRANSCRIPT).is_file():
        return
    if (folder / KEY).is_file():
        shutil.copy2(folder / KEY, again / KEY)
    lines = takewhile(lambda line: max(line["body"].get(key) or 0 for key in ("round", "rounds")) <= round,
                      read_lines(folder))
    store.write_whole(again / TRANSCRIPT, "".join(json.dumps(line) + "\n" for line in lines).encode())
