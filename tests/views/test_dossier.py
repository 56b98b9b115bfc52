"""Dossiers say where each fact comes from, and one altered byte in any file is found."""

from __future__ import annotations

import json
import re
import shutil
import uuid

import numpy as np
import pytest

import tequio
from contracts.runs import config_of
from tequio.cli.main import call
from tequio.errors import ConfigError
from tequio.models.registry import ModelRegistry
from tequio.models.statistics import wilson
from tequio.views.dossier.checking import check_dossier
from tequio.views.dossier.page import as_bytes, page_of, page_seal, save_dossier, seal_of

TABLES = {"data": {"name": "wine", "prepare": ["standardise"], "partition": {"name": "iid", "parties": 4}},
          "engine": {"workers": 1}, "rounds": 4}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return tequio.run(name="proved <b>", **TABLES, stages=["secure-sum", "verified"],
                      output={"folder": str(folder), "keep_every": 2})


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run with its dossier."""
    folder = tmp_path / made.folder.name
    shutil.copytree(made.folder, folder)
    save_dossier(folder)
    return folder


def document_in(folder):
    return json.loads((folder / "dossier.json").read_bytes())


def facts_of(document, section):
    found = next(one for one in document["sections"] if one["id"] == section)
    return {fact["name"]: fact for fact in found["facts"]} | {table["title"]: table for table in found["tables"]}


# What it says


def test_every_fact_names_a_file_and_its_hash_or_is_not_stated(run):
    document = document_in(run)
    for section in document["sections"]:
        for fact in section["facts"]:
            if fact["value"] == "not stated":
                assert fact["from"] == {}
            else:
                assert document["files"][fact["from"]["file"]]["sha256"] == fact["from"]["sha256"]
        for table in section["tables"]:
            if section["id"] != "files":
                assert document["files"][table["from"]["file"]]["sha256"] == table["from"]["sha256"]


def test_its_numbers_are_those_of_the_run(run, made):
    document, summary = document_in(run), made.summary
    assert facts_of(document, "model")["model_sha256"]["value"] == summary["model_sha256"]
    assert facts_of(document, "model")["intended use"]["value"] == "not stated"
    metrics = dict(facts_of(document, "performance")["Metrics"]["rows"])
    assert metrics["test.accuracy"] == summary["metrics"]["test.accuracy"]
    first = dict(zip(facts_of(document, "performance")["By party"]["columns"],
                     facts_of(document, "performance")["By party"]["rows"][0], strict=True))
    low, high = wilson(first["accuracy"] * first["rows"], first["rows"])
    assert (first["accuracy from"], first["accuracy to"]) == (round(low, 4), round(high, 4))
    train = next(row for row in facts_of(document, "crossing")["Replies by task"]["rows"] if row[0] == "train")
    assert train[:3] == ["train", "how training on the rows changed a model",
                         "the coordinator; of updates the sum only (secure-sum)"]
    lines = (run / "transcript.jsonl").read_text().splitlines()
    assert facts_of(document, "signatures")["root of the transcript"]["value"] == json.loads(lines[-1])["hash"]


def test_it_holds_no_row_and_no_key(run):
    content = (run / "dossier.json").read_text() + (run / "dossier.html").read_text()
    assert (run / "coordinator.key").read_text() not in content
    assert "coordinator.key" not in document_in(run)["files"]
    fields = document_in(run)["croissant"]["recordSet"][0]["field"]
    assert {key for field in fields for key in field} == {"@type", "name", "dataType"}


def test_the_page_shows_text_as_text_and_loads_nothing(run):
    page = (run / "dossier.html").read_text()
    assert "proved <b>" not in page
    assert "proved &lt;b&gt;" in page
    assert not re.search(r"""(src|href)=["'](?!#)""", page)
    assert "This is evidence, not compliance." in page


def test_every_article_leads_to_a_section(run):
    document = document_in(run)
    known = {section["id"] for section in document["sections"]}
    assert {one["of"] for one in document["index"]} == {"EU AI Act", "GDPR", "TRIPOD+AI"}
    assert {id for one in document["index"] for id in one["sections"]} <= known


