"""A served model answers as the model itself does, says what is wrong with a request, and goes on answering."""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

import tequio
from tequio.cli.ui import open_door
from tequio.data.dataset import Feature
from tequio.errors import ConfigError, DataError
from tequio.models.answers_log import AnswersLog, Reading
from tequio.models.registry import ModelRegistry
from tequio.views.serving import app as serving
from tequio.views.serving.access import Access, tokens_of
from tequio.views.serving.answering import Desk
from tequio.views.serving.app import Limits, Service, make_app
from tequio.views.serving.server import server_for
from tequio.views.serving.versions import Served, Source, Versions, registry_at

KINDS = {
    "mixed": {"prepare": ["one-hot", "standardise"], "learner": "logistic"},
    "numbers": {"prepare": ["minmax"], "learner": {"name": "mlp", "hidden": [4]}, "drop": ["town"]},
    "raw": {"learner": "logistic", "drop": ["town"]},
    "tree": {"algorithm": "federated-id3", "learner": "id3", "prepare": ["discretise"], "drop": ["pulse"]},
    "regression": {"prepare": ["standardise"], "learner": "logistic", "drop": ["town", "ill"], "target": "age"},
    "clusters": {"prepare": ["standardise"], "algorithm": {"name": "kmeans", "clusters": 3}, "drop": ["town"]},
    "own": {"prepare": ["standardise"], "algorithm": "fine-tuning", "learner": "logistic", "drop": ["town"]},
}


