"""A plugin for tests of a party's runner: tasks that take their process down, or try to."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import resource
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tequio.federation.payload import Payload
from tequio.federation.stages import Stage
from tequio.federation.task import NoSettings, Reveals, record, task
from tequio.registry import register


@record
class Way:
    """How a task dies, and a pipe with a name that says when it has begun."""

    way: str = ""
    begun: str = ""


class UnreadableError(Exception):
    """Fails when it is asked for its text."""

    def __str__(self):
        raise SystemExit("no text")


def grow():
    held = []
    while True:
        held.append(np.ones(1 << 20))


def grow_in_one_step():
    """Refused before any of it is there."""
    np.empty(1 << 27)


def grow_in_torch():
    import torch

    torch.empty(1 << 28)


def grow_where_no_limit_counts():
    shared = mmap.mmap(-1, 1 << 34)
    for start in range(0, 1 << 34, mmap.PAGESIZE):
        shared[start] = 1


def loop():
    while True:
        pass


def loop_in_c():
    """Without letting any other thread of the process run."""
    re.match("(a+)+$", "a" * 60 + "b")


def recurse():
    recurse()


def leave_a_thread():
    threading.Thread(target=loop, daemon=True).start()


def flood():
    for _ in range(200):
        print("x" * 100_000)
    print("y" * 100_000, file=sys.stderr)


def close_everything():
    os.closerange(3, 1000)


def raise_unreadable():
    raise UnreadableError


def raise_interrupt():
    raise KeyboardInterrupt


WAYS = {
    "": lambda: None, "grow": grow, "grow in one step": grow_in_one_step, "grow in torch": grow_in_torch,
    "grow where no limit counts": grow_where_no_limit_counts, "loop": loop, "loop in C": loop_in_c,
    "exit": lambda: os._exit(0), "exit politely": lambda: sys.exit(3), "crash": lambda: ctypes.string_at(0),
    "recurse": recurse, "leave a thread": leave_a_thread, "flood": flood, "close everything": close_everything,
    "raise unreadable": raise_unreadable, "raise interrupt": raise_interrupt,
}


@task("deadly", settings=Way, reply=Payload, reveals=Reveals.NOTHING)
def deadly(party, payload, settings):
    """Die in one of these ways, after the private state was changed; else say which process this is."""
    party.state["calls"] = party.state.get("calls", 0) + 1
    if settings.begun:
        Path(settings.begun).write_text(str(os.getpid()))
    WAYS[settings.way]()
    return {"process": os.getpid(), "calls": party.state["calls"]}


@task("deadly.child", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def leave_a_child(party, payload, settings):
    return {"process": subprocess.Popen(["sleep", "1000"]).pid}


@task("deadly.unsendable", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def keep_what_cannot_be_sent(party, payload, settings):
    party.state["file"] = object()
    return {}


@task("deadly.look", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def look_around(party, payload, settings):
    """What a task sees of the process that it is in."""
    open_files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {"variables": sorted(os.environ), "files": open_files, "arguments": sys.argv,
            "core": resource.getrlimit(resource.RLIMIT_CORE)[0], "threads": os.environ["OMP_NUM_THREADS"]}


@register("stage", "deadly")
@dataclass(frozen=True)
class DeadlyStage(Stage):
    """Dies before the task or after it.

    Parameters:
        before: how it dies before the task
        after: how it dies after it
    """

    before: str = ""
    after: str = ""

    def enter(self, party):
        WAYS[self.before]()

    def send(self, party, payload):
        WAYS[self.after]()
        return payload
