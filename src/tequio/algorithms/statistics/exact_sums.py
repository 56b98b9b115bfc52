"""Sums over rows that are equal bit for bit, in the open and under a hidden sum: what exact statistics are built on.

A statistic asks parties for blocks of numbers: counts, and real numbers in fixed point. Party and coordinator derive
the layout from the same settings. A party adds its rows up in a fixed order (`sum_rows`) and replies with whole numbers
modulo 2^64 (`whole_reply`). The coordinator adds these up exactly, in the open or by a stage that hides them, so that
neither the order of parties nor the carrier changes a bit (`ExactSums`). Decision 21 says why the bits are these.

To build a statistic:

1. declare its blocks in a function of the settings: `(*counts("n"), Block("Sx", (p,)), triangle("H", p))`;
2. write a task with `reveals=Sums(guarded=True)` that holds its rows against its owner's rules of small cells
   (`small_cells.SmallCells.of(party)`, `require`) and returns `whole_reply(party, layout, payload, values)`, where the
   payload is an `ExactPayload`. `design.make_design` gives the columns of a formula and has checked the rules;
3. at the coordinator make one `ExactSums` per run, and ask: `sums.ask(task, layout, payload, settings)["Sx"]`.
   `newton.newton` iterates on such asks; `sums.settle(run)` starts again without a party that was lost in the open;
4. put `sums.revealed` and `sums.notes` into the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, fsum, log2, prod
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from tequio.errors import ConfigError, DataError, EncryptionError, PayloadError, QuorumError
from tequio.federation.sums import SumsReply, is_hidden, is_noised, sum_over_rows
from tequio.federation.task import most_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.federation.stages import Stage
    from tequio.federation.task import S, Task

    Values = Mapping[str, NDArray[Any] | float]

T = TypeVar("T")

ROWS = 4096
"""Rows are added up in blocks of this size, and blocks by `fsum`."""

_STEP, _LOWEST, _SLOTS = 4, -128, 64
"""Ranges are powers of two with exponents from -128 to 124 in steps of 4."""

_RAISE, _MOST_RAISES, _BITS = 8, 5, 62
_FEWEST_HIDDEN = 3
WHOLE = "whole"


@dataclass(frozen=True)
class Block:
    """Some numbers of a reply. Counts are whole numbers from 0 upwards. Real numbers of a block share one range, or
    have one `each` where their sizes differ as those of raw columns do."""

    name: str
    shape: tuple[int, ...] = ()
    kind: Literal["real", "count"] = "real"
    each: bool = False

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    @property
    def ranges(self) -> int:
        """How many ranges it has."""
        return 0 if self.kind == "count" else self.size if self.each else 1

    def largest(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The largest size of an entry, by range."""
        return np.asarray(np.abs(values.astype(np.float64)).reshape(self.ranges, -1).max(axis=1, initial=0.0))


Layout = tuple[Block, ...]


class ExactPayload(TypedDict):
    """The exponent of each range: no entry exceeds 2^exponent. With none, the party reports the ranges instead."""

    exponents: NDArray[np.int64]


def counts(*names: str) -> Layout:
    """Single counts by name."""
    return tuple(Block(name, (), "count") for name in names)


