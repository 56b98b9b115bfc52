"""pfl-research (pfl) on one of the shared problems; runs in its own environment only.

With several workers the script starts itself over under ``torchrun``, as pfl's documentation asks: one process a
worker, each with its share of the cohort, and an all-reduce (gloo, over the loopback interface) of the summed updates.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import torch
from measure import (
    ONE_THREAD,
    Arguments,
    Report,
    RoundClock,
    make_report,
    parse_arguments,
    print_report,
    restart_with,
    stdout_for_the_report,
)
from torch import Tensor, nn
from torch_models import make_model, make_tensors, weights_of

if TYPE_CHECKING:
    from pfl.aggregate.simulate import SimulatedBackend
    from problems import Problem

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ
LOOPBACK_ONLY = {"GLOO_SOCKET_IFNAME": "lo"}


def restart_under_torchrun(workers: int) -> None:
    """Become torchrun, which starts ``workers`` copies of this script and joins them."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc_per_node={workers}"]
    meeting_point = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0", "--local_addr=127.0.0.1"]
    os.execv(sys.executable, [*torchrun, *meeting_point, *sys.argv])


class ModelWithLoss(nn.Module):
    """pfl asks its models for the methods ``loss`` and ``metrics``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._loss_of = nn.CrossEntropyLoss()

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """What local training minimises."""
        return self._loss_of(self.model(features), labels)

    def metrics(self, features: Tensor, labels: Tensor) -> dict[str, float]:
        """Nothing: no contestant evaluates."""
        return {}


def make_backend(problem: Problem) -> SimulatedBackend:
    """A simulation over users whose data sets and batches are made once and kept."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler

    users = [PyTorchTensorDataset(tensors) for tensors in make_tensors(problem)]
    sampler = get_user_sampler("minimize_reuse", list(range(problem.parties)))
    training_data = FederatedDataset(users.__getitem__, sampler)
    return SimulatedBackend(training_data=training_data, val_data=None)


def run(arguments: Arguments) -> Report:
    """Time rounds of FedAvg; every process of the run executes this."""
    # Importing pfl's PyTorch modules joins the process group, so it must not happen before torchrun has made one.
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class EndOfRound(TrainingProcessCallback):
        def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
            clock.end_round()
            return False, Metrics()

    problem = arguments.problem
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002  (pfl samples its cohorts from numpy's global generator)
    module = ModelWithLoss(make_model(problem))
    central_optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    model = PyTorchModel(module, local_optimizer_create=torch.optim.SGD, central_optimizer=central_optimizer)
    backend = make_backend(problem)
    clock = RoundClock()
    clock.start()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=arguments.rounds + 1,
            # pfl evaluates where the round's number divides by this: in round 0 alone, which warms up.
            evaluation_frequency=arguments.rounds + 1,
            train_cohort_size=problem.cohort,
            val_cohort_size=None,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=problem.learning_rate, local_batch_size=problem.batch
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[EndOfRound()],
        send_metrics_to_platform=False,
    )
    versions = f"pfl {version('pfl')}, torch {torch.__version__}"
    root = os.getppid() if UNDER_TORCHRUN else None
    workers = arguments.workers if UNDER_TORCHRUN else 1
    return make_report("pfl", versions, arguments, clock, weights_of(module), workers=workers, root_process=root)


def main() -> None:
    """Run one case and print its document."""
    restart_with(ONE_THREAD | LOOPBACK_ONLY)
    arguments = parse_arguments(__doc__.splitlines()[0])
    if arguments.workers > 1 and not UNDER_TORCHRUN:
        restart_under_torchrun(arguments.workers)
    with stdout_for_the_report():
        report = run(arguments)
        if UNDER_TORCHRUN:
            torch.distributed.barrier()
    if os.environ.get("RANK", "0") == "0":
        print_report(report, as_json=arguments.as_json)
    if UNDER_TORCHRUN:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
