"""Multi-label sweeps against a plain loop, personal methods against FedAvg, and robust aggregators against numpy.

Rows a second count every row as often as a method takes its gradient: twice where a party trains two models.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.bench.problems import Measured, Problem, Rounds, best_in_turn, seconds
from tequio.data.dataset import Dataset, Schema, Target
from tequio.engines.inline import InlineEngine, one_thread
from tequio.experiments.config.complete import complete, with_key
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.aggregation import Updates
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import NDArray

    from tequio.experiments.config.toml import Given
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

    Matrix = NDArray[np.floating]


ROWS, FEATURES, LABELS = 2417, 103, 14
ROUNDS, SEEDS, AGGREGATIONS = 50, 10, (0, 1, 2)
BATCH, RATE = 30, 0.001

CONFIG: Given = {
    "name": "multilabel", "rounds": ROUNDS, "learner": {"name": "mlp", "hidden": [100, 20]},
    "algorithm": {"name": "mlfedavg", "stopping": "off"},
    "local": {"batch": BATCH, "optimizer": "adam", "learning_rate": RATE}, "evaluation": {"every": ROUNDS},
    "data": {"name": "given", "test": 0.1, "split": {"validation": 0.2, "test": 0.2, "stratify": False},
             "feature_noise": {"largest": 0.5}, "partition": {"name": "label-sets", "sizes": [4, 4, 3, 3]}}}


def multilabel_sweep(repeats: int, workers: int) -> Measured:
    """Once each, taken in turn: a sweep lasts long enough for a busy spell of the machine to meet both alike."""
    rows = _like_yeast()
    parties = [make_scenario(complete(with_key(CONFIG, "seed", seed)), rows).population for seed in range(SEEDS)]
    limits = one_thread()
    turns = [(seconds(lambda: _swept(rows, workers)), seconds(lambda: _plain_sweep(parties)))
             for _ in range(max(repeats // 5, 1))]
    limits.restore_original_limits()
    best, loop = (min(times) for times in zip(*turns, strict=True))
    return {"seconds": best, "plain_loop_seconds": loop, "ratio_to_plain_loop": best / loop, "value": best / loop,
            "mark": 0.25, "unit": "x plain loop", "workers": workers}


def _like_yeast() -> Dataset:
    """Random rows with as many labels, of the same density, as yeast has."""
    draw = np.random.default_rng(0)
    features = draw.standard_normal((ROWS, FEATURES)).astype(np.float32)
    labels = (draw.random((ROWS, LABELS)) < 0.303).astype(np.int8)
    target = Target("multilabel", tuple(f"label {number}" for number in range(LABELS)))
    return Dataset.of(Schema.of_numbers((f"x{column}" for column in range(FEATURES)), target), features, labels)


def _swept(rows: Dataset, workers: int) -> None:
    """The sweep, from configs to stored results."""
    from tequio.experiments.api import sweep

    with tempfile.TemporaryDirectory() as folder:
        sweep({**CONFIG, "data": {**CONFIG["data"], "name": rows}}, engine={"workers": workers},
              output={"folder": folder, "checkpoint_every": ROUNDS},
              sweep={"algorithm.aggregation": list(AGGREGATIONS), "seeds": list(range(SEEDS))})


def _plain_sweep(populations: list[Population]) -> None:
    """The same trainings one by one, without stores, checks or counts of bytes."""
    for population in populations:
        for aggregation in AGGREGATIONS:
            _federate(population, aggregation)


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
        loss = functional.binary_cross_entropy_with_logits(network(party.features[rows]), party.labels[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.inference_mode():
        outputs = network(party.validation[0])
        functional.binary_cross_entropy_with_logits(outputs, party.validation[1])
        ((outputs > 0) == party.validation[1].bool()).all(1).float().mean()
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    party.head = {name: value for name, value in weights.items() if name.startswith("4.")}
    return weights


_PROBLEM = Problem("digit-five", "digit-five-cnn", parties=4, rows=320, shape=(3, 16, 16), cohort=4, batch=64, mark=0)

# What a party of the source's federation does in a round: five parties, 7,000 rows, 5 epochs.
_PARTIES, _ROW_PASSES = 5, 7_000 * 5
_ROUNDS_OF_HISTORY = 12

PASSES = {"fedavg": 1, "ditto": 2, "fedper": 1, "fedrep": 2, "apfl": 2, "pfedme": 5, "per-fedavg": 1,
          "ifca": 1 + 2 / 3, "flprotector": 2}
"""How often a method takes the gradient of a row in one local epoch, with the settings below.

