"""The page on the Python API; mkdocstrings fills it from the docstrings."""

from __future__ import annotations

import importlib

import tequio
from reference_pages.markup import page

_API = {
    "What a run gives back": ("tequio.experiments.results.Result", "tequio.experiments.sweep.SweepResult",
                              "tequio.experiments.comparing.Comparison", "tequio.experiments.searching.SearchResult",
                              "tequio.experiments.table.Table"),
    "What an algorithm sees": ("tequio.federation.federation.Federation", "tequio.federation.replies.Replies",
                               "tequio.federation.algorithm.Parts"),
    "What a task sees": ("tequio.federation.party.Party", "tequio.federation.population.PartyData",
                         "tequio.data.schema.Schema"),
    "Contracts of components": ("tequio.learners.learner.Learner", "tequio.federation.selection.Selector",
                                "tequio.federation.aggregation.Aggregator", "tequio.federation.stages.Stage",
                                "tequio.federation.topology.Topology", "tequio.data.partition.Partitioner",
                                "tequio.data.partition.Partition"),
}


def python_page() -> str:
    """The public names, and what they hand to you."""
    homes = {name: f"{getattr(tequio, name).__module__}.{name}" for name in tequio.__all__ if not name.startswith("_")}
    parts = ["## tequio\n\n" + "\n\n".join(f"::: {place}" for place in homes.values())]
    parts += [f"## {title}\n\n" + "\n\n".join(f"::: {place}" for place in places) for title, places in _API.items()]
    for places in _API.values():
        for place in places:
            module, _, name = place.rpartition(".")
            getattr(importlib.import_module(module), name)
    return page("Python API", "`import tequio` brings the names of the first section; the others are what they hand "
                 "to you or ask of you.", *parts)
