"""Torch modules, their classes and factories that a call hands over, as a learner that a config can hold by its hash.

A class or function that Python can import by name needs none of this: it becomes the learner `torch`, which also works
in other processes. Anything else is known in the process that was handed it and nowhere else.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, is_dataclass
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.learners.own_modules import FromFactory, checked_module
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import fresh_model
from tequio.registry import name_of, register, to_spec

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from tequio.data.dataset import Schema
    from tequio.learners.learner import Arrays

    Factory = Callable[["Schema"], nn.Module]


GIVEN = "given"
_at_hand: dict[tuple[str, str], Factory] = {}


@register("learner", GIVEN)
@dataclass(frozen=True)
class GivenModule(TorchLearner):
    """A torch module, class or factory that Python code handed over: `tequio.run(learner=Net())`.

    A module starts from the weights that it has, a class or factory from fresh ones. It is known in that process and
    nowhere else, so that it needs `engine.workers = 1`, and has to be handed over again to resume a run or to load its
    model. A factory that Python can import becomes the learner `torch` instead, which has no such limits.

    Parameters:
        module: filled in by the call: a hash of its layers and code, and of what of it is not trained
        weights: filled in by the call: a hash of the weights that a module starts from (empty: fresh ones)
        device: where to compute: cpu, cuda, mps or auto (empty: $TEQUIO_DEVICE, else cpu)
    """

    module: str = ""
    weights: str = ""

    def __post_init__(self) -> None:
        if self.module and all(module != self.module for module, _ in _at_hand):
            raise ConfigError("this needs the torch module that was handed over when it was made"
                              + (", and another one was handed over here" if _at_hand else ""),
                              remedy="hand the same one over again: tequio.run(resume=..., learner=Net()) or "
                                     "tequio.load(..., learner=Net()); or name a factory that Python can import: "
                                     "learner = {name = \"torch\", module = \"my_models:Net\"}")

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """The module's own weights, or fresh ones."""
        if (self.module, self.weights) not in _at_hand:
            raise ConfigError("the torch module that was handed over has other weights than the one that this began "
                              "with", remedy="hand over a module with the same weights, or start a new run")
        self._ready(schema)
        return fresh_model(self, schema, rng)

    def build(self, schema: Schema) -> nn.Module:
        """A copy of the module, or a new one from the factory."""
        if not self.module:
            raise ConfigError("no torch module was handed over", remedy="hand one over: tequio.run(learner=Net())")
        found = _at_hand.get((self.module, self.weights))
        return (found or next(made for (module, _), made in _at_hand.items() if module == self.module))(schema)


def as_learner(given: object) -> Mapping[str, Any] | str:
    """What was given for `learner`, as its table in a config; objects are remembered under their hash."""
    if isinstance(given, str) or (isinstance(given, Mapping) and isinstance(given.get("name", ""), str)):
        return given
    table: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"name": given}
    thing, arguments, device = table.pop("name"), table.pop("arguments", {}), table.pop("device", "")
    if table:
        raise ConfigError(f"[learner] has no key '{next(iter(table))}' for a module that is handed over",
                          remedy="its keys are name, arguments and device")
    if is_dataclass(thing) and not isinstance(thing, type | FromFactory):
        return {"name": name_of(type(thing)), **to_spec(thing)["parameters"]}
    if isinstance(thing, FromFactory):
        device = thing.device
        thing = thing.factory
    place = _importable(thing)
    if place and callable(thing) and not _needed(thing, arguments):
        return {"name": "torch", "module": place, "arguments": dict(arguments), "device": device}
    return {"name": GIVEN, **remember(thing, arguments), "device": device}


