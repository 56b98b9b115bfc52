"""The engine inside a Flower app: a hub of parties whose links are letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from tequio.engines.flower.carrier import Carrier
from tequio.engines.network.hub import Hub
from tequio.errors import EngineError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.engines.flower.post import Post
    from tequio.engines.network.telemetry import Telemetry
    from tequio.federation.exchange import Engine

_MEGABYTE = 1 << 20


@register("engine", "flower")
@dataclass(frozen=True)
class Flower:
    """Parties behind the SuperNodes of a Flower federation, reached by a Flower app.

    Parameters:
        deadline: seconds that a party has for one task, with the way there and back (0: as long as it takes)
        absence: seconds that a party may be away before a task there counts as failed
        wait: seconds to wait for the parties' SuperNodes, and for them to take part, before the run starts
        maximum_reply_megabytes: replies longer than this are refused
    """

    deadline: Annotated[float, Ge(0)] = 0.0
    absence: Annotated[float, Ge(0)] = 60.0
    wait: Annotated[float, Ge(0)] = 300.0
    maximum_reply_megabytes: Annotated[int, Ge(1)] = 1024

    def create(self) -> Engine:
        """Refused: Flower starts the coordinator, and only there is a way to the parties."""
        raise EngineError("the engine 'flower' works inside a Flower app, which the SuperLink starts",
                          remedy="write the app (tequio flower app FILE.toml DIR), then: flwr run DIR")

    def service(self) -> FlowerService:
        """Refused likewise."""
        raise EngineError("there is no Flower federation outside of a Flower app", remedy="see: tequio flower --help")


class FlowerService:
    """Brings the parties of a federation to a hub, while it is started."""

    def __init__(self, how: Flower, post: Post, telemetry: Telemetry) -> None:
        self.hub = Hub(telemetry.note, telemetry.count, "start their SuperNodes")
        self._carrier = Carrier(post, self.hub, telemetry, how.maximum_reply_megabytes * _MEGABYTE)

    def start(self) -> None:
        """Call the roll of the federation's nodes."""
        self._carrier.start()

    def stop(self) -> None:
        """Let the nodes go."""
        self._carrier.stop()
