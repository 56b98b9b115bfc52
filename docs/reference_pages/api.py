"""The page on the Python API; mkdocstrings fills it from the docstrings."""

from __future__ import annotations

import importlib

import tequio
from reference_pages.markup import page

_RUN = ("inspect", "run", "load", "sweep", "compare", "search", "explain", "predict", "forget", "TequioError")
_PLUGINS = {
    "An algorithm": ("register", "Algorithm", "State", "part", "Averaging", "averaging_round", "Averaged", "select",
                     "finish_round", "Federation", "Replies"),
    "A task": ("task", "record", "TrainSettings", "Reveals", "Sums", "Count", "Party", "Payload", "Arrays"),
    "Contracts of components": ("Stage", "StageSpec", "Selector", "SelectionContext", "Choice", "AllParties",
                                "Aggregator", "Updates", "Combined", "Learner", "GradientLearner", "TreeLearner",
                                "Dataset", "Partition"),
}
_BESIDES = {
    "What a run gives back": ("tequio.experiments.running.results.Result", "tequio.experiments.sweep.SweepResult",
                              "tequio.experiments.comparing.comparing.Comparison",
                              "tequio.experiments.searching.SearchResult",
                              "tequio.experiments.inspecting.Inspection",
                              "tequio.experiments.running.table.Table"),
    "Estimators of scikit-learn": ("tequio.sklearn.FederatedClassifier", "tequio.sklearn.FederatedRegressor",
                                   "tequio.sklearn.Federated"),
    "What components hand to each other": (
        "tequio.federation.algorithm.Disclosure", "tequio.federation.selection.RoundOutcome",
        "tequio.federation.stages.Aggregated", "tequio.privacy.mechanism.Mechanism",
        "tequio.federation.population.PartyData", "tequio.data.dataset.Schema", "tequio.learners.learner.LocalTraining",
        "tequio.federation.topology.Topology", "tequio.data.partition.Partitioner", "tequio.attacks.attack.Attack"),
}


def python_page() -> str:
    """The public names, and what they hand to you."""
    listed = {"tequio": _RUN, **_PLUGINS}
    missing = set(tequio.__all__) - {"__version__"} - {name for names in listed.values() for name in names}
    assert not missing, f"the page on the Python API leaves out {sorted(missing)}"
    sections = {title: [f"{tequio._HOMES[name]}.{name}" for name in names] for title, names in listed.items()}
    sections |= {title: list(places) for title, places in _BESIDES.items()}
    for place in (place for places in sections.values() for place in places):
        module, _, name = place.rpartition(".")
        getattr(importlib.import_module(module), name)
    parts = [f"## {title}\n\n" + "\n\n".join(f"::: {place}" for place in places) for title, places in sections.items()]
    return page("Python API", "`import tequio` brings the names of the first four sections; the others are what they "
                "hand to you or ask of you. [Your own components](../tutorial/your-components.md) shows how they are "
                "used.", *parts)
