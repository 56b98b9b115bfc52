"""MLFedAvg on data of yeast's shape: a sweep over aggregations and seeds, against a plain loop that does the same."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset
from tequio.data.schema import Schema, Target
from tequio.experiments.config import complete, with_key
from tequio.experiments.scenario import make_scenario

if TYPE_CHECKING:
    import torch

    from tequio.federation.population import Population

ROWS, FEATURES, LABELS = 2417, 103, 14
ROUNDS, SEEDS, AGGREGATIONS = 50, 10, (0, 1, 2)
BATCH, RATE = 30, 0.001

CONFIG: dict[str, Any] = {
    "name": "multilabel", "rounds": ROUNDS, "learner": {"name": "mlp", "hidden": [100, 20]},
    "algorithm": {"name": "mlfedavg", "stopping": "off"},
    "local": {"batch": BATCH, "optimizer": "adam", "learning_rate": RATE}, "evaluation": {"every": ROUNDS},
    "data": {"name": "given", "test": 0.1, "split": {"validation": 0.2, "test": 0.2, "stratify": False},
             "feature_noise": {"largest": 0.5}, "partition": {"name": "label_sets", "sizes": [4, 4, 3, 3]}}}


def dataset() -> Dataset:
    """Random rows with as many labels, of the same density, as yeast has."""
    draw = np.random.default_rng(0)
    features = draw.standard_normal((ROWS, FEATURES)).astype(np.float32)
    labels = (draw.random((ROWS, LABELS)) < 0.303).astype(np.int8)
    target = Target("multilabel", tuple(f"label {number}" for number in range(LABELS)))
    return Dataset.of(Schema.of_numbers((f"x{column}" for column in range(FEATURES)), target), features, labels)


def ours(rows: Dataset, workers: int) -> None:
    """The sweep, from configs to stored results."""
    from tequio.experiments.api import sweep

    with tempfile.TemporaryDirectory() as folder:
        sweep({**CONFIG, "data": {**CONFIG["data"], "name": rows}}, engine={"workers": workers},
              output={"folder": folder, "checkpoint_every": ROUNDS},
              sweep={"algorithm.aggregation": list(AGGREGATIONS), "seeds": list(range(SEEDS))})


def plain(populations: list[Population]) -> None:
    """The same trainings one by one, without stores, checks or counts of bytes."""
    for population in populations:
        for aggregation in AGGREGATIONS:
            _federate(population, aggregation)


def populations(rows: Dataset) -> list[Population]:
    """The parties of every seed."""
    return [make_scenario(complete(with_key(CONFIG, "seed", seed)), rows).population for seed in range(SEEDS)]


@dataclass
class _Plain:
    """One party of the plain loop."""

    features: torch.Tensor
    labels: torch.Tensor
    validation: tuple[torch.Tensor, torch.Tensor]
    head: dict[str, torch.Tensor]


def _federate(population: Population, aggregation: int) -> None:
    import torch

    parties = [_party(population, party) for party in range(len(population))]
    core = {name: value.clone() for name, value in _network(1).state_dict().items() if not name.startswith("4.")}
    for _ in range(ROUNDS):
        trained = [_train(core, party) for party in parties]
        weights = torch.tensor([(1.0, len(party.labels), party.labels.numel())[aggregation] for party in parties])
        weights = weights / weights.sum()
        core = {name: sum(weight * model[name] for weight, model in zip(weights, trained, strict=True))
                for name in core}


def _network(labels: int) -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(nn.Linear(FEATURES, 100), nn.ReLU(), nn.Linear(100, 20), nn.ReLU(), nn.Linear(20, labels))


def _party(population: Population, party: int) -> _Plain:
    import torch

    data = population.view(party)
    tensors = [torch.from_numpy(np.asarray(values, np.float32)) for part in (data.train, data.validation)
               for values in (part.features, part.target)]
    head = _network(tensors[1].shape[1]).state_dict()
    return _Plain(tensors[0], tensors[1], (tensors[2], tensors[3]),
                  {name: value for name, value in head.items() if name.startswith("4.")})


def _train(core: dict[str, torch.Tensor], party: _Plain) -> dict[str, torch.Tensor]:
    import torch
    from torch.nn import functional

    network = _network(party.labels.shape[1])
    network.load_state_dict({**core, **party.head})
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    order = torch.randperm(len(party.labels))
    for start in range(0, len(order), BATCH):
        rows = order[start:start + BATCH]
        optimizer.zero_grad()
        loss: Any = functional.binary_cross_entropy_with_logits(network(party.features[rows]), party.labels[rows])
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        outputs = network(party.validation[0])
        functional.binary_cross_entropy_with_logits(outputs, party.validation[1])
        ((outputs > 0) == party.validation[1].bool()).all(1).float().mean()
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    party.head = {name: value for name, value in weights.items() if name.startswith("4.")}
    return weights
