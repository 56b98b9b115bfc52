"""A trained model as a plain torch module, for people who go on with it in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.learners.answers import One
from tequio.learners.linear import LogisticRegression, SGDClassifier, SGDRegressor
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import plain_module, require_torch
from tequio.registry import name_of

if TYPE_CHECKING:
    from torch import nn

    from tequio.models.model import Model


def module_of(model: Model) -> nn.Module:
    """The module of a model that is one, in evaluation mode. It is made anew, so it may be changed and trained on."""
    require_torch("a model as a torch module")
    answer = model.answer
    if not isinstance(answer, One):
        raise ConfigError("this model answers by several parts together, which are no one torch module",
                          remedy="ask for one party's part (--party NAME), or use predict")
    learner = answer.learner
    if isinstance(learner, LogisticRegression | SGDClassifier | SGDRegressor):
        return _linear(answer)
    if not isinstance(learner, TorchLearner):
        raise ConfigError(f"a model of the learner '{name_of(type(learner))}' is no torch module",
                          remedy="export it to onnx instead: tequio export MODEL --to onnx")
    return plain_module(learner, model.reading.prepared_schema, answer.model)


def _linear(answer: One) -> nn.Module:
    import torch
    from torch import nn

    weight, bias = (torch.from_numpy(answer.model[name].copy()) for name in ("coef", "intercept"))
    module = nn.Linear(weight.shape[-1], len(bias), dtype=weight.dtype)
    with torch.no_grad():
        module.weight.copy_(weight.reshape(module.weight.shape))
        module.bias.copy_(bias)
    return module.eval()
