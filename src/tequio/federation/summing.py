"""How an algorithm gets a weighted mean of updates that the coordinator cannot read: through the stage that hides them.

Parties answer a task with everything but their updates, which they hold. When the algorithm has decided on the weights,
the hiding stage finds out the weighted mean, and the stages before it undo on the mean what they did to each update.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import name_of
from tequio.errors import ConfigError, DataError
from tequio.federation.exchange import Reply
from tequio.federation.replies import Replies
from tequio.federation.stages import summing_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.stages import Stage, Summed


def summed_updates(federation: Federation, stages: tuple[Stage, ...], replies: Replies, name: str,
                   weights: NDArray[np.float64]) -> Summed:
    """The weighted mean of what the parties hold under a name, in the shapes of the model."""
    stage = summing_stage(stages)
    if stage is None:
        raise ConfigError("no stage hides updates here", remedy="add: [[stages]] name = 'secure-sum'")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise DataError(f"weights of a sum must be numbers from 0 upwards, and not all 0: {weights.tolist()[:5]} ...")
    kept, rest = _alike(federation, replies, name, name_of(type(stage)))
    summed = stage.total(federation, replies.parties[kept], name, weights[kept])
    mean = Replies((Reply(-1, {name: {**summed.mean, **rest}}),))
    for before in reversed(stages[:stages.index(stage)]):
        mean = before.receive(mean, federation.round, federation.seed)
    return replace(summed, mean=mean[0].payload[name])


def _alike(federation: Federation, replies: Replies, name: str, stage: str) -> tuple[list[int], dict[str, Any]]:
    """Places of the replies that promise an update of the shape that most have, and what else the update says."""
    promises = [_promise(reply.payload.get(name), stage) for reply in replies]
    usual = Counter(promises).most_common(1)[0][0]
    faults = {reply.party: f"it holds no update '{name}' of the shape that the others have"
              for reply, promise in zip(replies, promises, strict=True) if promise != usual or not promise}
    if faults:
        federation.refuse(replies, faults)
    kept = [place for place, reply in enumerate(replies) if reply.party not in faults]
    if not kept:
        raise DataError(f"no party holds an update '{name}'", remedy="use an algorithm that averages updates")
    return kept, dict(replies[kept[0]].payload[name]["rest"])


def _promise(held: Any, stage: str) -> str:
    if not isinstance(held, dict) or held.get("by") != stage:
        return ""
    return json.dumps([held.get("layout"), held.get("rest")], sort_keys=True, default=str)
