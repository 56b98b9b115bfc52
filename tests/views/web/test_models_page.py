"""The dashboard's pages of models in use: versions, stage, steps, outcomes and drift, also where files are damaged."""

from __future__ import annotations

import re

import pytest

from models.in_use import outcomes
from tequio.models.drift import Change, note_drift
from tequio.models.registry import ModelRegistry
from tequio.models.rollout import step_up
from tequio.views.web.guard import Settings

from .conftest import client_of


@pytest.fixture(scope="module")
def models(made, tmp_path_factory):
    """A model with two versions on trial, outcomes, and rows that were compared with the training."""
    folder = tmp_path_factory.mktemp("in-use") / "models"
    registry = ModelRegistry(folder, "flowers")
    registry.add(made["fedavg-0"])
    registry.promote()
    registry.add(made["fedavgm-0"])
    step_up(registry, bounds=["accuracy>=0.5"])
    outcomes(registry, 1, 220, 0.8)
    outcomes(registry, 2, 120, 0.9)
    step_up(registry)
    note_drift(registry, 1, [Change("input", "<script>alert(1)</script>", 0.31, 0.02, 500, 400)], 0)
    return folder


@pytest.fixture
def page(runs, models):
    return client_of(Settings(runs, models=models))


def test_the_list_shows_stage_and_counts(page):
    text = page.get("/models").text
    row = re.sub(r"<[^>]+>", " ", text[text.index("<tbody>"):text.index("</tbody>")]).split()
    assert row[:8] == ["flowers", "1", "2", "10%", "of", "the", "ids", "340"]
    assert '<a href="/models" aria-current="page">Models</a>' in text


def test_a_model_shows_versions_steps_curves_and_drift(page):
    text = page.get("/model/flowers").text
    assert "version 2: 10% of the ids" in text
    assert "it is surely not worse by 0.1 or more: accuracy 0.900 of 120 outcomes against 0.800 of 220" in text
    assert "accuracy, confidence 0.95, margin 0.05, accuracy&gt;=0.5" in text
    drawn = re.findall(r'<svg class="chart"[^>]* role="img" aria-label="([^"]+)"', text)
    assert drawn[0].startswith("accuracy over hours since the first answer: version 1 ends at 0.7818; "
                               "version 2 ends at 0.9")
    assert drawn[1].startswith("stability index of scores over hours")
    assert drawn[2] == ("stability index: input &lt;script&gt;alert(1)&lt;/script&gt; 0.31; the marks show what chance "
                        "rarely exceeds")
    assert "changed much" in text
    assert "<script>alert" not in text
    assert "style=" not in text  # the policy of the dashboard allows no styles inside pages
    head = ModelRegistry(page.app.state.dashboard.settings.models, "flowers").audit.entries()[-1]["sha256"]
    assert head in text


@pytest.mark.parametrize("name", ["nobody", "%2e%2e", "%2e%2e%2fruns", "flowers%00"])
def test_models_that_are_not_there_are_not_found(page, name):
    assert page.get(f"/model/{name}").status_code == 404


def test_without_models_the_page_says_how_to_add_one(client):
    assert "tequio models add NAME RUN" in client.get("/models").text


def test_a_log_that_was_changed_is_shown_as_such(made, runs, tmp_path):
    for name in ("sound", "changed"):
        ModelRegistry(tmp_path, name).add(made["fedavg-0"])
    log = tmp_path / "changed" / "audit.jsonl"
    log.write_text(log.read_text().replace('"version": 1', '"version": 7'))
    client = client_of(Settings(runs, models=tmp_path))
    text = client.get("/models").text
    assert "is not what was written" in text
    assert 'href="/model/sound"' in text
    found = client.get("/model/changed")
    assert found.status_code == 400
    assert "is not what was written" in found.text
