from __future__ import annotations

import pytest

import tequio
from tequio.models.registry import ModelRegistry


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [tequio.run(data={"name": "synthetic", "rows": 60, "features": 3, "partition": {"name": "iid",
                       "parties": 2}}, rounds=1, seed=seed, engine={"workers": 1},
                       output={"folder": str(folder)}) for seed in (0, 1)]


@pytest.fixture
def in_trial(two_runs, tmp_path):
    """Version 1 in production, version 2 the candidate."""
    registry = ModelRegistry(tmp_path / "models", "risk")
    registry.add(two_runs[0].folder)
    registry.promote()
    registry.add(two_runs[1].folder)
    return registry