def table(count=60):
    draw = np.random.default_rng(1)
    town = draw.choice(["Bern", "Oaxaca", "Łódź"], count).tolist()
    age, pulse = draw.integers(20, 80, count).tolist(), draw.normal(70, 9, count).round(3).tolist()
    ill = ["yes" if a + p > 118 else "no" for a, p in zip(age, pulse, strict=True)]
    return {"age": age, "town": town, "pulse": pulse, "ill": ill}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a run of some kind, and rows like those it was trained on."""
    made = {}

    def run(kind, seed=0):
        if (kind, seed) not in made:
            told = KINDS[kind]
            folder = tmp_path_factory.mktemp(kind)
            columns = {name: values for name, values in table().items() if name not in told.get("drop", ())}
            lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
            (folder / "all.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
            target = told.get("target", "ill")
            data = {"name": "csv", "path": str(folder / "all.csv"), "target": target, "missing": "median",
                    "partition": {"name": "iid", "parties": 2}, "split": {"test": 0.2},
                    "prepare": told.get("prepare", [])}
            keys = {key: told[key] for key in ("algorithm", "learner") if key in told}
            made[kind, seed] = tequio.run(name=kind, seed=seed, rounds=1, data=data, engine={"workers": 1},
                                          output={"folder": str(folder)}, **keys).folder
        rows = [dict(zip(table(), row, strict=True)) for row in zip(*table().values(), strict=True)]
        names = tequio.load(made[kind, seed]).reading.schema.names
        return made[kind, seed], [{name: row[name] for name in names} for row in rows]

    return run


@pytest.fixture
def serve(trained):
    """A client of a served model; `serve.service` is what it asks."""
    open_clients = []

    def start(kind="mixed", *, candidate=None, share=0.5, token="", **keys):
        versions = Versions(Served(tequio.load(trained(kind)[0]), "production"))
        if candidate is not None:
            versions = Versions(versions.production, Served(tequio.load(trained(*candidate)[0]), "candidate"), share)
        service = Service(versions, **keys)
        client = TestClient(make_app(service), "http://127.0.0.1:8080", raise_server_exceptions=False)
        client.__enter__()
        open_clients.append(client)
        start.service = service
        return client

    yield start
    for client in open_clients:
        client.__exit__(None, None, None)


def ask(client, rows, **keys):
    return client.post("/predict", json={"rows": rows, **keys})


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_answered_to_the_last_bit_as_the_model_does(serve, trained, kind):
    client, (folder, rows) = serve(kind), trained(kind)
    model = tequio.load(folder)
    party = {"party": model.parties[0]} if kind == "own" else {}
    model = model.of(*party.values()) if party else model
    desk, versions = Desk(10), serve.service.versions
    for row in rows[:8]:
        columns = {name: [value] for name, value in row.items()}
        answer, = ask(client, [row], **party).json()["answers"]
        assert answer["prediction"] == model.predict(columns)[0]
        assert answer["version"] == model.facts["sha256"]
        short = desk.answer_small(versions, json.dumps({"rows": [row], "ids": ["a"], **party}).encode())
        general = desk.answer_json(versions, json.dumps({"rows": [row], "ids": ["a"], **party}).encode())
        assert short.body == general.body
        if "probabilities" in answer:
            assert list(answer["probabilities"].values()) == model.predict_proba(columns)[0].tolist()
    assert ("probabilities" in answer) == (kind not in ("regression", "clusters"))


def test_rows_columns_lists_and_csv_are_answered_alike(serve, trained):
    client, (folder, rows) = serve(), trained("mixed")
    model, names = tequio.load(folder), list(rows[0])
    wanted = model.predict({name: [row[name] for row in rows] for name in names}).tolist()
    turned = {name: [row[name] for row in rows] for name in reversed(names)}
    text = "\n".join([",".join(["who", *names]), *(",".join(map(str, [f"p{place}", *row.values()]))
                                                   for place, row in enumerate(rows))])
    told = [ask(client, rows), client.post("/predict", json={"columns": turned}),
            ask(client, [list(row.values()) for row in rows]),
            client.post("/predict?id=who", content=text.encode(), headers={"content-type": "text/csv; charset=utf-8"})]
    for answer in told:
        assert [one["prediction"] for one in answer.json()["answers"]] == wanted
    assert [one["id"] for one in told[3].json()["answers"]] == [f"p{place}" for place in range(len(rows))]
    assert len({one["id"] for one in told[0].json()["answers"]}) == len(rows)


ROW = {"age": 50, "town": "Bern", "pulse": 70.5}
ONE = json.dumps(ROW)


@pytest.mark.parametrize(("body", "status", "row", "column", "words"), [
    ('{"rows": [{"age": NaN, "town": 1, "pulse": "fast"}]}', 422, 0, "town", "row 0 has 1 in column 'town'"),
    ('{"rows": [{"age": 50, "town": "Bern", "pulse": "fast"}]}', 422, 0, "pulse", "'fast' in column 'pulse'"),
    ('{"rows": [' + ONE + ', {"age": 50, "town": "Rome", "pulse": 1}]}', 422, 1, "town", "row 1 has 'Rome'"),
    ('{"rows": [{"age": 1e999, "town": "Bern", "pulse": 1}]}', 422, 0, "age", "row 0 has"),
    ('{"rows": [{"age": 1' + "0" * 400 + ', "town": "Bern", "pulse": 1}]}', 422, 0, "age", "row 0 has"),
    ('{"rows": [{"age": [1], "town": "Bern", "pulse": 1}]}', 422, 0, "age", "a list in column 'age'"),
    ('{"rows": [{"age": 1, "town": "Bern", "puls": 1}]}', 422, None, "puls", "no column 'puls'"),
    ('{"rows": [{"age": 1}]}', 422, None, "town", "lack column 'town' and 1 more of the model's 3"),
    ('{"rows": [{"age": 1, "age": 2, "town": "Bern", "pulse": 1}]}', 400, None, "age", "'age' is given 2 times"),
    ('{"rows": [], "rows": [' + ONE + ']}', 400, None, "rows", "'rows' is given 2 times"),
    ('{"rows": [' + ONE + '], "ids": ["a", "b"]}', 422, None, None, '"ids" has to be a list of 1'),
    ('{"rows": [' + ONE + '], "ids": ["a\\nb"]}', 422, 0, None, "the id of row 0"),
    ('{"rows": [' + ONE + '], "ids": ["\\ud800"]}', 422, 0, None, "the id of row 0"),
    ('{"rows": [' + ONE + '], "party": "../../etc/passwd"}', 422, None, None, "all parties answer with the"),
    ('{"rows": [' + ONE + '], "version": "0123456789abcdef"}', 409, None, None, "is not served here"),
    ('{"rows": [' + ONE + '], "unseen": "maybe"}', 422, None, None, '"unseen" cannot be "maybe"'),
    ('{"row": [' + ONE + ']}', 422, None, None, "no key 'row'"),
    ('{"rows": []}', 422, None, None, "at least one row"),
    ('{"rows": [1]}', 422, 0, None, "row 0 is no JSON object"),
    ('{"rows": [[1, 2]]}', 422, 0, None, "row 0 has 2 values"),
    ('{"columns": {"age": [1, 2], "town": ["Bern"]}}', 422, None, "town", "'town' has 1 of 2 values"),
    ('{"columns": {"age": []}}', 422, None, None, "no rows"),
    ('[]', 400, None, None, "no JSON object"),
    ("{'rows': 1}", 400, None, None, "line 1, column 2"),
    ('{"rows": ' + "[" * 100_000, 400, None, None, "nested too deeply"),
    ('{"rows": ' + '{"a":' * 3_000 + "1" + "}" * 3_001, 400, None, None, "nested too deeply"),
    (b'{"rows": "\xff"}', 400, None, None, "UTF-8"),
    ("", 400, None, None, "no JSON"),
    (json.dumps({"rows": [ROW] * 21}), 413, None, None, "21 rows, and 20 are"),
    ('{"rows": [' + ONE + '], "pad": "' + "x" * 10_000_000 + '"}', 413, None, None, "larger than 200000 bytes"),
])
def test_a_bad_request_is_told_where_and_the_next_is_answered(serve, body, status, row, column, words):
    client = serve(limits=Limits(bytes=200_000, rows=20))
    answer = client.post("/predict", content=body, headers={"content-type": "application/json"})
    told = answer.json()
    assert (answer.status_code, told["row"], told["column"]) == (status, row, column), told
    assert words in told["error"]
    assert told["remedy"]
    assert len(answer.content) < 2000
    assert ask(client, [ROW]).status_code == 200


def test_a_body_without_a_length_is_cut_off_at_the_limit(serve):
    sent = []

    def parts():
        for _ in range(1000):
            sent.append(1)
            yield b"x" * 1000

    client = serve(limits=Limits(bytes=20_000))
    answer = client.post("/predict", content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert ask(client, [ROW]).status_code == 200


def test_large_requests_share_a_bounded_memory(serve):
    client = serve(limits=Limits(bytes=1_000))
    assert ask(client, [ROW]).status_code == 200
    assert serve.service.held == 0
    serve.service.held = 64_000  # as if others were being read
    answer = ask(client, [ROW])
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert serve.service.held == 64_000
    serve.service.held = 0
    for body, status in ((b"{", 400), (b" " * 2_000, 413)):
        answer = client.post("/predict", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status
    assert serve.service.held == 0


def test_other_types_addresses_and_methods_are_told(serve):
    client = serve()
    assert client.post("/predict", data={"rows": "1"}).status_code == 415
    assert (client.get("/predict").status_code, client.get("/predict").headers["allow"]) == (405, "POST")
    assert "/predict" in client.get("/../../etc/passwd").json()["remedy"]
    answer = client.post("/predict", content=b"age,town\n1,2,3\n", headers={"content-type": "text/csv"})
    assert (answer.status_code, answer.json()["row"]) == (422, 0)
    answer = client.post("/predict?ids=a", content=b"age\n1\n", headers={"content-type": "text/csv"})
    assert "there is no option 'ids'" in answer.json()["error"]
    answer = client.post("/predict", content=json.dumps({"rows": [ROW]}), headers={
        "content-type": "application/json", "transfer-encoding": "chunked", "content-length": "3"})
    assert answer.status_code == 400


def test_what_the_model_has_not_seen_may_be_filled_in_or_skipped(serve, trained):
    client, model = serve(), tequio.load(trained("mixed")[0])
    rows = [ROW, {**ROW, "town": "Rome"}, {**ROW, "age": None}]
    assert ask(client, rows).json()["row"] == 1
    skipped = ask(client, rows, unseen="skip").json()["answers"]
    assert [one["prediction"] is None for one in skipped] == [False, True, False]
    filled = ask(client, rows, unseen="fill").json()["answers"]
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in ROW}
    assert [one["prediction"] for one in filled] == model.predict(columns, unseen="fill").tolist()
    assert ask(client, [rows[2]]).json()["answers"][0]["prediction"]  # as missing values were in the training
    extra = ask(client, [{**ROW, "note": "x", "ill": "yes"}], extra="ignore").json()
    assert extra["ignored"] == ["note"]
    assert ask(client, [{**ROW, "ill": "yes"}]).status_code == 200


def test_columns_may_have_any_name(trained):
    model = tequio.load(trained("raw")[0])
    renamed = [Feature(name) for name in ('a"b\\\n', "x:y")]
    odd = replace(model, reading=replace(model.reading, schema=replace(model.reading.schema, features=tuple(renamed))))
    with TestClient(make_app(Service(Versions(Served(odd, "production")))), "http://127.0.0.1") as client:
        answer = ask(client, [{'a"b\\\n': 50, "x:y": 70}]).json()["answers"][0]
        assert list(answer["probabilities"].values()) == model.predict_proba({"age": [50], "pulse": [70]})[0].tolist()
        assert client.get("/docs").status_code == client.get("/openapi.json").status_code == 200


def test_numbers_beyond_what_the_model_computes_with_are_refused(trained):
    model = tequio.load(trained("raw")[0])
    assert sorted(values.shape for values in model.common.model.values()) == [(1,), (1, 2)]
    opposed = {name: np.array([[1, -1]] if values.ndim == 2 else [0], np.float32)
               for name, values in model.common.model.items()}
    served = Served(replace(model, common=replace(model.common, model=opposed)), "production")
    with TestClient(make_app(Service(Versions(served))), "http://127.0.0.1") as client:
        rows = [{"age": 50, "pulse": 50}, {"age": 1e300, "pulse": 1e300}]  # infinity minus infinity
        told = ask(client, rows)
        assert (told.status_code, told.json()["row"]) == (422, 1)
        assert "row 1 has numbers that are too large" in told.json()["error"]
        assert ask(client, rows[:1]).json()["answers"][0]["probabilities"] == {"no": 0.5, "yes": 0.5}


ODD = st.one_of(st.floats(allow_nan=False), st.integers(-10**25, 10**25), st.text(max_size=4), st.none(), st.booleans(),
                st.sampled_from(["Bern", " Bern", "?", "", "Łódź", "nan", "1.5", "1e5", 1e308, -0.0, 5e-324]))


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.fixed_dictionaries({"age": ODD, "town": ODD, "pulse": ODD}), min_size=1, max_size=3))
def test_the_short_way_never_says_anything_else_than_the_general_one(trained, rows):
    versions = _known(trained)
    body = json.dumps({"rows": rows, "ids": [str(place) for place in range(len(rows))]}).encode()
    short = Desk(5).answer_small(versions, body)
    if short is not None:
        assert b"null" not in short.body
        assert short.body == Desk(5).answer_json(versions, body).body


def _known(trained, kept={}):  # noqa: B006
    if not kept:
        kept["mixed"] = Versions(Served(tequio.load(trained("mixed")[0]), "production"))
    return kept["mixed"]


def test_the_same_id_is_always_answered_by_the_same_version(serve, trained):
    client = serve("mixed", candidate=("mixed", 1), share=0.3)
    hashes = {one.role: one.sha256 for one in serve.service.versions.all}
    assert len(set(hashes.values())) == 2
    ids = [f"p{place}" for place in range(400)]
    many = ask(client, [ROW] * 400, ids=ids).json()["answers"]
    again = [ask(client, [ROW], ids=[id]).json()["answers"][0] for id in ids[:40]]
    assert [one["version"] for one in many[:40]] == [one["version"] for one in again]
    drawn = [int(sha256(f"\0{hashes['candidate']}\0{id}".encode()).hexdigest()[:16], 16) / 2**64 < 0.3 for id in ids]
    assert [one["version"] == hashes["candidate"] for one in many] == drawn
    assert 80 < sum(drawn) < 160
    for row, place in (({**ROW, "pulse": "x"}, 7), ({**ROW, "pulse": "x"}, drawn.index(True))):
        told = ask(client, [row if one == place else ROW for one in range(400)], ids=ids).json()
        assert (told["row"], told["column"]) == (place, "pulse")
        assert told["error"].startswith(f"row {place} has 'x'")
    assert ask(client, [ROW], version=hashes["candidate"][:8]).status_code == 200


def test_versions_that_take_other_rows_or_give_other_answers_are_refused(serve):
    with pytest.raises(ConfigError, match="other columns than the version in production: 'town' differs"):
        serve("mixed", candidate=("numbers", 0))
    with pytest.raises(ConfigError, match="a share is between 0 and 1"):
        serve("mixed", candidate=("mixed", 1), share=1.5)


def test_a_registry_routes_and_is_followed(trained, tmp_path):
    registry = ModelRegistry(tmp_path / "models", "flu")
    registry.add(trained("mixed", 0)[0])
    registry.promote()
    registry.add(trained("mixed", 1)[0])
    registry.split(0.4)
    assert registry_at(tmp_path / "models") is None
    source = Source(registry_at(tmp_path / "models" / "flu"))
    assert source.has_changed()
    service = Service(source.load(), source=source)
    ids = [f"patient-{place}" for place in range(100)]
    assert [service.versions.of(id).number for id in ids] == [registry.route(id).number for id in ids]
    service.refresh()
    assert service.versions.share == 0.4
    registry.promote()
    service.refresh()
    assert [(one.number, one.role) for one in service.versions.all] == [(2, "production")]
    registry.roll_back()
    registry.add(trained("numbers", 0)[0])
    registry.split(0.5)
    with TestClient(make_app(service), "http://127.0.0.1") as client:
        service.refresh()  # the candidate is for other columns
        assert [one.number for one in service.versions.all] == [2]
        assert "not followed" in client.get("/health").json()["registry"]
        assert source.has_changed()  # so that it is tried again
        assert ask(client, [ROW]).status_code == 200
        registry.split(0)
        service.refresh()
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/schema").json()["versions"][0]["number"] == 1


def test_answers_are_logged_by_id_without_the_row(serve, trained, tmp_path):
    path = tmp_path / "new" / "answers.jsonl"
    client = serve(candidate=("mixed", 1), log=AnswersLog(path))
    answers = ask(client, [ROW, {**ROW, "age": 33}], ids=["a", 7]).json()["answers"]
    answers += ask(client, [{**ROW, "pulse": 61.125}]).json()["answers"]
    ask(client, [{**ROW, "age": "x"}])
    ask(client, [{**ROW, "town": "Rome"}], unseen="skip")
    logged = list(Reading(path))
    assert [(one.id, one.version, one.prediction, one.probabilities) for one in logged] == [
        (one["id"], one["version"], one["prediction"], one["probabilities"]) for one in answers]
    assert [one.id for one in logged[:2]] == ["a", "7"]
    assert not re.search("Bern|61.125|pulse", path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_full_disk_refuses_answers_until_there_is_room(serve, tmp_path, monkeypatch):
    client, write = serve(log=AnswersLog(tmp_path / "answers.jsonl")), os.write
    left = [20]

    def full(descriptor, content):
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and left is not None:
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            content, left[0] = content[:left[0]], max(left[0] - len(content), 0)
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", full)
    answer = ask(client, [ROW], ids=["lost"])
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert "prediction" not in answer.text
    monkeypatch.undo()
    assert ask(client, [ROW], ids=["kept"]).status_code == 200
    assert "kept" in (tmp_path / "answers.jsonl").read_text()


def test_a_log_begins_anew_after_a_crash_and_at_its_size(tmp_path, serve):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": "cut o')
    path.chmod(0o644)
    client = serve(log=AnswersLog(path, largest=2_000))
    for place in range(20):
        ask(client, [ROW], ids=[f"p{place}"])
    reading = Reading(path)
    assert [one.id for one in reading] == [f"p{place}" for place in range(20)]
    assert reading.damaged == 1
    files = list(tmp_path.iterdir())
    assert len(files) > 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert max(file.stat().st_size for file in files) < 2_500
    (tmp_path / "link.jsonl").symlink_to(path)
    with pytest.raises(DataError, match="cannot be written"):
        AnswersLog(tmp_path / "link.jsonl")


def test_a_token_is_needed_and_only_its_hash_is_kept(serve, tmp_path):
    file = tmp_path / "token"
    hashes, token = tokens_of(file)
    assert (len(token) >= 40, stat.S_IMODE(file.stat().st_mode)) == (True, 0o600)
    assert token not in file.read_text()
    assert tokens_of(file) == (hashes, "")
    client = serve(access=Access("0.0.0.0", hashes))
    wrong = [{}, *({"authorization": text} for text in (
        f"Bearer {token[:-1]}", f"Bearer {token}x", "Bearer", "Bearer ", token, "Basic !", f"Digest {token}"))]
    answers = [client.post("/predict", json={"rows": [ROW]}, headers=headers) for headers in wrong]
    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}
    for path in ("/metrics", "/schema", "/docs", "/openapi.json", "/nowhere"):
        assert client.get(path).status_code == 401
    assert client.get("/health").json() == {"status": "ok"}
    client.headers["authorization"] = f"Bearer {token}"
    assert ask(client, [ROW]).status_code == 200
    del client.headers["authorization"]
    assert client.get("/docs", auth=("anybody", token)).status_code == 200
    assert client.post("/predict", json={"rows": [ROW]}, auth=("anybody", token)).status_code == 401
    assert client.get("/docs").headers["www-authenticate"].startswith("Basic")


def test_tokens_are_compared_in_constant_time(monkeypatch):
    seen = []
    monkeypatch.setattr("tequio.views.serving.access.compare_digest", lambda a, b: seen.append((a, b)) or False)
    access = Access("0.0.0.0", tuple(sha256(word).digest() for word in (b"one", b"two")))
    for brought in (b"Bearer one", b"Bearer " + b"x" * 10_000):
        assert access.refuses("/predict", {b"authorization": brought})[0] == 401
    assert len(seen) == 4
    assert {len(side) for pair in seen for side in pair} == {32}


def test_a_token_file_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "token"
    tokens_of(file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="others on this machine") as caught:
        tokens_of(file)
    assert caught.value.remedy == f"type: chmod 600 {file}"
    file.chmod(0o600)
    file.write_text("hunter2\n")
    with pytest.raises(ConfigError, match="something else than hashes"):
        tokens_of(file)
    with pytest.raises(ConfigError, match="so a token is needed"):
        Access("0.0.0.0")


def test_without_a_token_only_programs_of_this_machine_are_answered(serve):
    client = serve(access=Access(host_names=("lab",)))
    for host, status in (("127.0.0.1:8080", 200), ("localhost", 200), ("[::1]:8080", 200), ("lab:1", 200),
                         ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("", 403), ("[", 403)):
        assert client.post("/predict", json={"rows": [ROW]}, headers={"host": host}).status_code == status, host
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9"):
        assert client.post("/predict", json={"rows": [ROW]}, headers={"origin": origin}).status_code == 403


def test_what_is_counted_is_what_happened(serve):
    client = serve(candidate=("mixed", 1), share=0.5)
    ids = [f"p{place}" for place in range(20)]
    answers = ask(client, [ROW] * 20, ids=ids).json()["answers"]
    ask(client, [{**ROW, "age": "x"}])
    client.get("/nowhere/1")
    client.get("/nowhere/2")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counts = {(sample.name, *sorted(sample.labels.items())): sample.value
              for family in text_string_to_metric_families(answer.text) for sample in family.samples}
    assert counts["tequio_requests_total", ("path", "/predict"), ("status", "200")] == 1
    assert counts["tequio_requests_total", ("path", "other"), ("status", "404")] == 2
    assert counts["tequio_errors_total", ("status", "422")] == 1
    assert counts["tequio_rows_total",] == 20
    assert counts["tequio_request_seconds_bucket", ("le", "+Inf")] == counts["tequio_request_seconds_count",] == 2
    for one in serve.service.versions.all:
        for name in ("yes", "no"):
            told = sum(answer["version"] == one.sha256 and answer["prediction"] == name for answer in answers)
            key = ("tequio_answers_total", ("class", name), ("role", one.role), ("version", one.sha256))
            assert counts.get(key, 0) == told
    assert sum(value for key, value in counts.items() if key[0] == "tequio_answers_total") == 20


def test_the_description_fits_what_is_asked_and_answered(serve):
    from jsonschema import Draft202012Validator

    client = serve()
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]

    def fits(name, value):
        Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
                             ).validate(value)

    example = schemas["Request"]["example"]
    fits("Request", example)
    answer = client.post("/predict", json=example)
    assert answer.status_code == 200
    fits("Answer", answer.json()["answers"][0])
    fits("Error", ask(client, [{**ROW, "age": "x"}]).json())
    assert set(document["paths"]) == {"/predict", "/health", "/metrics", "/schema"}
    columns = {column["name"]: column for column in client.get("/schema").json()["columns"]}
    assert columns["town"]["categories"] == ["Bern", "Oaxaca", "Łódź"]
    ages = np.sort(table()["age"])
    # the median of the training rows, which are not all
    assert ages[len(ages) // 4] < columns["age"].pop("usual") < ages[3 * len(ages) // 4]
    assert columns["age"] == {"name": "age", "kind": "number", "may_be_missing": True}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.links += [value for name, value in attrs if name in ("href", "src")]


def test_the_page_needs_nothing_else_and_runs_nothing(serve):
    answer = serve().get("/docs")
    page = Page()
    page.feed(answer.text)
    names = [tag for tag, _ in page.tags]
    assert set(page.links) == {"openapi.json", "schema", "health", "metrics"}
    assert not {"script", "img", "link", "iframe", "form"} & set(names)
    assert (names.count("h1"), names.count("main")) == (1, 1)
    assert ("html", {"lang": "en"}) in page.tags
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    import base64

    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_too_many_that_wait_are_told_to_come_again(serve):
    client = serve(limits=Limits(waiting=2, seconds=5))
    service, go_on = serve.service, threading.Event()
    service.is_fast = False
    service.worker.submit(go_on.wait)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(ask, client, [ROW]) for _ in range(2)]
        while service.waiting < 2:
            time.sleep(0.001)
        refused = ask(client, [ROW])
        go_on.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert [one.result().status_code for one in waiting] == [200, 200]
    service.limits = Limits(seconds=0.05)
    go_on.clear()
    service.worker.submit(go_on.wait)
    late = ask(client, [ROW])
    go_on.set()
    assert (late.status_code, late.headers["retry-after"]) == (503, "5")
    assert ask(client, [ROW]).status_code == 200


def test_a_failure_inside_is_told_without_its_trace(serve, monkeypatch):
    client = serve()
    monkeypatch.setattr(serving.Desk, "answer_small", lambda *_: 1 / 0)
    answer = ask(client, [ROW])
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    monkeypatch.undo()
    assert ask(client, [ROW]).status_code == 200


@pytest.fixture
def live(trained, tmp_path):
    """A server on a real socket: its port, its log, and what stops it."""
    log = tmp_path / "answers.jsonl"
    service = Service(Versions(Served(tequio.load(trained("mixed")[0]), "production")), log=AnswersLog(log),
                      limits=Limits(bytes=100_000, seconds=0.5))
    door = open_door("127.0.0.1", 0)
    server = server_for(make_app(service), 0.5)
    thread = threading.Thread(target=server.run, args=([door],))
    thread.start()

    def stop():
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()

    while not server.started:
        time.sleep(0.01)
    yield door.getsockname()[1], log, stop
    stop()


def said(port, text, *, wait=True):
    """What the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        one.sendall(text)
        found = b""
        while wait and (part := one.recv(65536)):
            found += part
        return found


