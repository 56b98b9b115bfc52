"""Asking parties how well a model fits their training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.federation.evaluation import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.replies import Replies
    from tequio.federation.selection import Turn

    Losses = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


def asked_losses(turn: Turn, parties: NDArray[np.int64]) -> Losses:
    """Who answered, each one's mean loss of the turn's model on its training rows, and how many these are."""
    replies = turn.federation.ask(parties, evaluate, {"model": turn.model},
                                  settings={"learner": turn.learner, "part": "train"})
    told = [reply for reply in replies if reply.payload]
    rows = np.array([reply.payload["rows"] for reply in told], dtype=np.float64)
    sums = np.array([reply.payload["loss_sum"] for reply in told], dtype=np.float64)
    return np.array([reply.party for reply in told], dtype=np.int64), sums / rows, rows


def reported_losses(replies: Replies) -> Losses:
    """The same as the parties reported it from training: the mean loss while they trained their last epoch."""
    for reply in replies:
        if not {"loss", "rows"} <= reply.payload.keys():
            raise ConfigError("the selector looks at training losses, and this algorithm's parties report none",
                              remedy="use an algorithm whose parties train by gradient descent, such as 'fedavg'")
    return replies.parties, replies.values("loss").astype(np.float64), replies.values("rows").astype(np.float64)
