"""What the network engine costs, on loopback with mutual TLS: python benchmarks/network.py [case ...]

    latency   round trip of a task that does nothing, one party, p50 (mark: 5 ms)
    bounded   the same where a worker process with limits does it, over that in turn (mark: 1.2 x); and what that worker
              adds to the task by itself, with nothing, 10 MB and 100 MB in the payload
    transfer  a model of 100 MB to 10 parties, against a bare gRPC stream of the same bytes (mark: 0.6 of its rate)
    fedavg    rounds of the `mlp` bench, 100 processes of one party each, against the local engine (mark: 1.5 x)
    idle      memory and CPU of a coordinator with 1,000 idle parties (marks: 1 GB, 5 % of a core)
    huge      a model of 2 GB to one party and back: seconds and peak memory of both (on request only)
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tequio import registry
from tequio.bench.cases import nothing
from tequio.bench.problems import PROBLEMS, Rounds, best_in_turn
from tequio.data.dataset import schema_to_json
from tequio.engines.network import wire
from tequio.engines.network.bounded import InProcess, runner_for
from tequio.engines.network.certificates import key_pem, make_request, new_key
from tequio.engines.network.dialling import PartyLink
from tequio.engines.network.engine import Network, NetworkEngine
from tequio.engines.network.enrolment import Request, grant
from tequio.engines.network.grpc_setup import CHANNEL_OPTIONS, LINK, SERVER_OPTIONS
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.homes import CoordinatorHome, PartyHome
from tequio.engines.network.site import Site
from tequio.engines.network.telemetry import Telemetry
from tequio.federation.exchange import Announcement, Order
from tequio.federation.payload import Payload
from tequio.federation.task import NoSettings, Reveals, task
from tequio.gate.policy import Policy
from tequio.registry import build

PORT = 28470
MODEL_BYTES = 100_000_000


@task("network bench.negate", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def negate(party, payload, settings):
    """Give a new model of the same size back."""
    return {"model": -payload["model"]}


def doing(*tasks, **limits):
    """A policy that allows tasks of this file."""
    return Policy(private_randomness=False, tasks=tuple(task.name for task in tasks), **limits)


def make_home(folder):
    return CoordinatorHome.create(folder, "bench", "localhost", PORT, PORT + 1)


def enrol(home, folder, name):
    token, key = home.new_token(name), new_key()
    certificate = grant(home, Request(token.id, token.secret, name, make_request(key, name)))
    folder.mkdir(parents=True)
    for file, content in (("party.key", key_pem(key)), ("party.pem", certificate), ("authority.pem", token.authority),
                          ("party.json", json.dumps({"name": name, "address": token.address}).encode())):
        (folder / file).write_bytes(content)
    return PartyHome(folder)


class Fleet:
    """A coordinator in this process, and one process a party that sees its share of a population."""

    def __init__(self, population, policy=Policy(private_randomness=False)):  # noqa: B008
        registry.load_everything()
        registry.load_plugins(["tequio.bench.cases"])  # whose tasks worker processes have to know too
        self.population, self._policy = population, policy
        self._folder = tempfile.TemporaryDirectory()
        home = make_home(Path(self._folder.name) / "coordinator")
        homes = [enrol(home, Path(self._folder.name) / str(party), str(party)) for party in range(len(population))]
        self.children = []
        for party, place in enumerate(homes):  # forked before gRPC is touched, so that all share what is imported
            child = os.fork()
            if not child:
                self._serve(party, place)
            self.children.append(child)
        self._service = Network(str(home.folder)).service(Telemetry())
        self._service.start()
        self.engine = NetworkEngine(Network(str(home.folder)), self._service)
        schema = schema_to_json(population.schema)
        self.engine.announce(Announcement("bench", {
            "name": "bench", "algorithm": "fedavg", "rounds": 1000, "schema": schema}))

    def _serve(self, party, place):
        holding = OwnRows(str(party), self.population.partition.view(self.population.dataset, party))
        telemetry = Telemetry()
        runner = runner_for(place.folder / "workers", telemetry, gigabytes=self._policy.maximum_task_gigabytes,
                            seconds=self._policy.maximum_task_seconds)
        site = Site(place, holding, self._policy, telemetry, runner=runner)
        try:
            PartyLink(place, site, telemetry).serve()
        finally:
            os._exit(1)

    def close(self):
        for child in self.children:
            os.kill(child, 9)
            os.waitpid(child, 0)
        self.engine.close()
        self._service.stop()
        self._folder.cleanup()


def tiny():
    return PROBLEMS["logistic"].__class__("tiny", "logistic", 1, 10, (4,), 1, 5, 1.0).population()


def latency():
    times = sorted(round_trips(doing(nothing)))
    return {"p50_ms": 1e3 * statistics.median(times), "p95_ms": 1e3 * times[int(0.95 * len(times))], "mark_ms": 5.0}


def round_trips(policy):
    population = tiny()
    fleet = Fleet(population, policy)
    fleet.engine.open(population)
    times = []
    for ticket in range(1, 1001):
        started = time.perf_counter()
        fleet.engine.submit(Order(ticket, nothing.name, (0,), 1, {}))
        outcome = fleet.engine.collect()
        times.append(time.perf_counter() - started)
        assert not outcome.failures, outcome.failures
    fleet.close()
    return times[100:]


LIMITS = {"maximum_task_gigabytes": 4.0, "maximum_task_seconds": 600.0}


def bounded(repeats=3):
    policies = {"plain": doing(nothing), "bounded": doing(nothing, **LIMITS)}
    trips = {name: [] for name in policies}
    for _ in range(repeats):
        for name, policy in policies.items():
            trips[name] += round_trips(policy)
    over_a_link = {name: 1e3 * statistics.median(times) for name, times in trips.items()}
    with tempfile.TemporaryDirectory() as place:
        limited = runner_for(Path(place), Telemetry(), gigabytes=LIMITS["maximum_task_gigabytes"],
                             seconds=LIMITS["maximum_task_seconds"])
        added = {f"{megabytes}_mb": _added(limited, megabytes) for megabytes in (0, 10, 100)}
        limited.close()
    return {"p50_ms": over_a_link, "ratio": over_a_link["bounded"] / over_a_link["plain"], "mark": 1.2,
            "added_ms": added}


def _added(limited, megabytes):
    """Median milliseconds that a task takes longer in a worker process."""
    population = tiny()
    order = Order(1, nothing.name, (0,), 1, {"model": np.ones(megabytes * 250_000, np.float32)} if megabytes else {})
    medians = []
    for runner in (InProcess(), limited):
        times = []
        for _ in range(1000 if not megabytes else 20):
            started = time.perf_counter()
            runner.run("bench", order, population, {})
            times.append(time.perf_counter() - started)
        medians.append(1e3 * statistics.median(times))
    return medians[1] - medians[0]


def transfer(parties=10, repeats=3):
    problem = PROBLEMS["logistic"]
    population = problem.__class__("tiny", "logistic", parties, 10, (4,), 1, 5, 1.0).population()
    fleet = Fleet(population, doing(nothing))
    fleet.engine.open(population)
    ours = []
    for ticket in range(1, repeats + 2):
        payload = {"model": np.random.default_rng(ticket).random(MODEL_BYTES // 4, dtype=np.float32)}
        started = time.perf_counter()
        fleet.engine.submit(Order(ticket, nothing.name, tuple(range(parties)), 1, payload))
        fleet.engine.collect()
        ours.append(time.perf_counter() - started)
    fleet.close()
    bare = [bare_stream(parties) for _ in range(repeats)]
    rate, bare_rate = (parties * MODEL_BYTES / min(times) / 1e6 for times in (ours[1:], bare))
    return {"megabytes_a_second": rate, "bare_grpc": bare_rate, "share": rate / bare_rate, "mark": 0.6}


def bare_stream(parties):
    """Seconds for a plain gRPC stream over the same mutual TLS to bring the same bytes to as many processes."""
    with tempfile.TemporaryDirectory() as place:
        home = make_home(Path(place) / "coordinator")
        homes = [enrol(home, Path(place) / str(party), str(party)).folder for party in range(parties)]
        with ProcessPoolExecutor(parties, get_context("spawn")) as pool:
            list(pool.map(str, range(parties)))
            return asyncio.run(_bare(home, homes, pool))


async def _bare(home, homes, pool):
    import grpc

    piece = os.urandom(wire.LARGEST_BODY)
    ready, together = 0, asyncio.Event()

    async def handler(requests, context):
        nonlocal ready
        ready += 1
        if ready == len(homes):
            together.set()
        await together.wait()
        for _ in range(MODEL_BYTES // len(piece)):
            await context.write(piece)

    own, authority = home.identity("coordinator"), home.identity("authority").certificate
    server = grpc.aio.server(options=SERVER_OPTIONS)
    methods = {"Link": grpc.stream_stream_rpc_method_handler(handler)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tequio.Coordinator", methods),))
    credentials = grpc.ssl_server_credentials([(own.key, own.certificate)], authority, require_client_auth=True)
    server.add_secure_port(f"0.0.0.0:{PORT}", credentials)
    await server.start()
    loop = asyncio.get_running_loop()
    waiting = [loop.run_in_executor(pool, _drain, str(folder)) for folder in homes]
    await together.wait()
    started = time.perf_counter()
    await asyncio.gather(*waiting)
    spent = time.perf_counter() - started
    await server.stop(0)
    return spent


def _drain(folder):
    import grpc

    home = PartyHome(Path(folder))
    credentials = grpc.ssl_channel_credentials(home.authority, home.identity.key, home.identity.certificate)
    with grpc.secure_channel(f"localhost:{PORT}", credentials, options=CHANNEL_OPTIONS) as channel:
        return sum(len(data) for data in channel.stream_stream(LINK)(iter([b"x"])))


def fedavg(repeats=8):
    problem = PROBLEMS["mlp"]
    population = problem.population()
    import torch

    torch.zeros(1)
    from tequio.engines.inline import one_thread

    one_thread()
    fleet = Fleet(population)
    network = Rounds(problem.algorithm(), population, fleet.engine)
    everyone = replace(problem, cohort=problem.parties)
    network.state = everyone.algorithm().round(network.federation, network.state)  # the first task of a process is slow
    local = Rounds(problem.algorithm(), population, build("engine", "local", {"workers": 0}).create())
    best = best_in_turn({"network": network, "local": local}, repeats)
    local.engine.close()
    fleet.close()
    return {"network_seconds": best["network"], "local_seconds": best["local"],
            "ratio": best["network"] / best["local"], "mark": 1.5}


def idle(parties=1000, seconds=60):
    import psutil

    with tempfile.TemporaryDirectory() as place:
        home = make_home(Path(place) / "coordinator")
        homes = [enrol(home, Path(place) / f"p{party}", f"p{party}").folder for party in range(parties)]
        command = [sys.executable, "-m", "tequio", "coordinator", "serve", "--home", str(home.folder)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as coordinator:
            coordinator.stderr.readline()
            drain = subprocess.Popen(["cat"], stdin=coordinator.stderr, stdout=subprocess.DEVNULL)
            process = psutil.Process(coordinator.pid)
            empty = process.memory_info().rss
            spent = asyncio.run(_idle(homes, process, seconds))
            coordinator.terminate()
        drain.wait()
    return {**spent, "megabytes_before": empty / 1e6, "marks": {"megabytes": 1000, "share_of_a_core": 0.05}}


async def _idle(homes, process, seconds):
    import grpc

    calls = []
    for place in homes:
        home = PartyHome(place)
        credentials = grpc.ssl_channel_credentials(home.authority, home.identity.key, home.identity.certificate)
        channel = grpc.aio.secure_channel(f"localhost:{PORT}", credentials, options=CHANNEL_OPTIONS)
        call = channel.stream_stream(LINK)()
        await call.write(wire.frame(wire.Hello(home.facts["name"], 1, 1, "0.1.0", 10, "{}")))
        calls.append((channel, call))
    for _, call in calls:
        assert isinstance(wire.from_coordinator(await call.read())[0], wire.Welcome)
    await asyncio.sleep(5)
    before = process.cpu_times()
    await asyncio.sleep(seconds)
    after, memory = process.cpu_times(), process.memory_info().rss
    used = after.user + after.system - before.user - before.system
    for channel, _ in calls:
        await channel.close()
    return {"parties": len(calls), "megabytes": memory / 1e6, "share_of_a_core": used / seconds}


def huge(gigabytes=2):
    """Needs about four times the model's size at the party and three times at the coordinator."""
    population = tiny()
    fleet = Fleet(population, doing(negate, maximum_reply_megabytes=1e9))
    fleet.engine.open(population)
    count = int(gigabytes * 1e9) // 4
    payload = {"model": np.arange(count, dtype=np.float32)}
    before = [_megabytes(process) for process in (os.getpid(), fleet.children[0])]
    started = time.perf_counter()
    fleet.engine.submit(Order(1, negate.name, (0,), 1, payload))
    [reply] = fleet.engine.collect().replies
    spent = time.perf_counter() - started
    assert np.array_equal(reply.payload["model"][::1000], -payload["model"][::1000])
    after = [_megabytes(process) for process in (os.getpid(), fleet.children[0])]
    fleet.close()
    return {"gigabytes": gigabytes, "seconds": spent, "megabytes_a_second": 2e3 * gigabytes / spent,
            "peak_megabytes": {"coordinator": after[0] - before[0], "party": after[1] - before[1]}}


def _megabytes(process):
    """The most memory that a process ever held."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e3
    return 0.0


CASES = {"latency": latency, "bounded": bounded, "transfer": transfer, "fedavg": fedavg, "idle": idle}
ON_REQUEST = {"huge": huge}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(name, json.dumps((CASES | ON_REQUEST)[name]()), flush=True)
