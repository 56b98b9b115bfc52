"""Routers that look into the party's own network: detectors on what its last layer sees, and Bayesian dropout.

Both were tried beside the autoencoder by the authors of FLProtector, who give no numbers. Gal, Ghahramani: Dropout as a
Bayesian approximation, ICML 2016. Houlsby et al.: Bayesian active learning for classification, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.data.dataset import Dataset, Schema
from tequio.errors import ConfigError
from tequio.learners.descent import scores_of
from tequio.learners.routers.router import Router
from tequio.learners.torch_learner import TorchLearner, outputs_of
from tequio.learners.torch_model import own_model
from tequio.registry import build, register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tequio.learners.routers.router import Fitted, Own
    from tequio.learners.torch_model import TorchModel

    Numbers = NDArray[np.float64]


@register("router", "network-features")
@dataclass(frozen=True)
class NetworkFeatures(Router):
    """Rows that a detector finds foreign in what the last layer of the party's own network sees.

    Parameters:
        detector: the router that judges the features, with its usual settings and threshold
    """

    detector: Literal["local-outlier-factor", "one-class-svm", "mahalanobis", "pca"] = "local-outlier-factor"

    follows_model: ClassVar[bool] = True

    @property
    def sigmas(self) -> float:
        """Those of the detector."""
        return self._detector.sigmas

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Fit the detector on the features of the party's rows."""
        return self._detector.fit(last_features(own, rows), own, rng)

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """What the detector says of the features."""
        return self._detector.novelty(fitted, last_features(own, rows), own)

    @property
    def _detector(self) -> Router:
        made: Router = build("router", self.detector)
        return made


@register("router", "bayesian-dropout", paper="Gal and Ghahramani, 2016")
@dataclass(frozen=True)
class BayesianDropout(Router):
    """Rows about which thinned copies of the party's own network disagree are foreign.

    Every copy leaves out the same inputs of each dense layer for all rows, so that a row's novelty does not depend on
    the rows beside it. What counts is the mutual information between class and copy: the entropy of the mean
    probabilities minus the mean of the copies' entropies. A network that was trained without dropout is no sample of
    anything; its copies still disagree more where it knows less.

    Parameters:
        sigmas: the threshold is the mean disagreement about the party's rows plus this many standard deviations
        rate: share of each dense layer's inputs that a copy leaves out
        passes: how many copies
    """

    sigmas: float = 3.0
    rate: Annotated[float, Interval(gt=0, lt=1)] = 0.2
    passes: Annotated[int, Ge(2)] = 20

    follows_model: ClassVar[bool] = True

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Draw what each copy leaves out."""
        ready = _network("bayesian-dropout", own, rows)
        keep = 1.0 - self.rate
        return {"masks": {name: (rng.random((self.passes, layer.in_features)) < keep).astype(np.float32) / keep
                          for name, layer in _dense_layers(ready.module).items()}}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """Mutual information, in nats."""
        if rows.schema.target.kind != "classes":
            raise ConfigError("the router 'bayesian-dropout' needs a model of classes",
                              remedy="set router = 'network-features'")
        ready = _network("bayesian-dropout", own, rows)
        layers = _dense_layers(ready.module)
        copies = []
        for number in range(self.passes):
            hooks = [layer.register_forward_pre_hook(_times(fitted["masks"][name][number]))
                     for name, layer in layers.items()]
            copies.append(scores_of(ready.kind, outputs_of(ready, rows), rows.schema.target).double().numpy())
            for hook in hooks:
                hook.remove()
        scores = np.stack(copies)
        return np.asarray(_entropy(scores.mean(axis=0)) - _entropy(scores).mean(axis=0))


def last_features(own: Own, rows: Dataset) -> Dataset:
    """What goes into the last dense layer of the party's own network, as columns in place of the rows' own."""
    import torch

    ready = _network("network-features", own, rows)
    seen: list[Tensor] = []
    last = list(_dense_layers(ready.module).values())[-1]
    last.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].flatten(1).cpu()))
    outputs_of(ready, rows)
    values = torch.cat(seen).double().numpy() if seen else np.zeros((0, last.in_features))
    schema = Schema.of_numbers((f"feature_{index}" for index in range(values.shape[1])), rows.schema.target)
    return Dataset.of(schema, values, rows.target)


def _network(router: str, own: Own, rows: Dataset) -> TorchModel:
    ready = own_model(own.learner, rows.schema, own.model) if isinstance(own.learner, TorchLearner) else None
    if ready is None or not _dense_layers(ready.module):
        raise ConfigError(f"the router '{router}' needs a network with a dense layer",
                          remedy="choose a torch learner such as 'mlp', or the router 'autoencoder'")
    return ready


def _dense_layers(module: nn.Module) -> dict[str, nn.Linear]:
    from torch import nn

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}


def _times(mask: NDArray[np.float32]) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
    import torch

    return lambda layer, inputs: (inputs[0] * torch.from_numpy(np.array(mask)).to(inputs[0].device),)


def _entropy(scores: Numbers) -> Numbers:
    return np.asarray(-np.sum(scores * np.log(np.maximum(scores, 1e-300)), axis=-1))
