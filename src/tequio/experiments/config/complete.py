"""Configs: TOML files or keywords in, one complete and checked `Config` out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from tequio import registry
from tequio.attacks.hostility import Schedule
from tequio.data.catalogue.entry import facts_of
from tequio.data.catalogue.sql import beside
from tequio.data.preprocessing import preparations
from tequio.data.preprocessing.automatic import AUTO
from tequio.errors import ConfigError, nearest
from tequio.experiments.config.composition import PARTS, check_composition, check_parts, parts_taken
from tequio.experiments.config.leaving import check_without
from tequio.experiments.config.tables import Config, Data, Override
from tequio.experiments.config.toml import Given, parse_setting, read_toml, write_toml
from tequio.federation.federation import Rules
from tequio.gate.simulated import policy_of
from tequio.registry import build, explain, parameters_of, table_in, validate, what_to_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.registry import Entry


GIVEN_DATA = "given"
"""Name of a dataset that was handed over as an object rather than found in the catalogue."""

# table: kind of component, and which one a config that does not say gets
_COMPONENTS = {"learner": ("learner", "logistic"), "local": ("training", "minibatch"),
               "algorithm": ("algorithm", "fedavg"), "selector": ("selector", "all"),
               "aggregator": ("aggregator", "mean"), "topology": ("topology", "client-server"),
               "devices": ("devices", "instant"), "availability": ("availability", "always"),
               "engine": ("engine", "local")}

# These decide where and how fast the numbers come, not which numbers.
_NOT_HASHED = ("name", "engine", "output", "baselines", "sweep", "search")

def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, put `key=value` overrides on top, and check everything."""
    given = read_given(path, overrides)
    return complete(given, source=Path(path).name)


def read_given(path: str | Path, overrides: Iterable[str] = ()) -> Given:
    """What a TOML file says, with overrides on top; files named there are looked for beside it first."""
    path = Path(path)
    given = read_toml(path)
    for text in overrides:
        key, value = parse_setting(text)
        given = with_key(given, key, value)
    given.setdefault("name", path.stem)
    if isinstance(given.get("plugins"), list):
        given["plugins"] = [_found(plugin, path.parent) if str(plugin).endswith(".py") else plugin
                            for plugin in given["plugins"]]
    if str(given.get("policy", "")).endswith(".toml"):
        given["policy"] = _found(given["policy"], path.parent)
    for table in ("data", "availability"):
        if isinstance(given.get(table), dict):
            given[table] = {key: _found(value, path.parent) if key.endswith("path") else
                            beside(value, path.parent) if key == "connection" else value
                            for key, value in given[table].items()}
    return given


def with_key(given: Mapping[str, object], dotted: str, value: object) -> Given:
    """A copy with one dotted key set, tables made on the way."""
    changed = copied(given)
    *tables, last = dotted.split(".")
    place = changed
    for table in tables:
        inner = place.setdefault(table, {})
        if isinstance(inner, str):
            inner = place[table] = {"name": inner}
        if not isinstance(inner, dict):
            raise ConfigError(f"'{dotted}' cannot be set: '{table}' is not a table", remedy="check the key")
        place = inner
    place[last] = value
    return changed


