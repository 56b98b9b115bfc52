"""What a dashboard is told when it starts: which folder, which address, and the secrets of this process."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK_NAMES = ("localhost",)


@dataclass(frozen=True)
class Settings:
    """Where the runs are and who may look at them.

    token:       what a browser has to bring along; empty where only this machine can connect
    host_names:  names, besides addresses, under which this dashboard may be asked for
    form_token:  stands in every form of this process, so that only its own pages can change anything
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    host_names: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ConfigError(f"'{self.host}' can be reached from other machines, so a token is needed",
                              remedy="leave the host out, or give a token")

    @property
    def address(self) -> str:
        """What to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


def is_address(host: str) -> bool:
    """Whether it is an address rather than a name, which someone else's name server could point here."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
