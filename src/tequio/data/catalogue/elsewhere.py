"""Data that stays where it is: what real parties behind a network hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.errors import ConfigError
from tequio.registry import register


@register("dataset", "parties", example='[data]\nname = "parties"\nparties = ["north", "south", "east"]\n')
@dataclass(frozen=True)
class Elsewhere:
    """What real parties hold, which the coordinator never sees; only with `tequio coordinator run`.

    Parameters:
        parties: the names of those that take part, in this order (none: all that are connected when the run starts)
        minimum: how many have to be connected before the run starts, where no names are given
        columns: they hold different columns of the same rows, matched by their ids, and not different rows
        test_path: a CSV file with rows of the coordinator's own to report on; it has to follow the parties' schema
    """

    facts: ClassVar[Facts] = Facts(None, None, "as the parties say", "the parties'", "", "real parties")
    parties: list[str] = field(default_factory=list)
    minimum: Annotated[int, Ge(1)] = 2
    columns: bool = False
    test_path: str | None = None

    def load(self) -> Loaded:
        """There is nothing to load."""
        raise ConfigError("the rows of these parties are with the parties", remedy="run it where they dial in: "
                                                                                   "tequio coordinator run FILE.toml")
