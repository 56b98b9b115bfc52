"""How vectors lie in the slots of CKKS ciphertexts.

A vector of rows fills a *block*; the block is repeated as often as it fits, so that one multiplication serves as many
columns of a matrix. The product of a column with the rows stays spread over its block: it is the sum of the block's
slots, which is taken when it is opened. Nothing is ever rotated, so no rotation keys are needed. So that the slots tell
nothing but their sum, noise that adds up to zero is spread over each block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.privacy.encryption.numbers import uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.privacy.encryption.numbers import Source

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """Blocks of so many rows, so many copies to a ciphertext of so many slots."""

    rows: int
    slots: int

    @property
    def block(self) -> int:
        """Rows in one block."""
        return min(max(self.rows, 1), self.slots)

    @property
    def copies(self) -> int:
        """Blocks in one ciphertext."""
        return self.slots // self.block

    @property
    def pieces(self) -> int:
        """Ciphertexts that hold all rows."""
        return -(-max(self.rows, 1) // self.block)

    def of_rows(self, values: Floats) -> list[Floats]:
        """What goes into each ciphertext for a vector of rows."""
        return [np.tile(piece, self.copies) for piece in self._pieces(values)]

    def of_columns(self, matrix: Floats) -> list[list[Floats]]:
        """For each ciphertext of results, the multiplier of each ciphertext of rows."""
        width = matrix.shape[1]
        padded = np.zeros((self.pieces * self.block, -(-width // self.copies) * self.copies))
        padded[:len(matrix), :width] = matrix
        cut = padded.reshape(self.pieces, self.block, -1, self.copies)
        return [[cut[piece, :, result].T.ravel() for piece in range(self.pieces)] for result in range(cut.shape[2])]

    def of_sums(self, values: Floats) -> list[Floats]:
        """Slots whose sums over blocks are the values, all in the first slot of their block."""
        results = -(-len(values) // self.copies)
        padded = np.zeros((results, self.copies, self.block))
        padded.reshape(-1, self.block)[:len(values), 0] = values
        return list(padded.reshape(results, -1))

    def rows_of(self, opened: list[Floats]) -> Floats:
        """The rows back from opened slots."""
        return np.concatenate([slots[:self.block] for slots in opened])[:self.rows]

    def sums_of(self, opened: list[Floats], count: int) -> Floats:
        """The values of columns back from opened slots."""
        blocks = [slots[:self.copies * self.block].reshape(self.copies, self.block).sum(axis=1) for slots in opened]
        return np.concatenate(blocks)[:count]

    def noise(self, size: float, draw: Source) -> Floats:
        """Noise for one ciphertext that adds up to zero in each block."""
        drawn: Floats = size * (2 * uniforms(self.copies * self.block, draw).reshape(self.copies, self.block) - 1)
        drawn -= drawn.mean(axis=1, keepdims=True)
        return drawn.ravel()

    def _pieces(self, values: Floats) -> Floats:
        padded = np.zeros(self.pieces * self.block)
        padded[:len(values)] = values
        return padded.reshape(self.pieces, self.block)
