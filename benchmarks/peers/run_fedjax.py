"""FedJAX on one of the shared problems; runs in its own environment only."""

from __future__ import annotations

from importlib.metadata import version

import fedjax
import haiku as hk
import jax
import numpy as np
import optax
from fedjax.algorithms import fed_avg
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
from problems import Problem, make_data

Batch = dict[str, jax.Array]


def forward_pass(problem: Problem, features: jax.Array) -> jax.Array:
    """The model of a problem, in Haiku."""
    if problem.name == "mlp":
        features = jax.nn.relu(hk.Linear(128)(features))
    elif problem.name == "cnn":
        features = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(features))
        features = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(features))
        features = hk.MaxPool(2, 2, padding="VALID")(features)
        features = hk.Flatten()(hk.dropout(hk.next_rng_key(), 0.25, features))
        features = jax.nn.relu(hk.Linear(128)(features))
        features = hk.dropout(hk.next_rng_key(), 0.5, features)
    return hk.Linear(problem.classes)(features)


def make_model(problem: Problem, sample: dict[str, np.ndarray]) -> fedjax.Model:
    """The model with its loss, as FedJAX wants it."""
    return fedjax.create_model_from_haiku(
        hk.transform(lambda batch: forward_pass(problem, batch["x"])),
        sample_batch=sample,
        train_loss=lambda batch, logits: optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]),
    )


def make_clients(problem: Problem) -> dict[int, dict[str, np.ndarray]]:
    """Every party's rows; images with the channel last, which is the layout that XLA is fast with on a CPU."""
    features, labels = make_data(problem)
    if len(problem.shape) == 3:
        features = np.ascontiguousarray(np.moveaxis(features, 2, -1))
    return {
        party: {"x": rows, "y": classes.astype(np.int32)}
        for party, (rows, classes) in enumerate(zip(features, labels, strict=True))
    }


def run(arguments: Arguments) -> Report:
    """Time rounds of FedAvg; what XLA compiles, it compiles in the round that warms up."""
    problem = arguments.problem
    clients = make_clients(problem)
    model = make_model(problem, {name: values[: problem.batch] for name, values in clients[0].items()})
    import os
    fedjax.set_for_each_client_backend(os.environ.get("FJ_BACKEND", "jit"))
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(learning_rate=problem.learning_rate),
        server_optimizer=fedjax.optimizers.sgd(learning_rate=1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(problem.batch, num_epochs=1, skip_shuffle=True),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(clients), num_clients=problem.cohort, seed=0
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    parameters = sum(leaf.size for leaf in jax.tree_util.tree_leaves(state.params))
    if parameters != problem.parameters:
        raise ValueError(f"{problem.name} has {parameters} parameters, expected {problem.parameters}")

    def one_round() -> None:
        nonlocal state
        state, _ = algorithm.apply(state, sampler.sample())
        # JAX returns before the numbers are there.
        jax.block_until_ready(state.params)

    clock = time_rounds(one_round, arguments.rounds)
    versions = f"fedjax {version('fedjax')}, jax {jax.__version__}"
    return make_report("fedjax", versions, arguments, clock, workers=1)


def main() -> None:
    """Run one case and print its document."""
    restart_with(ONE_THREAD)
    arguments = parse_arguments(__doc__.splitlines()[0])
    with stdout_for_the_report():
        report = run(arguments)
    print_report(report, as_json=arguments.as_json)


if __name__ == "__main__":
    main()
