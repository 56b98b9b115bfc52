"""The exchanges of a sum that takes several: who does not answer in one has dropped out, and the sum goes on."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tequio.errors import QuorumError
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.exchange import Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.stages import Stage
    from tequio.federation.task import Task

# On the virtual clock these exchanges take the time of their messages only.
_NO_TRAINING = LocalTraining(steps=1, batch=1)


@dataclass(frozen=True)
class Phases:
    """One sum under way: `what` is what it is called in errors, `fewest` how many parties must be left."""

    what: str
    stage: Stage
    federation: Federation
    name: str
    asked: NDArray[np.int64]
    fewest: int
    session: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def ask(self, phase: str, parties: NDArray[np.int64], task: Task, payload: Payload | None = None,
            each: Mapping[int, Payload] | None = None, *, fewest: int | None = None,
            fault: Callable[[Reply], str] = lambda reply: "") -> Replies:
        """The sound answers of one phase; `fault` says what is wrong with an answer."""
        present = self.federation.present(parties, f"dropout at {phase}")
        replies = self._quiet.ask(present, task, {"session": self.session, "name": self.name, **(payload or {})},
                                  settings={"stage": self.stage, "local": _NO_TRAINING}, each=each)
        replies = self.without(replies, {reply.party: what for reply in replies if (what := fault(reply))})
        self.require(phase, len(replies), fewest)
        return replies

    def without(self, replies: Replies, faults: dict[int, str]) -> Replies:
        """The answers without those of parties at fault, which have failed."""
        if faults:
            self._quiet.refuse(replies, faults)
        return replace(replies, answers=tuple(reply for reply in replies if reply.party not in faults))

    def require(self, phase: str, left: int, fewest: int | None = None) -> None:
        """Stop where too few are left."""
        needed = self.fewest if fewest is None else fewest
        if left < needed:
            raise QuorumError(f"only {left} of {len(self.asked)} parties are left at '{phase}' of the {self.what} in "
                              f"round {self.federation.round}, and {needed} are needed to read it and to hide one "
                              "update among others", remedy="ask more parties a round")

    @property
    def _quiet(self) -> Federation:
        """The federation without its own drop-outs and quorum, which are kept here."""
        return replace(self.federation, rules=replace(self.federation.rules, dropout=0.0, quorum=0.0))
