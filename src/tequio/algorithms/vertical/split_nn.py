"""A neural network that is cut between parties.

Vepakomma, Gupta, Swedish, Raskar: Split learning for health: distributed deep learning without sharing raw patient
data, 2018; with several parties at the bottom as in Ceballos, Sharma, Mugica et al.: SplitNN-driven vertical
partitioning, 2020. Without noise it is the composed network trained in one place, batch for batch: each activation is
sent up and its gradient down. A party's step on one batch and its activations of the next are one exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, MinLen

from tequio.algorithms.vertical.roles import columns_of
from tequio.algorithms.vertical.split_tasks import activate, build, learn_top, score, step
from tequio.algorithms.vertical.vertical import Request, VerticalAlgorithm
from tequio.errors import ConfigError
from tequio.learners.batches import batch_rows, row_orders
from tequio.learners.stacks import Activation
from tequio.privacy.label_protection import Protection
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.task import Task

Width = Annotated[int, Ge(1)]


@register("algorithm", "split-nn", paper="Vepakomma et al., 2018")
@dataclass(frozen=True, kw_only=True)
class SplitNN(VerticalAlgorithm):
    """Each party runs the bottom of a network on its columns; the label holder joins them, runs the top and learns.

    In every batch activations of the cut layer go to the label holder and their gradients come back, both through the
    coordinator; rows, labels and weights stay. A round is `local.epochs` passes over the common training rows; the
    optimizer of `local` works on each part by itself, so `local.clip_norm` bounds the gradient of each part. The
    gradients can tell labels by their length and direction; `protection` puts noise against that on them.

    Parameters:
        alignment: find common rows by set intersection (psi, or OpenMined's), or take all as they stand (agreed)
        bottom: widths of the layers below the cut
        cut: width of the cut layer, one for all parties with columns or one for each party
        top: widths of the layers above the cut
        activation: what follows each layer but those at the cut and at the end
        combine: how the parties' activations are joined
        activation_noise: standard deviation of the noise that a party puts on its activations
        protection: noise that the label holder puts on gradients, so that they do not tell labels
        protection_strength: power of isotropic and Marvell noise (1: as much as what it hides)
    """

    bottom: tuple[Width, ...] = (32,)
    cut: Annotated[tuple[Width, ...], MinLen(1)] = (16,)
    top: tuple[Width, ...] = (32,)
    activation: Activation = "relu"
    combine: Literal["concatenate", "sum", "mean"] = "concatenate"
    activation_noise: Annotated[float, Ge(0)] = 0.0
    protection: Protection = "none"
    protection_strength: Annotated[float, Gt(0)] = 1.0

    def start(self, federation: Federation) -> State:
        """Refuse cuts that cannot be joined, before anything is sent."""
        state = super().start(federation)
        holders = [party for party in federation.everyone() if len(columns_of(federation, int(party)))]
        if len(self.cut) not in (1, len(holders)):
            raise ConfigError(f"algorithm.cut has {len(self.cut)} widths for {len(holders)} parties with columns",
                              remedy="give one width, or one a party")
        if self.combine != "concatenate" and len(set(self.cut)) > 1:
            raise ConfigError(f"activations of different widths cannot be joined by '{self.combine}'",
                              remedy="set algorithm.combine = 'concatenate'")
        if self.protection == "marvell" and len(federation.schema.target.names) != 2:
            raise ConfigError("the protection 'marvell' is for two classes", remedy="choose 'max-norm' or 'isotropic'")
        return state

    def prepare(self, talk: Conversation, state: State) -> State:
        """Every party builds its own layers; nobody sends any."""
        roles = talk.roles
        columns = {party: len(columns_of(talk.federation, party)) for party in roles.holders}
        widths = self._widths(columns)
        joined = sum(widths.values()) if self.combine == "concatenate" else max(widths.values())
        each: dict[int, Payload] = {party: {"cut": width} for party, width in widths.items()}
        each[roles.label_holder]["joined"] = joined
        talk.ask(roles.holders, build, each=each, settings={"bottom": self.bottom, "top": self.top})
        return state.next({**state.model, "cut": {talk.federation.name(party): width
                                                  for party, width in widths.items()}})

    def step(self, talk: Conversation, state: State) -> State:
        """All batches of the round."""
        others = talk.roles.others
        gradients: dict[int, Payload] = {}
        batches = self._batches(talk.federation, state.model["rows"]["train"])
        for number, positions in enumerate(batches):
            asked: Payload = {"part": "train", "positions": positions, "step": number, "first": number == 0}
            each = {party: {**asked, **gradients.get(party, {})} for party in others}
            sent = self._activations(talk, state, step, each)
            told = talk.tell(talk.roles.label_holder, learn_top, {**asked, "activations": sent},
                             settings=self._settings())
            gradients = {party: {"gradient": told["gradients"][str(party)]} for party in others}
        if others:
            talk.ask(others, step, each=gradients, settings=self._settings())
        return state

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """Activations of the rows asked about go to the label holder, which keeps the outputs of the top."""
        sent = self._activations(talk, state, activate, {party: request[party] for party in talk.roles.others})
        holder = talk.roles.label_holder
        talk.tell(holder, score, {**request[holder], "activations": sent}, settings=self._settings())

    def _activations(self, talk: Conversation, state: State, how: Task,
                     each: Request) -> dict[str, NDArray[np.float32]]:
        """The activations of all parties without labels, by their numbers; those of a wrong shape are refused."""
        if not each:
            return {}
        replies = talk.ask(each, how, each=each, settings=self._settings())
        for reply in replies:
            width, shape = state.model["cut"][talk.federation.name(reply.party)], reply.payload["activations"].shape
            asked = each[reply.party]
            rows = len(asked["positions"]) if "positions" in asked else len(replies[0].payload["activations"])
            if shape != (rows, width):
                talk.refuse(how, reply.party, f"it sent activations of shape {shape}, and not {(rows, width)}")
        return {str(reply.party): reply.payload["activations"] for reply in replies}

    def _settings(self) -> dict[str, Any]:
        return {"activation": self.activation, "combine": self.combine, "local": self.parts.local,
                "activation_noise": self.activation_noise, "protection": self.protection,
                "protection_strength": self.protection_strength}

    def _batches(self, federation: Federation, rows: int) -> list[NDArray[np.int64]]:
        local, rng = self.parts.local, federation.rng("batches")
        size = batch_rows(rows, local)
        return [order[start:start + size] for order in row_orders(rows, local, rng)
                for start in range(0, len(order), size)]

    def _widths(self, columns: dict[int, int]) -> dict[int, int]:
        having = [party for party, count in columns.items() if count]
        widths = self.cut if len(self.cut) > 1 else self.cut * len(having)
        return dict.fromkeys(columns, 0) | dict(zip(having, widths, strict=True))
