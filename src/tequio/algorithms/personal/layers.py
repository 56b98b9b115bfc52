"""Models of which one part is everybody's and one is each party's own: FedPer, FedRep and FedBN.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated learning with personalization layers, 2019.
Collins, Hassani, Mokhtari, Shakkottai: Exploiting shared representations for personalized federated learning,
ICML 2021.
Li, Jiang, Zhang, Kamp, Dou: FedBN: federated learning on non-IID features via local batch normalization, ICLR 2021.

A party keeps the weights and the statistics of its own layers and sends how the others changed. The private part of the
coordinator's model stays as it began, for newcomers; so there is no common model to adopt or to score contributions by.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

from annotated_types import Ge

from tequio.algorithms.personal.answering import (
    Epochs,
    Inference,
    Personal,
    by_model,
    personal_round,
    with_epochs,
)
from tequio.algorithms.training import Phase, UpdateReply, job_from, training_task, update_of
from tequio.errors import ConfigError
from tequio.federation.algorithm import part
from tequio.federation.averaging import Weights
from tequio.federation.evaluation import EvaluateSettings
from tequio.federation.task import Reveals, TrainSettings, record
from tequio.learners.learner import Arrays, Correction, GradientLearner, LocalTraining
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.algorithms.training import ModelPayload
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Job, Trained


@dataclass(frozen=True, kw_only=True)
class OwnPart(Personal):
    """Federated averaging of all but a private part of the model."""

    adoptable: ClassVar[bool] = False
    contribution: None = field(default=None, init=False)

    @abstractmethod
    def private(self, model: Arrays) -> tuple[str, ...]:
        """Names of the arrays that parties keep for themselves."""

    @property
    def inference(self) -> Inference:
        """By the shared part and the party's own."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model, which must have something to share and something to keep."""
        state = super().start(federation)
        self.private(state.model)
        return state

    def answer(self, federation: Federation, state: State) -> None:
        """There is no model for all: the private part has been trained at the parties only."""


