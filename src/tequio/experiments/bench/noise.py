"""What protection costs: clipping and noise for a cohort's updates, as a share of the round that made them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.training import train, training_settings
from tequio.components import build
from tequio.engines.inline import InlineEngine
from tequio.engines.threads import one_thread
from tequio.experiments.bench.clock import best_in_turn
from tequio.experiments.bench.problems import PROBLEMS, Rounds
from tequio.federation.party import Party
from tequio.privacy.clipping import norm

if TYPE_CHECKING:
    from tequio.federation.replies import Replies

_MARK = 0.05


def clipping_and_noise(repeats: int, workers: int) -> dict[str, Any]:
    """Both halves of central differential privacy, clip at the median, over a round of the case `mlp` without it."""
    limits, problem = one_thread(), PROBLEMS["mlp"]
    rounds = Rounds(problem.algorithm(), problem.population(), InlineEngine())
    replies = rounds.federation.ask(range(problem.cohort), train, {"model": rounds.state.model},
                                    settings=training_settings(rounds.algorithm))
    party = Party(0, 1, {}, rounds.federation.population)
    # Where the clip has found the median, half of the updates are shortened.
    median = float(np.median([norm(payload["update"].values()) for payload in replies.payloads]))
    stage = build("stage", "central-dp", {"clip": median, "noise": 0.5, "quantile": 0.5, "expected": problem.cohort})
    best = best_in_turn({"round": rounds, "protect": lambda: _protected(stage, party, replies)}, repeats)
    limits.restore_original_limits()
    return {"seconds": best["protect"], "value": best["protect"] / best["round"], "mark": _MARK, "unit": "of a round",
            "round_seconds": best["round"]}


def _protected(stage: Any, party: Party, replies: Replies) -> Replies:
    sent = tuple(replace(reply, payload=stage.send(party, reply.payload)) for reply in replies)
    protected: Replies = stage.receive(replace(replies, answers=sent), 1, 0)
    return protected
