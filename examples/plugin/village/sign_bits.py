"""A stage that sends one bit for every entry of an update: its sign.

Karimireddy, Rebjock, Stich, Jaggi: Error feedback fixes SignSGD and other gradient compression schemes, ICML 2019.
"""

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

import tequio as tq
from tequio.privacy.updates import as_vector, cut_again, layout_of, numbers_of, received, sent


class Unsent(TypedDict, total=False):
    """What a party has left out of its updates so far, by the name of the update."""

    vectors: dict[str, Any]


@tq.register("stage", "sign-bits", paper="Karimireddy et al., 2019")
@dataclass(frozen=True)
class SignBits(tq.Stage):
    """Send the sign of every entry, one bit each, and the mean size of all entries.

    Parameters:
        error_feedback: add what was left out to the party's next update
    """

    error_feedback: bool = True

    @property
    def spec(self) -> tq.StageSpec:
        """Signs do not add up, and what was left out before may make an update longer."""
        return tq.StageSpec(takes=("model",), gives="code", adds_up=False, stretches=self.error_feedback)

    def send(self, party: tq.Party, payload: tq.Payload) -> tq.Payload:
        """At the party: bits instead of numbers."""
        return sent(payload, lambda name, update: self._encode(party, name, update), "sign-bits")

    def receive(self, replies: tq.Replies, round: int, seed: int) -> tq.Replies:
        """At the coordinator: numbers again."""
        return received(replies, self._decode, "sign-bits")

    def _encode(self, party: tq.Party, name: str, update: tq.Payload) -> tq.Payload:
        unsent = party.recall(Unsent).get("vectors", {})
        vector = as_vector(update) + unsent.get(name, np.float32(0))
        size = np.abs(vector).mean()
        if self.error_feedback:
            left = vector - np.where(vector >= 0, size, -size)
            party.keep(Unsent, {"vectors": {**unsent, name: left}})
        return {"bits": np.packbits(vector >= 0), "size": float(size), "layout": layout_of(update)}

    def _decode(self, content: tq.Payload) -> tq.Payload:
        count, size = numbers_of(content["layout"]), np.float32(content["size"])
        if len(content["bits"]) != (count + 7) // 8:
            raise ValueError(f"{len(content['bits'])} bytes for the signs of {count} entries")
        positive = np.unpackbits(content["bits"], count=count).astype(bool)
        return cut_again(np.where(positive, size, -size), content["layout"])
