"""Sums made on the way: parties hold their updates, and each aggregator of a hierarchy hands on one mean of its group.

Bonawitz et al.: Towards federated learning at scale: system design, MLSys 2019. Over a network the aggregators are
processes of their own, which see the updates of their groups; the coordinator sees the groups' means only. In a
simulation there is nobody on the way, and the coordinator makes the same means itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.federation.aggregation import weighted_mean
from tequio.federation.stages import NUMBERS, StageSpec, Summed, SummingStage
from tequio.federation.task import Reveals, TimedSettings, task
from tequio.federation.topology import Hierarchical
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, InSum, Phases, in_sum
from tequio.privacy.updates import forget_older, held, hold, let_go
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.federation.averaging import Weights
    from tequio.federation.exchange import Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import SumCapacity

_PHASE = "hand-over"


@register("stage", "group-sum", paper="Bonawitz et al., 2019")
@dataclass(frozen=True)
class GroupSum(SummingStage):
    """Aggregators of a hierarchy pass on one weighted mean of their group's updates, and no single one.

    The numbers are those of the topology without this stage. Whoever runs an aggregator sees the updates of its group.
    """

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=NUMBERS, gives="hidden", hides=True, sums_in_groups=True)

    def enter(self, party: Party) -> None:
        """Before the task: forget what earlier rounds left."""
        forget_older(party)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Hold the update back until its weight is known."""
        return hold(party, payload, "group-sum")

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, extra_counts: int = 0, capacity: SumCapacity | None = None, by: Weights = "size") -> Summed:
        """Ask for the updates; what comes is one mean a group, or single updates where nobody stands on the way."""
        phases = Phases("group sum", federation, parties, 1, in_sum(name))
        weight_of = dict(zip(parties.tolist(), weights.tolist(), strict=True))
        groups = _groups(federation, federation.present(parties, f"dropout at {_PHASE}"))
        names = {party: [federation.name(other) for other in group] for group in groups for party in group}
        replies = phases.ask(_PHASE, parties, hand_over,
                             each={party: {"weight": weight_of[party], "together": names[party]} for party in names},
                             settings=TimedSettings(local=NO_TRAINING),
                             fault=lambda reply: _fault(reply, weight_of, size))
        means = [merge_group([reply.payload for reply in replies if reply.party in group and "mean" in reply.payload])
                 for group in map(set, groups) if any(reply.party in group for reply in replies)]
        summed = np.array(sorted(party for mean in means for party in mean["parties"]))
        whole = merge_group(means)
        notes = {"group_sum": {"name": name, "groups": len(means), "summed": len(summed),
                               "arrived": sum("mean" in reply.payload for reply in replies)}}
        shares = np.array([weight_of[party] for party in summed.tolist()])
        return Summed(whole["mean"].astype(np.float64, copy=False), summed, whole["weight"], notes,
                      np.empty(0, np.int64), (0, 0.0, 0), shares / shares.sum(), np.empty(0, np.int64))


class GroupMean(TypedDict):
    """The weighted mean of some parties' updates; where it is in that of another one of the group, only that it is."""

    mean: NotRequired[NDArray[np.floating]]
    weight: NotRequired[float]
    parties: NotRequired[list[int]]
    merged: NotRequired[bool]


class HandOver(InSum):
    """What the update weighs, and whose updates are merged on the way."""

    weight: float
    together: list[str]


def merge_group(replies: Sequence[GroupMean]) -> GroupMean:
    """The weighted mean of what some parties handed over, in double precision, as if one had."""
    weights = np.array([reply["weight"] for reply in replies])
    vectors = [{"mean": reply["mean"].astype(np.float64)} for reply in replies]
    return {"mean": weighted_mean(vectors, weights)["mean"], "weight": float(weights.sum()),
            "parties": [party for reply in replies for party in reply["parties"]]}


@task("group-sum.hand-over", settings=TimedSettings, reply=GroupMean, reveals=Reveals.UPDATE, merge=merge_group)
def hand_over(party: Party, payload: HandOver, settings: TimedSettings) -> GroupMean:
    """Give the held update away, once: to the aggregator, which sees it."""
    vector = held(party, payload["name"])
    let_go(party, payload["name"])
    return {"mean": vector, "weight": payload["weight"], "parties": [party.index]}


def _groups(federation: Federation, parties: NDArray[np.int64]) -> list[list[int]]:
    topology = federation.topology
    places = topology.groups(parties) if isinstance(topology, Hierarchical) else [np.arange(len(parties))]
    return [parties[group].tolist() for group in places if len(group)]


def _fault(reply: Reply[GroupMean], weights: Mapping[int, float], size: int) -> str:
    """What is wrong with what a party, or an aggregator in its place, handed over."""
    said = reply.payload
    if "mean" not in said:
        return "" if said.get("merged") else "it handed nothing over"
    if reply.party not in said.get("parties", ()) or not set(said["parties"]) <= weights.keys():
        return "its update stands for parties that it cannot stand for"
    if said["mean"].shape != (size,) or said["mean"].dtype.kind != "f":
        return f"its update is not {size} numbers"
    expected = float(np.sum([weights[party] for party in said["parties"]]))
    return "" if said.get("weight") == expected else "its update does not weigh what it was told"
