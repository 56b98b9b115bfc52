"""Flower's simulation (flwr, on ray) on one of the shared problems; runs in its own environment only.

Flower is given what makes it fastest: one CPU a client instead of its two, so that every core trains, data and model
kept in the actors, one torch thread each, no dashboard, no evaluation, no telemetry. The function it is started with is
deprecated in favour of the command ``flwr run``, which ends in the same simulation loop.
"""

from __future__ import annotations

from importlib.metadata import version

import flower_client
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
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
from torch_models import make_model

NO_OUTSIDE_HOST = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def run(arguments: Arguments) -> Report:
    """Time rounds of FedAvg in Flower's simulation runtime."""
    problem = arguments.problem
    clock = RoundClock()
    reports: list[Report] = []
    server = ServerApp()

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        """Flower calls this before the first round, as round 0, and after every round."""
        if server_round == 0:
            clock.start()
            return
        clock.end_round()
        if server_round == arguments.rounds + 1:
            # Now, because the actors end with the simulation.
            versions = f"flwr {version('flwr')}, ray {version('ray')}, torch {torch.__version__}"
            weights = arrays.to_numpy_ndarrays()
            reports.append(make_report("flower", versions, arguments, clock, weights, workers=arguments.workers))

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        strategy = FedAvg(
            fraction_train=problem.cohort / problem.parties,
            fraction_evaluate=0.0,
            min_train_nodes=problem.cohort,
            min_available_nodes=problem.parties,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(make_model(problem).state_dict()),
            num_rounds=arguments.rounds + 1,
            train_config=ConfigRecord({"case": problem.name}),
            evaluate_fn=after_round,
        )

    run_simulation(
        server_app=server,
        client_app=flower_client.app,
        num_supernodes=problem.parties,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": arguments.workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"},
        },
    )
    return reports[0]


def main() -> None:
    """Run one case and print its document."""
    restart_with(ONE_THREAD | NO_OUTSIDE_HOST)
    arguments = parse_arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    with stdout_for_the_report():
        report = run(arguments)
    print_report(report, as_json=arguments.as_json)


if __name__ == "__main__":
    main()
