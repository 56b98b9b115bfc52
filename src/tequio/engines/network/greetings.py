"""The greeting by which a party makes itself known, and what a coordinator checks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio import __version__
from tequio.engines.network.wire import HIGHEST, LOWEST, Hello
from tequio.errors import PermissionDenied

if TYPE_CHECKING:
    from tequio.engines.network.holding import Holding
    from tequio.engines.network.policy import Policy


def greeting(holding: Holding, policy: Policy) -> Hello:
    """What a party tells of itself, as far as its policy lets it."""
    return Hello(holding.name, LOWEST, HIGHEST, __version__, policy.told_rows(holding.rows), holding.schema,
                 holding.share)


def check_version(hello: Hello) -> None:
    """Refuse a party with which no version of the protocol is shared."""
    if hello.lowest > HIGHEST or hello.highest < LOWEST:
        raise PermissionDenied(f"party '{hello.name}' (tequio {hello.version}) speaks versions {hello.lowest} to "
                               f"{hello.highest} of the protocol, the coordinator (tequio {__version__}) {LOWEST} "
                               f"to {HIGHEST}", remedy="install the same version of tequio on both sides")
