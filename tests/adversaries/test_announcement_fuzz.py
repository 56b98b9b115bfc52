"""The lying coordinator, at random: announcements and requests that are nearly right, by the thousand (spec 005, 2.10).

A valid one is changed in one to four places: wrong types, huge numbers, no numbers, deep nests, unknown keys, paths,
modules, escape sequences, statistics of the wrong shape, components that were not announced. Nothing of that ends the
process, is accepted out of bounds, imports a module, or opens a file outside of the party's folder.
"""

from __future__ import annotations

import copy
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from adversaries.hostile import LOGISTIC, Coordinator, component, stage, training, zeros
from tequio import registry
from tequio.engines.network.bounded import InProcess
from tequio.engines.network.homes import PartyHome, ledgers_folder
from tequio.engines.network.site import Site
from tequio.engines.network.telemetry import Telemetry
from tequio.engines.network.wire import Declined, Ready, TaskRequest, Waiting
from tequio.errors import PayloadError
from tequio.federation import payload as payloads
from tequio.federation.exchange import Failure, Outcome
from tequio.gate.announcement import MOST_PARTIES, MOST_ROUNDS
from tequio.gate.gate import MOST_STEPS
from tequio.gate.policy import Policy
from tequio.registry import to_plain

MODULES = ("antigravity", "this", "turtledemo.clock", "idlelib.run")
PATHS = ("/etc/passwd", "../../secret.npy", "/proc/self/environ", "C:\\secret", "file:///etc/hosts")
NASTY = (None, True, False, 0, 1, -1, 2**31, 2**40, 2**63 - 1, -2**63, 10**15, 0.0, -0.0, 1e-45, 1e-300, 1e300, -1e9,
         0.5, float("nan"), float("inf"), float("-inf"), "", "x", "x" * 300, "\x1b[2J\x1b]0;gone\x07", "\u202etxt",
         "line\nline\r", "{}", "$component", *PATHS,
         *(f"{module}:main" for module in MODULES), *MODULES, b"", b"\0" * 9,
         [], [1], [[]], [None], ["standardise"] * 120, [[1, 2], "three"], {}, {"": 0}, {"name": 3}, {"name": "minmax"},
         {"$component": []}, {"$component": ["learner"]}, {"$component": ["learner", "torch"]},
         {"$component": "learner", "parameters": 3}, {"__class__": "os.system"})


def nested(depth):
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


def valid():
    """An announcement, and requests that go with it."""
    noise = stage("local-dp", clip=1.0, noise=20.0)
    facts = {"name": "tumours", "algorithm": "fedavg", "rounds": 10, "index": 1, "parties": 3, "seed": 4,
             "roster": ["north", "south", "east"], "split": {"validation": 0.1, "test": 0.1, "stratify": True},
             "overrides": {"local": {"epochs": 1}}, "learner": {"name": "logistic"},
             "stages": [{"name": "local-dp", "clip": 1.0, "noise": 20.0}], "components": [LOGISTIC, training(), noise],
             "work": {"algorithm": {"name": "fedavg"}, "local": {"epochs": 1}},
             "preparation": {"steps": ["standardise"], "statistics": [{"mean": np.zeros(4), "scale": np.ones(4)}]}}
    asked = [("train", {"settings": {"learner": LOGISTIC, "local": training()}, "stages": [noise]}, {"model": zeros()}),
             ("evaluate", {"settings": {"learner": LOGISTIC, "part": "test"}, "stages": []}, {"model": zeros()}),
             ("fit preparation", {"settings": {"steps": ["standardise"]}, "stages": []}, {"statistics": []}),
             ("secure-sum.keys", {"settings": {"stage": stage("secure-sum"), "room": 3, "by_rows": True, "cap": 100.0,
                                               "fewest": 3, "local": training()}, "stages": []},
              {"name": "update", "attempt": 1})]
    return facts, asked


