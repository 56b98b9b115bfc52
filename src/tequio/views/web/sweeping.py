"""The part of the form that makes many runs of one: lists of values for some keys, and several seeds."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.experiments.sweep import SEEDS, axes_of, sweep_cells
from tequio.views.web.fields import NOT_OFFERED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.sweep import SweepCell

    Given = dict[str, Any]

SEEDS_FIELD, VALUES_FIELD = "sweep.seeds", "sweep.values"
MOST_RUNS = 500


def read_sweep(values: Mapping[str, str], errors: dict[str, str]) -> Given:
    """The `[sweep]` table that was typed, empty for a single run; mistakes are noted at their field."""
    sweep: Given = {}
    try:
        sweep |= axes_of(tomllib.loads(values.get(VALUES_FIELD, "")), "form")
    except tomllib.TOMLDecodeError as cause:
        errors[VALUES_FIELD] = f"not valid TOML: {cause}"
    except ConfigError as cause:
        errors[VALUES_FIELD] = f"{cause.message}; {cause.remedy}".removeprefix("form: [sweep] ")
    refused = [key for key in sweep if key == SEEDS or any(key == one or key.startswith(f"{one}.")
                                                           for one in NOT_OFFERED)]
    if refused:
        errors[VALUES_FIELD] = f"'{refused[0]}' cannot be set here"
    seeds = _seeds(values.get(SEEDS_FIELD, ""), errors)
    return sweep | ({SEEDS: seeds} if seeds else {})


def checked_cells(given: Given, errors: dict[str, str]) -> list[SweepCell]:
    """Every run of the sweep with its whole config, or what is wrong with one of them."""
    count = 1
    for axis in given["sweep"].values():
        count *= len(axis)
    if count > MOST_RUNS:
        errors[VALUES_FIELD] = f"that would be {count:,} runs, and the form starts at most {MOST_RUNS}"
        return []
    try:
        return sweep_cells(given, source="form")
    except ConfigError as cause:
        errors[VALUES_FIELD] = str(cause).removeprefix("form: ")
        return []


def _seeds(text: str, errors: dict[str, str]) -> list[int]:
    """A number counts seeds from 0; a list names them."""
    if not text:
        return []
    try:
        typed = tomllib.loads(f"seeds = {text}")["seeds"]
    except tomllib.TOMLDecodeError:
        typed = None
    if isinstance(typed, int) and not isinstance(typed, bool) and 0 < typed <= MOST_RUNS:
        return list(range(typed))
    if isinstance(typed, list) and typed and all(type(seed) is int and seed >= 0 for seed in typed):
        return typed
    errors[SEEDS_FIELD] = "give how many, such as 5, or a list, such as [0, 1, 2]"
    return []
