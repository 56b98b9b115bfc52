"""Who attacks, and when: an attack as the first stage of an update's way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Interval

from tequio.attacks.attack import Attack, Circumstances
from tequio.errors import ConfigError
from tequio.federation.aggregation import difference, squared_norm
from tequio.federation.population import PartyData
from tequio.federation.rng import stream
from tequio.federation.stages import MOVED, SUMS, Stage, StageSpec
from tequio.registry import build, name_of, register, to_plain

if TYPE_CHECKING:
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party, Population
    from tequio.learners.learner import Arrays

_UPDATE = "update"


@dataclass(frozen=True)
class Schedule:
    """Which parties are hostile, and in which rounds.

    Parameters:
        parties: names of the hostile parties (none: draw some by `fraction`)
        fraction: share of the parties that is hostile, rounded, at least one
        first_round: the attack begins in this round
        last_round: the last round of the attack (0: it does not end)
        every: attack in every so many rounds, counted from the first
    """

    parties: tuple[str, ...] = ()
    fraction: Annotated[float, Interval(gt=0, lt=1)] = 0.2
    first_round: Annotated[int, Ge(1)] = 1
    last_round: Annotated[int, Ge(0)] = 0
    every: Annotated[int, Ge(1)] = 1

    def hostile(self, population: Population) -> tuple[int, ...]:
        """Numbers of the hostile parties, in order."""
        if self.parties:
            chosen = [population.index(name) for name in self.parties]
        else:
            count = max(1, round(self.fraction * len(population)))
            chosen = stream(population.seed, "hostile").choice(len(population), count, replace=False).tolist()
        if len(chosen) >= len(population):
            raise ConfigError(f"all {len(population)} parties would be hostile",
                              remedy="name fewer in attack.parties" if self.parties else "deal rows to more parties: "
                                     "set data.partition.parties")
        return tuple(sorted(chosen))


@register("stage", "attack")
@dataclass(frozen=True)
class Hostility(Stage):
    """Some parties attack: they train on other rows, or send other updates than they should.

    The table [attack] of a config puts this stage before all others.

    Parameters:
        attack: name of the attack
        parameters: its own parameters
        hostile: numbers of the hostile parties
        parties: how many parties there are
        first_round: the attack begins in this round
        last_round: the last round of the attack (0: it does not end)
        every: attack in every so many rounds, counted from the first
    """

    attack: str = "sign-flip"
    parameters: dict[str, Any] = field(default_factory=dict)
    hostile: tuple[int, ...] = ()
    parties: Annotated[int, Ge(1)] = 1
    first_round: Annotated[int, Ge(1)] = 1
    last_round: Annotated[int, Ge(0)] = 0
    every: Annotated[int, Ge(1)] = 1

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=("model",), first=True)

    @classmethod
    def of(cls, attack: Attack, schedule: Schedule, population: Population) -> Hostility:
        """An attack of some of these parties."""
        if 0 < schedule.last_round < schedule.first_round:
            raise ConfigError(f"attack.last_round = {schedule.last_round} is before attack.first_round = "
                              f"{schedule.first_round}, so that nobody would ever attack",
                              remedy="set attack.last_round = 0 for an attack that does not end")
        hostile = schedule.hostile(population)
        attack.check(Circumstances(schedule.first_round, len(hostile), len(population)))
        return cls(name_of(type(attack)), to_plain(vars(attack)), hostile, len(population),
                   schedule.first_round, schedule.last_round, schedule.every)

    @property
    def what(self) -> Attack:
        """The attack itself."""
        return _built(self.attack, json.dumps(self.parameters, sort_keys=True))

    def enter(self, party: Party) -> None:
        """Before the task: a hostile party swaps its training rows."""
        if self._attacks(party.index, party.round):
            own = party.data
            poisoned = self.what.poison(own.train, party.rng("poison"))
            if poisoned is not own.train:
                party.pretend(PartyData(poisoned, own.validation, own.test))

    def send(self, party: Party, payload: Payload) -> Payload:
        """After the task: a hostile party forges its update. How much it changed goes along, for the record."""
        if not self._attacks(party.index, party.round):
            return payload
        sent, moved = dict(payload), _changed_rows(party)
        # Sums over rows are forged like updates, unless the attack forges the rows that are summed.
        name = SUMS if SUMS in payload and type(self.what).poison is Attack.poison else _UPDATE
        if name in payload:
            sent[name] = self.what.forge(payload[name], self._now(party.round), party.rng("forge"))
            moved = max(moved, _distance(payload[name], sent[name]))
        return {**sent, MOVED: moved}

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Before aggregation: what attackers that know all updates send instead of theirs."""
        guilty = [place for place, reply in enumerate(replies)
                  if _UPDATE in reply.payload and self._attacks(reply.party, round)]
        if not guilty or type(self.what).conspire is Attack.conspire:
            return replies
        updates: list[Arrays] = [reply.payload.get(_UPDATE, {}) for reply in replies]
        honest = [update for place, update in enumerate(updates) if update and place not in guilty]
        sent = self.what.conspire([updates[place] for place in guilty], honest, self._now(round),
                                  stream(seed, "conspire", round))
        answers = list(replies.answers)
        for place, update in zip(guilty, sent, strict=True):
            own = answers[place].payload
            moved = max(own.get(MOVED, 0.0), _distance(own[_UPDATE], update))
            answers[place] = replace(answers[place], payload={**own, _UPDATE: update, MOVED: moved})
        return replace(replies, answers=tuple(answers))

    def claimed_rows(self, party: int, rows: int) -> int:
        """A hostile party has reported as many as it trains on."""
        return self.what.most_rows(rows) if party in self.hostile else rows

    def received(self, federation: Federation, replies: Replies) -> None:
        """Note how far hostile parties strayed from what they would have sent, so that no effect is seen as none."""
        moved = {federation.name(reply.party): float(reply.payload[MOVED]) for reply in replies
                 if MOVED in reply.payload}
        if moved:
            federation.record("attack", {"round": federation.round, "attack": self.attack, "moved": moved})

    def _attacks(self, party: int, round: int) -> bool:
        since = round - self.first_round
        is_time = since >= 0 and (not self.last_round or round <= self.last_round) and since % self.every == 0
        return is_time and party in self.hostile

    def _now(self, round: int) -> Circumstances:
        return Circumstances(round, len(self.hostile), self.parties)


@lru_cache(maxsize=16)
def _built(name: str, parameters: str) -> Attack:
    attack: Attack = build("attack", name, json.loads(parameters))
    return attack


def honest(parties: Any, hostility: Hostility | None) -> Any:
    """Those of the parties that never attack."""
    return parties if hostility is None else np.setdiff1d(parties, hostility.hostile)


def _distance(own: Arrays, forged: Arrays) -> float:
    """How far an update was moved, in its own lengths."""
    length = squared_norm(own) ** 0.5
    return float(squared_norm(difference(forged, own)) ** 0.5 / length) if length else float(squared_norm(forged) > 0)


def _changed_rows(party: Party) -> float:
    """The share of the training rows of this task that are not the party's own."""
    own, used = party.own.train, party.data.train
    if used is own or not len(used):
        return 0.0
    both = min(len(own), len(used))
    kept = np.equal(own.target[:both], used.target[:both]).reshape(both, -1).all(axis=1)
    return float(1.0 - kept.sum() / len(used))
