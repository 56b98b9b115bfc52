"""The same gate in a simulation: a policy is tried on a laptop before anybody signs it.

Every simulated party has the policy of the config as its own. An order reaches those parties whose gates let it in; the
others fail by name, with the reason. With `only_try` nothing is refused: what would have been is kept in `seen`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.exchange import Failure, Outcome
from tequio.federation.population import LEAST_BATCH, LEAST_COHORT, SMALL_CELLS
from tequio.federation.task import find_task
from tequio.gate.announcement import read_announcement, roster_of
from tequio.gate.gate import Gate, PartyRows, judge_run, what_it_reveals
from tequio.gate.policy import as_policy, policy_file, read_policy
from tequio.gate.release import released
from tequio.noise.coins import Coins
from tequio.privacy.atoms import QUESTIONS
from tequio.privacy.psi.limits import LIMITS, IntersectionLog
from tequio.registry import COMPONENT_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tequio.federation.exchange import Engine, Order, Reply
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
    from tequio.gate.gate import Passed
    from tequio.gate.policy import Policy
    from tequio.privacy.accounting import Spent
    from tequio.privacy.dataset_ledger import DatasetLedger

_MOST_NAMES_IN_ROSTER = 1_000


@dataclass
class Seen:
    """What the gates of all parties made of one task: how often it ran, what covers it, and why it was refused.

    `at` are the parties that refused it, and how many rows each trains on.
    """

    task: str
    reveals: str
    asked: int = 0
    refused: int = 0
    covered: str = ""
    cause: str = ""
    remedy: str = ""
    at: dict[str, int] = field(default_factory=dict)


@dataclass
class GatedEngine:
    """An engine whose parties each have a gate in front of them. `spent` is what each party has spent, by round."""

    engine: Engine
    policy: Policy
    facts: Mapping[str, Any]
    run: str
    ledger_of: Callable[[str], DatasetLedger] | None = None
    only_try: bool = False
    questions_of: Callable[[str], Mapping[str, str]] | None = None
    seen: dict[str, Seen] = field(default_factory=dict)
    spent: dict[int, dict[int, Spent]] = field(default_factory=dict)
    _population: Population | None = None
    _gates: dict[int, Gate] = field(default_factory=dict)
    _passed: dict[tuple[int, int], Passed] = field(default_factory=dict)
    _refused: dict[int, list[Failure]] = field(default_factory=dict)
    _orders: dict[int, Order] = field(default_factory=dict)
    _ready: deque[Outcome] = field(default_factory=deque)

    def open(self, population: Population) -> None:
        """Judge the run at every party, and open the engine."""
        self._population = population
        wants: dict[str, Any] = {key: value for key, value in (
            (LEAST_BATCH, self.policy.least_batch), (LEAST_COHORT, self.policy.minimum_parties)) if value > 1}
        if self.policy.small_cells:
            wants[SMALL_CELLS] = self.policy.small_cells
        if population.partition.columns is not None:
            wants[LIMITS] = self.policy.intersections(Path())
        own = self.questions_of
        self.engine.open(population if not wants else replace(population, overrides={
            party: {**population.overrides.get(party, {}), **wants,
                    **({} if own is None else {QUESTIONS: own(population.name(party))})}
            for party in range(len(population))}))
        for party in range(min(len(population), _MOST_NAMES_IN_ROSTER)):
            try:
                judge_run(self.policy, self._gate(party).announcement, "here", self._gate(party).rows.all)
            except PermissionDenied as cause:
                if not self.only_try:
                    raise PermissionDenied(f"party '{population.name(party)}': {cause.message}",
                                           remedy=cause.remedy) from None
                self._note("(the run)", cause, party)

    def submit(self, order: Order) -> None:
        """Send an order to those parties whose gates let it in."""
        let_in = [place for place, party in enumerate(order.parties) if self._let_in(order, place, party)]
        if not let_in:
            self._ready.append(Outcome(order.ticket, (), tuple(self._refused.pop(order.ticket, ()))))
            return
        if len(let_in) < len(order.parties):
            order = replace(order, parties=tuple(order.parties[place] for place in let_in),
                            each=None if order.each is None else tuple(order.each[place] for place in let_in))
        self._orders[order.ticket] = order
        self.engine.submit(order)

    def collect(self) -> Outcome:
        """The next outcome, with its replies as they leave the parties."""
        if self._ready:
            return self._ready.popleft()
        outcome = self.engine.collect()
        order = self._orders.pop(outcome.ticket)
        replies, failures = [], [*outcome.failures, *self._refused.pop(outcome.ticket, ())]
        for reply in outcome.replies:
            sent = self._released(order, reply)
            if isinstance(sent, Failure):
                failures.append(sent)
            else:
                replies.append(sent)
        return Outcome(outcome.ticket, tuple(replies), tuple(sorted(failures, key=lambda failure: failure.party)))

    def states(self) -> dict[int, Payload]:
        """Private states of the parties."""
        return self.engine.states()

    def restore(self, states: dict[int, Payload]) -> None:
        """Put states of a checkpoint back."""
        self.engine.restore(states)

    def close(self) -> None:
        """Let go of everything."""
        self.engine.close()

    def _let_in(self, order: Order, place: int, party: int) -> bool:
        gate = self._gate(party)
        stages = [stage for stage in order.stages if stage.get(COMPONENT_KEY) != ["stage", "attack"]]
        asked = self._note(order.task)
        asked.asked += 1
        try:
            passed = gate.admit(order.task, order.round, order.settings, stages,
                                f"{gate.announcement.hash} {_digest(order, place, party)}")
        except PermissionDenied as cause:
            self._note(order.task, cause, party)
            if not self.only_try:
                self._refused.setdefault(order.ticket, []).append(_failure(party, cause))
            return self.only_try
        asked.covered = passed.covered
        by_round = self.spent.setdefault(party, {}).setdefault(order.round, {})
        for release, count in passed.spent.items():
            by_round[release] = by_round.get(release, 0) + count
        self._passed[order.ticket, party] = passed
        return True

    def _released(self, order: Order, reply: Reply[Any]) -> Reply[Any] | Failure:
        passed = self._passed.pop((order.ticket, reply.party), None)
        assert self._population is not None
        if passed is None or self.only_try:
            return reply
        about = ("coarse", 0) if passed.metrics == "coarse" else (order.task, order.ticket)
        coins = Coins.derived(self._population.seed, "release", *about, reply.party)
        try:
            content = released(reply.payload, passed, self.policy, coins)
        except PermissionDenied as cause:
            self._note(order.task, cause, reply.party)
            return _failure(reply.party, cause)
        return reply if content is reply.payload else replace(reply, payload=content, bytes_up=payloads.size(content))

    def _gate(self, party: int) -> Gate:
        known = self._gates.get(party)
        if known is None:
            population = self._population
            assert population is not None
            split, data = population.split, population.view(party)
            names = [population.name(index) for index in range(len(population))] \
                if len(population) <= _MOST_NAMES_IN_ROSTER else []
            announcement = read_announcement({
                **self.facts, "index": party, "parties": len(population), "seed": population.seed,
                "roster": roster_of(names), "overrides": dict(population.overrides.get(party, {})),
                "split": {"validation": split.validation, "test": split.test, "stratify": split.stratify}})
            known = self._gates[party] = Gate(
                self.policy, announcement, PartyRows(len(data.train), len(data.validation), len(data.test)),
                population.schema, run=self.run,
                ledger=None if self.ledger_of is None else self.ledger_of(population.name(party)),
                intersections=IntersectionLog("simulated"))
        return known

    def _note(self, task: str, cause: PermissionDenied | None = None, party: int = 0) -> Seen:
        known = self.seen.get(task)
        if known is None:
            reveals = "" if task.startswith("(") else what_it_reveals(find_task(task))
            known = self.seen[task] = Seen(task, reveals)
        if cause is not None and self._population is not None:
            known.refused += 1
            known.at[self._population.name(party)] = self._gate(party).rows.train
            known.cause, known.remedy = cause.message, cause.remedy
        return known


def policy_of(given: str | Mapping[str, object]) -> Policy:
    """The policy that a config names: one that comes with tequio, a file, or its keys."""
    if isinstance(given, str):
        return read_policy(policy_file(given), required=True)
    return as_policy(dict(given), "[policy]")


def _digest(order: Order, place: int, party: int) -> str:
    """What a release depends on besides the rows: asked the same again, a party releases the same."""
    own = b"" if order.each is None else payloads.encode(order.each[place])
    said = payloads.encode({"settings": dict(order.settings), "stages": list(order.stages)})
    content = payloads.encode(order.payload)
    return sha256(b"|".join([order.task.encode(), str(order.round).encode(), str(party).encode(), said, content,
                             own])).hexdigest()


def _failure(party: int, cause: PermissionDenied) -> Failure:
    return Failure(party, cause.message, cause.remedy, shared=(cause.message, cause.remedy))