def triangle(name: str, size: int) -> Block:
    """A symmetric matrix, which crosses as its upper triangle."""
    return Block(name, (size * (size + 1) // 2,))


def upper(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper triangle of a symmetric matrix, row by row."""
    return matrix[np.triu_indices(len(matrix))]


def symmetric(entries: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric matrix of an upper triangle."""
    size = round((2 * len(entries) + 0.25) ** 0.5 - 0.5)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = entries
    return np.triu(matrix) + np.triu(matrix, 1).T


def sum_rows(rows: int, of_block: Callable[[slice], Mapping[str, NDArray[Any] | float]]) -> dict[str, Any]:
    """At the party: sums over rows, in an order that is always the same. `of_block` gives those of some rows."""
    blocks = [of_block(slice(start, min(start + ROWS, rows))) for start in range(0, max(rows, 1), ROWS)]
    if len(blocks) == 1:
        return dict(blocks[0])
    return {name: _added([np.asarray(block[name]) for block in blocks]) for name in blocks[0]}


def _added(parts: list[NDArray[Any]]) -> NDArray[Any]:
    if parts[0].dtype.kind != "f":
        return np.asarray(np.sum(parts, axis=0))
    flat = np.stack([part.reshape(-1) for part in parts], axis=1)
    return np.array([fsum(entries) for entries in flat.tolist()], dtype=np.float64).reshape(parts[0].shape)


def whole_reply(party: Party, layout: Layout, payload: ExactPayload, values: Values) -> SumsReply:
    """At the party: its blocks as whole numbers modulo 2^64, or their range. Nothing leaves where one outgrew it."""
    ranges = sum(block.ranges for block in layout)
    for block in layout:
        array = np.asarray(values[block.name])
        if array.shape != block.shape or not np.isfinite(array).all():
            raise DataError(f"the block '{block.name}' has no finite sums here", remedy="look at the scales of columns")
    largest = [block.largest(np.asarray(values[block.name])) for block in layout if block.ranges]
    if len(payload["exponents"]) != ranges:
        slots = np.zeros((ranges, _SLOTS), dtype=np.int64)
        slots[np.arange(ranges), [_slot(size) for size in np.concatenate(largest).tolist()]] = 1
        return {"sums": {WHOLE: slots.reshape(-1).view(np.uint64)}}
    bits, start, pieces, over = _room(party.roster.parties), 0, [], [np.zeros(0, dtype=np.int64)]
    for block in layout:
        exponents = payload["exponents"][start:start + block.ranges]
        start += block.ranges
        array = np.asarray(values[block.name]).reshape(-1)
        if block.kind == "count":
            pieces.append(array.astype(np.int64))
            continue
        over.append((block.largest(array) > np.ldexp(1.0, exponents)).astype(np.int64))
        fits = not over[-1].any()
        pieces.append(np.rint(np.ldexp(array.astype(np.float64) * fits, bits - exponents)).astype(np.int64))
    marks = np.concatenate(over)
    return {"sums": {WHOLE: np.concatenate([*(piece * (not marks.any()) for piece in pieces), marks]).view(np.uint64)}}


def _slot(largest: float) -> int:
    return 0 if not largest else min(max(ceil((log2(largest) - _LOWEST) / _STEP), 0), _SLOTS - 1)


def _room(parties: int) -> int:
    """Bits of a party's numbers, of which the sum over all parties stays within 2^62."""
    return _BITS - (parties - 1).bit_length()


class RosterChanged(Exception):
    """A party was lost in the open: what was found so far is of other rows than what comes."""


@dataclass(eq=False)
class ExactSums:
    """The coordinator's side of a run of `what`: asks for blocks and adds them up. Its parties are fixed.

    `revealed` lists the blocks that crossed, `asks` counts them, `notes` says what happened on the way.
    """

    what: str
    federation: Federation
    parties: NDArray[np.int64]
    stages: Sequence[Stage] = ()
    revealed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asks: int = 0
    _exponents: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_noised(self.stages):
            raise ConfigError(f"'{self.what}' asks several times and cannot be paid from a budget",
                              remedy="use 'ask', or leave out privacy.epsilon")
        if self.hidden and len(self.parties) < _FEWEST_HIDDEN:
            raise ConfigError(f"a hidden sum of {len(self.parties)} parties would reveal single ones",
                              remedy=f"bring {_FEWEST_HIDDEN} parties or more")

    @property
    def hidden(self) -> bool:
        """Whether the coordinator sees totals only."""
        return is_hidden(self.stages)

    def settle(self, run: Callable[[], T]) -> T:
        """The result of a run over all parties; once more with those left, where one was lost in the open."""
        while True:
            try:
                return run()
            except RosterChanged:
                continue

    def ask(self, task: Task[S, SumsReply], layout: Layout, payload: Mapping[str, Any], settings: S) -> dict[str, Any]:
        """The total of each block: counts as whole numbers, real ones in double precision, correctly rounded."""
        ranges, key = sum(block.ranges for block in layout), f"{task.name} {settings}"
        if not ranges:
            self._exponents[key] = np.zeros(0, dtype=np.int64)
        if key not in self._exponents:
            found = self._total(task, ranges * _SLOTS, {**payload, "exponents": np.zeros(0, dtype=np.int64)}, settings,
                                Layout(), ranges)
            used = found.reshape(ranges, _SLOTS) > 0
            highest = np.where(used.any(axis=1), _SLOTS - 1 - used[:, ::-1].argmax(axis=1), 0)
            self._exponents[key] = np.where(highest, _LOWEST + _STEP * highest, 0) + _STEP
        self.revealed.update({block.name: f"{' x '.join(map(str, block.shape)) or 1} ({block.kind})"
                              for block in layout})
        for _ in range(_MOST_RAISES + 1):
            exponents = self._exponents[key]
            whole = self._total(task, sum(block.size for block in layout) + ranges,
                                {**payload, "exponents": exponents}, settings, layout, ranges)
            over = whole[len(whole) - ranges:] > 0
            if not over.any():
                return self._decoded(whole, layout, exponents)
            self._exponents[key] = exponents + _RAISE * over
        worst = [block.name for block in layout for _ in range(block.ranges)][int(over.argmax())]
        raise EncryptionError(f"block '{worst}' of '{self.what}' outgrows its range", remedy="standardise the columns")

    def _total(self, task: Task[S, SumsReply], size: int, payload: Mapping[str, Any], settings: S, layout: Layout,
               flags: int) -> NDArray[np.int64]:
        check = _Check(self, layout, size, flags)
        self.asks += 1
        found = sum_over_rows(self.federation, self.parties, task, payload, settings=settings, shapes={WHOLE: (size,)},
                              stages=self.stages, check=check)
        lost = [self.federation.name(party) for party in np.setdiff1d(self.parties, found.parties).tolist()]
        if lost and self.hidden:
            raise QuorumError(f"party '{lost[0]}' was lost in ask {self.asks} of '{self.what}', and a sum without it "
                              "would reveal its own", remedy="start again without it (rules.held_out)")
        if lost:
            self.parties = found.parties
            self.notes.append(f"lost in ask {self.asks}, and left out from then on: {', '.join(lost)}")
            raise RosterChanged
        whole = found[WHOLE]
        if whole.dtype != np.uint64:
            raise PayloadError(f"the sums of '{self.what}' are no whole numbers modulo 2^64")
        total: NDArray[np.int64] = whole.view(np.int64)
        tail = total[len(total) - flags:] if layout else total
        if ((tail < 0) | (tail > len(self.parties))).any():
            raise PayloadError(f"the sums of '{self.what}' say that more parties than all outgrew a range")
        return total

    def _decoded(self, whole: NDArray[np.int64], layout: Layout, exponents: NDArray[np.int64]) -> dict[str, Any]:
        bits, start, range_, found = _room(len(self.federation)), 0, 0, dict[str, Any]()
        for block in layout:
            piece, own = whole[start:start + block.size].reshape(block.shape), exponents[range_:range_ + block.ranges]
            start, range_ = start + block.size, range_ + block.ranges
            if block.kind == "count" and (piece < 0).any():
                raise PayloadError(f"the counts '{block.name}' of '{self.what}' add up to less than nothing")
            # From whole numbers to doubles is rounded correctly, and powers of two change no digit.
            found[block.name] = piece if block.kind == "count" else np.ldexp(
                piece.astype(np.float64).reshape(-1), own - bits).reshape(block.shape)
        return found


@dataclass(frozen=True)
class _Check:
    """Refuses a reply in the open that no rows have."""

    sums: ExactSums
    layout: Layout
    size: int
    flags: int

    def __call__(self, reply: Mapping[str, NDArray[Any]], whose: str) -> None:
        whole = reply[WHOLE]
        if whole.dtype != np.uint64:
            raise PayloadError(f"{whose} sent no whole numbers modulo 2^64")
        own, federation = whole.view(np.int64), self.sums.federation
        flags = own[self.size - self.flags:] if self.layout else own
        if ((flags < 0) | (flags > 1)).any():
            raise PayloadError(f"{whose} sent marks that are neither 0 nor 1")
        limit, start = 1 << _room(len(federation)), 0
        most = max(most_rows(int(rows)) for rows in federation.sizes[self.sums.parties])
        for block in self.layout:
            piece = own[start:start + block.size]
            start += block.size
            low, high = (0, most) if block.kind == "count" else (-limit, limit)
            if ((piece < low) | (piece > high)).any():
                raise PayloadError(f"{whose} sent '{block.name}' of which no rows are the sums")