def complete(given: Mapping[str, object], *, source: str = "config") -> Config:
    """The checked config with every default filled in; an error names file, table, key and the nearest right key."""
    try:
        config = Config.model_validate(given)
    except ValidationError as cause:
        raise _as_config_error(cause, source) from None
    registry.load_plugins(config.plugins)
    algorithm = _filled("algorithm", _COMPONENTS["algorithm"][1], config.algorithm, f"{source}: [algorithm]")
    taken = parts_taken(algorithm)
    tables = dict(config)
    filled: Given = {table: _filled(kind, default, tables[table], f"{source}: [{table}]")
                     if table in taken or table not in PARTS or tables[table] else {}
                     for table, (kind, default) in _COMPONENTS.items()}
    filled["data"] = _filled_data(config.data, source)
    if config.contribution:
        filled["contribution"] = _filled("contribution", "", config.contribution, f"{source}: [contribution]")
    filled["stages"] = [_filled("stage", "", stage, f"{source}: [[stages]]") for stage in config.stages]
    filled["attack"] = _filled_attack(config.attack, f"{source}: [attack]")
    preparations(config.data.steps)
    filled["rules"] = _with_defaults(Rules, validate(Rules, dict(config.rules), f"{source}: [rules]"))
    whole = config.model_copy(update=filled)
    check_parts(given, whole, source)
    for party, own in config.overrides.items():
        if own.local:
            training = registry.find("training", filled["local"]["name"]).component
            validate(training, dict(own.local), f"{source}: [overrides.{party}.local]")
    check_composition(whole)
    check_without(whole, source)
    if whole.policy:
        policy_of(whole.policy)
    return whole


def resolved(config: Config) -> Given:
    """The complete config as plain data, in a fixed order."""
    return {key: _plain(value) for key, value in config.model_dump().items()}


def to_sendable(value: object) -> Any:
    """Values of a config as a payload may hold them."""
    return _plain(value)


def resolved_toml(config: Config) -> str:
    """The complete config as a TOML file that gives the same config again."""
    return write_toml(resolved(config))


def hashed(config: Config) -> Given:
    """What of the complete config decides the numbers, as plain data."""
    plain = {key: value for key, value in resolved(config).items() if key not in _NOT_HASHED}
    plain["plugins"] = [Path(plugin).name for plugin in config.plugins]
    if not config.policy:
        del plain["policy"]
    plain["data"] = _dealt(config)
    return plain


def config_hash(config: Config) -> str:
    """Identifies the numbers a run will give: two runs of one hash differ in speed and place at most."""
    return hashlib.sha256(json.dumps(hashed(config), sort_keys=True).encode()).hexdigest()


def data_hash(config: Config) -> str:
    """Identifies who holds which rows: runs of one data hash may differ in what they do with them."""
    plain = {"seed": config.seed, "data": _dealt(config), "root": config.aggregator.get("root_rows", 0)}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _dealt(config: Config) -> Given:
    """The table [data] for a hash; who is left out is in it only where somebody is."""
    return {key: value for key, value in resolved(config)["data"].items() if value or not key.startswith("without")}


def copied(given: Mapping[str, object]) -> Given:
    """A copy of the tables and lists; values such as datasets and functions are shared."""
    return {key: copied(value) if isinstance(value, Mapping) else list(value) if isinstance(value, list)
            else value for key, value in given.items()}


def build_named(kind: str, table: Mapping[str, object], where: str = "",
                parts: Mapping[str, object] | None = None) -> Any:
    """The component that a table describes."""
    parameters = {key: value for key, value in table.items() if key != "name"}
    return build(kind, str(table["name"]), parameters, where=where, parts=parts)


def _filled(kind: str, default: str, table: Mapping[str, object], where: str) -> Given:
    """A component's table with its name and all its parameters."""
    name = table.get("name", default)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where} does not say which {kind} it is", remedy=f"add: name = one of "
                          f"{', '.join(registry.names(kind)) or 'none registered'}")
    component = _find(kind, name, where).component
    given = {key: value for key, value in table.items() if key != "name"}
    _refuse_foreign(kind, name, given, where)
    return {"name": name, **_with_defaults(component, validate(component, given, f"{where} '{name}'"))}


def _refuse_foreign(kind: str, name: str, given: Given, where: str) -> None:
    """Refuse parameters of another component of that kind, saying whose they are."""
    def allowed(component: str) -> list[str]:
        return [field.name for field in parameters_of(registry.find(kind, component).component)]

    for key in given:
        if key not in allowed(name) and not nearest(key, allowed(name)).startswith("did you mean"):
            owners = [other for other in registry.names(kind) if key in allowed(other)]
            if owners:
                others = ", ".join(f"'{other}'" for other in owners[:3])
                raise ConfigError(f"{where} '{name}' has no parameter '{key}'; it is one of {others}",
                                  remedy=f"leave it out, or set {table_in(where)}.name = \"{owners[0]}\"")


