"""Evaluation at the parties: additive tallies come back, never predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.dataset import Dataset
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


@task("evaluate")
def evaluate(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Tally the received model on one part (train, validation or test) of the party's rows."""
    return tally_here(party, payload["model"], settings)


@task("evaluate own model")
def evaluate_own(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Tally the model that the party keeps for itself under the name `own_model`."""
    return tally_here(party, party.state["own_model"], settings)


def tally_here(party: Party, model: Payload, settings: Mapping[str, Any]) -> Payload:
    """The tally of a model on this party's rows; empty where the party has none in that part."""
    rows: Dataset = getattr(party.data, settings["part"])
    return dict(settings["learner"].evaluate(model, rows)) if len(rows) else {}
