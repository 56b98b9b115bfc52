"""Questions at the party: what it answers, written down before it leaves, or that it does not answer.

A refusal is a reply as well: nothing but zeros and a mark. So it is added up with the others, and whoever asks does not
learn which party it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.statistics.asking.cells import answer_at_party
from tequio.algorithms.statistics.asking.grammar import parse
from tequio.algorithms.statistics.asking.planning import columns_of, planned
from tequio.algorithms.statistics.exact_sums import Block, ExactPayload, Layout, counts, whole_reply
from tequio.algorithms.statistics.small_cells import RULES, SmallCells
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task
from tequio.privacy.atoms import QUESTIONS, AtomLedger, Refusal, digest_of, refined, singles_out
from tequio.privacy.dataset_ledger import fingerprint_of

if TYPE_CHECKING:
    from tequio.algorithms.statistics.asking.planning import Plan
    from tequio.data.dataset import Schema
    from tequio.federation.population import Party


@record
class AskSettings:
    """The question as it was written, what its columns are declared to hold, and what is too few rows.

    `place` is its number in the run, `parties` are named where it asks by party. Cells of fewer than `minimum_count`
    rows are left out; sets of fewer than `floor` rows are not to be singled out by any questions together.
    """

    question: str
    scales: Mapping[str, Sequence[float]]
    parties: Sequence[str]
    floor: Count
    minimum_count: Count
    place: Count

    def plan(self, schema: Schema) -> Plan:
        """The question against a schema."""
        return planned(parse(self.question), columns_of(schema, self.scales), self.parties)

    def name(self, block: str) -> str:
        """What a block is called in this run."""
        return f"q{self.place}.{block}"


def layout_of(settings: AskSettings, plan: Plan) -> Layout:
    """The blocks of an answer."""
    return (*counts(*(settings.name(one.value) for one in Refusal)),
            Block(settings.name("broken"), (len(RULES),), "count"),
            *(Block(settings.name(name), shape, "count" if count else "real")
              for name, (shape, count) in plan.blocks().items()))


class AskedState(TypedDict, total=False):
    """The atoms of this run, at a party that keeps no ledger of questions."""

    atoms: NDArray[np.int64]


@dataclass(frozen=True)
class _Questions:
    """Where a party writes down what it answered: the folder, the fingerprint of its rows, and for whom."""

    folder: str
    rows: str = ""
    by: str = "here"


@task("ask: table", settings=AskSettings, reply=SumsReply, reveals=Sums(guarded=True))
def table_here(party: Party, payload: ExactPayload, settings: AskSettings) -> SumsReply:
    """The blocks of the answer, without cells that are too small."""
    plan, rules = settings.plan(party.rows.schema), SmallCells.of(party)
    least, floor = max(settings.minimum_count, rules.minimum_count), max(settings.floor, rules.minimum_count)
    broken = rules.broken(len(party.rows))
    values: dict[str, NDArray[np.generic]] = {
        name: np.zeros(shape, np.int64 if count else np.float64) for name, (shape, count) in plan.blocks().items()}
    found: dict[str, NDArray[np.generic]] | Refusal = values
    if len(party.rows) and not broken.any():
        found = _answer(party, plan, settings, least, floor)
    values |= {} if isinstance(found, Refusal) else found
    values |= {one.value: np.array(int(found is one)) for one in Refusal} | {"broken": broken}
    return whole_reply(party, layout_of(settings, plan), payload,
                       {settings.name(name): value for name, value in values.items()})


def _moved(settings: AskSettings, schema: Schema) -> Mapping[str, float]:
    """How far a row moves each block."""
    return {settings.name(name): moved for name, moved in settings.plan(schema).moves().items() if name != "left_out"}


@task("ask: noised table", settings=AskSettings, reply=SumsReply, reveals=Sums(_moved))
def noised_table_here(party: Party, payload: Mapping[str, object], settings: AskSettings) -> SumsReply:
    """The same of all cells, for noise that hides small ones."""
    plan = settings.plan(party.rows.schema)
    floor = max(settings.floor, SmallCells.of(party).minimum_count)
    values = _answer(party, plan, settings, 1, floor, clip=True)
    if isinstance(values, Refusal):
        raise values.error(floor)
    return {"sums": {settings.name(name): value for name, value in values.items() if name != "left_out"}}


def _answer(party: Party, plan: Plan, settings: AskSettings, least: int, floor: int, *,
            clip: bool = False) -> dict[str, NDArray[np.generic]] | Refusal:
    """The answer, if it may be given after all that was answered before."""
    rows = party.rows
    shown = answer_at_party(plan, rows, least, party.index, clip=clip)
    sets = shown.sets if least == floor else answer_at_party(plan, rows, floor, party.index).sets
    empty = least == floor and shown.is_empty
    given = party.settings.get(QUESTIONS)
    if given is None:
        known = party.recall(AskedState)
        before = known.get("atoms", np.zeros(len(rows), dtype=np.int64))
        atoms = refined(before, sets)
        if empty or singles_out(before, atoms, floor):
            return Refusal.REFUSED
        party.keep(AskedState, {"atoms": atoms})
        return shown.blocks
    place = _Questions(**given)
    ledger = AtomLedger(Path(place.folder), place.rows or fingerprint_of(rows), len(rows))
    digest = digest_of(plan.question, sorted(settings.scales.items()), plan.parties, least, floor, clip)
    found = ledger.answer(digest, place.by, sets, shown.blocks, floor, question=settings.question, empty=empty)
    return found if isinstance(found, Refusal) else dict(found)
