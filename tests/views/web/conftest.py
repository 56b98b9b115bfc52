import json
import shutil
from pathlib import Path

import pytest

from tequio.views.web.guard import Settings

ADDRESS = "http://127.0.0.1:8765"

CURVES = """
name = "flowers"
rounds = 3
[data]
name = "iris"
prepare = ["standardise"]
partition = {name = "iid", parties = 4}
[learner]
name = "sgd-classifier"
[engine]
workers = 1
"""

TREES = """
name = "trees"
rounds = 1
baselines = ["alone"]
[data]
name = "iris"
prepare = ["discretise"]
partition = {name = "iid", parties = 3}
[learner]
name = "id3"
[algorithm]
name = "federated-id3"
[engine]
workers = 1
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Runs of two methods with three seeds each, and a run of trees, by short names."""
    from tequio.experiments.api import run_with_baselines
    from tequio.experiments.config.complete import load_config

    folder = tmp_path_factory.mktemp("made")
    found = {}
    for name, text in (("curves", CURVES), ("trees", TREES)):
        (folder / f"{name}.toml").write_text(text)
    for method in ("fedavg", "fedavgm"):
        for seed in range(3):
            config = load_config(folder / "curves.toml", [f"algorithm.name={method}", f"seed={seed}",
                                                          f"output.folder={folder}/runs", f"name={method}"])
            found[f"{method}-{seed}"] = run_with_baselines(config).folder
    config = load_config(folder / "trees.toml", [f"output.folder={folder}/runs"])
    found["trees"] = run_with_baselines(config).folder
    return found


@pytest.fixture
def runs(made, tmp_path):
    """A folder of one's own with copies of the runs under their short names."""
    folder = tmp_path / "runs"
    for name, source in made.items():
        shutil.copytree(source, folder / name)
    return folder


@pytest.fixture
def client(runs):
    return client_of(Settings(runs))


def client_of(settings, identified=True, **options):
    from starlette.testclient import TestClient

    from tequio.views.web.app import make_app

    brought = {"authorization": f"Bearer {settings.token}"} if identified else None
    return TestClient(make_app(settings), base_url=ADDRESS, raise_server_exceptions=False, headers=brought, **options)


def form_token(client):
    return client.app.state.dashboard.settings.form_token


def many_runs(folder, source: Path, count):
    """So many finished runs, each with the files that the list looks at."""
    summary = json.loads((source / "summary.json").read_text())
    config = (source / "config.toml").read_text()
    events = (source / "events.jsonl").read_text()
    for number in range(count):
        place = folder / f"run-{number:04}"
        place.mkdir(parents=True)
        (place / "summary.json").write_text(json.dumps({**summary, "name": f"run {number}", "seed": number}))
        (place / "config.toml").write_text(config)
        (place / "events.jsonl").write_text(events)
    return folder
