"""FedAvg as a plain PyTorch loop on one thread: what a good engineer writes without any framework.

It is the yardstick of every table: same command line and same document as the scripts in ``benchmarks/peers``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import numpy as np
import torch
from measure import ONE_THREAD, Arguments, Report, make_report, parse_arguments, print_report, restart_with, time_rounds
from torch import Tensor
from torch_models import make_model, make_tensors, train_one_epoch, weights_of

StateDict = dict[str, Tensor]


def mean_of(states: list[StateDict]) -> StateDict:
    """The uniform average of several state dicts."""
    return {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}


def run(arguments: Arguments) -> Report:
    """Time the loop on one problem."""
    problem = arguments.problem
    torch.set_num_threads(1)
    tensors = make_tensors(problem)
    model = make_model(problem)
    weights: StateDict = {name: value.clone() for name, value in model.state_dict().items()}
    generator = np.random.default_rng(0)

    def one_round() -> None:
        nonlocal weights
        replies: list[StateDict] = []
        for party in generator.choice(problem.parties, size=problem.cohort, replace=False):
            model.load_state_dict(weights)
            features, labels = tensors[party]
            train_one_epoch(model, features, labels, problem)
            replies.append({name: value.clone() for name, value in model.state_dict().items()})
        weights = mean_of(replies)

    clock = time_rounds(one_round, arguments.rounds)
    model.load_state_dict(weights)
    return make_report("plain", f"torch {torch.__version__}", arguments, clock, weights_of(model), workers=1)


def main() -> None:
    """Run one case and print its document."""
    restart_with(ONE_THREAD)
    arguments = parse_arguments(__doc__.splitlines()[0])
    print_report(run(arguments), as_json=arguments.as_json)


if __name__ == "__main__":
    main()
