"""Make one virtual environment for each peer: ``python benchmarks/peers/setup.py [PEER ...]``.

Every peer lives alone in ``benchmarks/peers/.envs/PEER``. They cannot share one: Flower caps protobuf and rich, FedJAX
needs an old JAX, and FLEX is AGPL and must never be importable beside our package.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE / ".envs"
CONSTRAINTS = HERE / "constraints.txt"


@dataclass(frozen=True)
class Peer:
    """What to install: the framework, what it needs besides, and which of its own version bounds to drop."""

    package: str
    besides: tuple[str, ...]
    bounds_to_drop: tuple[str, ...] = ()


PEERS: dict[str, Peer] = {
    # Flower 1.42.0 asks for certifi>=2026.10.19, which not every package index has yet. The package is a list of TLS
    # authorities, and a simulation on one machine opens no TLS connection. ray is what its "simulation" extra pins.
    "flower": Peer("flwr==1.42.0", ("ray==2.55.1", "torch", "numpy"), bounds_to_drop=("certifi",)),
    "pfl": Peer("pfl==0.6.0", ("torch", "numpy")),
    # The "pytorch" extra of FLEX asks for torchtext, which ended in 2024 and has no build for this torch. The pool and
    # the aggregators, which are what we time, need torch and, through tensorly, packaging, which nobody declares.
    "flex": Peer("flexible-fl==0.7.0", ("torch", "numpy", "packaging")),
    # A JAX old enough for all of FedJAX 0.0.17 to run (see run_fedjax.py), and its neighbours of that time.
    "fedjax": Peer(
        "fedjax==0.0.17",
        ("jax==0.4.30", "jaxlib==0.4.30", "dm-haiku==0.0.12", "optax==0.2.2", "chex==0.1.86", "numpy<2", "scipy<1.13"),
    ),
}


def environment_python(peer: str) -> Path:
    """Where the interpreter of a peer's environment is, made or not."""
    return ENVIRONMENTS / peer / "bin" / "python"


def install(peer: str, requirements: Iterable[str], *, alone: bool = False) -> None:
    """Run pip in a peer's environment; ``alone`` leaves dependencies out."""
    command = [str(environment_python(peer)), "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS)]
    subprocess.run([*command, *(["--no-deps"] if alone else []), *requirements], check=True)


def dependencies(peer: str, package: str, bounds_to_drop: tuple[str, ...]) -> list[str]:
    """What an installed package requires, extras left out, with the bounds of some requirements dropped."""
    question = f"import importlib.metadata, json; print(json.dumps(importlib.metadata.requires({package!r}) or []))"
    answer = subprocess.run([environment_python(peer), "-c", question], check=True, capture_output=True, text=True)
    required = [requirement for requirement in json.loads(answer.stdout) if "extra ==" not in requirement]
    names = [re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in required]
    return [name if name in bounds_to_drop else requirement for name, requirement in zip(names, required, strict=True)]


def make_environment(name: str, *, fresh: bool) -> None:
    """Create the environment of a peer and install its pinned requirements."""
    peer = PEERS[name]
    print(f"{name}: installing {peer.package} with {', '.join(peer.besides)}", flush=True)
    venv.create(ENVIRONMENTS / name, with_pip=True, clear=fresh)
    if peer.bounds_to_drop:
        install(name, [peer.package], alone=True)
        install(name, [*peer.besides, *dependencies(name, peer.package.split("==")[0], peer.bounds_to_drop)])
    else:
        install(name, [peer.package, *peer.besides])


def main() -> int:
    """Install the peers named on the command line, or all; a peer that fails does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"any of {', '.join(PEERS)}; default: all")
    parser.add_argument("--fresh", action="store_true", help="delete and remake an environment that exists")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.peers) - set(PEERS))
    if unknown:
        parser.error(f"unknown peer {', '.join(unknown)}; choose from {', '.join(PEERS)}")
    failed: list[str] = []
    for peer in arguments.peers or PEERS:
        try:
            make_environment(peer, fresh=arguments.fresh)
        except subprocess.CalledProcessError as error:
            print(f"{peer}: ended with exit code {error.returncode}; pip's messages are above", file=sys.stderr)
            failed.append(peer)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
