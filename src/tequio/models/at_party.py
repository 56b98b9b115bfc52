"""A published model at a party, offline: its signature is checked, and the party's own part is put to it.

What a party keeps for itself never left it: after a run its last state lies in its own folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tequio.engines.network.homes import PartyHome
from tequio.engines.network.journal import Journal
from tequio.errors import ConfigError
from tequio.federation.evaluation import KeptAnswer
from tequio.federation.population import state_name
from tequio.learners.answers import unpack_answer
from tequio.models import folder as folders
from tequio.models.signing import check_signature

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.learners.answers import Answer
    from tequio.models.model import Model


def load_at_party(place: Path, home: Path) -> Model:
    """The model as this party answers with it."""
    found, party = folders.find(place), PartyHome(home)
    model = folders.load(found)
    check_signature(found, model.facts["sha256"], party.authority)
    answer = own_answer(model, party) or (model.common if model.speaks == "common" else None)
    if answer is None:
        raise ConfigError(f"the party in '{home}' has no model of its own from the run '{model.facts['run']}'",
                          remedy="use the folder that it took part with, or the common model: --party coordinator")
    return replace(model, common=answer, own={}, speaks="common", scored=(), party=party.facts["name"])


def own_answer(model: Model, party: PartyHome) -> Answer | None:
    """What the party kept of the run that made the model, of the last one if it was run again."""
    short = str(model.facts["config_hash"])[:8]
    runs = sorted(path for path in (party.folder / "runs").glob("*") if f"-{short}" in path.name)
    for path in reversed(runs):
        kept = Journal(path).last_state().get(state_name(KeptAnswer), {})
        if "answer" in kept:
            return unpack_answer(kept["answer"], model.reading.prepared_schema)
    return None
