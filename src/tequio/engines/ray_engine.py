"""A Ray cluster: parties are served by actors on its machines; a worker that dies takes nothing with it."""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from tequio import __version__, registry
from tequio.engines.inline import one_thread
from tequio.engines.local import worker_count
from tequio.engines.sharing import build_population, lay_out
from tequio.engines.worker import decode_outcome, encode_order, pack_whole, run_order, unpack_whole
from tequio.errors import EngineError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.dataset import Array
    from tequio.engines.inline import ThreadLimits
    from tequio.federation.exchange import Engine, Order, Outcome
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
Remote = Any
"""What Ray hands out: its module, an actor, a reference into its store. Its own types say no more."""

_ORDERS_UNDER_WAY = 2
# Ray carries shorter arguments within the call, which is quicker than through the object store.
_WORTH_SHARING = 100_000
_ATTEMPTS = 3


@registry.register("engine", "ray")
@dataclass(frozen=True)
class Ray:
    """Workers on the machines of a Ray cluster, one core and one compute thread each.

    Parameters:
        address: where the cluster is, as host:port, or `auto` for the one on this machine (empty: start one here, that
            only this machine can connect to)
        workers: actors (0: one for each core of the cluster)
        wait: seconds to wait while the cluster has no room for any worker
    """

    address: str = ""
    workers: Annotated[int, Ge(0)] = 0
    wait: Annotated[float, Gt(0)] = 120.0

    def create(self) -> Engine:
        """An engine ready to be opened."""
        if not self.address:
            worker_count(self.workers)
        require_ray()
        return RayEngine(self)


@dataclass
class _PendingOrder:
    """An order on its way, with the payload that its ask has in common: packed, or a reference to it in the store."""

    order: Order
    common: Remote
    deaths: int = 0


@dataclass
class _Worker:
    actor: Remote
    preparing: Remote
    process: int = 0
    orders: dict[Remote, _PendingOrder] = field(default_factory=dict)


class RayEngine:
    """Gives orders to whichever worker is free. States stay here, so a dead worker's orders are simply given again."""

    def __init__(self, config: Ray) -> None:
        self._config = config
        self._ray: Remote = None
        self._joined = False
        self._shared: tuple[object, ...] = ()
        self._workers: list[_Worker] = []
        self._waiting: deque[_PendingOrder] = deque()
        self._arrived: deque[Outcome] = deque()
        self._states: dict[int, Payload] = {}
        self._common: tuple[Payload, Remote] | None = None
        self._failed_starts = 0
        self._limits: ThreadLimits | None = None

    def open(self, population: Population) -> None:
        """Get to the cluster, share the data there and wait for the first worker; the others may come later."""
        self._ray = require_ray()
        self._limits = one_thread()
        try:
            self._joined = connect(self._config.address, self._config.workers)
            blueprint, arrays = lay_out(population, here=not self._config.address)
            self._shared = (__version__, registry.loaded_plugins(), blueprint, list(arrays),
                            *map(self._ray.put, arrays.values()))
            size = self._config.workers or int(self._ray.cluster_resources().get("CPU", 1))
            self._workers = [self._new_worker() for _ in range(size)]
            while not any(worker.process for worker in self._workers):
                self._wait_for_a_worker()
        except BaseException:
            self.close()
            raise

    def submit(self, order: Order) -> None:
        """Queue the order; it leaves as soon as a worker has room for it."""
        self._waiting.append(_PendingOrder(order, self._share(order.payload)))
        self._dispatch()

    def collect(self) -> Outcome:
        """The next outcome from any worker."""
        while not self._arrived:
            if not self._waiting and not any(worker.orders for worker in self._workers):
                raise EngineError("nothing was submitted to this engine")
            self._wait_for_a_worker()
            self._dispatch()
        return self._arrived.popleft()

    def states(self) -> dict[int, Payload]:
        """Private states of all parties that have one, in party order."""
        return dict(sorted(self._states.items()))

    def restore(self, states: dict[int, Payload]) -> None:
        """Put states of a checkpoint back."""
        self._states = dict(states)

    def close(self) -> None:
        """Dismiss the workers, let the store forget the data, and leave the cluster if this engine joined it."""
        if self._ray is not None and self._ray.is_initialized():
            for worker in self._workers:
                self._ray.kill(worker.actor)
        self._workers, self._shared, self._common = [], (), None
        self._waiting.clear()
        if self._joined:
            self._ray.shutdown()
            self._joined = False
        if self._limits is not None:
            self._limits.restore_original_limits()
            self._limits = None

    def _share(self, payload: Payload) -> Remote:
        """The packed payload, once in the cluster's store if it is large; all orders of one ask hold the same."""
        if self._common is None or self._common[0] is not payload:
            packed = pack_whole({"payload": payload})
            self._common = (payload, self._ray.put(packed) if len(packed) > _WORTH_SHARING else packed)
        return self._common[1]

    def _new_worker(self) -> _Worker:
        # Restarts are ours to make, because a new actor has to be given the data before it gets orders.
        actor = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(RayWorker).remote()
        return _Worker(actor, actor.prepare.remote(*self._shared))

    def _dispatch(self) -> None:
        for _ in range(_ORDERS_UNDER_WAY):
            for worker in sorted(self._workers, key=lambda worker: len(worker.orders)):
                if self._waiting and worker.process and len(worker.orders) < _ORDERS_UNDER_WAY:
                    pending = self._waiting.popleft()
                    private = pack_whole(encode_order(pending.order, self._states))
                    worker.orders[worker.actor.run.remote(pending.common, private)] = pending

    def _wait_for_a_worker(self) -> None:
        """Wait for a worker to be ready, to be done with an order, or to be found dead."""
        awaited = {ref: worker for worker in self._workers
                    for ref in (worker.orders if worker.process else [worker.preparing])}
        anyone = any(worker.process for worker in self._workers)
        ready, _ = self._ray.wait(list(awaited), timeout=None if anyone else self._config.wait)
        if not ready:
            raise EngineError(f"the Ray cluster had no core free for a worker within {self._config.wait:g} s",
                              remedy="start more nodes (ray start), stop what else runs there, or raise engine.wait; "
                                     "then --resume the run")
        worker = awaited[ready[0]]
        try:
            data = self._ray.get(ready[0])
        except self._ray.exceptions.RayError as cause:
            self._replace(worker, cause)
        else:
            self._take(worker, ready[0], unpack_whole(data, copy=True))

    def _take(self, worker: _Worker, ref: Remote, message: Payload) -> None:
        if worker.process:
            self._arrived.append(decode_outcome(message, worker.orders.pop(ref).order, self._states))
        elif "error" in message:
            raise EngineError(f"a worker on the Ray cluster cannot be made ready: {message['error']}",
                              remedy="install the same tequio and plugins, at the same places, on every node")
        else:
            worker.process, self._failed_starts = message["process"], 0

    def _replace(self, worker: _Worker, cause: Exception) -> None:
        """Give a dead worker's orders to others, and ask the cluster for a new worker wherever there is room."""
        why = str(cause).strip().splitlines()[0]
        if not worker.process:
            self._failed_starts += 1
            if self._failed_starts >= _ATTEMPTS * len(self._workers):
                raise EngineError(f"workers on the Ray cluster die before they are ready: {cause}",
                                  remedy="install the same tequio on every node") from cause
        orders = list(worker.orders.values())
        if orders:
            self._count_death(orders[0], why)
        self._waiting.extendleft(reversed(orders))
        self._ray.kill(worker.actor)  # it may only be out of reach, and should not go on in vain
        self._workers[self._workers.index(worker)] = self._new_worker()

    def _count_death(self, pending: _PendingOrder, why: str) -> None:
        """Orders are run one after another, so the first that is not answered is the one that a worker died of."""
        pending.deaths += 1
        if pending.deaths >= _ATTEMPTS:
            order = pending.order
            raise EngineError(f"{pending.deaths} workers died while they ran task '{order.task}' of round "
                              f"{order.round} for parties {', '.join(map(str, order.parties))}: {why}",
                              remedy="it may need more memory than a node has: use fewer workers per node, then "
                                     "--resume the run")


