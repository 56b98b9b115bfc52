"""Memory of the batched training, kept from call to call, and the two ways a matrix of every party is looked at."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

EVEN = 32
"""Numbers that the elementwise kernels take in one go. What is left over at the end of a tensor they compute in
another way, which may differ in the last bit; so tensors are filled up, and a party's numbers never lie in the rest."""

_MOST_KEPT = 1024


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}
        self.matrices: dict[tuple[str, int, int, int], Matrices] = {}


_kept = _Kept()


def even(numbers: int) -> int:
    """That many numbers, filled up."""
    return -(-numbers // EVEN) * EVEN


def memory(name: str, numbers: int) -> Tensor:
    """A flat buffer of at least that many numbers. It holds whatever the last user of that name left in it."""
    import torch

    buffer = _kept.buffers.get(name)
    if buffer is None or len(buffer) < even(numbers):
        buffer = _kept.buffers[name] = torch.zeros(even(numbers))
        _kept.matrices.clear()
    return buffer


@dataclass(frozen=True)
class Matrices:
    """One matrix a party: as (parties, rows, columns), turned, and as the flat memory below, filled up."""

    straight: Tensor
    turned: Tensor
    flat: Tensor

    @classmethod
    def at(cls, name: str, parties: int, rows: int, columns: int) -> Matrices:
        """Stored row by row in the memory of that name."""
        key = (name, parties, rows, columns)
        if key not in _kept.matrices:
            if len(_kept.matrices) >= _MOST_KEPT:
                _kept.matrices.clear()
            buffer = memory(name, parties * rows * columns)
            straight = shaped(buffer, (parties, rows, columns))
            _kept.matrices[key] = cls(straight, straight.transpose(1, 2), buffer[:even(straight.numel())])
        return _kept.matrices[key]

    @classmethod
    def turned_at(cls, name: str, parties: int, rows: int, columns: int) -> Matrices:
        """Stored column by column."""
        stored = cls.at(name, parties, columns, rows)
        return cls(stored.turned, stored.straight, stored.flat)


def shaped(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The first numbers of a buffer as a tensor of that shape."""
    return buffer[:prod(shape)].view(shape)
