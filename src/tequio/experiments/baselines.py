"""Baselines beside a run: the same config with every party alone, and with all rows in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.config import complete, resolved

if TYPE_CHECKING:
    from tequio.experiments.tables import Config

_CHANGES: dict[str, dict[str, Any]] = {
    "alone": {"algorithm": {"name": "alone"}, "topology": {}, "stages": [], "aggregator": {}},
    "centralised": {"algorithm": {"name": "centralised"}, "topology": {}, "stages": [], "aggregator": {},
                    "selector": {}, "rules": {}, "overrides": {}},
}


def baseline_config(config: Config, baseline: str) -> Config:
    """The config of a baseline: what the baseline has no use for falls back to its default."""
    given = resolved(config) | _CHANGES[baseline] | {"name": f"{config.name}-{baseline}", "baselines": []}
    if baseline == "centralised":
        given["data"] = given["data"] | {"partition": {"name": "pooled"}}
    return complete(given, source=given["name"])
