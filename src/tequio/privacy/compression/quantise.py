"""Few bits an entry instead of a whole float.

Alistarh et al.: QSGD: communication-efficient SGD via gradient quantization and encoding, NeurIPS 2017.
Suresh et al.: Distributed mean estimation with limited communication, ICML 2017 (stochastic levels).
Karimireddy et al.: Error feedback fixes SignSGD, ICML 2019 (one bit, to the nearest).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge

from tequio.errors import PayloadError
from tequio.federation.stages import Stage, StageSpec
from tequio.privacy.updates import as_vector, cut_again, keep_residual, layout_of, received, sent, split, with_residual
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party


@register("stage", "quantise", paper="Alistarh et al., 2017")
@dataclass(frozen=True)
class Quantise(Stage):
    """Send each entry as one of a few levels between the ends of its block.

    Stochastic rounding is right on average; rounding to the nearest errs less each time, but always the same way, so
    that it wants error feedback. With one bit, the two levels to the nearest are plus and minus the block's mean size.

    Parameters:
        bits: bits an entry: 256, 16, 4 or 2 levels
        rounding: up or down by chance, so that the mean is right (stochastic), or to the nearest level
        error_feedback: keep what rounding took away at the party and add it to its next update
        block: entries that share a pair of ends
    """

    bits: Literal[8, 4, 2, 1] = 8
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    error_feedback: bool = False
    block: Annotated[int, Ge(8)] = 256

    @property
    def spec(self) -> StageSpec:
        """Levels of different blocks and parties cannot be added."""
        return StageSpec(takes=("model", "common", "own"), gives="code", stretches=True, remembers=self.error_feedback,
                         adds_up=False)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Levels and the ends of each block."""
        return sent(payload, lambda name, update: self._encode(party, name, update), "quantise")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Numbers again."""
        return received(replies, self._decode, "quantise")

    def _encode(self, party: Party, name: str, update: Payload) -> Payload:
        arrays, rest = split(update)
        key, vector = f"quantise {name}", as_vector(arrays)
        vector = with_residual(party, key, vector) if self.error_feedback else vector
        low, step = self._levels(vector)
        codes = self._codes(in_blocks(vector, self.block), low, step, party.rng(f"quantise {name}"))
        if self.error_feedback:
            keep_residual(party, key, vector - self._values(codes, low, step)[:len(vector)])
        return {"codes": packed(codes.reshape(-1)[:len(vector)], self.bits), "low": low, "step": step,
                "layout": layout_of(arrays), "rest": rest}

    def _levels(self, vector: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The lowest level of each block and how far levels are apart."""
        starts = np.arange(0, len(vector), self.block)
        if self.bits == 1 and self.rounding == "nearest":
            counts = np.diff(starts, append=len(vector))
            mean = (np.add.reduceat(np.abs(vector), starts) / counts).astype(np.float32)
            return -mean, 2 * mean
        low, high = np.minimum.reduceat(vector, starts), np.maximum.reduceat(vector, starts)
        return low, ((high - low) / np.float32((1 << self.bits) - 1)).astype(np.float32)

    def _codes(self, blocks: NDArray[np.float32], low: NDArray[np.float32], step: NDArray[np.float32],
               rng: np.random.Generator) -> NDArray[np.uint8]:
        safe = np.where(step > 0, step, np.float32(1.0))[:, None]
        places = (blocks - low[:, None]) / safe
        places += rng.random(blocks.shape, dtype=np.float32) if self.rounding == "stochastic" else np.float32(0.5)
        levels: NDArray[np.float32] = np.clip(np.floor(places), 0, (1 << self.bits) - 1)
        return levels.astype(np.uint8)

    def _values(self, codes: NDArray[np.uint8], low: NDArray[np.float32],
                step: NDArray[np.float32]) -> NDArray[np.float32]:
        return (low[:, None] + codes.reshape(len(low), self.block) * step[:, None]).reshape(-1)

    def _decode(self, content: Payload) -> Payload:
        size = sum(prod(shape) for _, _, shape in content["layout"])
        codes, low, step = content["codes"], content["low"], content["step"]
        blocks = -(-size // self.block)
        if len(codes) != -(-size * self.bits // 8) or len(low) != blocks or len(step) != blocks:
            raise PayloadError(f"an update of {size} numbers came with {len(codes)} bytes of levels in {len(low)} "
                               "blocks")
        whole = np.zeros(blocks * self.block, dtype=np.uint8)
        whole[:size] = unpacked(codes, self.bits, size)
        return {**cut_again(self._values(whole, low, step)[:size], content["layout"]), **content["rest"]}


def in_blocks(vector: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """The vector in rows of a block, the last one filled up with noughts."""
    return np.pad(vector, (0, -len(vector) % block)).reshape(-1, block)


def packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Several codes in each byte, the first in the lowest bits."""
    if bits == 8:
        return codes
    each = 8 // bits
    rows = np.pad(codes, (0, -len(codes) % each)).reshape(-1, each)
    together = rows[:, 0].copy()
    for index in range(1, each):
        together |= rows[:, index] << np.uint8(bits * index)
    return together


def unpacked(data: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """The codes back from bytes."""
    if bits == 8:
        return data[:count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (data[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(-1)[:count]
