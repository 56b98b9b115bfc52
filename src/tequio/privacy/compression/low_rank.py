"""Two thin factors instead of a matrix.

Vogels, Karimireddy, Jaggi: PowerSGD: practical low-rank gradient compression for distributed optimization, NeurIPS
2019. The paper sums factors between workers; here each party sends both of its own, after one step of subspace
iteration from its last right factor, so that one message is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from tequio.errors import PayloadError
from tequio.federation.stages import Stage, StageSpec
from tequio.privacy.updates import Residuals, keep_residual, numbers_of, received, sent
from tequio.registry import register

if TYPE_CHECKING:

    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.privacy.updates import Numbers

_LEFT, _RIGHT = "left ", "right "


class _Factors(TypedDict, total=False):
    """The last right factor of each matrix, from which the next round goes on."""

    right: dict[str, NDArray[np.float32]]


def _numbers_in(content: Payload) -> int:
    """How many numbers the products of the factors would have together."""
    return numbers_of([(key, kind, shape) for key, (kind, shape) in content["shapes"].items()])


@register("stage", "low-rank", paper="Vogels et al., 2019")
@dataclass(frozen=True)
class LowRank(Stage):
    """Send two thin factors of each matrix of an update; vectors, and matrices that would not shrink, go whole.

    Parameters:
        rank: columns of the factors
        error_feedback: keep what the factors miss at the party and add it to its next update
        iterations: steps of subspace iteration a round, each from the factor of the last
    """

    rank: Annotated[int, Ge(1)] = 4
    error_feedback: bool = True
    iterations: Annotated[int, Ge(1)] = 1

    @property
    def spec(self) -> StageSpec:
        """Products of sums of factors are not sums of products."""
        return StageSpec(takes=("model",), gives="own", stretches=self.error_feedback, remembers=self.error_feedback,
                         adds_up=False)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Factors of the matrices, and the other arrays."""
        return sent(payload, lambda name, update: self._encode(party, name, update), "low-rank")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Matrices again."""
        return received(replies, self._decode, "low-rank", _numbers_in)

    def _encode(self, party: Party, name: str, update: Payload) -> Payload:
        content: Payload = {}
        shapes: dict[str, tuple[str, list[int]]] = {}
        for key, values in update.items():
            if self._shrinks(values.shape):
                shapes[key] = (values.dtype.newbyteorder("<").str, list(values.shape))
                content[_LEFT + key], content[_RIGHT + key] = self._factors(party, f"{name}/{key}", values)
            else:
                content[key] = values
        return {**content, "shapes": shapes, "names": list(update)}

    def _factors(self, party: Party, key: str, values: Numbers) -> tuple[Numbers, Numbers]:
        matrix: Numbers = values.reshape(len(values), -1).astype(np.float32)
        missed = party.recall(Residuals).get("left", {}).get(f"low-rank {key}")
        if self.error_feedback and missed is not None and missed.shape == matrix.shape:
            matrix = matrix + missed.astype(np.float32, copy=False)
        factors = party.recall(_Factors).get("right", {})
        right = factors.get(key)
        if right is None or right.shape != (matrix.shape[1], self.rank):
            right = party.rng(f"low-rank {key}").standard_normal((matrix.shape[1], self.rank)).astype(np.float32)
        for _ in range(self.iterations):
            left, _ = np.linalg.qr(matrix @ right)
            right = matrix.T @ left
        # A factor of noughts would stay one for ever: the next round begins anew.
        if right.any():
            party.keep(_Factors, {"right": {**factors, key: right}})
        if self.error_feedback:
            keep_residual(party, f"low-rank {key}", matrix - left @ right.T)
        return np.ascontiguousarray(left), np.ascontiguousarray(right)

    def _decode(self, content: Payload) -> Payload:
        return {key: self._product(key, content) if key in content["shapes"] else content[key]
                for key in content["names"]}

    def _product(self, key: str, content: Payload) -> Numbers:
        kind, shape = content["shapes"][key]
        left, right = content[_LEFT + key], content[_RIGHT + key]
        numbers_of([(key, kind, shape)])
        if left.shape != (shape[0], self.rank) or right.shape != (prod(shape[1:]), self.rank):
            raise PayloadError(f"the factors of '{key}' do not give the shape {shape}")
        matrix: Numbers = (left @ right.T).reshape(shape).astype(np.dtype(kind))
        return matrix

    def _shrinks(self, shape: tuple[int, ...]) -> bool:
        if len(shape) < 2:
            return False
        rows, columns = shape[0], prod(shape[1:])
        return self.rank <= min(rows, columns) and self.rank * (rows + columns) < rows * columns
