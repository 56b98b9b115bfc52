"""What protection costs: clipping and noise for a cohort's updates, as a share of the round that made them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.training import train, training_settings
from tequio.components import build
from tequio.engines.inline import InlineEngine
from tequio.engines.threads import one_thread
from tequio.experiments.bench.problems import PROBLEMS, Rounds
from tequio.federation.models import zeros
from tequio.federation.party import Party
from tequio.federation.stages import Aggregated
from tequio.privacy.clipping import norm

if TYPE_CHECKING:
    from tequio.federation.federation import Federation
    from tequio.federation.replies import Replies

_MARK = 0.05


def clipping_and_noise(repeats: int, workers: int) -> dict[str, Any]:
    """Both halves of central differential privacy, clip at the median, over a round of the case `mlp` without it."""
    limits, problem = one_thread(), PROBLEMS["mlp"]
    rounds = Rounds(problem.algorithm(), problem.population(), InlineEngine())
    model = rounds.state.model
    replies = rounds.federation.ask(range(problem.cohort), train, {"model": model},
                                    settings=training_settings(rounds.algorithm))
    # Where the clip has found the median, half of the updates are shortened.
    median = float(np.median([norm(payload["update"].values()) for payload in replies.payloads]))
    stage = build("stage", "central-dp", {"clip": median, "noise": 0.5, "quantile": 0.5, "expected": problem.cohort})
    rounds()
    times = [(_seconds_of_round(rounds), _seconds_of_protection(stage, rounds.federation, _copied(replies)))
             for _ in range(repeats + 1)][1:]
    limits.restore_original_limits()
    whole, protection = (min(column) for column in zip(*times, strict=True))
    return {"seconds": protection, "value": protection / whole, "mark": _MARK, "unit": "of a round",
            "round_seconds": whole}


def _seconds_of_round(rounds: Rounds) -> float:
    """Of the processor, which other programs do not lengthen."""
    started = time.process_time()
    rounds()
    return time.process_time() - started


def _seconds_of_protection(stage: Any, federation: Federation, replies: Replies) -> float:
    party, mean = Party(0, 1, {}, federation.population), zeros(replies[0].payload["update"])
    count = len(replies)
    started = time.process_time()
    sent = tuple(replace(reply, payload=stage.send(party, reply.payload)) for reply in replies)
    received = stage.receive(replace(replies, answers=sent), 1, 0)
    stage.complete(federation, mean, Aggregated("update", received, replies.parties, np.full(count, 1 / count), count))
    return time.process_time() - started


def _copied(replies: Replies) -> Replies:
    """Updates are shortened where they lie, so that each time needs fresh ones."""
    return replace(replies, answers=tuple(replace(reply, payload={**reply.payload, "update": {
        name: values.copy() for name, values in reply.payload["update"].items()}}) for reply in replies))
