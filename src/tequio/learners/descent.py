"""One optimizer step on a list of tensors: gradients come in, weights change in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from tequio.learners.learner import LocalTraining


@dataclass
class Optimizer:
    """How the weights of one party go down, with the optimizer's memory of this training.

    The gradient of a batch is clipped first; then each gains its offset, pull * (weights - anchor) and weight decay.
    Weights at the places `frozen` do not move. `memory` and `age`, its steps so far, may come from an earlier training.
    """

    how: LocalTraining
    rate: float
    offsets: list[Tensor] | None = None
    anchors: list[Tensor] | None = None
    pull: float = 0.0
    frozen: tuple[int, ...] = ()
    steps: int = 0
    age: int = 0
    memory: list[list[Tensor]] = field(default_factory=list)

    def step(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        """Move the weights once."""
        import torch

        self.steps += 1
        gradients = self._corrected(weights, clipped(gradients, self.how.clip_norm))
        if self.how.optimizer == "adam":
            self.memory = self.memory or [[torch.zeros_like(weight) for weight in weights] for _ in range(2)]
            first, second = self.memory
            adam_step(weights, _laid_out_like(weights, gradients), first, second, self.age + self.steps, self.rate)
        else:
            torch._foreach_add_(weights, self._velocity(gradients), alpha=-self.rate)

    def _corrected(self, weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        import torch

        if self.offsets is not None:
            gradients = list(torch._foreach_add(gradients, self.offsets))
        if self.how.weight_decay + self.pull:
            gradients = list(torch._foreach_add(gradients, weights, alpha=self.how.weight_decay + self.pull))
        if self.anchors is not None:
            gradients = list(torch._foreach_add(gradients, self.anchors, alpha=-self.pull))
        return [torch.zeros_like(gradient) if place in self.frozen else gradient
                for place, gradient in enumerate(gradients)] if self.frozen else gradients

    def _velocity(self, gradients: list[Tensor]) -> list[Tensor]:
        import torch

        if not self.how.momentum:
            return gradients
        if self.memory:
            torch._foreach_mul_(self.memory[0], self.how.momentum)
            torch._foreach_add_(self.memory[0], gradients)
        else:
            self.memory = [[gradient.clone() for gradient in gradients]]
        return self.memory[0]


def clipped(gradients: list[Tensor], bound: float) -> list[Tensor]:
    """All gradients scaled alike so that together they are no longer than the bound (0: as they are)."""
    import torch

    if not bound:
        return gradients
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return list(torch._foreach_mul(gradients, (bound / (length + 1e-6)).clamp(max=1.0)))


def adam_step(weights: list[Tensor], gradients: list[Tensor], first: list[Tensor], second: list[Tensor], step: int,
              rate: float) -> None:
    """Adam (Kingma and Ba, 2015) with its usual constants, in one pass over memory; `step` counts from 1."""
    import torch

    fused: Any = torch._fused_adam_
    steps = [torch.tensor(float(step), device=weights[0].device)] * len(weights)
    fused(weights, gradients, first, second, [], steps, lr=rate, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8,
          amsgrad=False, maximize=False)


def _laid_out_like(weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """Gradients in the memory order of their weights: the fused step goes through both as they lie in memory."""
    import torch

    return [gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)
            for weight, gradient in zip(weights, gradients, strict=True)]
