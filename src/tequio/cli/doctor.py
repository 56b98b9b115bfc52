"""`tequio doctor`: what is installed, what is missing, what to type."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tequio.experiments.running.store import Plain

_REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[[^]]*\])?[^;]*(?:;.*extra == ["']([\w-]+)["'])?""")
_NOT_FOR_USERS = ("dev", "docs", "all")
_APART = ("flower",)
"""Extras that go into an environment of their own, because they cap what others need newer."""


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Say what is installed, which extras are missing and what to type, and where data and caches are."""
    facts = examine()
    typer.echo(json.dumps(facts)) if as_json else _show(facts)


def examine() -> Plain:
    """The facts, as plain data."""
    from tequio.data.fetch import cache_folder
    from tequio.experiments.running.runner import describe_environment

    packages = {extra: _versions(names) for extra, names in required_packages().items()}
    missing = [extra for extra, versions in packages.items() if extra and not all(versions.values())]
    wanted = [extra for extra in missing if extra not in _APART]
    data = os.environ.get("TEQUIO_DATA", "")
    here = describe_environment()
    return {"tequio": here["tequio"], "python": here["python"], "platform": here["platform"], "cores": here["cores"],
            "devices": _devices(), "base": packages.pop("", {}), "extras": packages, "missing_extras": missing,
            "to_type": f"pip install 'tequio[{','.join(wanted)}]'" if wanted else "",
            "data_folder": data, "data_folder_exists": bool(data) and os.path.isdir(data), "cache": str(cache_folder())}


def required_packages() -> dict[str, list[str]]:
    """Packages by extra, as the installed distribution declares them; '' are those always needed."""
    try:
        declared = requires("tequio") or []
    except PackageNotFoundError:
        declared = []
    packages: dict[str, list[str]] = {"": []}
    for line in declared:
        found = _REQUIREMENT.match(line)
        if found and (found[2] or "") not in _NOT_FOR_USERS:
            packages.setdefault(found[2] or "", []).append(found[1])
    return packages


def _versions(names: list[str]) -> dict[str, str]:
    from tequio.experiments.running.runner import installed_version

    return {name: installed_version(name) for name in names}


def _devices() -> list[str]:
    """Where torch could compute."""
    try:
        import torch
    except ImportError:
        return []
    found = ["cpu"]
    found += ["cuda"] if torch.cuda.is_available() else []
    found += ["mps"] if torch.backends.mps.is_available() else []
    return found


def _show(facts: Plain) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(f"[bold]tequio {facts['tequio']}[/], Python {facts['python']}, {facts['cores']} cores, "
                  f"torch on: {', '.join(facts['devices']) or 'not installed'}")
    console.print(f"[dim]{facts['platform']}[/]\n")
    for extra, versions in {"base": facts["base"], **facts["extras"]}.items():
        whole = all(versions.values())
        mark = "[green]ok     [/]" if whole else "[yellow]missing[/]"
        listed = ", ".join(f"{name} {version}" if version else f"[yellow]{name} not installed[/]"
                           for name, version in versions.items())
        console.print(f"{mark}  [bold]{extra:<8}[/] {listed}")
    console.print(f"\ndata      {_data(facts)}\ncache     {facts['cache']}", soft_wrap=True)
    if facts["to_type"]:
        console.print(f"\n[bold]What to do:[/] {escape(facts['to_type'])}", soft_wrap=True)


def _data(facts: Plain) -> str:
    if not facts["data_folder"]:
        return "$TEQUIO_DATA is not set; datasets are downloaded to the cache"
    return str(facts["data_folder"]) if facts["data_folder_exists"] else f"{facts['data_folder']} does not exist"