def test_the_bill_of_materials_is_what_the_standard_asks_for(run):
    bill = document_in(run)["materials"]
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", bill["serialNumber"])
    assert uuid.UUID(bill["serialNumber"].removeprefix("urn:uuid:")).variant == uuid.RFC_4122
    assert set(bill) == {"bomFormat", "specVersion", "version", "serialNumber", "metadata", "components",
                         "dependencies"}
    every = [bill["metadata"]["component"], *bill["components"]]
    recorded = json.loads((run / "environment.json").read_bytes())["packages"]
    versions = {one["name"]: one["version"] for one in every}
    assert {name: versions[name] for name in recorded} == recorded
    for one in every:
        assert one["type"] in ("library", "application")
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@{one['version']}"
    references = [one["bom-ref"] for one in every]
    assert len(set(references)) == len(references)
    assert {link["ref"] for link in bill["dependencies"]} == set(references)
    assert all(set(link["dependsOn"]) <= set(references) for link in bill["dependencies"])


def test_a_model_in_use_has_one_too(made, tmp_path):
    registry = ModelRegistry(tmp_path, "wine")
    version = registry.add(made.folder)
    document = save_dossier(version.folder)
    assert document["subject"]["kind"] == "model"
    assert facts_of(document, "model")["run"]["from"]["file"] == "run/summary.json"
    root = facts_of(document, "signatures")["root of the log of what was done to the model"]
    assert root["value"] == registry.audit.entries()[-1]["sha256"]
    assert check_dossier(version.folder / "dossier.json").wrong == []


def test_a_forgotten_party_is_in_it(made, tmp_path):
    forgotten = tequio.forget(made.folder, party="2", out=tmp_path / "runs", why="asked for it")
    facts = facts_of(save_dossier(forgotten.folder), "forgetting")
    assert (facts["forgotten party"]["value"], facts["why"]["value"]) == ("2", "asked for it")
    later = facts_of(save_dossier(made.folder, tmp_path / "old.html"), "forgetting")
    assert later["Careful: forgotten since, in newer runs"]["rows"][0][0] == "2"
    (made.folder / "superseded.json").unlink()


@pytest.mark.parametrize(("name", "section", "table"), [
    ("split-nn", "crossing", "Who saw what"), ("federated-id3", "performance", "By party"),
    ("mlfedavg", "performance", "By party and label"), ("statistics", "crossing", "Replies by task")])
def test_runs_of_all_kinds_have_one(name, section, table, tmp_path):
    result = tequio.run(**config_of(name), output={"folder": str(tmp_path)})
    document = save_dossier(result.folder)
    assert facts_of(document, section)[table]["rows"]
    assert facts_of(document, "model")["predicts"]["from"].get("file", "model/model.json") == "model/model.json"
    assert check_dossier(result.folder / "dossier.json").wrong == []


def test_a_private_run_states_what_its_ledger_does(tmp_path):
    data = {"name": "wine", "partition": {"name": "iid", "parties": 4}}
    result = tequio.run(**{**TABLES, "data": data}, stages=["central-dp"], privacy={"epsilon": 5.0},
                        output={"folder": str(tmp_path)}, algorithm={"name": "fedavg", "weights": "uniform"})
    facts = facts_of(save_dossier(result.folder), "privacy")
    assert facts["differential privacy"]["value"] == result.privacy["words"]
    assert facts["epsilon"]["value"] == result.privacy["epsilon"]
    assert call(["verify", str(result.folder / "dossier.json"), "--replay", "1"]) == 2


def test_where_there_is_neither_run_nor_model_there_is_no_dossier(tmp_path):
    with pytest.raises(ConfigError, match="there is neither a run nor a model in"):
        save_dossier(tmp_path)


# Whether it is sound


def test_it_is_sound_as_it_was_written(run):
    check = check_dossier(run / "dossier.html")
    assert check.wrong == []
    assert "14 sections made again from the files" in check.done


