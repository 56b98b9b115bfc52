"""Your own torch module as a learner: by the name of its factory, or from Python by the factory itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, nearest
from tequio.learners.torch_learner import TorchLearner
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tequio.data.dataset import Schema


@register("learner", "torch", example='[learner]\nname = "torch"\nmodule = "models:Net"\narguments = {width = 32}\n')
@dataclass(frozen=True)
class NamedModule(TorchLearner):
    """Any torch module, made by a function or class that is installed at every party.

    The factory is called with the arguments, and gives a module that maps (rows, *shape) to one output a class, label
    or number. Two classes may have one output or two. Parameters with requires_grad = False are not sent.

    Parameters:
        module: the factory as 'package.module:name'
        arguments: keyword arguments of the factory
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    module: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def build(self, schema: Schema) -> nn.Module:
        """Call the factory."""
        return _called(_find_factory(self.module), self.arguments, self.module)


@dataclass(frozen=True)
class FromFactory(TorchLearner):
    """A learner from a factory that you have at hand in Python: `FromFactory(lambda schema: nn.Linear(...))`.

    It cannot be named in a config and runs only where the function is at hand, that is in one process.

    Parameters:
        factory: function from a schema to a torch module
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    factory: Callable[[Schema], nn.Module]

    def build(self, schema: Schema) -> nn.Module:
        """Call the factory with the schema."""
        return checked_module(self.factory(schema), repr(self.factory))


def _find_factory(name: str) -> Callable[..., object]:
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise ConfigError(f"'{name}' does not name a factory", remedy="write it as 'package.module:name'")
    try:
        module = import_module(place)
    except ImportError as cause:
        raise ConfigError(f"the module '{place}' of the factory '{name}' cannot be imported: {cause}",
                          remedy="install it at every party, or put it on the Python path") from cause
    factory: Callable[..., object] | None = getattr(module, attribute, None)
    if not callable(factory):
        public = [key for key in vars(module) if callable(getattr(module, key)) and not key.startswith("_")]
        raise ConfigError(f"'{place}' has no factory called '{attribute}'", remedy=nearest(attribute, public))
    return factory


def _called(factory: Callable[..., object], arguments: dict[str, Any], name: str) -> nn.Module:
    try:
        made = factory(**arguments)
    except TypeError as cause:
        raise ConfigError(f"the factory '{name}' does not take these arguments: {cause}",
                          remedy="check learner.arguments") from cause
    return checked_module(made, name)


def checked_module(made: object, name: str) -> nn.Module:
    """What a factory made, if it is a module."""
    from torch import nn

    if not isinstance(made, nn.Module):
        raise ConfigError(f"the factory {name} gave a {type(made).__name__} and not a torch module")
    return made