@register("algorithm", "fedper", paper="Arivazhagan et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FedPer(OwnPart):
    """Federated averaging of all layers but the last, which each party keeps for itself.

    Parameters:
        layers: how many of the last layers are personal
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    layers: Annotated[int, Ge(1)] = 1
    weights: Weights = "size"

    def private(self, model: Arrays) -> tuple[str, ...]:
        """The last layers."""
        return last_layers(model, self.layers)

    def round(self, federation: Federation, state: State) -> State:
        """Train the whole model; average what is shared."""
        return _whole_round(self, federation, state, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once and keeps its own layers."""
        federation.ask(parties, train_whole, {"model": state.model}, settings=_settings(self, state))


@register("algorithm", "fedbn", paper="Li et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedBN(OwnPart):
    """Federated averaging of all but batch normalisation, whose parameters and statistics each party keeps.

    Parameters:
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    weights: Weights = "size"

    def private(self, model: Arrays) -> tuple[str, ...]:
        """Batch normalisation."""
        return batch_normalisation(model)

    def round(self, federation: Federation, state: State) -> State:
        """Train the whole model; average what is shared."""
        return _whole_round(self, federation, state, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once and keeps its normalisation."""
        federation.ask(parties, train_whole, {"model": state.model}, settings=_settings(self, state))


@register("algorithm", "fedrep", paper="Collins et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedRep(OwnPart):
    """Each party first trains its own last layers, then the shared ones below them; only those are averaged.

    Parameters:
        layers: how many of the last layers are personal
        head_epochs: epochs of the personal layers a round (0: those of `local`)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    learner: GradientLearner = part()
    layers: Annotated[int, Ge(1)] = 1
    head_epochs: Epochs = 0
    weights: Weights = "size"

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The training of the heads."""
        return (with_epochs(self.local, self.head_epochs),)

    def private(self, model: Arrays) -> tuple[str, ...]:
        """The last layers."""
        return last_layers(model, self.layers)

    def round(self, federation: Federation, state: State) -> State:
        """Heads first, then the representation; average the representation."""
        settings = self._settings(state)
        return personal_round(self, federation, state, train_in_turns, settings, weights=self.weights,
                              private=settings.private)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains a head on the representation as it is."""
        federation.ask(parties, train_head, {"model": state.model}, settings=self._settings(state))

    def _settings(self, state: State) -> TurnSettings:
        # The virtual clock charges for `local`, the training of the heads.
        return TurnSettings(learner=self.learner, local=with_epochs(self.local, self.head_epochs),
                            private=self.private(state.model), shared=self.local)


def last_layers(model: Arrays, layers: int) -> tuple[str, ...]:
    """Parameters of the last layers; a layer is what shares a name up to its last dot."""
    names = list(dict.fromkeys(name.rpartition(".")[0] or name for name in model))
    if layers >= len(names):
        raise ConfigError(f"{layers} personal layers leave nothing to share: the model has {len(names)}",
                          remedy="set a smaller algorithm.layers, or choose a deeper learner")
    kept = names[len(names) - layers:]
    return tuple(name for name in model if (name.rpartition(".")[0] or name) in kept)


def batch_normalisation(model: Arrays) -> tuple[str, ...]:
    """Parameters and running statistics of batch normalisation."""
    layers = {name.rpartition(".")[0] for name in model if name.endswith("running_mean")}
    if not layers:
        raise ConfigError("'fedbn' keeps batch normalisation at the parties, and this model has none",
                          remedy="choose a learner with batch normalisation, such as 'complex-cnn'")
    return tuple(name for name in model if name.rpartition(".")[0] in layers)


@record
class OwnPartSettings(TrainSettings):
    """Names of the arrays that the party keeps for itself."""

    private: tuple[str, ...]


@record
class TurnSettings(OwnPartSettings):
    """How the shared part is trained, after the private one was by `local`."""

    shared: LocalTraining


class KeptPart(TypedDict, total=False):
    """The part of the model that is the party's own."""

    part: Arrays


class HeadReply(TypedDict):
    """The loss of the head, which stays at the party."""

    personal_loss: float


class TurnReply(UpdateReply, HeadReply):
    """How the shared part changed, and the loss of the head."""


def _settings(algorithm: OwnPart, state: State) -> OwnPartSettings:
    return OwnPartSettings(learner=algorithm.learner, local=algorithm.local, private=algorithm.private(state.model))


def _whole_round(algorithm: OwnPart, federation: Federation, state: State, weights: Weights) -> State:
    settings = _settings(algorithm, state)
    return personal_round(algorithm, federation, state, train_whole, settings, weights=weights,
                          private=settings.private)


def whole(party: Party, payload: ModelPayload, settings: object) -> Arrays:
    """The received model with the party's own part, if it has one."""
    own = party.recall(KeptPart).get("part", {})
    return {name: own.get(name, values) for name, values in payload["model"].items()}


def _whole_job(party: Party, payload: ModelPayload, settings: OwnPartSettings) -> Job:
    return job_from(party, whole(party, payload, settings))


def _head_job(party: Party, payload: ModelPayload, settings: TurnSettings) -> Job:
    shared = tuple(name for name in payload["model"] if name not in settings.private)
    return job_from(party, whole(party, payload, settings), Correction(frozen=shared), "personal")


def _body_job(party: Party, payload: ModelPayload, settings: TurnSettings) -> Job:
    return job_from(party, whole(party, payload, settings), Correction(frozen=settings.private))


def _keep_head(party: Party, payload: ModelPayload, result: Trained, settings: TurnSettings) -> HeadReply:
    party.keep(KeptPart, {"part": {name: result.model[name] for name in settings.private}})
    return {"personal_loss": result.loss}


def _keep_own_part(party: Party, payload: ModelPayload, result: Trained, settings: OwnPartSettings) -> UpdateReply:
    """Keep the private part and send how the shared one changed."""
    party.keep(KeptPart, {"part": {name: result.model[name] for name in settings.private}})
    shared = {name: values for name, values in payload["model"].items() if name not in settings.private}
    return update_of(party, shared, result, settings.learner)


train_whole = training_task("own part.train", OwnPartSettings, UpdateReply, Phase(_whole_job, _keep_own_part))
train_in_turns = training_task(
    "fedrep.train", TurnSettings, TurnReply, Phase(_head_job, _keep_head, name="head"),
    Phase(_body_job, _keep_own_part, training=lambda settings: settings.shared))
train_head = training_task("fedrep.welcome", TurnSettings, HeadReply, Phase(_head_job, _keep_head, name="head"),
                           reveals=Reveals.METRICS)
_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("own part", EvaluateSettings, whole)
