"""Who attacks, and when: an attack as the first stage of an update's way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Interval

from tequio.attacks.attack import Attack, Circumstances
from tequio.components import build, name_of, to_plain
from tequio.errors import ConfigError
from tequio.federation.population import PartyData
from tequio.federation.rng import stream
from tequio.federation.stages import Trait
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
    from tequio.federation.replies import Replies
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
            raise ConfigError("all parties would be hostile", remedy="name fewer in attack.parties")
        return tuple(sorted(chosen))


@register("stage", "attack")
@dataclass(frozen=True)
class Hostility:
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

    trait: ClassVar[Trait] = Trait(takes=("model",), first=True)

    @classmethod
    def of(cls, attack: Attack, schedule: Schedule, population: Population) -> Hostility:
        """An attack of some of these parties."""
        return cls(name_of(type(attack)), to_plain(vars(attack)), schedule.hostile(population), len(population),
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
        """After the task: a hostile party forges its update."""
        if _UPDATE not in payload or not self._attacks(party.index, party.round):
            return payload
        forged = self.what.forge(payload[_UPDATE], self._now(party.round), party.rng("forge"))
        return {**payload, _UPDATE: forged}

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Before aggregation: what attackers that know all updates send instead of theirs."""
        guilty = [place for place, reply in enumerate(replies)
                  if _UPDATE in reply.payload and self._attacks(reply.party, round)]
        if not guilty:
            return replies
        updates: list[Arrays] = [reply.payload.get(_UPDATE, {}) for reply in replies]
        honest = [update for place, update in enumerate(updates) if update and place not in guilty]
        sent = self.what.conspire([updates[place] for place in guilty], honest, self._now(round),
                                  stream(seed, "conspire", round))
        answers = list(replies.answers)
        for place, update in zip(guilty, sent, strict=True):
            answers[place] = replace(answers[place], payload={**answers[place].payload, _UPDATE: update})
        return replace(replies, answers=tuple(answers))

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
