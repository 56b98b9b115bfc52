"""Sums over rows: what an algorithm asks for that looks at nothing but totals over parties.

A task says by `reveals=Sums(...)` that its reply is made of sums over the party's rows, and replies with them as named
arrays under "sums": counts as whole numbers, sums of values in double precision. `sum_over_rows` asks parties for it
and gives the totals. In the open these are the sums of what came. Under a stage that hides replies, such as
'secure-sum', parties hold their sums as whole numbers and the coordinator finds out their totals alone: counts exactly,
other sums within 2^-63 a party (`fixed_point`). Where parties add noise, it says how large that is in the totals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import PayloadError, QuorumError
from tequio.federation.exchange import Replies
from tequio.federation.fixed_point import number_of_digits, numbers_of_digits
from tequio.federation.stages import SUMS, summing_stage

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.stages import Stage, SummingStage
    from tequio.federation.task import S, Task

Named = dict[str, NDArray[Any]]
_KINDS = {"<i8", "<u8", "<f8"}

Shapes = Mapping[str, tuple[int, ...]]
Check = Callable[[Named, str], object]
"""Refuses sums that no rows have, with the name of the party in the error."""


class SumsReply(TypedDict):
    """Sums over the party's rows, by name: whole numbers are counts, and unsigned ones add up modulo 2^64."""

    sums: Named


@dataclass(frozen=True)
class Totals:
    """The sums over all rows of some parties, by name, and the standard deviation of the noise on each entry."""

    arrays: Named
    parties: NDArray[np.int64]
    deviations: Mapping[str, float] = field(default_factory=dict)
    replies: Replies[SumsReply] = field(default_factory=lambda: Replies(()))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __len__(self) -> int:
        """How many parties are in the totals."""
        return len(self.parties)


def sum_over_rows(federation: Federation, parties: ArrayLike, task: Task[S, SumsReply],
                  payload: Mapping[str, Any] | None = None, *, settings: S, shapes: Shapes,
                  stages: Sequence[Stage] = (), each: Mapping[int, Payload] | None = None, check: Check | None = None,
                  add: Callable[[Replies[SumsReply]], Named] | None = None, roster: bool = True) -> Totals:
    """Ask parties for sums over their rows; gives the totals of those who answered, in these shapes.

    `check` refuses impossible sums, where sums come as parties made them; `add` is another way to add up what comes in
    the open. Where totals are hidden and `roster` holds, everybody has to be in them: two totals of the same sums, with
    and without a party, are that party's.
    """

    def refuse(reply: SumsReply, whose: str) -> None:
        _check_shapes(reply["sums"], shapes, whose)
        if check is not None and not stages:
            check(reply["sums"], whose)

    replies = federation.ask(parties, task, payload, settings=settings, each=each, stages=stages,
                             check=None if stages else refuse)
    hiding = summing_stage(stages)
    if hiding is not None:
        return _hidden(federation, hiding, replies, shapes, stages, np.size(np.unique(parties)) if roster else 0)
    replies = federation.sound(replies, refuse) if stages else replies
    arrays = (add or _added)(replies) if replies else {name: np.zeros(shape) for name, shape in shapes.items()}
    return Totals(arrays, replies.parties, _deviations(stages, shapes, len(replies)), replies)


def is_hidden(stages: Sequence[Stage]) -> bool:
    """Whether the coordinator sees totals only."""
    return summing_stage(stages) is not None


def if_hidden(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages of an algorithm, for asks that need them only where nothing else may be seen."""
    return stages if is_hidden(stages) else ()


def is_noised(stages: Sequence[Stage]) -> bool:
    """Whether there is noise on every sum."""
    return any(stage.mechanism is not None for stage in stages)


def _added(replies: Replies[SumsReply]) -> Named:
    return {name: np.sum([reply["sums"][name] for reply in replies.payloads], axis=0)
            for name in replies[0].payload["sums"]}


def _deviations(stages: Sequence[Stage], shapes: Shapes, parties: int) -> dict[str, float]:
    found = next((stage.mechanism.deviations(list(shapes)) for stage in stages if stage.mechanism is not None), {})
    return {name: found.get(name, 0.0) * parties ** 0.5 for name in shapes}


def _check_shapes(sums: Named, shapes: Shapes, whose: str) -> None:
    if sums.keys() != shapes.keys():
        raise PayloadError(f"{whose} sent other sums than {', '.join(map(repr, shapes))}")
    for name, shape in shapes.items():
        if sums[name].shape != shape or sums[name].dtype.kind not in "iuf":
            raise PayloadError(f"{whose} sent '{name}' of shape {sums[name].shape} instead of {shape}")


def _hidden(federation: Federation, hiding: SummingStage, replies: Replies[Any], shapes: Shapes,
            stages: Sequence[Stage], roster: int) -> Totals:
    """The totals of what parties hold, of which each shows only the layout."""
    _require(federation, replies.parties, roster)
    layout, name, kept = _agreed_layout(federation, replies, shapes)
    kinds = {of: np.dtype(kind) for of, kind, _ in layout}
    room = federation.roster.parties
    sizes = [number_of_digits(kinds[of], int(np.prod(shape)), room) for of, _, shape in layout]
    summed = hiding.total(federation, kept, name, np.ones(len(kept)), 0, sum(sizes))
    federation.record("aggregation", {"round": federation.round, **summed.notes})
    _require(federation, summed.parties, roster)
    parts = np.split(summed.extra_counts, np.cumsum(sizes)[:-1])
    arrays = {of: numbers_of_digits(part, kinds[of], room).reshape(shape)
              for part, (of, _, shape) in zip(parts, layout, strict=True)}
    return Totals({of: arrays[of] for of in shapes}, summed.parties, _deviations(stages, shapes, len(summed.parties)),
                  replies)


def _require(federation: Federation, parties: NDArray[np.int64], roster: int) -> None:
    if len(parties) < roster:
        raise QuorumError(f"{roster - len(parties)} of {roster} parties were lost in round {federation.round}, and a "
                          "hidden sum without them would reveal theirs beside an earlier one",
                          remedy="start again without them (rules.held_out)")


def _agreed_layout(federation: Federation, replies: Replies[Any],
                   shapes: Shapes) -> tuple[list[tuple[str, str, tuple[int, ...]]], str, NDArray[np.int64]]:
    """What the parties hold and under which name, and who holds it as most do."""
    promises = [_promise(reply.payload.get(SUMS), shapes) for reply in replies]
    usual = Counter(promise for promise in promises if promise).most_common(1)
    if not usual:
        raise QuorumError("no party holds the sums that were asked for", remedy="find out why parties fail")
    layout, name = usual[0][0]
    faults = {reply.party: "it does not hold the sums that were asked for"
              for reply, promise in zip(replies, promises, strict=True) if promise != usual[0][0]}
    if faults:
        federation.refuse(replies, faults)
    kept = np.array([party for party in replies.parties.tolist() if party not in faults], dtype=np.int64)
    return list(layout), name, kept


def _promise(held: object, shapes: Shapes) -> tuple[tuple[tuple[str, str, tuple[int, ...]], ...], str] | tuple[()]:
    """The layout and the name of held sums; nothing where they are not what was asked for."""
    if not isinstance(held, dict) or not isinstance(held.get("name"), str):
        return ()
    layout = tuple((str(of), str(kind), tuple(shape)) for of, kind, shape in held.get("layout", ()))
    fits = {of: shape for of, _, shape in layout} == dict(shapes) and {kind for _, kind, _ in layout} <= _KINDS
    return (layout, held["name"]) if fits else ()