def _filled_attack(table: Mapping[str, object], where: str) -> Given:
    """An attack's own parameters, and who attacks when; nothing where nobody attacks."""
    if not table:
        return {}
    when = {key: value for key, value in table.items() if key in Schedule.__dataclass_fields__}
    own = {key: value for key, value in table.items() if key not in when}
    return _filled("attack", "", own, where) | _with_defaults(Schedule, validate(Schedule, when, where))


def _with_defaults(component: Any, values: Mapping[str, object]) -> Given:
    return {field.name: values[field.name] if field.name in values else
            field.default if field.default_factory is MISSING else field.default_factory()
            for field in parameters_of(component)}


def _filled_data(data: Data, source: str) -> Data:
    partition = _filled("partition", "iid", data.partition, f"{source}: [data.partition]")
    if data.name == GIVEN_DATA:
        return data.model_copy(update={"partition": partition, "prepare": _prepared(data, own=True)})
    entry = _find("dataset", data.name, f"{source}: [data]")
    facts = facts_of(entry.component)
    prepare = _prepared(data, own=facts is not None and facts.is_own)
    allowed = [*Data.model_fields, *(field.name for field in parameters_of(entry.component))]
    for key in data.parameters:
        if key not in allowed:
            raise ConfigError(f"{source}: [data] has no key '{key}'", remedy=nearest(key, allowed))
    own = _filled("dataset", "", {"name": data.name, **data.parameters}, f"{source}: [data]")
    return data.model_copy(update={"partition": partition, "prepare": prepare, **own})


def _prepared(data: Data, *, own: bool) -> list[Any]:
    """The steps of the config; without any, tables of your own get what the learner needs."""
    return data.prepare if data.prepare is not None else [AUTO] if own else []


def _find(kind: str, name: str, where: str) -> Entry:
    try:
        return registry.find(kind, name)
    except ConfigError as cause:
        raise ConfigError(f"{where}: {cause.message}", remedy=cause.remedy) from None


def _as_config_error(cause: ValidationError, source: str) -> ConfigError:
    first = cause.errors()[0]
    *tables, key = [str(part) for part in first["loc"]]
    place = f"{source}: [{'.'.join(tables)}]" if tables else source
    if first["type"] == "extra_forbidden":
        return ConfigError(f"{place} has no key '{key}'", remedy=_hint(key, _keys(Config, tables)))
    return ConfigError(f"{source}: {explain(cause)}", remedy=what_to_type(cause, Config))


def _hint(key: str, allowed: list[str]) -> str:
    """The nearest key of the table or, where there is none, the table that has such a key."""
    near = nearest(key, allowed)
    homes = {table: list(model.model_fields) for table, field in Config.model_fields.items()
             if isinstance(model := field.annotation, type) and issubclass(model, BaseModel)}
    homes |= {table: [field.name for field in parameters_of(registry.find(*wanted).component)]
              for table, wanted in _COMPONENTS.items()}
    home = next((table for table, keys in homes.items() if key in keys), "")
    return f"'{key}' is a key of [{home}]" if home and not near.startswith("did you mean") else near


def _keys(model: type[BaseModel], tables: list[str]) -> list[str]:
    """The keys of a table, found by walking down from the whole config."""
    for table in tables:
        inner = model.model_fields[table].annotation if table in model.model_fields else Override
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else Override
    return list(model.model_fields)


def _plain(value: object) -> Any:
    """Values as JSON and TOML know them; functions and other objects by their name."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__qualname__", None) or str(value)


def _found(file: object, folder: Path) -> object:
    """A file beside the config as an absolute path, else as seen from here."""
    beside = folder / file if isinstance(file, str) else None
    return str(beside.resolve()) if beside is not None and beside.exists() else file
