"""What a rehearsal came to, for a reader: one line per party, and in words what stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.experiments.showing.results import in_bytes, in_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from tequio.experiments.running.store import Plain

_UNKNOWN = "-"


def rehearsal_table(found: Plain) -> Table:
    """One line per party: what it would do, and what the whole run would cost it."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("party")
    table.add_column("would", no_wrap=True)
    for name in ("rows", "made up", "sends", "receives", "computes", *(["epsilon"] if found["private"] else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for name, facts in found["parties"].items():
        table.add_row(name, _would(facts), *_numbers(facts, private=found["private"]))
    return table


def task_table(found: Plain) -> Table:
    """The bytes of each task in the whole run, all parties together."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task")
    for name in ("sent by parties", "received by them"):
        table.add_column(name, justify="right")
    for facts in found["tasks"]:
        table.add_row(facts["task"], in_bytes(facts["bytes_up"]), in_bytes(facts["bytes_down"]))
    return table


def _would(facts: Plain) -> str:
    words = {"takes part": "take part", "asks a person": "ask a person", "declines": "decline", "refuses": "refuse"}
    return words.get(facts["verdict"], str(facts["verdict"]))


def _numbers(facts: Plain, *, private: bool) -> Iterator[str]:
    for key in ("rows", "made_up_rows"):
        yield _UNKNOWN if facts[key] is None else f"{facts[key]:,}"
    yield _UNKNOWN if facts["bytes_up"] is None else in_bytes(facts["bytes_up"])
    yield _UNKNOWN if facts["bytes_down"] is None else in_bytes(facts["bytes_down"])
    yield _UNKNOWN if facts["seconds"] is None else in_time(facts["seconds"])
    if private:
        yield _UNKNOWN if facts["epsilon"] is None else f"{facts['epsilon']:.3g}"


def rehearsal_lines(found: Plain) -> Iterator[str]:
    """Why parties would not take part, and the run as a whole."""
    parties = found["parties"]
    yield ""
    for name, facts in parties.items():
        if facts["verdict"] != "takes part" and (facts["cause"] or facts["remedy"]):
            where = f" task '{facts['task']}'" if facts["task"] else ""
            yield f"{name}{where}: {'; '.join(filter(None, (facts['cause'], facts['remedy'])))}"
    if found["problem"]:
        yield f"the run cannot be rehearsed: {found['problem']}"
    willing = sum(facts["verdict"] == "takes part" for facts in parties.values())
    yield f"{'ready' if found['ready'] else 'not ready'}: {willing} of {len(parties)} parties would take part"
    if found["seconds"] is not None:
        yield (f"{found['rounds']} round{'' if found['rounds'] == 1 else 's'}: {in_bytes(found['bytes_up'])} to the "
               f"coordinator, {in_bytes(found['bytes_down'])} from it")
        yield f"computing: about {in_time(found['seconds'])}, each task as long as at its slowest party"
    if found["private"]:
        spent = "no bound" if found["epsilon"] is None else f"epsilon {found['epsilon']:.3g}"
        yield f"privacy: {spent} at delta {found['delta']:g} by the ledger of the run"
