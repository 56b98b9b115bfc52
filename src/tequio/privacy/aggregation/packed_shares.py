"""Many secrets in one sharing, and who shared or answered wrongly.

Franklin, Yung: Communication complexity of secure computation, STOC 1992. A polynomial of degree q - 1 over a prime
field holds its secrets at -1, -2, ... and, behind them, as many random values as holders may be corrupt, who so learn
nothing. Shares are its values at 1, 2, ... Sums of shares are shares of sums; any q of them give the secrets.

Berlekamp, Welch: Error correction for algebraic block codes, US patent 4,633,470, 1986: of q + 2 w values w may be
wrong, and it shows which.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

PRIME = 67104769
"""Below 2^26, so that 2^10 products of two numbers of the field add up in 64 bits."""
_MOST = 1 << 10


@dataclass(frozen=True)
class Packing:
    """How secrets lie on polynomials: `needed` shares give them, `corrupt` holders learn nothing."""

    holders: int
    needed: int
    corrupt: int

    def __post_init__(self) -> None:
        if not self.corrupt < self.needed <= self.holders < _MOST:
            raise ConfigError(f"{self.needed} of {self.holders} shares cannot hide a secret from {self.corrupt}")

    @property
    def secrets(self) -> int:
        """How many secrets a polynomial holds."""
        return self.needed - self.corrupt

    def polynomials(self, count: int) -> int:
        """How many polynomials so many secrets take."""
        return -(-count // self.secrets)

    def shared(self, values: Numbers, masks: int = 0) -> Numbers:
        """Shares of the values and, behind them, of so many random polynomials: (holders, polynomials)."""
        columns = self.polynomials(len(values))
        known = uniform((self.needed, columns + masks))
        padded = np.zeros(self.secrets * columns, dtype=np.int64)
        padded[:len(values)] = values
        known[:self.secrets, :columns] = padded.reshape(columns, self.secrets).T
        return lagrange(range(-1, -1 - self.needed, -1), range(1, 1 + self.holders)) @ (known % PRIME) % PRIME

    def recovered(self, points: Sequence[int], shares: Numbers, count: int) -> Numbers:
        """The first so many values, around nought, from as many shares as are needed: (points, polynomials)."""
        found = lagrange(tuple(points), range(-1, -1 - self.secrets, -1)) @ shares % PRIME
        values = found.T.ravel()[:count]
        return np.where(values > PRIME // 2, values - PRIME, values)

    def inconsistent(self, points: Sequence[int], values: Numbers) -> NDArray[np.bool_]:
        """For each column of values whether they lie on no polynomial of the degree that shares have."""
        first, rest = tuple(points[:self.needed]), tuple(points[self.needed:])
        expected = lagrange(first, rest) @ values[:self.needed] % PRIME
        return np.asarray((expected != values[self.needed:]).any(axis=0))

    def wrong(self, points: Sequence[int], values: Numbers) -> list[int] | None:
        """The places of values in one column that are off the polynomial of all others; nothing if too many are."""
        most = (len(points) - self.needed) // 2
        at, powers = np.asarray(points, dtype=np.int64), _powers(tuple(points), self.needed + most)
        # Q(x) - y E(x) = y x^most, for Q of degree needed - 1 + most and a monic E of degree most.
        system = np.concatenate([powers, -values[:, None] * powers[:, :most], (values * _power(at, most))[:, None]], 1)
        solution = _solved(system % PRIME)
        if solution is None:
            return None
        locator = np.append(solution[self.needed + most:], 1)
        kept = np.flatnonzero(_powers(tuple(points), most + 1) @ locator % PRIME)
        if len(kept) < self.needed:
            return None
        others = np.setdiff1d(np.arange(len(at)), kept[:self.needed])
        true = lagrange(tuple(at[kept[:self.needed]].tolist()), tuple(at[others].tolist())) @ values[kept[:self.needed]]
        off = others[true % PRIME != values[others]]
        return off.tolist() if len(off) <= most else None


def uniform(shape: tuple[int, ...]) -> Numbers:
    """Secret random numbers of the field: 64 bits modulo a prime of 26 are off from uniform by 2^-38 at most."""
    drawn = np.frombuffer(secrets.token_bytes(8 * int(np.prod(shape))), dtype="<u8") % np.uint64(PRIME)
    return drawn.astype(np.int64).reshape(shape)


@lru_cache(maxsize=64)
def lagrange(known: Sequence[int], wanted: Sequence[int]) -> Numbers:
    """What values at the known points have to be multiplied with to give those at the wanted ones, which are others."""
    at, to = (np.asarray(points, dtype=np.int64) for points in (known, wanted))
    own = np.ones(len(at), dtype=np.int64)
    whole = np.ones(len(to), dtype=np.int64)
    for place, point in enumerate(at):
        own = own * np.where(np.arange(len(at)) == place, 1, at - point) % PRIME
        whole = whole * (to - point) % PRIME
    gaps = (to[:, None] - at) * own % PRIME
    return whole[:, None] * _power(gaps, PRIME - 2) % PRIME


def _power(base: Numbers, exponent: int) -> Numbers:
    result, square = np.ones_like(base), base % PRIME
    while exponent:
        if exponent & 1:
            result = result * square % PRIME
        square, exponent = square * square % PRIME, exponent >> 1
    return result


@lru_cache(maxsize=8)
def _powers(points: tuple[int, ...], count: int) -> Numbers:
    return np.stack([_power(np.asarray(points, dtype=np.int64), exponent) for exponent in range(count)], axis=1)


def _solved(system: Numbers) -> Numbers | None:
    """A solution of linear equations, right sides last; free unknowns are nought. Nothing where there is none."""
    system, unknowns, row, places = system.copy(), system.shape[1] - 1, 0, []
    for column in range(unknowns):
        nonzero = np.flatnonzero(system[row:, column])
        if not len(nonzero):
            continue
        system[[row, row + nonzero[0]]] = system[[row + nonzero[0], row]]
        system[row] = system[row] * pow(int(system[row, column]), -1, PRIME) % PRIME
        factors = system[:, column].copy()
        factors[row] = 0
        system = (system - factors[:, None] * system[row]) % PRIME
        places.append(column)
        row += 1
        if row == len(system):
            break
    if system[row:, -1].any():
        return None
    solution = np.zeros(unknowns, dtype=np.int64)
    solution[places] = system[:row, -1]
    return solution
