"""Real federations on this machine: a coordinator's folder, parties' folders, and the processes that use them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from tequio.engines.network import dialling
from tequio.engines.network.certificates import key_pem, make_request, new_key
from tequio.engines.network.enrolment import Request, grant
from tequio.engines.network.homes import CoordinatorHome, PartyHome

if TYPE_CHECKING:
    from tequio.engines.network.homes import Token

PROGRAM = Path(__file__).parent / "several_parties.py"
PATIENCE = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_coordinator(folder: Path) -> CoordinatorHome:
    return CoordinatorHome.create(folder, "test", "localhost", free_port(), free_port())


def enrol(home: CoordinatorHome, folder: Path, name: str, data: dict, address: str = "", **role: str) -> PartyHome:
    """A party's folder as `tequio party join` would have made it, without a network."""
    token, key = home.new_token(name, **role), new_key()
    request = Request(token.id, token.secret, name, make_request(key, name))
    certificate = grant(home, request)
    grant(home, structs.replace(request, confirms=True))
    facts = {"data": data, **({"address": address} if address else {})}
    return lay_out(folder, token, name, key_pem(key), certificate, facts)


def lay_out(folder: Path, token: Token, name: str, key: bytes, certificate: bytes, facts: dict) -> PartyHome:
    folder.mkdir(parents=True)
    (folder / "party.key").write_bytes(key)
    (folder / "party.pem").write_bytes(certificate)
    (folder / "authority.pem").write_bytes(token.authority)
    (folder / "policy.toml").write_text('parameters = ["stage/test gate.folder"]\n')  # see gates.py
    whole = {"name": name, "address": token.address, "listen": token.listen, "via": token.via, **facts}
    (folder / "party.json").write_text(json.dumps(whole))
    return PartyHome(folder)


def until(condition, what: str, seconds: float = PATIENCE):
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)
    return found


class Parties:
    """Processes of parties, one each."""

    def __init__(self, homes: list[Path]) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(dialling.__file__).parents[3]),
                                                                    str(Path(__file__).parents[2])]),
                       "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([sys.executable, str(PROGRAM), *map(str, homes)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)
        self.pids = {}
        for _ in homes:
            name, pid = self.process.stdout.readline().rsplit(maxsplit=1)
            self.pids[name] = int(pid)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[name], number)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
