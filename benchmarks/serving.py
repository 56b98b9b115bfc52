"""How fast and how reliably `tequio serve` answers, beside a bare starlette endpoint that calls the same torch module.

    python benchmarks/serving.py [SECONDS] [CLIENTS]

Both run in processes of their own on loopback, under uvicorn, with one compute thread. Each client sends one row after
the other on one connection. First one client alone asks for latency, both services in turns; then all clients ask the
service for SECONDS, half of that the bare endpoint; then the service is stopped while they ask.
The bare endpoint parses JSON, fills a tensor and encodes probabilities: no names, no preparation, no checks, no log.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import tequio

_WARM_UP, _ALONE, _TURNS = 200, 500, 6

BARE = """
import json, sys, torch, uvicorn, tequio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

torch.set_num_threads(1)
module = tequio.load(sys.argv[1]).module()

async def predict(request):
    rows = json.loads(await request.body())["rows"]
    with torch.inference_mode():
        answer = torch.softmax(module(torch.tensor([list(row.values()) for row in rows])), 1)
    return JSONResponse({"answers": answer.tolist()})

uvicorn.run(Starlette(routes=[Route("/predict", predict, methods=["POST"])]), port=int(sys.argv[2]), http="h11",
            log_level="warning", access_log=False)
"""


def main(seconds: float, clients: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        model = tequio.run(name="served", rounds=3, data={"name": "digits", "prepare": ["standardise"]},
                           learner={"name": "mlp"}, engine={"workers": 1}, output={"folder": place}).folder
        schema = tequio.load(model).reading.schema
        body = json.dumps({"rows": [dict.fromkeys(schema.names, 3.0)]}).encode()
        log = Path(place) / "answers.jsonl"
        ours, bare = _free_port(), _free_port()
        processes = {ours: ["-m", "tequio", "serve", str(model), "--port", str(ours), "--log", str(log)],
                     bare: ["-c", BARE, str(model), str(bare)]}
        started = {port: subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
                   for port, words in processes.items()}
        try:
            asyncio.run(_measure(ours, bare, body, seconds, clients, started[ours], log))
        finally:
            for process in started.values():
                process.terminate()
                process.wait()


async def _measure(ours: int, bare: int, body: bytes, seconds: float, clients: int, process: subprocess.Popen[bytes],
                   log: Path) -> None:
    for port in (ours, bare):
        await _started(port)
        await _asked(port, body, _WARM_UP)
    alone: dict[int, list[float]] = {ours: [], bare: []}
    for _ in range(_TURNS):  # in turns, so that other work on the machine meets both
        for port, times in alone.items():
            times += await _asked(port, body, _ALONE)
    _show("one client", alone[ours], alone[bare])
    crowd: dict[int, list[float]] = {ours: [], bare: []}
    lost: Counter[str] = Counter()
    for _ in range(_TURNS):
        for port, times in crowd.items():
            times += await _crowd(port, body, seconds / _TURNS * (1 if port == ours else 0.5), clients,
                                  lost if port == ours else Counter())
    _show(f"{clients} clients", crowd[ours], crowd[bare])
    print(f"{clients} clients for {seconds:g} s: {len(crowd[ours])} answers, {sum(lost.values())} lost {dict(lost)}")
    stopping = asyncio.create_task(_crowd(ours, body, 60, clients, lost := Counter()))
    await asyncio.sleep(1)
    process.send_signal(signal.SIGTERM)
    answered = _WARM_UP + sum(map(len, (alone[ours], crowd[ours], await stopping)))
    process.wait()
    print(f"stopped under load: {answered} answers arrived, {len(log.read_bytes().splitlines())} were given; "
          f"clients saw {dict(lost)}")


async def _crowd(port: int, body: bytes, seconds: float, clients: int, lost: Counter[str]) -> list[float]:
    end = time.perf_counter() + seconds
    found = await asyncio.gather(*(_client(port, body, end, lost) for _ in range(clients)))
    return [one for times in found for one in times]


async def _client(port: int, body: bytes, end: float, lost: Counter[str]) -> list[float]:
    times: list[float] = []
    while time.perf_counter() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            lost["refused connections"] += 1
            return times
        try:
            while time.perf_counter() < end:
                started = time.perf_counter()
                closes = await _ask(reader, writer, body)
                times.append(time.perf_counter() - started)
                if closes:
                    break
        except (OSError, EOFError, ValueError) as error:
            lost[type(error).__name__] += 1
        finally:
            writer.close()
    return times


async def _asked(port: int, body: bytes, count: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await _ask(reader, writer, body)
        times.append(time.perf_counter() - started)
    writer.close()
    return times


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> bool:
    """Send a row and read the whole answer; whether the server closes the connection after it."""
    writer.write(b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: "
                 b"%d\r\n\r\n%s" % (len(body), body))
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise ValueError(head[:40])
    answer = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    if not answer.startswith(b'{"answers":['):
        raise ValueError(answer[:40])
    return b"connection: close" in head


async def _started(port: int) -> None:
    while True:
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            return
        except OSError:
            await asyncio.sleep(0.1)


def _show(what: str, ours: list[float], bare: list[float]) -> None:
    for name, share in (("median", 50), ("p99", 99)):
        one, other = (1000 * float(np.percentile(times, share)) for times in (ours, bare))
        print(f"{what}, {name} of one row: {one:.2f} ms, bare starlette {other:.2f} ms ({one / other:.2f} x)")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30, int(sys.argv[2]) if len(sys.argv) > 2 else 50)
