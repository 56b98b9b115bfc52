"""What is installed from a wheel works without a checkout: studies, templates and all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def output(*command: object, folder: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "TEQUIO_STUDIES")}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has tequio from a wheel, and what tequio needs from the one we run in."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "studies"):
        shutil.copytree(ROOT / name, source / name, symlinks=True,
                        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    output(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, source, folder=folder)
    fresh = folder / "fresh"
    output(sys.executable, "-m", "venv", "--without-pip", fresh, folder=folder)
    packages = Path(output(fresh / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))",
                           folder=folder).strip())
    (packages / "below.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    output(sys.executable, "-m", "pip", "--python", fresh / "bin" / "python", "install", "--no-deps", "--no-index",
           *folder.glob("*.whl"), folder=folder)
    place = output(fresh / "bin" / "python", "-c", "import tequio; print(tequio.__file__)", folder=folder)
    assert place.startswith(str(packages))
    return fresh / "bin"


@pytest.mark.wheel
def test_studies_travel_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(output(installed / "tequio", "reproduce", "--json", folder=tmp_path))["studies"]
    assert {study["study"] for study in listed} == {path.parent.relative_to(ROOT / "studies").as_posix()
                                                    for path in (ROOT / "studies").rglob("study.toml")}


@pytest.mark.wheel
def test_kept_numbers_and_claims_travel_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    shown = json.loads(output(installed / "tequio", "reproduce", "--all", "--stored", "--json", folder=tmp_path))
    rows = [row for study in shown["studies"] for row in study["rows"]]
    assert sum(row["seeds"] > 1 for row in rows) > 1000
    assert {claim["fate"] for study in shown["studies"] for claim in study["claims"]} == {
        "confirmed", "refuted", "open"}


@pytest.mark.wheel
def test_a_study_runs_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    shown = output(installed / "tequio", "reproduce", "usecases/kmeans", "--quick", "--json", folder=tmp_path)
    assert {row["verdict"] for row in json.loads(shown)["rows"]} == {"no published number"}
    assert (tmp_path / "runs" / "usecases" / "kmeans" / "centroids-quick.png").exists()


@pytest.mark.wheel
def test_reports_and_the_dashboard_find_their_templates(installed: Path, tmp_path: Path) -> None:
    output(installed / "tequio", "run", ROOT / "examples" / "quickstart.toml", "--set", "rounds=1", "--out", "runs",
           folder=tmp_path)
    output(installed / "tequio", "report", "last", folder=tmp_path)
    assert list(tmp_path.rglob("report.html"))
