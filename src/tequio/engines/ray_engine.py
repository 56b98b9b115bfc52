"""A Ray cluster: parties are served by actors on its machines; a worker that dies takes nothing with it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from tequio import __version__, registry
from tequio.engines.channel import pack_whole, unpack_whole
from tequio.engines.messages import hear, tell
from tequio.engines.ray_worker import RayWorker, connect, require_ray
from tequio.engines.sharing import lay_out
from tequio.engines.threads import one_thread
from tequio.errors import EngineError

if TYPE_CHECKING:
    from tequio.federation.exchange import Engine, Order, Outcome
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

_ORDERS_UNDER_WAY = 2
# Ray carries shorter arguments within the call, which is quicker than through the object store.
_WORTH_SHARING = 100_000
_ATTEMPTS = 3


@registry.register("engine", "ray")
@dataclass(frozen=True)
class Ray:
    """Workers on the machines of a Ray cluster, one core and one compute thread each.

    Parameters:
        address: where the cluster is, as host:port, or `auto` for the one on this machine (empty: start one here)
        workers: actors (0: one for each core of the cluster)
        wait: seconds to wait while the cluster has no room for any worker
    """

    address: str = ""
    workers: Annotated[int, Ge(0)] = 0
    wait: Annotated[float, Gt(0)] = 120.0

    def create(self) -> Engine:
        """An engine ready to be opened."""
        require_ray()
        return RayEngine(self)


@dataclass
class _Errand:
    """An order on its way, with the payload that its ask has in common: packed, or a reference to it in the store."""

    order: Order
    common: Any
    deaths: int = 0


@dataclass
class _Worker:
    actor: Any
    preparing: Any
    process: int = 0
    errands: dict[Any, _Errand] = field(default_factory=dict)


class RayEngine:
    """Gives orders to whichever worker is free. States stay here, so a dead worker's orders are simply given again."""

    def __init__(self, how: Ray) -> None:
        self._how = how
        self._ray: Any = None
        self._joined = False
        self._shared: tuple[Any, ...] = ()
        self._workers: list[_Worker] = []
        self._waiting: deque[_Errand] = deque()
        self._arrived: deque[Outcome] = deque()
        self._states: dict[int, Payload] = {}
        self._common: tuple[Payload, Any] | None = None
        self._failed_starts = 0
        self._limits: Any = None

    def open(self, population: Population) -> None:
        """Get to the cluster, share the data there and wait for the first worker; the others may come later."""
        self._ray = require_ray()
        self._limits = one_thread()
        try:
            self._joined = connect(self._how.address, self._how.workers)
            blueprint, arrays = lay_out(population)
            self._shared = (__version__, registry.loaded_plugins(), blueprint, list(arrays),
                            *map(self._ray.put, arrays.values()))
            size = self._how.workers or int(self._ray.cluster_resources().get("CPU", 1))
            self._workers = [self._new_worker() for _ in range(size)]
            while not any(worker.process for worker in self._workers):
                self._hear_from_someone()
        except BaseException:
            self.close()
            raise

    def submit(self, order: Order) -> None:
        """Queue the order; it leaves as soon as a worker has room for it."""
        self._waiting.append(_Errand(order, self._share(order.payload)))
        self._dispatch()

    def collect(self) -> Outcome:
        """The next outcome from any worker."""
        while not self._arrived:
            if not self._waiting and not any(worker.errands for worker in self._workers):
                raise EngineError("nothing was submitted to this engine")
            self._hear_from_someone()
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

    def _share(self, payload: Payload) -> Any:
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
            for worker in sorted(self._workers, key=lambda worker: len(worker.errands)):
                if self._waiting and worker.process and len(worker.errands) < _ORDERS_UNDER_WAY:
                    errand = self._waiting.popleft()
                    private = pack_whole(tell(errand.order, self._states))
                    worker.errands[worker.actor.run.remote(errand.common, private)] = errand

    def _hear_from_someone(self) -> None:
        """Wait for a worker to be ready, to be done with an order, or to be found dead."""
        speakers = {said: worker for worker in self._workers
                    for said in (worker.errands if worker.process else [worker.preparing])}
        anyone = any(worker.process for worker in self._workers)
        heard, _ = self._ray.wait(list(speakers), timeout=None if anyone else self._how.wait)
        if not heard:
            raise EngineError(f"the Ray cluster had no core free for a worker within {self._how.wait:g} s",
                              remedy="start more nodes (ray start), stop what else runs there, or raise engine.wait; "
                                     "then --resume the run")
        worker = speakers[heard[0]]
        try:
            data = self._ray.get(heard[0])
        except self._ray.exceptions.RayError as cause:
            self._replace(worker, cause)
        else:
            self._listen(worker, heard[0], unpack_whole(data, copy=True))

    def _listen(self, worker: _Worker, said: Any, message: dict[str, Any]) -> None:
        if worker.process:
            self._arrived.append(hear(message, worker.errands.pop(said).order, self._states))
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
        errands = list(worker.errands.values())
        if errands:
            self._count_death(errands[0], why)
        self._waiting.extendleft(reversed(errands))
        self._ray.kill(worker.actor)  # it may only be out of reach, and should not go on in vain
        self._workers[self._workers.index(worker)] = self._new_worker()

    def _count_death(self, errand: _Errand, why: str) -> None:
        """Orders are run one after another, so the first that is not answered is the one that a worker died of."""
        errand.deaths += 1
        if errand.deaths >= _ATTEMPTS:
            order = errand.order
            raise EngineError(f"{errand.deaths} workers died while they ran task '{order.task}' of round {order.round} "
                              f"for parties {', '.join(map(str, order.parties))}: {why}",
                              remedy="it may need more memory than a node has: use fewer workers a node, then --resume "
                                     "the run")