# Usage statistics off; and no warning about GPUs that the workers do not ask for.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class RayWorker:
    """What lives in an actor. What it receives and sends is packed by us; Ray carries the bytes."""

    def __init__(self) -> None:
        self._population: Population | None = None

    def prepare(self, version: str, plugins: Sequence[str], blueprint: bytes, names: Sequence[str],
                *arrays: Array) -> bytes:
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
        return pack_whole(run_order(message, self._population))


def require_ray() -> Remote:
    """The ray module, without its chatter, or what to install."""
    os.environ.update(_QUIET)
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "the ray engine") from None
    return ray


@contextmanager
def _loopback_only() -> Iterator[None]:
    """While a cluster is started here, let all of its processes listen where only this machine can connect.

    Ray does so by itself on machines that it counts on to be alone. It decides when it is imported, and its processes
    when they start.
    """
    import ray._private.ray_constants as constants

    before, key = constants.ENABLE_RAY_CLUSTER, constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    set_before = os.environ.get(key)
    constants.ENABLE_RAY_CLUSTER, os.environ[key] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if set_before is None:
            del os.environ[key]
        else:
            os.environ[key] = set_before


def connect(address: str, workers: int) -> bool:
    """Start a cluster on this machine or join one; False where this process was in one already, which is then used."""
    ray = require_ray()
    if ray.is_initialized():
        return False
    quiet: dict[str, object] = {"logging_level": logging.ERROR, "log_to_driver": False, "namespace": "tequio"}
    if not address:
        quiet |= {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False,
                  "_node_ip_address": "127.0.0.1"}
    try:
        with nullcontext() if address else _loopback_only():
            ray.init(address=address or "local", **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as cause:
        where = f"the Ray cluster at '{address}' cannot be joined" if address else "no Ray cluster can be started here"
        raise EngineError(f"{where}: {' '.join(str(cause).split())}",
                          remedy="check engine.address and that both sides have the same versions of Python and Ray, "
                                 "or use engine.name = \"local\"") from cause
    return True