def test_two_hundred_altered_bytes_are_two_hundred_findings_that_name_the_file(run):
    draw = np.random.default_rng(0)
    kept = [run / name for name in (*document_in(run)["files"], "dossier.json", "dossier.html")]
    for path in (kept[place] for place in draw.integers(len(kept), size=200)):
        content = bytearray(path.read_bytes())
        if not content:
            continue
        before = bytes(content)
        content[draw.integers(len(content))] ^= int(draw.integers(1, 256))
        path.write_bytes(content)
        wrong = check_dossier(run / "dossier.json").wrong
        assert path.relative_to(run).as_posix() in [file for file, _ in wrong]
        path.write_bytes(before)
    assert check_dossier(run / "dossier.json").wrong == []


def forged(run, change):
    """A dossier with other numbers, whose hashes are those of these numbers."""
    document = document_in(run)
    change(document)
    document["sha256"] = seal_of(document)
    (run / "dossier.json").write_bytes(as_bytes(document))
    return document


def test_a_forged_number_is_found_by_the_files(run):
    def better(document):
        facts_of(document, "performance")["Metrics"]["rows"][0][1] = 0.0

    document = forged(run, better)
    (run / "dossier.html").write_bytes(page_of(document))
    assert check_dossier(run / "dossier.json").wrong == [
        ("dossier", "the section 'Performance' is not what the files say")]


def test_a_forged_page_is_found_by_the_document_beside_it(run):
    page = (run / "dossier.html").read_bytes().replace(b"not stated", b"very safe ", 1)
    said = re.search(rb'name="sha256" content="([0-9a-f]{64})"', page)[1]
    (run / "dossier.html").write_bytes(page.replace(said, page_seal(page).encode()))
    assert check_dossier(run / "dossier.html").wrong == [
        ("dossier.html", "it does not say what the document beside it says")]


def test_a_file_that_is_gone_is_named(run):
    (run / "metrics.csv").unlink()
    assert check_dossier(run / "dossier.json").wrong == [("metrics.csv", "it is gone")]


def test_a_transcript_that_is_not_sound_is_found_though_its_hash_is_right(run):
    text = (run / "transcript.jsonl").read_text()
    (run / "transcript.jsonl").write_text(text.replace('"round": 2', '"round": 3', 1))
    save_dossier(run)
    (file, what), *_ = check_dossier(run / "dossier.json").wrong
    assert (file, "changed after it was written" in what) == ("transcript.jsonl", True)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b'{"dossier": "x"}', b"\xff\xfe", b'{"dossier": 1}'])
def test_what_is_no_dossier_is_not_sound(content, run):
    (run / "dossier.json").write_bytes(content)
    assert ("dossier.json", "it is not what was written") in check_dossier(run / "dossier.json").wrong


def test_one_command_checks_both_kinds_of_file(run, capsys):
    assert call(["verify", str(run / "dossier.json"), "--replay", "2"]) == 0
    said = capsys.readouterr().out
    assert "rounds 1 to 2 played again: the same" in said
    assert "rounds 3 to 4 played again: the same" in said
    assert call(["verify", str(run)]) == 0
    (run / "parties.csv").write_text("party\n")
    capsys.readouterr()
    assert call(["verify", str(run / "dossier.json"), "--json"]) == 8
    assert json.loads(capsys.readouterr().out)["wrong"][0]["file"] == "parties.csv"
    assert call(["verify", str(run), "--replay", "1"]) == 2


def test_rounds_that_end_otherwise_when_played_again_are_found(tmp_path):
    result = tequio.run(name="plain", **TABLES, output={"folder": str(tmp_path), "keep_every": 2})
    other = tequio.run(name="plain", **{**TABLES, "local": {"learning_rate": 0.3}},
                       output={"folder": str(tmp_path), "keep_every": 2})
    shutil.rmtree(result.folder / "checkpoints")
    shutil.copytree(other.folder / "checkpoints", result.folder / "checkpoints")
    save_dossier(result.folder)
    assert call(["verify", str(result.folder / "dossier.json")]) == 0
    assert call(["verify", str(result.folder / "dossier.json"), "--replay", "2"]) == 8


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen_and_finds_a_fact(run, width):
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("no Chromium")
    said = []
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(f"file://{run}/dossier.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.fill("#find", "model_sha256")
        assert page.text_content("#found") == "1 found"
        browser.close()
    assert said == []
