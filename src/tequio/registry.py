"""Components by name. Config schema, `tequio list`, `tequio show` and the reference docs all come from here.

A component is a dataclass (its fields are its parameters) or a function, put here by `@register(kind, name)`.
Modules of the package register themselves when they are imported; third parties name their modules under the
entry-point group `tequio.plugins`, or list files and modules in the config key `plugins`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

KINDS = {
    "dataset": "data to learn from",
    "partition": "how a dataset is dealt to parties",
    "learner": "a model that one party trains",
    "training": "how a party trains in one round",
    "algorithm": "a program that runs at the coordinator and asks parties to do tasks",
    "selector": "which parties take part in a round",
    "aggregator": "turns replies into the next model",
    "contribution": "what each party added to a round",
    "stage": "something done to an update on its way",
    "topology": "who may talk to whom",
    "devices": "how fast parties compute and send on the virtual clock, and what that costs",
    "availability": "when a party can be reached on the virtual clock",
    "engine": "carries tasks to parties and replies back",
    "attack": "what a hostile party does",
    "router": "which of a party's models answers a row",
    "encryption": "computing with numbers that nobody but the key holder can read",
    "attestor": "says which code runs at the coordinator",
    "filter": "which parties' trees are good enough to be fused",
}

_COMPONENT_PACKAGES = ("data", "learners", "federation", "privacy", "engines", "algorithms", "attacks")

Component = TypeVar("Component", bound="Callable[..., Any]")


@dataclass(frozen=True)
class Entry:
    """One registered component."""

    kind: str
    name: str
    component: Callable[..., Any]
    paper: str = ""
    example: str = ""

    @property
    def summary(self) -> str:
        """First line of the component's docstring."""
        return (self.component.__doc__ or "").strip().split("\n")[0]


_entries: dict[tuple[str, str], Entry] = {}
_loaded_plugins: list[str] = []
_everything_loaded = False


def register(kind: str, name: str, *, paper: str = "", example: str = "") -> Callable[[Component], Component]:
    """Make a component known under a name: `@register("selector", "random")`."""
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of component '{kind}'", remedy=nearest(kind, KINDS))

    def add(component: Component) -> Component:
        known = _entries.get((kind, name))
        if known and _origin(known.component) != _origin(component):
            raise ConfigError(f"two components claim the name '{name}' of kind '{kind}': "
                              f"{_origin(known.component)} and {_origin(component)}", remedy="rename one of them")
        _entries[kind, name] = Entry(kind, name, component, paper, example)
        component.__tequio__ = (kind, name)  # type: ignore[attr-defined]
        return component

    return add


def find(kind: str, name: str) -> Entry:
    """The component of that kind and name, or an error that names the nearest one."""
    if (kind, name) not in _entries:
        load_everything()
    entry = _entries.get((kind, name))
    if entry is None:
        hyphenated = name.replace("_", "-")
        remedy = f"its name is '{hyphenated}'" if (kind, hyphenated) in _entries else nearest(name, names(kind))
        raise ConfigError(f"there is no {kind} called '{name}'", remedy=remedy)
    return entry


def names(kind: str) -> list[str]:
    """Sorted names of one kind."""
    return [entry.name for entry in entries(kind)]


def entries(kind: str | None = None) -> list[Entry]:
    """All entries, or those of one kind, sorted by kind and name."""
    load_everything()
    return [_entries[key] for key in sorted(_entries) if kind in (None, key[0])]


def load_everything() -> None:
    """Import every module of the package and every plugin, so that all components are known."""
    global _everything_loaded
    if _everything_loaded:
        return
    for module in _package_modules():
        importlib.import_module(module)
    for point in entry_points(group="tequio.plugins"):
        try:
            point.load()
        except Exception as cause:
            raise ConfigError(f"the plugin '{point.name}' ({point.value}) cannot be imported: {cause!r}",
                              remedy="mend it or uninstall it") from cause
    _everything_loaded = True


def load_plugins(plugins: Iterable[str]) -> None:
    """Import plugin files (`path/to/file.py`) or modules (`package.module`) named in a config."""
    for plugin in plugins:
        if plugin in _loaded_plugins:
            continue
        try:
            _import_file(Path(plugin)) if plugin.endswith(".py") else importlib.import_module(plugin)
        except ConfigError:
            raise
        except Exception as cause:
            raise ConfigError(f"the plugin '{plugin}' cannot be imported: {cause!r}",
                              remedy="give a module name or the path of a .py file") from cause
        _loaded_plugins.append(plugin)


def loaded_plugins() -> list[str]:
    """Plugins named by configs so far, so that worker processes can load the same ones."""
    return list(_loaded_plugins)


def _import_file(path: Path) -> None:
    name = f"tequio_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ConfigError(f"the plugin file '{path}' does not exist", remedy="check the path in 'plugins'")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _package_modules() -> Iterator[str]:
    import tequio

    for package in _COMPONENT_PACKAGES:
        folder = Path(tequio.__path__[0]) / package
        if not folder.is_dir():
            continue
        yield f"tequio.{package}"
        for module in pkgutil.walk_packages([str(folder)], f"tequio.{package}."):
            yield module.name


def _origin(component: Callable[..., Any]) -> str:
    return f"{component.__module__}.{component.__qualname__}"
