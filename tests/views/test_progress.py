from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from tequio.experiments.showing import progress


@pytest.fixture
def bars(monkeypatch):
    """Bars on a screen nobody sees, under a clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    screen = Progress(console=Console(file=StringIO(), force_terminal=True))
    return progress._Bars(screen), screen, now


def test_a_bar_counts_rounds_and_estimates_the_rest(bars):
    shown, screen, now = bars
    shown.hear("prepare", {"name": "toy", "rounds": 10})
    assert screen.tasks[0].fields["count"] == "getting ready"
    shown.hear("start", {"name": "toy", "rounds": 10, "folder": "runs/toy"})
    now[0] = 4.0
    shown.hear("round", {"round": 2, "test.accuracy": 0.5})
    task = screen.tasks[0]
    assert (task.completed, task.total, task.fields["count"]) == (2, 10, "2/10 rounds")
    assert task.fields["metric"] == "test accuracy 0.5000"
    assert task.fields["clock"] == "eta 16.0 s"
    shown.hear("round", {"round": 3, "seconds": 1.0})
    assert task.fields["metric"] == "test accuracy 0.5000"  # the last one known
    now[0] = 9.0
    shown.hear("stop", {"round": 3, "reason": "patience"})
    assert (task.total, task.finished, task.fields["clock"]) == (3, True, "took 9.00 s")


def test_the_rounds_before_a_checkpoint_do_not_count_for_the_estimate(bars):
    shown, screen, now = bars
    shown.hear("prepare", {"name": "toy", "rounds": 10})
    shown.hear("resume", {"name": "toy", "rounds": 10, "folder": "runs/toy", "round": 8})
    now[0] = 3.0
    shown.hear("round", {"round": 9})
    assert screen.tasks[0].fields["clock"] == "eta 3.00 s"


def test_where_nobody_watches_there_are_at_most_ten_lines_a_run(capsys):
    with progress.shown(lambda kind, facts: None) as hear:
        hear("start", {"name": "toy", "rounds": 100})
        for round in range(1, 101):
            hear("round", {"round": round, "train.loss": 1 / round})
        hear("warning", {"message": "careful"})
        hear("cell", {"number": 1, "cells": 2, "label": "seed=0", "finished": True})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "toy: round 10 of 100  train loss 0.1000"
    assert len(lines) == 10 + 2
    assert lines[-2:] == ["warning: careful", "cell 1 of 2: seed=0 (finished before)"]


def test_whoever_listens_hears_everything():
    heard = []
    with progress.shown(lambda kind, facts: heard.append(kind)) as hear:
        hear("start", {"name": "toy", "rounds": 1})
        hear("exchange", {})
    assert heard == ["start", "exchange"]
