"""The extras that the tutorial, the image and the guide install are enough for the default learner."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .test_tutorial import PAGE, ROOT, blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ImportError(f"no module named {{name}}, because its extra is not installed")

sys.meta_path.insert(0, Missing())
"""
RUN = """
import grpc, prometheus_client
import tequio
from tequio.engines.network.grpc_setup import require_grpc

require_grpc()
rows = {"data": {"name": "csv", "path": "north.csv", "target": "diagnosis", "prepare": ["standardise"]}}
tequio.run({**rows, "rounds": 1, "engine": {"workers": 1}})
"""


def packages(extras):
    """All distributions that come with the project and these extras, by what each of them requires."""
    optional = PROJECT["optional-dependencies"]
    waiting = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    found = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name == PROJECT["name"]:
            waiting += [line for extra in requirement.extras for line in optional[extra]]
        elif name not in found:
            found.add(name)
            try:
                waiting += requires(name) or []
            except PackageNotFoundError:
                continue
    return found


def extras_in(path):
    """The extras that a file tells to install."""
    (named, *_) = re.findall(r"(?:tequio|/src)\[([a-z,]+)\]", (ROOT / path).read_text(encoding="utf-8"))
    return named.split(",")


@pytest.mark.parametrize("path", ["docs/tutorial/three-hospitals.md", "docs/how-to/deploy.md", "deploy/Dockerfile",
                                  "deploy/README.md"])
def test_the_extras_that_are_named_are_enough(tmp_path, path):
    absent = packages(["all", "docs"]) - packages(extras_in(path))
    names = {module for module, owners in packages_distributions().items()
             if {canonicalize_name(owner) for owner in owners} <= absent}
    tables = next("\n".join(lines) for file, lines in blocks() if file == "make_tables.py")
    if ROOT / path != PAGE:  # operators have tables of their own
        subprocess.run([sys.executable, "-c", tables], cwd=tmp_path, check=True)
        tables = ""
    done = subprocess.run([sys.executable, "-c", BLOCKED.format(names=names) + tables + RUN], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "optuna" in names