@pytest.mark.network
def test_rude_connections_are_ended_and_others_answered(live):
    port, _, _ = live
    head = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    assert said(port, b"") == b""
    assert said(port, head) == b""
    assert b" 408 " in said(port, head + b"Content-Length: 50\r\n\r\n{")
    assert b" 431 " in said(port, head + b"Connection: close\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
    assert b" 400 " in said(port, head + b"X: " + b"x" * 40_000)
    assert b" 400 " in said(port, head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n")
    assert b" 400 " in said(port, head + b"Content-Length: -5\r\n\r\n")
    assert b" 400 " in said(port, head + b"Content-Length: 2\r\nX: a\0b\r\n\r\n{}")
    said(port, head + b"Content-Length: 50\r\n\r\n{", wait=False)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/predict", b" " * 10_000_000, {"content-type": "application/json"})
    assert connection.getresponse().status == 413
    body = json.dumps({"rows": [ROW]})
    connection.close()
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.network
def test_fifty_clients_lose_nothing_and_stopping_loses_nothing_either(live):
    port, log, stop = live
    body, enough = json.dumps({"rows": [ROW]}), threading.Event()

    def client(_):
        """How many answers came, and why it ended."""
        connection, count = http.client.HTTPConnection("127.0.0.1", port, timeout=20), 0
        while True:
            try:
                if connection.sock is None:
                    connection.connect()
            except ConnectionRefusedError:
                return count, "refused"
            connection.request("POST", "/predict", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())["answers"][0]["prediction"] in ("yes", "no")
            count += 1
            if count > 20:
                enough.set()

    with ThreadPoolExecutor(50) as pool:
        clients = [pool.submit(client, place) for place in range(50)]
        enough.wait(60)
        stop()
        ends = [one.result() for one in clients]
    assert {reason for _, reason in ends} == {"refused"}
    assert sum(count for count, _ in ends) == len(log.read_bytes().splitlines()) > 500


def test_the_command_says_what_it_serves(trained, tmp_path, monkeypatch, capsys):
    import uvicorn

    from tequio.cli.main import call

    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: sockets[0].close())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = str(trained("mixed")[0])
    code = call(["serve", folder, "--candidate", str(trained("mixed", 1)[0]), "--port", str(port), "--log",
                 str(tmp_path / "log"), "--token-file", str(tmp_path / "token")])
    out = capsys.readouterr().out
    assert code == 0
    assert "candidate" in out
    assert "for 0.1 of the ids" in out
    token = re.search(r"^token +(\S+)$", out, re.MULTILINE)[1]
    assert sha256(token.encode()).hexdigest() in (tmp_path / "token").read_text()
    assert Path(tmp_path / "log" / "answers.jsonl").exists()
    assert max(map(len, out.replace(str(tmp_path), "").splitlines())) <= 80
    for words, told in ((["--host", "0.0.0.0"], "so a token is needed"), (["--share", "0.2"], "--candidate MODEL"),
                        (["--largest-request", "lots"], "is no size")):
        assert call(["serve", folder, "--port", str(port), *words]) == 2
        assert told in " ".join(capsys.readouterr().err.replace("│", " ").split())
