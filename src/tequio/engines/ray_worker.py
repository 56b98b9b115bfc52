"""A Ray actor that runs orders next to the shared data, and how this process gets to a cluster of them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from tequio import __version__, registry
from tequio.engines.channel import pack_whole, unpack_whole
from tequio.engines.messages import answer
from tequio.engines.sharing import build_population
from tequio.engines.threads import one_thread
from tequio.errors import EngineError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.population import Population

# Usage statistics off; and no warning about GPUs that the workers do not ask for.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class RayWorker:
    """What lives in an actor. All that it is told and all that it says is packed by us; Ray carries the bytes."""

    def __init__(self) -> None:
        self._population: Population | None = None

    def prepare(self, version: str, plugins: Sequence[str], blueprint: bytes, names: Sequence[str],
                *arrays: NDArray[Any]) -> bytes:
        """Build the population from the arrays in this machine's object store; says what is in the way, if anything."""
        one_thread()
        if version != __version__:
            return pack_whole({"error": f"tequio is {__version__} there and {version} here"})
        try:
            registry.load_plugins(plugins)
            self._population = build_population(blueprint, dict(zip(names, arrays, strict=True)))
        except Exception as cause:
            return pack_whole({"error": f"{type(cause).__name__}: {cause}"})
        return pack_whole({"process": os.getpid()})

    def run(self, common: bytes, private: bytes) -> bytes:
        """Carry out one order."""
        assert self._population is not None
        message = {**unpack_whole(common, copy=False), **unpack_whole(private, copy=False)}
        return pack_whole(answer(message, self._population))


def require_ray() -> Any:
    """The ray module, told to be quiet, or what to install."""
    os.environ.update(_QUIET)
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "the ray engine") from None
    return ray


def connect(address: str, workers: int) -> bool:
    """Start a cluster on this machine or join one; False where this process was in one already, which is then used."""
    ray = require_ray()
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "namespace": "tequio"}
    if not address:
        quiet |= {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False}
    try:
        ray.init(address=address or "local", **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as cause:
        where = f"the Ray cluster at '{address}' cannot be joined" if address else "no Ray cluster can be started here"
        raise EngineError(f"{where}: {' '.join(str(cause).split())}",
                          remedy="check engine.address and that both sides have the same versions of Python and Ray, "
                                 "or use engine.name = \"local\"") from cause
    return True
