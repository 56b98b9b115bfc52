"""Some entries of an update instead of all of them.

Stich, Cordonnier, Jaggi: Sparsified SGD with memory, NeurIPS 2018. Konecny et al.: Federated learning: strategies for
improving communication efficiency, 2016 (random masks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.errors import PayloadError
from tequio.federation.rng import stream
from tequio.federation.stages import Stage, StageSpec
from tequio.privacy.updates import (
    as_vector,
    cut_again,
    keep_residual,
    layout_of,
    numbers_of,
    received,
    sent,
    split,
    with_residual,
)
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

Fraction = Annotated[float, Interval(gt=0, le=1)]


@register("stage", "top-k", paper="Stich et al., 2018")
@dataclass(frozen=True)
class TopK(Stage):
    """Send the largest entries of an update; what is left out is added to the party's next one.

    Parameters:
        fraction: share of the entries that is sent
        error_feedback: keep what was left out at the party and add it to its next update
    """

    fraction: Fraction = 0.1
    error_feedback: bool = True

    @property
    def spec(self) -> StageSpec:
        """Each party sends other places, so that sums of what crosses mean nothing."""
        return StageSpec(takes=("model", "common"), gives="own", stretches=self.error_feedback,
                         remembers=self.error_feedback, adds_up=False)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Positions and values of the largest entries."""
        return sent(payload, lambda name, update: self._encode(party, name, update), "top-k")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Noughts where nothing was sent."""
        return received(replies, self._decode, "top-k")

    def _encode(self, party: Party, name: str, update: Payload) -> Payload:
        arrays, rest = split(update)
        key, vector = f"top-k {name}", as_vector(arrays)
        vector = with_residual(party, key, vector) if self.error_feedback else vector
        count = kept(len(vector), self.fraction)
        places = np.sort(np.argpartition(-np.abs(vector), count - 1)[:count])
        if self.error_feedback:
            left = vector.copy()
            left[places] = 0.0
            keep_residual(party, key, left)
        # Gaps between neighbours are small numbers, which a packing stage shrinks.
        gaps = np.diff(places, prepend=0).astype(np.uint32)
        return {"values": vector[places], "gaps": gaps, "layout": layout_of(arrays), "rest": rest}

    def _decode(self, content: Payload) -> Payload:
        size, values = numbers_of(content["layout"]), content["values"]
        places = np.cumsum(content["gaps"], dtype=np.int64)
        if len(values) != kept(size, self.fraction) or len(places) != len(values):
            raise PayloadError(f"an update of {size} numbers came with {len(values)} values and {len(places)} places")
        if len(places) and (places[-1] >= size or (np.diff(places) <= 0).any()):
            raise PayloadError("an update names places that it does not have, or one of them twice")
        vector = np.zeros(size, dtype=np.float32)
        vector[places] = values
        return {**cut_again(vector, content["layout"]), **content["rest"]}


@register("stage", "random-k", paper="Konecny et al., 2016")
@dataclass(frozen=True)
class RandomK(Stage):
    """Send entries at random places, the same at every party in a round, scaled up so that the mean is right.

    The places follow from the seed and the round, so that they need not be sent, and sums of what crosses are sums of
    updates: this is the compression that goes with secure aggregation.

    Parameters:
        fraction: share of the entries that is sent
        seed: of the places, which change from round to round
    """

    fraction: Fraction = 0.1
    seed: int = 0

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model",), gives="common", stretches=True)

    def send(self, party: Party, payload: Payload) -> Payload:
        """The values at this round's places."""
        return sent(payload, lambda name, update: self._encode(party.round, update), "random-k")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Noughts at all other places."""
        return received(replies, lambda content: self._decode(round, content), "random-k")

    def _encode(self, round: int, update: Payload) -> Payload:
        vector = as_vector(update)
        places = self._places(round, len(vector))
        scale = np.float32(len(vector) / len(places))
        return {"values": vector[places] * scale, "layout": layout_of(update)}

    def _decode(self, round: int, content: Payload) -> Payload:
        size = numbers_of(content["layout"])
        if len(content["values"]) != kept(size, self.fraction):
            raise PayloadError(f"an update of {size} numbers came with {len(content['values'])} values")
        vector = np.zeros(size, dtype=np.float32)
        vector[self._places(round, size)] = content["values"]
        return cut_again(vector, content["layout"])

    def _places(self, round: int, size: int) -> NDArray[np.int64]:
        return np.sort(stream(self.seed, "random-k", round).permutation(size)[:kept(size, self.fraction)])


def kept(size: int, fraction: float) -> int:
    """How many of so many entries are sent: at least one."""
    return min(max(1, round(size * fraction)), size)
