"""No id, no text and no rare category of a table is in anything that its owner hands out or that crosses a link.

Tables are made up with strings that occur nowhere else, and everything that leaves is searched for them: schema files,
frames between coordinator and parties (as Flower would carry them), run folders, reports and dashboard pages.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tequio
from engines.flower.village import Village, living_at
from tequio.data.inputs import read
from tequio.data.sharing import save_schema, shareable, shared_to_json
from tequio.engines.flower import engine as flower_engine
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.telemetry import entries
from tequio.errors import ConfigError, DataError, EngineError, PayloadError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.flower_coordinator import lead
from tequio.federation import task as tasks
from tequio.views.report import save_report
from tequio.views.web.app import make_app
from tequio.views.web.guard import Settings

if TYPE_CHECKING:
    from tequio.engines.flower.transport import NodeReply

ROWS, MARK = 60, "zq7vkxwj"
COMMON = ("Oslo", "Rome")
COLUMNS = ("patient", "age", "note", "town", "seen", "risk")

few = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
some = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def tables(draw: st.DrawFn, rare: int = 1) -> dict[str, list[str]]:
    """A table with secrets in an id, in texts and in at least so many rare categories."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    secret = partial(_secret, rng)
    towns = [str(rng.choice(COMMON)) for _ in range(ROWS)]
    towns[:24] = [*COMMON] * 12
    at = 24
    for times in draw(st.lists(st.integers(1, 9), min_size=rare, max_size=4)):
        name = secret()
        towns[at:at + times] = [name] * times
        at += times
    each = draw(st.sampled_from([1, 2, 12]))  # rows of one patient; with 12, no value of an id is rare
    ids = [secret() for _ in range(ROWS)]
    return {"patient": [ids[row // each] for row in range(ROWS)],
            "age": [str(rng.integers(18, 90)) for _ in range(ROWS)],
            "note": [f"saw {secret()} with {secret()} again" for _ in range(ROWS)],
            "town": towns, "seen": [f"20{rng.integers(10, 20)}-0{rng.integers(1, 9)}-11" for _ in range(ROWS)],
            "risk": [("low", "high")[row % 2] for row in range(ROWS)]}


def _secret(rng: np.random.Generator) -> str:
    return MARK + rng.bytes(6).hex()


def assert_nothing_of(content: str | bytes, where: object) -> None:
    """All secrets begin with the mark, so that one search finds any of them."""
    data = content.encode() if isinstance(content, str) else content
    assert MARK.encode() not in data, where


def write(path: Path, table: dict[str, list[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *zip(*table.values(), strict=True)])
    return path


def assert_clean_folder(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert_nothing_of(path.read_bytes(), path)


def assert_clean_pages(runs: Path, name: str) -> None:
    from starlette.testclient import TestClient

    settings = Settings(runs)
    client = TestClient(make_app(settings), base_url="http://127.0.0.1:8765", raise_server_exceptions=False,
                        headers={"authorization": f"Bearer {settings.token}"})
    for page in ("/", f"/run/{name}", f"/compare?run={name}", f"/partition?run={name}", f"/tree/{name}",
                 f"/new?like={name}"):
        answer = client.get(page)
        assert answer.status_code < 500, page
        assert_nothing_of(answer.text, page)


@some
@given(tables())
def test_of_schema_files(table: dict[str, list[str]]) -> None:
    content = {name: np.array(values, dtype=object) for name, values in table.items()}
    for minimum in (1, 10):  # the minimum of the file holds, whatever the table was read with
        rows = read(content, target="risk", minimum_count=minimum)
        written = shared_to_json(shareable(rows, 10))
        assert_nothing_of(written, "schema file")
        assert all(name in written for name in (*COMMON, "low", "high", "(other)"))


CONFIG = """
name = "own"
rounds = 2
[data]
prepare = ["one-hot", "standardise"]
{data}
[learner]
name = "{learner}"
[algorithm]
name = "{algorithm}"
[engine]
{engine}
"""

DATA = 'name = "csv"\npath = "{path}"\ntarget = "risk"\npartition = {{name = "iid", parties = 3}}'
METHODS = [("fedavg", "sgd-classifier"), ("icdta4fl", "cart")]


@few
@given(tables(), st.sampled_from(METHODS))
def test_of_simulated_runs(table: dict[str, list[str]], method: tuple[str, str]) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        config = folder / "own.toml"
        config.write_text(CONFIG.format(data=DATA.format(path=write(folder / "own.csv", table)), algorithm=method[0],
                                        learner=method[1], engine='name = "local"\nworkers = 1'))
        made = tequio.run(config, output={"folder": str(folder / "runs")})
        assert_clean_folder(folder / "runs")
        save_report([made.folder], folder / "report.html")
        assert_nothing_of((folder / "report.html").read_bytes(), "report")
        assert_clean_pages(folder / "runs", made.folder.name)


class Wire(Village):
    """A village that keeps every frame."""

    def __init__(self, **nodes: object) -> None:
        super().__init__(**nodes)
        self.frames: list[bytes] = []

    def send(self, node, request):  # type: ignore[no-untyped-def]
        self.frames += request.frames
        return super().send(node, request)

    def fetch(self, requests):  # type: ignore[no-untyped-def]
        found: list[NodeReply] = super().fetch(requests)
        self.frames += [data for reply in found for data in (*reply.frames, reply.error.encode())]
        return found


def federated(folder: Path, parts: list[dict[str, list[str]]], agreed: bool, method: tuple[str, str]):  # type: ignore[no-untyped-def]
    """Three parties with a table each, and the run of a coordinator that only sees what they send."""
    facts: dict[str, object] = {"target": "risk", "ignore": ["patient"]}
    paths = [write(folder / f"{party}.csv", part) for party, part in enumerate(parts)]
    if agreed:
        rows = read(paths[0], target="risk", ignore=["patient"], minimum_count=10)
        save_schema(shareable(rows, 10), folder / "schema.json")
        facts["schema_path"] = str(folder / "schema.json")
    homes = [folder / str(party) for party in range(3)]
    for party, home in enumerate(homes):
        PartyHome.create(home, str(party), {"data": {"path": str(paths[party]), **facts}})
    wire = Wire(**{str(70 + party): living_at(home) for party, home in enumerate(homes)})
    config = folder / "real.toml"
    config.write_text(CONFIG.format(data='name = "parties"\nparties = ["0", "1", "2"]', algorithm=method[0],
                                    learner=method[1], engine='name = "flower"\nwait = 60'))
    return homes, wire, load_config(config, [f"output.folder={folder / 'runs'}", "rules.on_failure=continue"])


@pytest.fixture
def no_time_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "ASK_AGAIN", "LOOK_FOR_NODES"):
        monkeypatch.setattr(flower_engine, name, 0.001)


@few
@given(st.lists(tables(), min_size=3, max_size=3), st.booleans(), st.sampled_from(METHODS))
def test_of_what_crosses_a_link(no_time_lost, parts, agreed, method):
    with TemporaryDirectory() as place:
        folder = Path(place)
        _, wire, config = federated(folder, parts, agreed, method)
        made = lead(config, wire, "run")
        crossed = b"\n".join(wire.frames)
        assert_nothing_of(crossed, "frames")
        assert b"(other)" in crossed  # what is searched is not packed away
        assert_clean_folder(folder / "runs")
        assert "(other)" in (made.folder / "schema.json").read_text()
        save_report([made.folder], folder / "report.html")
        assert_nothing_of((folder / "report.html").read_bytes(), "report")
        assert_clean_pages(folder / "runs", "run")


def quoting(kind: type[Exception], secret: str):  # type: ignore[no-untyped-def]
    """A task that fails with a row's value in what it says."""
    def run(party, payload, settings):  # type: ignore[no-untyped-def]
        try:
            float(secret)
        except ValueError as cause:
            if kind is ConfigError:
                raise ConfigError(f"'{secret}' is odd", remedy=f"leave out {secret}") from cause
        raise kind(f"'{secret}' is odd")

    return run


@few
@given(st.lists(tables(), min_size=3, max_size=3),
       st.sampled_from([DataError, ValueError, PayloadError, EngineError, ConfigError, KeyError]))
def test_of_errors_that_cross(no_time_lost, parts, kind):
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place)
        homes, wire, config = federated(folder, parts, True, METHODS[0])
        train = tasks.find_task("train")
        patch.setitem(tasks._tasks, "train", replace(train, run=quoting(kind, parts[0]["patient"][0]), many=None))
        with pytest.raises(tequio.TequioError):  # nobody answers
            lead(config, wire, "run")
        assert_nothing_of(b"\n".join(wire.frames), "frames")
        assert_clean_folder(folder / "runs")
        assert_clean_pages(folder / "runs", "run")
        failed = [entry for entry in entries(homes[0] / "audit.jsonl") if entry["event"] == "task failed"]
        assert parts[0]["patient"][0] in failed[0]["cause"]  # its owner can read what went wrong
