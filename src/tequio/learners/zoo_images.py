"""Convolutional torch models for images: those of the studies and of the published comparisons.

Pooling comes before ReLU: the largest value is the same either way, and so is its gradient, to the last bit, for a
quarter of ReLU's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.errors import DataError
from tequio.learners.descent import outputs_for
from tequio.learners.passes import dropout
from tequio.learners.torch_learner import TorchLearner
from tequio.registry import register

if TYPE_CHECKING:
    from torch import nn

    from tequio.data.dataset import Schema


@register("learner", "simple-cnn")
@dataclass(frozen=True)
class SimpleCNN(TorchLearner):
    """Two convolutions 4x4 of 8 filters, each with pooling, and the output: 5,354 parameters on CIFAR-10.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """The network for images of any size from 6x6."""
        from torch import nn

        body = nn.Sequential(nn.Conv2d(_channels(schema), 8, 4, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                             nn.Conv2d(8, 8, 4, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(*body, nn.Linear(_width(body, schema), outputs_for(schema.target)))


@register("learner", "complex-cnn")
@dataclass(frozen=True)
class ComplexCNN(TorchLearner):
    """Six convolutions 3x3 with batch normalisation, a dense layer of 512: 1,342,122 parameters on CIFAR-10.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """Channels 32, 32, 64, 64, 128, 128, with pooling after every second convolution."""
        from torch import nn

        parts: list[nn.Module] = []
        channels = _channels(schema)
        for width in (32, 64, 128):
            for _ in range(2):
                parts += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
            parts.append(nn.MaxPool2d(2))
        body = nn.Sequential(*parts, nn.Flatten())
        return nn.Sequential(*body, nn.Linear(_width(body, schema), 512), nn.ReLU(),
                             nn.Linear(512, outputs_for(schema.target)))


@register("learner", "digit-five-cnn", paper="Martínez Enríquez et al., 2025")
@dataclass(frozen=True)
class DigitFiveCNN(TorchLearner):
    """Four convolutions 3x3 (16, 32, 32, 32 filters) with pooling, dense 64, 32, 16: 28,474 parameters on 3x16x16.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """Kaiming's first weights, biases of nought."""
        from torch import nn

        parts: list[nn.Module] = []
        channels = _channels(schema)
        for width in (16, 32, 32, 32):
            parts += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
            channels = width
        body = nn.Sequential(*parts, nn.Flatten())
        inputs = _width(body, schema)
        for width in (64, 32, 16):
            body.extend([nn.Linear(inputs, width), nn.ReLU()])
            inputs = width
        module = nn.Sequential(*body, nn.Linear(inputs, outputs_for(schema.target)))
        for part in module:
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.kaiming_uniform_(part.weight, nonlinearity="relu")
                part.bias.data.zero_()  # type: ignore[union-attr]
        return module


@register("learner", "mcmahan-cnn", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class McMahanCNN(TorchLearner):
    """Two convolutions 5x5 of 32 and 64 filters, a dense layer of 512: 1,663,370 parameters on MNIST.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """Convolutions that keep the size of the image, each with pooling."""
        from torch import nn

        body = nn.Sequential(nn.Conv2d(_channels(schema), 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                             nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(*body, nn.Linear(_width(body, schema), 512), nn.ReLU(),
                             nn.Linear(512, outputs_for(schema.target)))


@register("learner", "usecase-cnn")
@dataclass(frozen=True)
class UsecaseCNN(TorchLearner):
    """One convolution 5x5 of 32 filters with pooling, and the output: 63,562 parameters on MNIST.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """A convolution that keeps the size of the image."""
        from torch import nn

        body = nn.Sequential(nn.Conv2d(_channels(schema), 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(*body, nn.Linear(_width(body, schema), outputs_for(schema.target)))


@register("learner", "mnist-cnn")
@dataclass(frozen=True)
class MnistCNN(TorchLearner):
    """Two convolutions 3x3 of 32 and 64 filters, each with pooling, and a dense layer of 32.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """Convolutions without padding."""
        from torch import nn

        body = nn.Sequential(nn.Conv2d(_channels(schema), 32, 3), nn.MaxPool2d(2), nn.ReLU(),
                             nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(*body, nn.Linear(_width(body, schema), 32), nn.ReLU(),
                             nn.Linear(32, outputs_for(schema.target)))


@register("learner", "cifar-cnn")
@dataclass(frozen=True)
class CifarCNN(TorchLearner):
    """Three blocks of two convolutions 3x3 (32, 64, 128 filters) with pooling and dropout, and a dense layer of 128.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """Convolutions that keep the size of the image."""
        from torch import nn

        parts: list[nn.Module] = []
        channels = _channels(schema)
        for width in (32, 64, 128):
            parts += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(),
                      nn.Conv2d(width, width, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), dropout(0.25)]
            channels = width
        body = nn.Sequential(*parts, nn.Flatten())
        return nn.Sequential(*body, nn.Linear(_width(body, schema), 128), nn.ReLU(), dropout(0.5),
                             nn.Linear(128, outputs_for(schema.target)))


@register("learner", "pfl-cnn", paper="Granqvist et al., 2024")
@dataclass(frozen=True)
class PflCNN(TorchLearner):
    """The CIFAR-10 network of pfl-research's benchmark: 1,626,442 parameters.

    Parameters:
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    def build(self, schema: Schema) -> nn.Module:
        """Two convolutions 3x3 of 32 and 64 filters, pooling, dropout, a dense layer of 128; Xavier's first weights."""
        from torch import nn

        body = nn.Sequential(nn.Conv2d(_channels(schema), 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2),
                             nn.ReLU(), dropout(0.25), nn.Flatten())
        module = nn.Sequential(*body, nn.Linear(_width(body, schema), 128), nn.ReLU(), dropout(0.5),
                               nn.Linear(128, outputs_for(schema.target)))
        for part in module:
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(part.weight)
        return module


def _channels(schema: Schema) -> int:
    if len(schema.shape) != 3:
        raise DataError(f"a convolutional model needs images of shape (channels, height, width), not {schema.shape}",
                        remedy="choose an image dataset without data.flatten, or the learner 'mlp'")
    return schema.shape[0]


def _width(body: nn.Sequential, schema: Schema) -> int:
    """How many numbers an image has become at the end of the body."""
    import torch

    try:
        with torch.inference_mode():
            return int(body.eval()(torch.zeros(1, *schema.shape)).shape[1])
    except RuntimeError as cause:
        raise DataError(f"images of shape {schema.shape} are too small for this model: {cause}",
                        remedy="choose a smaller model, such as 'mlp'") from cause
    finally:
        body.train()
