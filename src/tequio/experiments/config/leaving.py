"""A config of a run without some parties: what it may no longer say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from tequio.experiments.config.tables import Config

NAMING = (("attack", "parties"), ("rules", "held_out"), ("selector", "parties"))
"""Keys that list parties by name."""


def check_without(config: Config, source: str) -> None:
    """Refuse what would do nothing, or cannot be done, for parties that the run never has."""
    data = config.data
    for name in data.without:
        if name in data.without_rows:
            raise ConfigError(f"{source}: data.without_rows.{name} would do nothing: data.without takes out all of "
                              "that party's rows", remedy=f"leave data.without_rows.{name} out")
        if name in config.overrides:
            raise ConfigError(f"{source}: [overrides.{name}] would do nothing: data.without takes party '{name}' out "
                              "of the run", remedy=f"leave [overrides.{name}] out")
        for table, key in NAMING:
            if name in getattr(config, table).get(key, ()):
                raise ConfigError(f"{source}: {table}.{key} names party '{name}', which data.without takes out of the "
                                  "run", remedy=f"leave '{name}' out of {table}.{key}")
    if (data.without or data.without_rows) and "centralised" in config.baselines:
        raise ConfigError(f"{source}: the baseline 'centralised' puts all rows in one place, where whose rows "
                          "data.without takes out is no longer known", remedy="leave 'centralised' out of baselines")
