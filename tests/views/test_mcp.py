"""Programs that speak for somebody are on a leash: they get from a table to a report, and never see a cell of it."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys

import numpy as np
import pytest

from tequio.models.audit import Audit
from tequio.views.json_rpc import answered, serve
from tequio.views.tools import Tools

WARDS = ["Quillon ward", "Zephyrine", "Obermoos"]


@pytest.fixture
def folder(tmp_path):
    draw = np.random.default_rng(0)
    with (tmp_path / "patients.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["case", "age", "pressure", "ward", "outcome"])
        for row in range(90):
            age, pressure = draw.normal(50, 10), draw.normal(120, 15)
            lines.writerow([f"case-{row:05d}x", f"{age:.6f}", f"{pressure:.6f}", WARDS[row % 3],
                            "relapsed" if age + draw.normal() > 50 else "recovered"])
    return tmp_path


CONFIG = {"name": "trial", "rounds": 2, "data": {"name": "csv", "path": "patients.csv", "target": "outcome",
                                                 "group": "ward", "id": "case", "partition": "natural"}}


def call(tools, name, **arguments):
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return answered(tools, json.dumps(request).encode())["result"]


def cells_of(folder):
    with (folder / "patients.csv").open(newline="") as file:
        return {cell for line in list(csv.reader(file))[1:] for cell in line}


def test_from_a_table_to_a_report_through_the_command(folder):
    wanted = [("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t"}}),
              ("tools/list", {}), ("tools/call", {"name": "list_columns", "arguments": {"path": "patients.csv"}}),
              ("tools/call", {"name": "validate", "arguments": {"config": CONFIG}}),
              ("tools/call", {"name": "run", "arguments": {"config": CONFIG}}),
              ("tools/call", {"name": "list_runs"}), ("shutdown", {})]
    lines = [json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
             for number, (method, parameters) in enumerate(wanted)]
    lines.insert(1, json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    command = [sys.executable, "-m", "tequio", "mcp", "--folder", str(folder)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(7))
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    assert {"run", "read_dossier"} <= {tool["name"] for tool in answers[1]["result"]["tools"]}
    columns, _, outcome, listed = [answer["result"]["structuredContent"] for answer in answers[2:6]]
    assert columns == {"columns": ["case", "age", "pressure", "ward", "outcome"], "rows": 90}
    assert answers[6]["error"]["code"] == -32601
    assert listed["runs"] == [outcome["run"]]
    tools = Tools(folder)
    assert not call(tools, "read_dossier", run=outcome["run"])["isError"]
    assert call(tools, "write_report", runs=[outcome["run"]])["structuredContent"] == {"report": "runs/report.html"}
    assert (folder / "runs" / "report.html").stat().st_size > 1000
    steps = [entry["what"] for entry in Audit(folder / "runs" / "agents.jsonl").entries()]
    assert steps == ["list_columns", "validate", "run", "list_runs", "read_dossier", "write_report"]


@pytest.mark.parametrize(("change", "message"), [
    ({"plugins": ["os"]}, "'plugins' is for people"), ({"policy": "open"}, "'policy' is for people"),
    ({"engine": {"name": "network"}}, "'engine' is for people"),
    ({"output": {"folder": "/x"}}, "'output' is for people"),
    ({"data": {"name": "parties"}}, "takes a person's approval"), ({"data": {"name": "sql"}}, "a person's approval"),
    ({"learner": {"name": "torch", "module": "os:system"}}, "names code or a file"),
    ({"data": {**CONFIG["data"], "partition": {"name": "custom", "function": "os:getcwd"}}}, "names code or a file"),
    ({"data": {**CONFIG["data"], "mapping": "secret.toml"}}, "names code or a file"),
    ({"data": {**CONFIG["data"], "path": "../outside.csv"}}, "not in the folder"),
    ({"data": {**CONFIG["data"], "path": "link.csv"}}, "not in the folder"),
    ({"data": {**CONFIG["data"], "path": "runs/agents.jsonl"}}, "not in the folder"),
    ({"rounds": 100000}, "more than a call may take"),
])
def test_what_is_for_people_to_do_is_refused(change, message, folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "outside.csv"
    outside.write_text("a,b\n1,2\n")
    (folder / "link.csv").symlink_to(outside)
    for tool in ("validate", "run"):
        said = call(Tools(folder), tool, config={**CONFIG, **change})
        assert said["isError"]
        assert message in said["structuredContent"]["message"]
    assert not list((folder / "runs").glob("trial-*"))


def test_cells_are_withheld_wherever_they_stand(folder):
    tools = Tools(folder, {"Zephyrine", "Quillon ward", 'he said "no"', "51.123456", "a"})
    reply = {"groups.accuracy.Zephyrine": 1.0, "words": ["the_Zephyrine-ward", "Quillon wards, Quillon ward", "overall",
             'that he said "no" (51.123456)'], "Zephyrines": None}
    assert tools.without_cells(reply) == {
        "groups.accuracy.(withheld)": 1.0, "words": ["the_(withheld)-ward", "Quillon wards, (withheld)", "overall",
        "that (withheld) ((withheld))"], "Zephyrines": None}


def test_a_table_without_names_of_columns_shows_no_row(folder):
    (folder / "bare.csv").write_text("Quillon ward,51.123456\nZephyrine,49.5\n")
    assert call(Tools(folder), "list_columns", path="bare.csv")["isError"]


def test_an_error_about_rows_says_that_it_is_one_and_no_more(folder):
    with (folder / "patients.csv").open("a") as file:
        file.write("case-x,not-a-number,1,Obermoos,relapsed\n")
    said = call(Tools(folder), "run", config={**CONFIG, "data": {**CONFIG["data"], "kinds": {"age": "number"}}})
    assert said["isError"]
    assert "not-a-number" not in json.dumps(said)


@pytest.mark.parametrize("calls", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_calls_at_random_return_no_cell(calls, folder):
    tools, draw, cells = Tools(folder), random.Random(0), sorted(cells_of(folder))
    ran = call(tools, "run", config=CONFIG)["structuredContent"]["run"]
    words = [*cells[::9], "patients.csv", ran, "csv", "fedavg", "algorithm", "../x", "", "outcome", "ward", "\0"]

    def anything(depth=0):
        pick = draw.random()
        if pick < 0.5 or depth > 2:
            return draw.choice([*words, draw.choice(words), 3, -1, 0.5, None, True])
        if pick < 0.7:
            return [anything(depth + 1) for _ in range(draw.randrange(3))]
        return {str(draw.choice(words)): anything(depth + 1) for _ in range(draw.randrange(4))}

    def config():
        changed = json.loads(json.dumps(CONFIG))
        place = draw.choice([changed, changed["data"]])
        place[draw.choice([*place, "learner", "selector", "missing", "positive", "kinds", "split"])] = anything()
        return changed

    usual = {"path": lambda: "patients.csv", "config": config, "run": lambda: ran, "runs": lambda: [ran],
             "kind": lambda: "learner"}
    kinds = ["list_components", "list_columns", "list_runs", "show_run", "validate", "compare", "explain_error",
             "read_dossier"]
    for number in range(calls):
        tool = "run" if number % 100 == 0 else draw.choice(kinds)
        schema = next(one for one in tools.described() if one["name"] == tool)["inputSchema"]
        given = {key: draw.choice([usual.get(key, anything), anything])() for key in schema["properties"]
                 if draw.random() < 0.95}
        if draw.random() < 0.1:
            given = anything()
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": given}}
        answer = json.dumps(answered(tools, json.dumps(request).encode()), ensure_ascii=False)
        assert [cell for cell in cells if cell in answer] == [], (request, answer)


@pytest.mark.parametrize(("line", "code"), [
    (b"{", -32700), (b"[]", -32600), (b'"x"', -32600), (b'{"jsonrpc": "2.0", "id": 1}', -32600), (b"\xff\xfe", -32700),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600), (b"[" * 100000, -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601)])
def test_what_is_no_request_is_answered_with_an_error(line, code, folder):
    assert answered(Tools(folder), line)["error"]["code"] == code


def test_a_line_that_is_too_long_ends_nothing(folder):
    out = io.BytesIO()
    ping = b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n'
    serve(Tools(folder), io.BytesIO(b"x" * (3 << 20) + b"\n" + ping), out)
    assert [json.loads(line).get("id") for line in out.getvalue().splitlines()] == [None, 2]
