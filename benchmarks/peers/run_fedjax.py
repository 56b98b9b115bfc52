"""FedJAX on one of the shared problems; runs in its own environment only.

FedJAX 0.0.17 is of 2023. It calls ``jax.tree_map``, which JAX 0.10.2, the newest for Python 3.11, no longer has, and
its ``pmap`` backend fails with JAX 0.5.3. JAX 0.4.30 with Haiku and Optax of that time runs all of it, and of the
releases tried (0.4.30, 0.4.31, 0.5.3) it is the fastest on the two small models.

The backend is the faster one of each case: ``jit`` trains one client after the other on one thread, ``pmap`` trains as
many clients side by side as there are devices, which pays off only where a step is long.
"""

from __future__ import annotations

from importlib.metadata import version

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
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

ONE_THREAD_A_DEVICE = "--xla_cpu_multi_thread_eigen=false"


def devices_for(arguments: Arguments) -> int:
    """How many CPU devices JAX shall see: one a worker, where several are of use."""
    return arguments.workers if arguments.problem.model == "cnn" else 1


def forward_pass(problem: Problem, features: jax.Array) -> jax.Array:
    """The model of a problem, in Haiku."""
    if problem.model == "mlp":
        features = jax.nn.relu(hk.Linear(128)(features))
    elif problem.model == "cnn":
        features = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(features))
        features = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(features))
        features = hk.MaxPool(2, 2, padding="VALID")(features)
        features = hk.Flatten()(hk.dropout(hk.next_rng_key(), 0.25, features))
        features = jax.nn.relu(hk.Linear(128)(features))
        features = hk.dropout(hk.next_rng_key(), 0.5, features)
    w_init = jnp.zeros if problem.model == "logistic" else None
    return hk.Linear(problem.classes, w_init=w_init)(features)


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
    devices = devices_for(arguments)
    fedjax.set_for_each_client_backend("pmap" if devices > 1 else "jit")
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
    weights = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(state.params)]
    return make_report("fedjax", versions, arguments, clock, weights, workers=devices)


def main() -> None:
    """Run one case and print its document."""
    arguments = parse_arguments(__doc__.splitlines()[0])
    flags = f"{ONE_THREAD_A_DEVICE} --xla_force_host_platform_device_count={devices_for(arguments)}"
    restart_with(ONE_THREAD | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"})
    with stdout_for_the_report():
        report = run(arguments)
    print_report(report, as_json=arguments.as_json)


if __name__ == "__main__":
    main()
