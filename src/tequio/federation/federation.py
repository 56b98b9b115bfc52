"""What an algorithm sees: the parties and `ask`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import DataError, PartyError, PayloadError, QuorumError, TequioError
from tequio.federation.clock import TimedAsk
from tequio.federation.exchange import Announcing, Failure, Order, Replies
from tequio.federation.payload import R, numbers_in
from tequio.federation.rng import Streams, stream
from tequio.federation.task import S, TimedSettings, fault_of, fault_of_columns
from tequio.federation.topology import ClientServer, require_ask
from tequio.learners.descent import is_finite
from tequio.noise.coins import Coins
from tequio.registry import to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Dataset, Schema, Target
    from tequio.federation.clock import Clock
    from tequio.federation.exchange import Engine, Outcome, Reply
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population, Roster
    from tequio.federation.stages import Stage
    from tequio.federation.task import Task
    from tequio.federation.topology import Topology

# A cohort is cut into chunks by a fixed rule on its size and on what is sent, never by the number of workers, so that
# the vectorised form of a task sees the same company on every engine. `tequio bench` gave the numbers: light tasks go
# in large chunks, because each order costs something; heavy ones in small chunks, so that all workers stay busy.
LARGEST_CHUNK, SMALLEST_CHUNK = 25, 4
WORK_OF_A_CHUNK = 10_000_000


@dataclass(frozen=True)
class Rules:
    """What happens when things go wrong.

    Parameters:
        dropout: chance that a chosen party vanishes before it answers (injected, to test resilience)
        on_failure: stop the run at the first failing party, or go on without it while the quorum holds
        quorum: share of the asked parties that must answer
        minimum_rows: parties with fewer rows are never chosen
        categories: only parties of these categories are chosen (none given: all)
        held_out: these parties are never chosen; the final model is tried on them as on newcomers
        largest_update: refuse updates longer than so many times the cohort's median (0: any length)
        replays: what to do with an update that somebody sent in an earlier round
    """

    dropout: Annotated[float, Interval(ge=0, le=1)] = 0.0
    on_failure: Literal["stop", "continue"] = "stop"
    quorum: Annotated[float, Interval(ge=0, le=1)] = 0.5
    minimum_rows: Annotated[int, Ge(0)] = 1
    categories: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    largest_update: Annotated[float, Ge(0)] = 0.0
    replays: Literal["allow", "refuse"] = "allow"


@dataclass
class Traffic:
    """Exact bytes and messages so far."""

    bytes_up: int = 0
    bytes_down: int = 0
    messages: int = 0


@dataclass
class Federation:
    """The parties, as far as an algorithm may see them: names, sizes, and `ask`. Never their rows.

    `validation` are rows of the coordinator's own, by which it may judge models; `root` are those that it trains on
    itself, for aggregators that compare updates with its own. No party holds them. `notary` keeps the signed transcript
    of a run whose sums are verified. `secret` is a seed that is published nowhere, where it has to be secret who takes
    part. `agreed` is the randomness that parties made together, for stages whose parties check each other.
    """

    population: Population = field(repr=False)
    engine: Engine = field(repr=False)
    seed: int = 0
    rules: Rules = field(default_factory=Rules)
    topology: Topology = field(default_factory=ClientServer)
    record: Callable[[str, dict[str, Any]], None] = field(default=lambda kind, facts: None, repr=False)
    validation: Dataset | None = field(default=None, repr=False)
    clock: Clock | None = None
    round: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    root: Dataset | None = field(default=None, repr=False)
    notary: Any = field(default=None, repr=False)
    secret: int | None = field(default=None, repr=False)
    agreed: Payload = field(default_factory=dict, repr=False)
    _tickets: int = 0
    _eligible: NDArray[np.int64] | None = None
    _groups: tuple[list[str], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.population)

    @property
    def schema(self) -> Schema:
        """What the parties' columns and target mean: agreed, not private."""
        return self.population.schema

    @property
    def roster(self) -> Roster:
        """Who takes part, and by which key each signs: as announced, or simulated."""
        return self.engine.roster if isinstance(self.engine, Announcing) else self.population.roster

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each party holds."""
        return self.population.sizes

    @property
    def group_names(self) -> list[str]:
        """The categories that the partition puts parties in; one without a name where it has none."""
        return self._grouping()[0]

    @property
    def groups(self) -> NDArray[np.int64]:
        """For each party the place of its category in `group_names`."""
        return self._grouping()[1]

    def name(self, party: int) -> str:
        """What a party is called."""
        return self.population.name(party)

    def target(self, party: int) -> Target:
        """What a party predicts: the whole target, or the labels that it knows."""
        labels, target = self.population.partition.labels, self.schema.target
        return target if labels is None else target.select([int(label) for label in labels[party]])

    def index(self, name: str) -> int:
        """The number of a named party."""
        return self.population.index(name)

    def everyone(self) -> NDArray[np.int64]:
        """All parties."""
        return np.arange(len(self), dtype=np.int64)

    def eligible(self) -> NDArray[np.int64]:
        """The parties that may be chosen under the eligibility rules."""
        if self._eligible is None:
            allowed = self.sizes >= max(self.rules.minimum_rows, 1)
            categories = self.population.partition.categories
            if self.rules.categories:
                allowed &= np.isin(np.array(categories or ("",) * len(self)), self.rules.categories)
            allowed[[self.index(name) for name in self.rules.held_out]] = False
            if not allowed.any():
                raise QuorumError("no party is eligible", remedy="loosen rules.minimum_rows, rules.categories or "
                                                                  "rules.held_out")
            self._eligible = np.flatnonzero(allowed)
        return self._eligible

    @property
    def left_out(self) -> tuple[int, ...]:
        """Parties that the run is without."""
        return self.population.left_out

    def whole(self) -> Federation:
        """The same federation as it would be with the parties that the run is without, to draw cohorts from."""
        return replace(self, _eligible=np.union1d(self.eligible(), np.array(self.left_out, dtype=np.int64)))

    def reachable(self) -> NDArray[np.int64]:
        """The eligible parties that can be reached at this moment of virtual time; without a clock, all of them."""
        return self.eligible() if self.clock is None else self.clock.reachable(self.eligible())

    def off_the_clock(self) -> Federation:
        """The same federation for asks that take no virtual time and that nobody misses (requests, evaluations)."""
        return replace(self, clock=None, rules=replace(self.rules, dropout=0.0))

    def _grouping(self) -> tuple[list[str], NDArray[np.int64]]:
        if self._groups is None:
            categories = self.population.partition.categories or ("",) * len(self)
            names = sorted(set(categories))
            places = {name: place for place, name in enumerate(names)}
            self._groups = names, np.fromiter(map(places.__getitem__, categories), np.int64, len(self))
        return self._groups

    def rng(self, purpose: str, party: int = 0) -> np.random.Generator:
        """The coordinator's random stream for a purpose in this round."""
        return stream(self.seed, purpose, self.round, party)

    def coins(self, purpose: str) -> np.random.Generator:
        """What decides who takes part in this round. Where that has to be secret, its seed is one that only the secret
        and the round lead to, whatever else becomes known."""
        if self.secret is None:
            return stream(self.seed, purpose, self.round)
        words = Coins.derived(self.secret, "selection", purpose, self.round).words(2)
        return stream(int.from_bytes(words.tobytes(), "little"), purpose, self.round)

    def ask(self, parties: ArrayLike, task: Task[S, R], payload: Mapping[str, Any] | None = None, *,
            settings: S | None = None, each: Mapping[int, Payload] | None = None, stages: Sequence[Stage] = (),
            check: Callable[[R, str], object] | None = None) -> Replies[R]:
        """Ask parties to run a task; wait for the answers, in party order.

        `payload` goes to all of them, `each[party]` to one only. Updates pass through the stages on their way back.
        A reply that is not what the task declares fails its party, as does one that `check(payload, whose)` refuses.
        """
        require_ask(self.topology.cast)
        stages = [stage.now() for stage in stages]
        asked = self._known(parties)
        present = self.present(asked)
        for stage in stages:
            stage.prepare(self, present)
        dropped = tuple(int(party) for party in np.setdiff1d(asked, present))
        sent = dict(payload or {})
        timed = self._timed(parties, present, sent, each, settings)
        working = present if timed is None else timed.working
        outcomes = self._carry(working, task, sent, settings, each, stages)
        answers = sorted((reply for outcome in outcomes for reply in outcome.replies), key=lambda reply: reply.party)
        faults = [fault for outcome in outcomes for fault in self._faults(task, outcome, check, stages)]
        failures = [*faults, *(failure for outcome in outcomes for failure in outcome.failures)]
        unsound = {fault.party for fault in faults}
        replies: Replies[R] = Replies(tuple(reply for reply in answers if reply.party not in unsound),
                                      tuple(sorted(failures, key=lambda failure: failure.party)), dropped)
        replies = replies if timed is None else timed.end(replies)
        self._account(task, asked, replies)
        self._judge(task.name, len(asked), replies)
        return self._received(task.name, len(asked), replies, stages)

    def _received(self, task: str, asked: int, replies: Replies[R], stages: Sequence[Stage]) -> Replies[R]:
        """The replies after the coordinator halves of the stages; one that a stage cannot read is a failure too."""
        known = len(replies.failures)
        for stage in reversed(stages):
            replies = cast("Replies[R]", stage.receive(cast("Replies", replies), self.round, self.seed))
        for stage in stages:
            stage.received(self, cast("Replies", replies))
        if len(replies.failures) > known:
            self._judge(task, asked, replace(replies, failures=replies.failures[known:]))
        return replies

    def refuse(self, replies: Replies[Any], causes: Mapping[int, str]) -> None:
        """Count some answers as failures of their parties after all: an aggregation cannot use them."""
        remedy = "set rules.on_failure = 'continue' to go on without such parties"
        failures = [Failure(party, cause, remedy) for party, cause in causes.items()]
        asked = len(replies) + len(replies.failures) + len(replies.dropped) + len(replies.late)
        left = tuple(reply for reply in replies if reply.party not in causes)
        self._judge("aggregate", asked, replace(replies, answers=left, failures=tuple(failures)))

    def sound(self, replies: Replies[R], check: Callable[[R, str], object]) -> Replies[R]:
        """The replies that `check(payload, whose)` passes now that stages are behind them; others are refused."""
        faults = {reply.party: cause for reply in replies if (cause := self._refusal(reply, check)) is not None}
        if not faults:
            return replies
        self.refuse(replies, {party: cause.message for party, cause in faults.items()})
        return replace(replies, answers=tuple(reply for reply in replies if reply.party not in faults))

    def _known(self, parties: ArrayLike) -> NDArray[np.int64]:
        asked = np.unique(np.asarray(parties, dtype=np.int64))
        if len(asked) and not 0 <= asked[0] <= asked[-1] < len(self):
            wrong = asked[0] if asked[0] < 0 else asked[-1]
            raise DataError(f"there is no party number {wrong}", remedy=f"parties are numbered 0 to {len(self) - 1}")
        return asked

    def present(self, asked: NDArray[np.int64], purpose: str = "dropout") -> NDArray[np.int64]:
        """Those of the asked parties that do not drop out in this round; each purpose is a chance of its own."""
        if not self.rules.dropout:
            return asked
        parties = asked.tolist()
        streams = Streams(self.seed, self.round, parties)
        stays = [streams.of(purpose, party).random() >= self.rules.dropout for party in parties]
        present: NDArray[np.int64] = asked[np.array(stays, dtype=bool)]
        return present

    def _timed(self, parties: ArrayLike, present: NDArray[np.int64], payload: Payload,
               each: Mapping[int, Payload] | None, settings: object) -> TimedAsk | None:
        if self.clock is None:
            return None
        given, first = np.unique(np.asarray(parties, dtype=np.int64), return_index=True)
        order = given[np.argsort(first, kind="stable")]  # each once, in the order in which the selector chose them
        local = settings.local if isinstance(settings, TimedSettings) else None
        return TimedAsk.begin(self.clock, self.round, order, present, payload, each, local)

    def _carry(self, parties: NDArray[np.int64], task: Task[S, Any], payload: Payload, settings: S | None,
               each: Mapping[int, Payload] | None, stages: Sequence[Stage]) -> list[Outcome]:
        plain_settings = task.encode(settings)
        plain_stages = tuple(to_plain(stage) for stage in stages)
        chunks = cut(parties, numbers_in(payload) * float(self.sizes[parties].sum()))
        for chunk in chunks:
            own = None if each is None else tuple(each.get(int(party), {}) for party in chunk)
            self._tickets += 1
            self.engine.submit(Order(self._tickets, task.name, tuple(int(party) for party in chunk), self.round,
                                     payload, plain_settings, plain_stages, own))
        return [self.engine.collect() for _ in chunks]

    def _faults(self, task: Task[Any, R], outcome: Outcome, check: Callable[[R, str], object] | None,
                stages: Sequence[Stage]) -> list[Failure]:
        """What is wrong with the answers of a chunk. Where all are sound side by side, each one is."""
        if check is None and task.check is None and outcome.columns is not None:
            rows = self.sizes[[reply.party for reply in outcome.replies]]
            if not fault_of_columns(task.reply, outcome.columns, rows) and _finite(outcome.columns):
                return []
        return [fault for reply in outcome.replies if (fault := self._fault(task, reply, check, stages))]

    def _fault(self, task: Task[Any, R], reply: Reply[R], check: Callable[[R, str], object] | None,
               stages: Sequence[Stage]) -> Failure | None:
        """What is wrong with an answer, if anything."""
        withheld = frozenset(name for stage in stages for name in stage.spec.withholds) if stages else None
        rows = int(self.sizes[reply.party])
        for stage in stages:
            rows = stage.claimed_rows(reply.party, rows)
        wrong = fault_of(task.reply, reply.payload, withheld=withheld, rows=rows)  # type: ignore[arg-type]
        if wrong:
            return Failure(reply.party, wrong, "set rules.on_failure = 'continue' to go on without such parties")
        if not _finite(reply.payload):
            return Failure(reply.party, "its reply has values that are not finite", "lower local.learning_rate, or set "
                           "rules.on_failure = 'continue' to leave such parties out", diverged=True)
        own = task.check
        refusal = None if own is None else self._refusal(reply, lambda content, whose: own(content, self, reply.party))
        if refusal is None and check is not None:
            refusal = self._refusal(reply, check)
        return None if refusal is None else Failure(reply.party, refusal.message, refusal.remedy)

    def _refusal(self, reply: Reply[R], check: Callable[[R, str], object]) -> TequioError | None:
        try:
            check(reply.payload, f"party '{self.name(reply.party)}'")
        except TequioError as cause:
            return cause
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as cause:
            # What a check stumbles over is no sound reply either, and no reason to end the others' run.
            return PayloadError(f"its reply cannot be checked ({type(cause).__name__})")
        return None

    def _account(self, task: Task[Any, Any], asked: NDArray[np.int64], replies: Replies[Any]) -> None:
        up = sum(reply.bytes_up for reply in replies)
        down = sum(reply.bytes_down for reply in replies)
        self.traffic.bytes_up += up
        self.traffic.bytes_down += down
        self.traffic.messages += 2 * len(replies) + len(replies.failures)
        self.record("exchange", {"round": self.round, "task": task.name, "asked": len(asked), "answered": len(replies),
                                 "dropped": len(replies.dropped), "failed": len(replies.failures),
                                 **({"late": len(replies.late)} if replies.late else {}),
                                 "bytes_up": up, "bytes_down": down, **_mean_loss(replies)})

    def _judge(self, task: str, asked: int, replies: Replies[Any]) -> None:
        for failure in replies.failures:
            name = self.name(failure.party)
            self.record("failure", {"round": self.round, "task": task, "party": name, "cause": failure.cause,
                                    "trace": failure.trace})
            if self.rules.on_failure == "stop":
                raise self._error(name, task, failure)
        if len(replies) < self.rules.quorum * asked:
            missing = [f"{len(replies.dropped)} dropped out", f"{len(replies.failures)} failed",
                       *([f"{len(replies.late)} were too late{self._fastest()}"] if replies.late else [])]
            raise QuorumError(f"only {len(replies)} of {asked} parties answered task '{task}' in round "
                              f"{self.round} ({', '.join(missing)}); the quorum is {self.rules.quorum:.0%}",
                              remedy="raise devices.deadline or lower rules.quorum" if replies.late else
                                     "lower rules.quorum, or find out why")

    def _fastest(self) -> str:
        """How the deadline of the last exchange compares with what the fastest party needed."""
        if self.clock is None or self.clock.last is None:
            return ""
        last = self.clock.last
        return f" (it closed after {last.seconds:.1f} s, the fastest needs {last.ends.min():.1f} s)"

    def _error(self, name: str, task: str, failure: Failure) -> PartyError:
        error = PartyError(f"party '{name}' failed in round {self.round} at task '{task}': {failure.cause}",
                           party=name, round=self.round, task=task, cause=failure.cause,
                           diverged=failure.diverged,
                           remedy=failure.remedy or "remove the cause, or set rules.on_failure = 'continue' to go on "
                                                    "without parties that fail")
        error.add_note(failure.trace)
        return error


def cut(parties: NDArray[np.int64], work: float = 0.0) -> list[NDArray[np.int64]]:
    """A cohort in an even number of chunks, as many as its work (numbers sent times rows) is worth within bounds."""
    if len(parties) <= SMALLEST_CHUNK:
        return [parties] if len(parties) else []
    fewest, most = -(-len(parties) // LARGEST_CHUNK), len(parties) // SMALLEST_CHUNK
    worth = min(max(int(work / WORK_OF_A_CHUNK), fewest), most)
    return np.array_split(parties, min(2 * -(-worth // 2), len(parties)))


def _mean_loss(replies: Replies[Any]) -> dict[str, float]:
    """The training loss that the parties report, each weighed by its rows."""
    told = [payload for payload in replies.payloads
            if isinstance(payload.get("loss"), Real) and isinstance(payload.get("rows"), Real)]
    rows = sum(payload["rows"] for payload in told)
    return {"loss": sum(payload["loss"] * payload["rows"] for payload in told) / rows} if rows else {}


def _finite(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return is_finite([value])
    if isinstance(value, float):
        return isfinite(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return all(_finite(part) for part in parts if not isinstance(part, _ALWAYS_FINITE))


_ALWAYS_FINITE = (int, str, bytes)
