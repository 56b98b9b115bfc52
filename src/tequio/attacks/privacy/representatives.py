"""Model inversion: what a class looks like, from the model alone.

Fredrikson, Jha, Ristenpart: Model inversion attacks that exploit confidence information, CCS 2015. Where a class is one
person, or rows of a class are alike, that is about rows; else it is about their mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.losses import mean_loss, target_array
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import model_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.learners.learner import Arrays, Learner


def representatives(learner: Learner, schema: Schema, model: Arrays, bounds: tuple[float, float], *, steps: int = 200,
                    restraint: float = 0.01) -> NDArray[np.float64]:
    """One row a class that the model is most sure of, found by descent from the middle of the bounds.

    `restraint` pulls towards that middle, so that entries which do not matter to the model stay where they were.
    """
    if not isinstance(learner, TorchLearner):
        raise ConfigError(f"the learner '{type(learner).__name__}' has no gradient to follow",
                          remedy="choose a torch learner such as 'mlp'")
    import torch

    ready = model_for(learner, schema)
    ready.load(model)
    ready.module.eval()
    (low, high), classes = bounds, len(schema.target.names)
    middle = (low + high) / 2
    rows = torch.full((classes, *schema.shape), middle, device=ready.device, requires_grad=True)
    target = torch.from_numpy(target_array(ready.kind, np.arange(classes))).to(ready.device)
    optimizer = torch.optim.Adam([rows], lr=0.02 * (high - low))
    for _ in range(steps):
        optimizer.zero_grad()
        pull = ((rows - middle) / (high - low)).square().sum() / classes
        rows.grad = torch.autograd.grad(mean_loss(ready.kind, ready.outputs(rows), target) + restraint * pull, rows)[0]
        optimizer.step()
        with torch.no_grad():
            rows.clamp_(low, high)
    return rows.detach().cpu().numpy().astype(np.float64)