A forward pass alone is a third of that: IFCA first tries both of its models on every row.
"""

_SETTINGS: dict[str, Given] = {"flprotector": {"router": ""}}


def rows_a_second(repeats: int, workers: int) -> Measured:
    """FedAvg's rows a second over those of each method; the largest counts, and 1.25 is 80 % of FedAvg's."""
    rounds = {name: Rounds(_algorithm(name), _PROBLEM.population(), InlineEngine()) for name in PASSES}
    for play in rounds.values():
        play()  # the first round makes what later ones find: states, compiled kernels
    best = best_in_turn(dict(rounds), max(repeats // 2, 2))
    each = {name: best[name] / PASSES[name] for name in PASSES}
    for play in rounds.values():
        play.engine.close()
    ratios = {name: each[name] / each["fedavg"] for name in PASSES if name != "fedavg"}
    return {"seconds": best["fedavg"], "ratios": ratios, "value": max(ratios.values()), "mark": 1.25,
            "unit": "x FedAvg's time a row, at worst"}


def consistency_share(repeats: int, workers: int) -> Measured:
    """What consistency weighting adds to a round of five Digit-Five parties, as a share of the round.

    Training is timed on fewer rows and scaled to a party's 35,000 row passes a round on one core.
    """
    draw = np.random.default_rng(0)
    model = build("learner", "digit-five-cnn").initial(_PROBLEM.population().schema, draw)
    updates = [{name: draw.standard_normal(values.shape).astype(values.dtype) for name, values in model.items()}
               for _ in range(_PARTIES)]
    cohort = Updates(np.arange(_PARTIES), updates, np.ones(_PARTIES))
    aggregators = {name: build("aggregator", name) for name in ("consistency", "mean")}
    memory: Payload = {}
    for _ in range(_ROUNDS_OF_HISTORY):
        memory = aggregators["consistency"].combine(cohort, memory).memory
    play = Rounds(_algorithm("fedavg"), _PROBLEM.population(), InlineEngine())
    best = best_in_turn({"round": play, "consistency": lambda: aggregators["consistency"].combine(cohort, memory),
                         "mean": lambda: aggregators["mean"].combine(cohort, {})}, max(repeats // 2, 2))
    play.engine.close()
    whole = best["round"] / (_PROBLEM.parties * _PROBLEM.rows) * _PARTIES * _ROW_PASSES
    return {"seconds": best["consistency"], "round_seconds": whole,
            "value": (best["consistency"] - best["mean"]) / whole,
            "mark": 0.05, "unit": "of a round"}


def _algorithm(name: str) -> Algorithm:
    # Small steps: on random rows some methods diverge with larger ones.
    parts = {"learner": build("learner", _PROBLEM.learner), "local": replace(_PROBLEM.local(), learning_rate=0.001)}
    made: Algorithm = build("algorithm", name, _SETTINGS.get(name, {}), parts=parts)
    return made


PARTIES, PARAMETERS, MANY_PARAMETERS = 100, 50_000, 1_600_000
_HOSTILE = 20


def robust(repeats: int, workers: int) -> Measured:
    """Updates of 50,000 numbers."""
    return _against_references(repeats, PARAMETERS)


def robust_large(repeats: int, workers: int) -> Measured:
    """Updates of 1.6 million numbers, once each: the references need minutes."""
    return _against_references(1, MANY_PARAMETERS)


def _against_references(repeats: int, parameters: int) -> Measured:
    """The time of each aggregator over that of its reference; the largest counts."""
    draw = np.random.default_rng(0)
    arrays = [{"w": draw.standard_normal(parameters).astype(np.float32)} for _ in range(PARTIES)]
    updates = Updates(np.arange(PARTIES), arrays, np.ones(PARTIES), arrays[0])
    ratios = {}
    for name, reference in REFERENCES.items():
        ours = build("aggregator", name)
        best = best_in_turn({"ours": lambda ours=ours: ours.combine(updates, {}),  # type: ignore[misc]
                             "numpy": lambda reference=reference: reference(_stacked(updates))},  # type: ignore[misc]
                            max(repeats // 2, 1))
        ratios[name] = best["ours"] / best["numpy"]
    return {"ratios": ratios, "value": max(ratios.values()), "mark": 3.0, "unit": "x plain numpy, at worst"}


def _stacked(updates: Updates) -> Matrix:
    return np.stack([np.concatenate([values.ravel() for values in update.values()]) for update in updates.arrays]
                    ).astype(np.float64)


def _trimmed(matrix: Matrix) -> Matrix:
    cut = int(0.2 * len(matrix))
    return np.asarray(np.sort(matrix, axis=0)[cut:len(matrix) - cut].mean(axis=0))


def _ranked(matrix: Matrix) -> NDArray[np.intp]:
    gram = matrix @ matrix.T
    distances = np.maximum(np.diag(gram)[:, None] + np.diag(gram) - 2 * gram, 0.0)
    return np.argsort(np.sort(distances, axis=1)[:, 1:len(matrix) - _HOSTILE - 1].sum(axis=1))


def _bulyan(matrix: Matrix) -> Matrix:
    chosen = np.sort(matrix[_ranked(matrix)[:len(matrix) - 2 * _HOSTILE]], axis=0)
    order = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0)[:len(matrix) - 4 * _HOSTILE]
    return np.asarray(np.take_along_axis(chosen, order, axis=0).mean(axis=0))


def _weiszfeld(matrix: Matrix) -> Matrix:
    centre = matrix.mean(axis=0)
    for _ in range(10):
        weights = 1.0 / np.linalg.norm(matrix - centre, axis=1)
        centre = weights @ matrix / weights.sum()
    return np.asarray(centre)


def _clipped(matrix: Matrix) -> Matrix:
    centre = np.zeros(matrix.shape[1])
    for _ in range(3):
        away = matrix - centre
        norms = np.linalg.norm(away, axis=1)
        centre = centre + (away * np.minimum(1.0, np.median(norms) / norms)[:, None]).mean(axis=0)
    return centre


def _bounded(matrix: Matrix) -> Matrix:
    norms = np.linalg.norm(matrix, axis=1)
    return np.asarray((matrix * np.minimum(1.0, np.median(norms) / norms)[:, None]).mean(axis=0))


def _trusted(matrix: Matrix) -> Matrix:
    norms = np.linalg.norm(matrix, axis=1)
    trust = np.maximum(matrix @ matrix[0] / norms / norms[0], 0.0)
    return np.asarray((trust / trust.sum()) @ (matrix / norms[:, None]) * norms[0])


def _unlike(matrix: Matrix) -> Matrix:
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    likeness = unit @ unit.T - np.eye(len(matrix))
    weights = np.clip(1.0 - likeness.max(axis=1), 0.0, 1.0)
    return np.asarray(weights @ matrix / weights.sum())


REFERENCES: dict[str, Callable[[Matrix], Matrix]] = {
    "median": lambda matrix: np.asarray(np.median(matrix, axis=0)), "trimmed-mean": _trimmed,
    "krum": lambda matrix: np.asarray(matrix[_ranked(matrix)[0]]),
    "multi-krum": lambda matrix: np.asarray(matrix[_ranked(matrix)[:len(matrix) - _HOSTILE]].mean(axis=0)),
    "bulyan": _bulyan, "geometric-median": _weiszfeld, "centred-clipping": _clipped, "norm-bounding": _bounded,
    "fltrust": _trusted, "foolsgold": _unlike,
}
"""Written for clarity; only the distances of Krum's family come from one product, as a loop over pairs of long updates
takes minutes."""