def remember(thing: Any, arguments: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Keep a module, a class or a factory at hand in this process; the hashes that tell it apart."""
    if _is_module(thing):
        return _remember_module(thing)
    if not callable(thing):
        raise ConfigError(f"a learner cannot be made from a {type(thing).__name__}", remedy="give its name, such as "
                          "learner=\"mlp\", or a torch module, its class, or a factory")
    return _remember_factory(partial(thing, **arguments) if arguments else thing)


def is_at_hand_only(learner: object) -> bool:
    """Whether a learner's table is about something that other processes do not have."""
    return isinstance(learner, Mapping) and learner.get("name") == GIVEN


def _is_module(thing: object) -> bool:
    torch = sys.modules.get("torch")  # who has a module has imported it
    return torch is not None and isinstance(thing, torch.nn.Module)


def _remember_module(module: nn.Module) -> dict[str, str]:
    kept = deepcopy(module).cpu()
    trained = {name for name, parameter in kept.named_parameters() if parameter.requires_grad}
    frozen = {name for name, _ in kept.named_parameters()} - trained
    structure, start = hashlib.sha256(repr(kept).encode()), hashlib.sha256()
    for part in kept.modules():
        structure.update(_digest(type(part)))
    for name, tensor in kept.state_dict().items():
        structure.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {name in trained}".encode())
        is_kept = name in frozen or not tensor.is_floating_point()
        (structure if is_kept else start).update(tensor.detach().numpy().tobytes())
    keys = {"module": structure.hexdigest(), "weights": start.hexdigest()}
    _at_hand[keys["module"], keys["weights"]] = lambda schema: deepcopy(kept)
    return keys


def _remember_factory(factory: Callable[..., object]) -> dict[str, str]:
    needed, name = _needed(factory, {}), getattr(factory, "__name__", repr(factory))
    if len(needed) > 1:
        raise ConfigError(f"the factory '{name}' needs {', '.join(repr(one) for one in needed)}",
                          remedy=f"hand over one that needs the schema at most: learner=lambda schema: {name}(...)")
    key = hashlib.sha256(_digest(factory)).hexdigest()
    _at_hand[key, ""] = lambda schema: checked_module(factory(schema) if needed else factory(), name)
    return {"module": key}


def _needed(factory: Callable[..., object], given: Mapping[str, object]) -> list[str]:
    """The arguments without which it cannot be called."""
    return [one.name for one in signature(factory).parameters.values() if one.default is Parameter.empty
            and one.name not in given and one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]


def _importable(thing: object) -> str:
    """Where Python finds this class or function in any process; nothing where it does not."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if not name.isidentifier() or module in ("", "__main__"):
        return ""
    try:
        return f"{module}:{name}" if getattr(import_module(module), name, None) is thing else ""
    except ImportError:
        return ""


def _digest(thing: object, inside: tuple[int, ...] = ()) -> bytes:
    """Bytes that say what code does, the same in every process of one version of Python: no line numbers, no
    addresses. What a function closes over counts too; `inside` are the functions and classes that are being read."""
    def each(things: Iterable[object]) -> list[bytes]:
        return [_digest(one, (*inside, id(thing))) for one in things]

    if id(thing) in inside:
        parts = [b"itself"]
    elif isinstance(thing, CodeType):
        parts = [thing.co_code, *each(thing.co_consts), repr((thing.co_names, thing.co_varnames)).encode()]
    elif isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        parts = each((thing.__code__, *cells, thing.__defaults__, thing.__kwdefaults__))
    elif isinstance(thing, type):
        is_ours = not thing.__module__.startswith("torch.")
        own = [value for _, value in sorted(vars(thing).items()) if isinstance(value, FunctionType)] if is_ours else []
        parts = [thing.__name__.encode(), *each(own)]
    elif isinstance(thing, partial):
        parts = each((thing.func, thing.args, sorted(thing.keywords.items())))
    elif isinstance(thing, tuple | list):
        parts = [b"(", *each(thing), b")"]
    elif isinstance(thing, frozenset | set | dict):
        parts = sorted(each(thing.items() if isinstance(thing, dict) else thing))
    else:
        plain = thing is None or isinstance(thing, bool | int | float | complex | str | bytes)
        parts = [(repr(thing) if plain or _is_module(thing) else type(thing).__name__).encode()]
    return hashlib.sha256(b"\0".join(parts)).digest()
