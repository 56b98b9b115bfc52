"""Training passes of plain layers in a row, forward and back, without autograd; and dropout, a layer of our own.

They call the kernels that autograd would call, in the same order and on the same shapes, so a gradient is the same to
the last bit. What is saved is the graph of every batch, images that go from one memory order into another and back, and
memory for what can be changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    Back = Callable[[Tensor, bool], tuple[Tensor, list[Tensor]]]
    """From the loss's gradient by a layer's outputs to that by its inputs, with those by its own parameters. `True`
    says that this is the first layer, whose inputs need none. It may overwrite what it is given."""

    Pass = Callable[[Tensor], tuple[Tensor, Back]]
    """From a layer's inputs to its outputs, and the way back. It may overwrite what the layer below gave."""

_LEVELS = 2**16


@dataclass(frozen=True)
class Passes:
    """The layers of a module, from inputs to outputs."""

    layers: list[Pass]

    def forward(self, rows: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        """Outputs of a batch in training, and the way back: from the loss's gradient by them to that by the parameters,
        in the module's order. It can be gone once, because what a layer kept is dropped on it."""
        backs: list[Back] = []
        for layer in self.layers:
            rows, back = layer(rows)
            backs.append(back)

        def backward(slopes: Tensor) -> list[Tensor]:
            gradients: list[Tensor] = []
            while backs:
                back = backs.pop()
                slopes, own = back(slopes, not backs)
                gradients = own + gradients
            return gradients

        return rows, backward


def passes_of(module: nn.Module) -> Passes | None:
    """The passes of a sequence of layers that all have one here, or None for anything else."""
    from torch import nn

    known: dict[type[nn.Module], Callable[[Any], Pass | None]] = {
        nn.Conv2d: _convolution, nn.Linear: _dense, nn.MaxPool2d: _pooling, nn.ReLU: _rectifier,
        nn.Flatten: _flattening, _dropout_class(): _dropping}
    children = list(module.children())
    if type(module) is not nn.Sequential or len(children) < len(module) or any(map(_is_watched, module.modules())):
        return None
    layers = [known[type(child)](child) if type(child) in known else None for child in children]
    plain = [layer for layer in layers if layer is not None]
    trains = all(parameter.requires_grad for parameter in module.parameters())
    return Passes(plain) if trains and len(plain) == len(layers) else None


def _is_watched(module: nn.Module) -> bool:
    """Whether something else happens when the module is called."""
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def _is_channels_last(values: Tensor) -> bool:
    import torch

    return values.ndim == 4 and values.is_contiguous(memory_format=torch.channels_last)


def _convolution(module: nn.Conv2d) -> Pass | None:
    import torch

    if module.bias is None or isinstance(module.padding, str) or module.padding_mode != "zeros":
        return None
    weight, bias, groups = module.weight.detach(), module.bias.detach(), module.groups
    steps = (module.stride, module.padding, module.dilation)
    # The memory order of weights or inputs decides on the kernel, so inputs follow weights that say one.
    turns = _is_channels_last(weight) and not weight.is_contiguous()

    def forward(values: Tensor) -> tuple[Tensor, Back]:
        inputs = values.contiguous(memory_format=torch.channels_last) if turns else values

        def backward(slopes: Tensor, is_first: bool) -> tuple[Tensor, list[Tensor]]:
            below, *own = torch.ops.aten.convolution_backward(
                slopes, inputs, weight, [len(bias)], *steps, False, [0, 0], groups, [not is_first, True, True])
            return below, own

        return torch.conv2d(inputs, weight, bias, *steps, groups), backward

    return forward


def _dense(module: Any) -> Pass | None:
    from torch.nn import functional

    if module.bias is None:
        return None
    weight, bias = module.weight.detach(), module.bias.detach()

    def forward(values: Tensor) -> tuple[Tensor, Back]:
        def backward(slopes: Tensor, is_first: bool) -> tuple[Tensor, list[Tensor]]:
            own = [slopes.t().mm(values), slopes.sum(0)]
            return slopes if is_first else slopes.mm(weight), own

        return functional.linear(values, weight, bias), backward

    return forward


def _pooling(module: nn.MaxPool2d) -> Pass | None:
    import torch

    if module.return_indices:
        return None
    sizes = [[size, size] if isinstance(size, int) else list(size)
             for size in (module.kernel_size, module.stride, module.padding, module.dilation)]
    forth, back = torch.ops.aten.max_pool2d_with_indices, torch.ops.aten.max_pool2d_with_indices_backward

    def forward(values: Tensor) -> tuple[Tensor, Back]:
        outputs, places = forth(values, *sizes, module.ceil_mode)
        return outputs, lambda slopes, is_first: (back(slopes, values, *sizes, module.ceil_mode, places), [])

    return forward


def _rectifier(module: nn.ReLU) -> Pass:
    import torch

    back = torch.ops.aten.threshold_backward.grad_input

    def forward(values: Tensor) -> tuple[Tensor, Back]:
        outputs = values.relu_()
        return outputs, lambda slopes, is_first: (back(slopes, outputs, 0, grad_input=slopes), [])

    return forward


def _flattening(module: nn.Flatten) -> Pass | None:
    import torch

    if (module.start_dim, module.end_dim) != (1, -1):
        return None

    def forward(values: Tensor) -> tuple[Tensor, Back]:
        shape, order = values.shape, torch.channels_last if _is_channels_last(values) else torch.contiguous_format
        return values.flatten(1), lambda slopes, is_first: (slopes.view(shape).contiguous(memory_format=order), [])

    return forward


def _dropping(module: Any) -> Pass:
    def forward(values: Tensor) -> tuple[Tensor, Back]:
        if not module.level:
            return values, lambda slopes, is_first: (slopes, [])
        mask = module.mask(values)
        return values * mask, lambda slopes, is_first: (slopes.mul_(mask), [])

    return forward


def dropout(share: float) -> nn.Module:
    """Dropout with a share rounded to 1/65536: it draws 16 bits a number, a third of the time of torch's own."""
    module: nn.Module = _dropout_class()(share)
    return module


@cache
def _dropout_class() -> type[nn.Module]:
    """The class, made when first needed because this module may not import torch."""
    import torch
    from torch import nn

    class Dropout(nn.Module):
        """Sets some numbers to zero while training, and scales the others up."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.level = round(share * _LEVELS)

        @property
        def share(self) -> float:
            return self.level / _LEVELS

        def forward(self, values: Tensor) -> Tensor:
            return values * self.mask(values) if self.training and self.level else values

        def mask(self, values: Tensor) -> Tensor:
            bits = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device)
            bits.random_(torch.iinfo(torch.int64).min, None)
            kept = torch.empty(values.numel(), device=values.device, dtype=values.dtype)
            torch.ge(bits.view(torch.int16)[:values.numel()], self.level - _LEVELS // 2, out=kept)
            # The mask takes the memory order of the values, so that their product goes through both in one pass.
            return kept.mul_(_LEVELS / (_LEVELS - self.level)).as_strided(values.shape, values.stride())

        def extra_repr(self) -> str:
            return f"share={self.share:g}"

    return Dropout
