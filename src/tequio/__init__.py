"""tequio: federated learning where many parties build one model and no party's data leaves it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.errors import TequioError
    from tequio.experiments.api import run, sweep
    from tequio.experiments.comparing.comparing import compare
    from tequio.experiments.explaining.explaining import explain
    from tequio.experiments.explaining.replaying import predict
    from tequio.experiments.searching import search
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.task import task
    from tequio.registry import register

__version__ = "0.2.0.dev0"

# Names are imported when first used, so that `import tequio` stays fast.
_HOMES = {
    "Algorithm": "tequio.federation.algorithm",
    "Dataset": "tequio.data.dataset",
    "State": "tequio.federation.algorithm",
    "TequioError": "tequio.errors",
    "compare": "tequio.experiments.comparing.comparing",
    "explain": "tequio.experiments.explaining.explaining",
    "predict": "tequio.experiments.explaining.replaying",
    "register": "tequio.registry",
    "run": "tequio.experiments.api",
    "search": "tequio.experiments.searching",
    "sweep": "tequio.experiments.api",
    "task": "tequio.federation.task",
}

__all__ = ["Algorithm", "Dataset", "State", "TequioError", "__version__", "compare", "explain", "predict", "register",
           "run", "search", "sweep", "task"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tequio' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