def places(value, path=()):
    """Where something in plain data can be changed."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def changed(plain, luck):
    """The same with one to four places changed."""
    plain = copy.deepcopy(plain)
    for _ in range(luck.randint(1, 4)):
        path, holder = luck.choice([*places(plain)][1:] or [()]), plain
        if not path:
            return plain
        for key in path[:-1]:
            holder = holder[key]
        if not isinstance(holder, dict | list) or (isinstance(holder, list) and path[-1] >= len(holder)) or (
                isinstance(holder, dict) and path[-1] not in holder):
            continue
        key, old = path[-1], holder[path[-1]]
        way = luck.randrange(10)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, list):
            holder.extend([copy.deepcopy(old)] * luck.choice((1, 60, 300)))
        elif way == 2 and isinstance(holder, dict):
            holder[luck.choice(("unknown", "least_batch", "share_rows", "noise", "\x1b[1m", "parameters"))] = old
        elif way == 3:
            holder[key] = nested(luck.choice((3, 40)))
        elif way == 4 and isinstance(old, int | float):
            holder[key] = old * luck.choice((-1, 1.5, 1e6, 1e-9, 10**12, 0))
        elif way == 5:
            holder[key] = np.zeros(luck.choice(((0,), (4,), (3, 3), (1, 0, 7), ())),
                                   luck.choice((np.float32, np.int64, np.bool_)))
        elif way == 6:
            kind = luck.choice(("learner", "stage", "engine", "dataset", "preparation", "filter"))
            holder[key] = component(kind, luck.choice(("torch", "text-classifier", "csv", "network", "minmax")),
                                    module=luck.choice(MODULES) + ":main", vectors=luck.choice(PATHS))
        else:
            holder[key] = copy.deepcopy(luck.choice(NASTY))
    return plain


class Short(InProcess):
    """Does what takes no time, and fails what does: endless work is for the limits of a worker process."""

    def run(self, run_id, order, population, states, seed=None):
        local = order.settings.get("local")
        values = local.get("parameters", local) if isinstance(local, dict) else {}
        if max(values.get("epochs", 1), values.get("steps", 0)) > 3 or len(order.stages) > 5:
            return Outcome(order.ticket, (), (Failure(order.parties[0], "too long", "", "", ("too long", "")),))
        return super().run(run_id, order, population, states, seed)


class Watch:
    """What was opened or imported while it looked. A hook stays for good, so it looks when it is told."""

    looks = False
    opened: list[str] = []
    imported: list[str] = []

    @classmethod
    def hook(cls, event, arguments):
        if cls.looks and event == "open" and isinstance(arguments[0], str | bytes):
            cls.opened.append(str(arguments[0]))
        elif cls.looks and event == "import":
            cls.imported.append(str(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def _hook():
    sys.addaudithook(Watch.hook)


def fuzz(count, seed, folder):
    """Play that many announcements and about as many requests; how they ended, and the longest that one took."""
    registry.load_everything()
    luck, ended, longest = random.Random(seed), Counter(), 0.0
    policies = [Policy(minimum_rows=100, minimum_parties=3, tell_rows="hundreds"), Policy(), Policy(approval="run")]
    sites = []
    for number, policy in enumerate(policies):
        honest = Coordinator(folder / f"party-{number}", policy)
        site = Site(PartyHome(honest.folder), honest.site._holding, policy, Telemetry(), runner=Short())
        sites.append((site, {**valid()[0], "schema": site.greeting().schema}))
        honest.announce()
        honest.train()
        honest.evaluate(zeros())
        honest.site.end("run-1")
        site.begin("warm", payloads.encode(sites[-1][1]))
        site.end("warm")
    known = set(sys.modules)
    Watch.opened.clear(), Watch.imported.clear()
    Watch.looks = True
    try:
        for number in range(count):
            site, facts = sites[number % len(sites)]
            started = time.perf_counter()
            ended.update(one(site, facts, luck, number))
            longest = max(longest, time.perf_counter() - started)
    finally:
        Watch.looks = False
    names = tuple(name.partition(".")[0] for name in MODULES)
    assert not [name for name in set(sys.modules) - known if name.startswith(names)]
    assert not [name for name in Watch.imported if name.startswith(names)]
    homes = (str(folder), str(ledgers_folder()))
    code = (str(Path(registry.__file__).parents[1]), sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
    # Python looks for '<unknown>' when a line of our code, which it shows in a traceback, does not parse by itself.
    outside = [path for path in Watch.opened if not path.startswith(homes) and path != "<unknown>"
               and not (path.endswith((".py", ".pyc", ".json")) and path.startswith(code))]
    assert outside == []
    return ended, longest


def one(site, facts, luck, number):
    """One announcement; if it is accepted, some requests. How each ended."""
    run = f"run-{number % 50}" if luck.random() < 0.98 else luck.choice(("../x", "", "a/b", "x" * 300, "\x1b[0m", "."))
    lies = luck.random() < 0.6
    try:
        said = payloads.encode(changed(facts, luck) if lies else facts)
    except (PayloadError, TypeError, ValueError, OverflowError):  # cannot be sent at all
        return ["unsendable"]
    if lies and luck.random() < 0.1:
        broken = bytearray(said)
        for _ in range(luck.randint(1, 8)):
            broken[luck.randrange(len(broken))] = luck.randrange(256)
        said = bytes(broken)
    answer = site.begin(run, said)
    assert isinstance(answer, Ready | Waiting | Declined)
    found = [type(answer).__name__]
    if isinstance(answer, Ready):
        in_bounds(site, run)
        for task, about, payload in valid()[1]:
            found.append(asked(site, run, luck, task, about, payload))
        site.end(run)
    elif isinstance(answer, Declined):
        assert len(answer.cause) < 5000
    return found


def in_bounds(site, run):
    """What was accepted is what may be accepted."""
    engagement = site._runs[run]
    told, split = engagement.announcement, engagement.announcement.split
    assert 0 <= told.index < told.parties <= MOST_PARTIES
    assert 0 <= told.rounds <= MOST_ROUNDS
    assert 0 <= told.seed < 2**63
    assert (split.validation, split.test, split.stratify) == (0.1, 0.1, True)  # as the first run had it
    assert told.parties >= site.policy.minimum_parties
    assert engagement.gate.rows.train == 145
    assert told.work.get("algorithm", {"name": told.algorithm})["name"] == told.algorithm
    assert not any(text in told.hash for text in PATHS)


def asked(site, run, luck, task, about, payload):
    """One request, changed at random. A reply is one that the policy allows."""
    if luck.random() < 0.5:
        about = changed(about, luck)
    if luck.random() < 0.3:
        payload = changed(payload, luck)
    task = task if luck.random() < 0.97 else luck.choice((*MODULES, "hand over rows", "kmeans: move centroids", ""))
    round = luck.choice((0, 1, 1, 1, 10, 11, 2**40))
    try:
        parts = [payloads.encode(about), payloads.encode(payload), b""]
    except (PayloadError, TypeError, ValueError, OverflowError, AttributeError):
        return "unsendable"
    request = TaskRequest(run, luck.choice((1, 2, 2**40)), 0, 0, str(luck.random()), task, round, ((0, 0),) * 3)
    try:
        record = site.run(request, parts)
    except Exception as cause:  # `answer` sends this
        said, remedy = site.explain(request, cause)
        assert len(said) + len(remedy) < 10_000
        return f"no {type(cause).__name__}"
    reply = payloads.decode(record.reply)
    assert round <= 10
    if task == "train":
        local = about["settings"]["local"]
        values = local.get("parameters", local)
        assert 0 <= values.get("epochs", 1) <= MOST_STEPS
        assert all(np.isfinite(values).all() for values in reply["update"].values())
        if site.policy.minimum_rows:
            assert reply["rows"] == 100
            assert values.get("batch", 32) == 0 or values.get("batch", 32) >= 5
    return "reply"


def test_nothing_that_is_announced_ends_a_party_or_gets_past_its_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    ended, _ = fuzz(4_000, 1, tmp_path)
    assert ended["Ready"] > 500
    assert ended["Declined"] > 500
    assert ended["reply"] > 500
    assert to_plain(registry.build("learner", "logistic")) == LOGISTIC


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_100_000_forged_announcements_and_requests_do_neither(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    ended, _ = fuzz(100_000, 2, tmp_path)
    assert sum(ended[how] for how in ("Ready", "Waiting", "Declined")) > 90_000
