"""How an algorithm gets a weighted mean of updates that the coordinator cannot read: through the stage that hides them.

Parties answer a task with everything but their updates, which they hold. When the algorithm has decided on the weights,
the hiding stage finds out the weighted mean, and the stages before it undo on the mean what they did to each update.
"""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import name_of
from tequio.errors import ConfigError, DataError
from tequio.federation.composition import trait_of
from tequio.federation.exchange import Reply
from tequio.federation.replies import Replies
from tequio.federation.stages import summing_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.stages import Stage, Summed
    from tequio.learners.learner import Arrays


def summed_updates(federation: Federation, stages: tuple[Stage, ...], replies: Replies, name: str,
                   weights: NDArray[np.float64]) -> tuple[Arrays, Summed]:
    """The weighted mean of what the parties hold under a name, in the shapes of the model, and how it was found."""
    stage = summing_stage(stages)
    if stage is None:
        raise ConfigError("no stage hides updates here", remedy="add: [[stages]] name = 'secure-sum'")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise DataError(f"weights of a sum must be numbers from 0 upwards, and not all 0: {weights.tolist()[:5]} ...")
    kept = _alike(federation, replies, name, name_of(type(stage)))
    held = replies[kept[0]].payload[name]
    size = sum(prod(shape) for _, _, shape in held["layout"])
    room = next((before.room() for before in stages if hasattr(before, "room")), None)
    summed = stage.total(federation, replies.parties[kept], name, weights[kept], size, held.get("riders", 0), room)
    mean = Replies((Reply(-1, {name: {**_cut(summed.mean, held["layout"]), **held["rest"]}}),))
    for before in reversed(stages[:stages.index(stage)]):
        # Those that leave the form of an update as it is have nothing to undo; they have met the replies already.
        if trait_of(before).gives:
            mean = before.receive(mean, federation.round, federation.seed)
    return mean[0].payload[name], summed


def _cut(vector: NDArray[np.float64], layout: list[Any]) -> Arrays:
    parts, start = {}, 0
    for name, _, shape in layout:
        parts[name] = vector[start:start + prod(shape)].reshape(shape)
        start += prod(shape)
    return parts


def _alike(federation: Federation, replies: Replies, name: str, stage: str) -> list[int]:
    """Places of the replies that promise an update of the shape that most have."""
    promises = [_promise(reply.payload.get(name), stage) for reply in replies]
    usual = Counter(promises).most_common(1)[0][0]
    faults = {reply.party: f"it holds no update '{name}' of the shape that the others have"
              for reply, promise in zip(replies, promises, strict=True) if promise != usual or not promise}
    if faults:
        federation.refuse(replies, faults)
    kept = [place for place, reply in enumerate(replies) if reply.party not in faults]
    if not kept:
        raise DataError(f"no party holds an update '{name}'", remedy="use an algorithm that averages updates")
    return kept


def _promise(held: Any, stage: str) -> str:
    if not isinstance(held, dict) or held.get("by") != stage:
        return ""
    return json.dumps([held.get("layout"), held.get("rest"), held.get("riders")], sort_keys=True, default=str)
