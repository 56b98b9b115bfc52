"""FLEX (flexible-fl, AGPL-3.0) on one of the shared problems; runs in its own environment only.

FLEX maps a function over its clients one after the other in one process, so it has no use for ``--workers``. The round
is made of FLEX's own PyTorch primitives; the tensors sit in its data set as they are, which saves it a conversion.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import torch
from flex.data import Dataset, FedDataset
from flex.model import FlexModel
from flex.pool import (
    FlexPool,
    collect_clients_weights_pt,
    deploy_server_model_pt,
    fed_avg,
    init_server_model,
    set_aggregated_weights_pt,
)
from measure import (
    ONE_THREAD,
    Arguments,
    Report,
    make_report,
    parse_arguments,
    print_report,
    restart_with,
    stdout_for_the_report,
    time_rounds,
)
from torch_models import make_model, make_tensors, train_one_epoch, weights_of

if TYPE_CHECKING:
    from problems import Problem


@init_server_model
def make_server_model(problem: Problem) -> FlexModel:
    """The model that the server sends to the clients of a round."""
    model = FlexModel()
    model["model"] = make_model(problem)
    return model


def train_client(client: FlexModel, data: Dataset, problem: Problem) -> None:
    """Local training of one client."""
    train_one_epoch(client["model"], data.X_data, data.y_data, problem)


def forget_model(client: FlexModel, _: Dataset) -> None:
    """FLEX keeps the model of every client that ever trained: 13 GB in the CNN's population, and slower for it."""
    client.clear()


def run(arguments: Arguments) -> Report:
    """Time rounds of FedAvg in a client-server pool."""
    problem = arguments.problem
    torch.set_num_threads(1)
    data = FedDataset()
    for party, (features, labels) in enumerate(make_tensors(problem)):
        data[party] = Dataset(X_data=features, y_data=labels)
    pool = FlexPool.client_server_pool(data, make_server_model, problem=problem)
    clients, servers, aggregators = pool.clients, pool.servers, pool.aggregators
    [server_model] = servers.map(lambda server, _: server["model"])

    def one_round() -> None:
        chosen = clients.select(problem.cohort)
        servers.map(deploy_server_model_pt, chosen)
        chosen.map(train_client, problem=problem)
        aggregators.map(collect_clients_weights_pt, chosen)
        aggregators.map(fed_avg)
        aggregators.map(set_aggregated_weights_pt, servers)
        chosen.map(forget_model)

    clock = time_rounds(one_round, arguments.rounds)
    versions = f"flexible-fl {version('flexible-fl')}, torch {torch.__version__}"
    return make_report("flex", versions, arguments, clock, weights_of(server_model), workers=1)


def main() -> None:
    """Run one case and print its document."""
    restart_with(ONE_THREAD)
    arguments = parse_arguments(__doc__.splitlines()[0])
    with stdout_for_the_report():
        report = run(arguments)
    print_report(report, as_json=arguments.as_json)


if __name__ == "__main__":
    main()
