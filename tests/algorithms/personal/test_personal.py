"""Personal algorithms by hand on least squares: one feature of 1, so a party's loss is that of (w - target)^2 / 2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy

from tequio import registry
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.personal.apfl import Apfl, MixtureMemory
from tequio.algorithms.personal.ditto import Ditto
from tequio.algorithms.personal.fine_tuning import FineTuning
from tequio.algorithms.personal.flprotector import FLProtector, FLProtectorPlus, Increment, best_share
from tequio.algorithms.personal.ifca import ChosenCluster, Ifca
from tequio.algorithms.personal.layers import FedPer, FedRep, batch_normalisation, last_layers
from tequio.algorithms.personal.per_fedavg import PerFedAvg
from tequio.algorithms.personal.pfedme import PFedMe
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.errors import ConfigError
from tequio.federation.algorithm import part_types
from tequio.federation.evaluation import OwnModel
from tequio.federation.population import state_name
from tequio.gate.tasks import tasks_of
from tequio.learners.learner import LocalTraining

RATE = toy.FULL_BATCH.learning_rate  # 0.5


def own(federation: Any, party: int, kind: type = OwnModel, name: str = "model") -> Any:
    kept = federation.engine.states()[party][state_name(kind)][name]
    return kept["w"].tolist() if isinstance(kept, dict) else kept


def losses(algorithm: Any, federation: Any, state: Any) -> list[float]:
    tallies = algorithm.evaluate(federation, state, "train", federation.everyone())
    return [float(tally["loss_sum"]) / tally["rows"] for tally in tallies.values()]


def test_ditto_trains_both_models_from_the_received_one() -> None:
    federation = toy.federation(toy.targets(4.0, 8.0))
    algorithm = Ditto(pull=1.0, personal_epochs=2, **toy.parts())
    state = toy.run(algorithm, federation)
    assert toy.weights(state) == pytest.approx([3.0])  # mean of 2 and 4
    # v = 0: 0 + .5 * 4 = 2; then the pull to w = 0: 2 + .5 * (4 - 2) - .5 * 2 = 2
    assert own(federation, 0) == pytest.approx([2.0])
    assert own(federation, 1) == pytest.approx([4.0])
    state = toy.one_more(algorithm, federation, state)
    # from v = 2 towards 4 with the pull to w = 3: 2 + 1 + .5 = 3.5; then 3.5 + .25 - .25 = 3.5
    assert own(federation, 0) == pytest.approx([3.5])
    assert losses(algorithm, federation, state) == pytest.approx([0.25, (8 - own(federation, 1)[0]) ** 2])


@pytest.mark.parametrize("algorithm", [
    Ditto(**toy.parts()), FineTuning(**toy.parts()), FLProtector(router="", weighting=False, **toy.parts()),
    FLProtector(router="pca", weighting=False, adaptive=True, **toy.parts()), Apfl(**toy.parts()),
])
def test_the_global_model_is_that_of_federated_averaging_bit_for_bit(algorithm: Any) -> None:
    rows = toy.random_parties([5, 9, 3])
    plain, personal = (toy.run(one, toy.federation(rows, split=Split(0.2, 0.0)), 3)
                       for one in (FedAvg(**toy.parts()), algorithm))
    assert toy.weights(personal).tobytes() == toy.weights(plain).tobytes()


def test_fine_tuning_answers_after_its_epochs_and_keeps_nothing() -> None:
    federation = toy.federation(toy.targets(4.0, 8.0))
    algorithm = FineTuning(epochs=1, **toy.parts())
    state = toy.run(algorithm, federation)
    assert losses(algorithm, federation, state) == pytest.approx([(4 - 3.5) ** 2, (8 - 5.5) ** 2])
    assert federation.engine.states() == {}


def test_apfl_by_hand() -> None:
    federation = toy.federation(toy.targets(4.0))
    algorithm = Apfl(share=0.5, share_rate=0.1, **toy.parts())
    state = toy.run(algorithm, federation)
    # w: 0 -> 2. mixture .5 * 0 + .5 * 2 = 1, gradient -3. v: 0 + .5 * .5 * 3 = .75. share: .5 - .1 * (.75 - 2) * -3
    assert toy.weights(state) == pytest.approx([2.0])
    assert own(federation, 0) == pytest.approx([0.75])
    assert own(federation, 0, MixtureMemory, "share") == pytest.approx(0.125)
    assert losses(algorithm, federation, state) == pytest.approx([(4 - (0.125 * 0.75 + 0.875 * 2)) ** 2])


def test_the_share_of_apfl_stays_between_none_and_all() -> None:
    federation = toy.federation(toy.targets(4.0, -9.0))
    toy.run(Apfl(share_rate=50.0, **toy.parts()), federation, 3)
    assert {own(federation, party, MixtureMemory, "share") for party in (0, 1)} <= {0.0, 1.0}


def test_pfedme_by_hand() -> None:
    federation = toy.federation(toy.targets(4.0, 8.0))
    algorithm = PFedMe(pull=0.5, personal_steps=2, personal_rate=0.5, coordinator_rate=2.0, **toy.parts())
    state = toy.run(algorithm, federation)
    # theta from w = 0: 2, then 2 + .5 * 2 - .5 * .5 * 2 = 2.5; w: 0 + .5 * .5 * 2.5 = .625, twice that for target 8
    assert own(federation, 0) == pytest.approx([2.5])
    assert toy.weights(state) == pytest.approx([2.0 * (0.625 + 1.25) / 2])
    assert losses(algorithm, federation, state) == pytest.approx([1.5**2, 3.0**2])


@pytest.mark.parametrize(("form", "factor"), [("first-order", 1.0), ("hessian-free", 0.9)])
def test_per_fedavg_by_hand(form: Any, factor: float) -> None:
    federation = toy.federation(toy.targets(4.0, 8.0))
    algorithm = PerFedAvg(adapt_rate=0.1, form=form, **toy.parts())
    state = toy.run(algorithm, federation)
    # adapted on (0): .1 * target; its gradient -.9 * target; the Hessian is 1, so (1 - .1) of it with curvature
    assert toy.weights(state) == pytest.approx([0.5 * factor * 0.9 * 6.0])
    w = float(toy.weights(state)[0])
    assert losses(algorithm, federation, state) == pytest.approx([(0.9 * (4 - w)) ** 2, (0.9 * (8 - w)) ** 2])


def test_ifca_finds_the_two_groups() -> None:
    federation = toy.federation(toy.targets(4.0, -4.0, 4.0, -4.0))
    algorithm = Ifca(**toy.parts())
    state = algorithm.start(federation).next({"0": {"w": np.array([1.0])}, "1": {"w": np.array([-1.0])}})
    for _ in range(12):
        state = toy.one_more(algorithm, federation, state)
    np.testing.assert_allclose([state.model["0"]["w"][0], state.model["1"]["w"][0]], [4, -4], atol=1e-2)
    assert max(losses(algorithm, federation, state)) < 1e-3
    assert [own(federation, party, ChosenCluster, "name") for party in range(4)] == ["0", "1", "0", "1"]


def test_flprotector_starts_each_increment_from_the_new_model_and_the_old_increment() -> None:
    federation = toy.federation(toy.targets(4.0, 8.0))
    algorithm = FLProtector(router="", weighting=False, **toy.parts())
    state = toy.run(algorithm, federation)
    assert toy.weights(state) == pytest.approx([3.0])
    assert own(federation, 0, Increment, "delta") == pytest.approx([0.5])  # 3 -> 3.5
    state = toy.one_more(algorithm, federation, state)
    assert toy.weights(state) == pytest.approx([4.5])
    assert own(federation, 0, Increment, "delta") == pytest.approx([0.0])  # 4.5 + 0.5 -> 4.5
    assert own(federation, 1, Increment, "delta") == pytest.approx([3.0])  # 4.5 + 2.5 = 7 -> 7.5
    assert losses(algorithm, federation, state) == pytest.approx([0.25, 0.25])


def test_the_ablations_answer_with_the_right_model() -> None:
    rows = [(np.r_[np.ones(40), 50.0], np.r_[np.full(40, 4.0), 200.0]), (np.ones(40), np.full(40, 8.0))]
    local = LocalTraining(batch=0, shuffle=False, learning_rate=1e-4)
    found = {}
    for name, keys in {"full": {"router": "pca"}, "none": {"personalise": False}, "all": {"router": ""}}.items():
        federation = toy.federation(rows)
        algorithm = FLProtector(**keys, weighting=False, **toy.parts(local))
        state = toy.run(algorithm, federation, 2)
        found[name] = algorithm.routing(federation, state, federation.population.view(0).train, np.array([0]))[0]["own"]
    assert not found["none"].any()
    assert found["all"].all()


def test_weighting_chooses_the_aggregator_and_nothing_else_does() -> None:
    plain, plus = (algorithm(weighting=True, **toy.parts()) for algorithm in (FLProtector, FLProtectorPlus))
    assert [type(one.aggregator).__name__ for one in (plain, plus, replace(plain, weighting=False))] == [
        "Consistency", "ConsistencyPlus", "Mean"]
    assert "aggregator" not in part_types(FLProtector)


def test_an_adaptive_party_never_uses_an_increment_that_its_validation_rows_speak_against() -> None:
    """Party 0 trains on rows of 4 and validates on rows near the others' 0: it does best without its increment."""
    draw = np.random.default_rng(0)
    federation = toy.federation([(np.ones(60), draw.normal(1.0, 0.1, 60)), (np.ones(60), draw.normal(1.0, 0.1, 60))],
                                split=Split(0.3, 0.0))
    local = LocalTraining(batch=1, learning_rate=0.9)
    algorithm = FLProtectorPlus(router="", personal_epochs=1, **toy.parts(local))
    state = toy.run(algorithm, federation, 2)
    for party, tally in algorithm.evaluate(federation, state, "validation", federation.everyone()).items():
        common = FedAvg(**toy.parts(local)).evaluate(federation, state, "validation", np.array([party]))[party]
        assert tally["loss_sum"] <= common["loss_sum"] + 1e-12


def test_a_wrong_router_is_refused_at_the_start() -> None:
    wrong = {"name": "pca", "component": 3}
    for router, complaint in (("autoencode", "did you mean 'autoencoder'"), (wrong, "no parameter 'component'")):
        with pytest.raises(ConfigError, match=complaint):
            toy.run(FLProtector(router=router, **toy.parts()), toy.federation(toy.targets(1.0)))


def test_newcomers_get_something_of_their_own() -> None:
    for algorithm in (Ditto(**toy.parts()), Apfl(share=1.0, **toy.parts()), PFedMe(pull=0.1, **toy.parts()),
                      FLProtector(router="", **toy.parts())):
        federation = toy.federation(toy.targets(4.0, 4.0, -4.0), rules=toy.Rules(held_out=("2",)))
        state = toy.run(algorithm, federation, 2)
        assert 2 not in federation.engine.states()
        before = losses(algorithm, federation, state)[2]
        algorithm.welcome(federation, state, np.array([2]))
        assert losses(algorithm, federation, state)[2] < before


def test_personal_layers_are_the_last_ones() -> None:
    model: Any = dict.fromkeys(["a.weight", "a.bias", "norm.weight", "norm.running_mean", "out.weight", "out.bias"], 0)
    assert last_layers(model, 1) == ("out.weight", "out.bias")
    assert last_layers(model, 2) == ("norm.weight", "norm.running_mean", "out.weight", "out.bias")
    assert batch_normalisation(model) == ("norm.weight", "norm.running_mean")
    with pytest.raises(ConfigError, match="leave nothing to share"):
        last_layers(model, 3)
    with pytest.raises(ConfigError, match="has none"):
        batch_normalisation({"w": model})


@pytest.mark.parametrize("algorithm", [FedPer, FedRep])
def test_one_layer_cannot_be_both_shared_and_personal(algorithm: Any) -> None:
    with pytest.raises(ConfigError, match="leave nothing to share"):
        toy.run(algorithm(**toy.parts()), toy.federation(toy.targets(1.0)))


@pytest.mark.parametrize("algorithm", [PFedMe, PerFedAvg])
def test_own_steps_have_no_place_for_adam(algorithm: Any) -> None:
    with pytest.raises(ConfigError, match="no adam"):
        toy.run(algorithm(**toy.parts(LocalTraining(optimizer="adam"))), toy.federation(toy.targets(1.0)))


def test_a_party_chooses_its_share_by_errors_and_only_then_by_loss() -> None:
    """Two shares err once, and of these the one with less loss is taken; less loss with more errors is not."""
    found = {0.0: (0.8, 1.0), 0.25: (0.9, 7.0), 0.5: (0.9, 5.0), 0.75: (0.8, 0.5), 1.0: (0.8, 9.0)}

    class Told:
        def evaluate(self, model: Any, rows: Any) -> Any:
            accuracy, loss = found[round(float(model["w"][0]), 2)]
            wrong = round(10 * (1 - accuracy))
            return {"rows": 10, "loss_sum": loss, "confusion": np.array([[10 - wrong, wrong], [0, 0]])}

    rows = Dataset.of(Schema.of_numbers("a", Target("classes", ("no", "yes"))), np.zeros((10, 1)), np.zeros(10, int))
    assert best_share(Told(), {"w": np.zeros(1)}, {"w": np.ones(1)}, rows) == 0.5
    assert best_share(Told(), {}, {}, rows.take(np.arange(0))) == 1.0


@pytest.mark.parametrize(("algorithm", "other"), [
    (Ditto, {"pull": 0.5}), (Apfl, {"share": 0.9}), (FineTuning, {"epochs": 2}),
    (PFedMe, {"personal_steps": 2}), (PerFedAvg, {"adapt_steps": 2}), (FLProtector, {"personal_epochs": 2})])
def test_fingerprints_tell_personal_models_apart_and_come_from_those_that_trained(algorithm: Any, other: Any) -> None:
    def fingerprints(**settings: Any) -> list[str]:
        if algorithm is FLProtector:
            settings |= {"router": "", "weighting": False}
        federation = toy.federation(toy.targets(4.0, 8.0, 1.0), rules=toy.Rules(held_out=("1",)))
        made = algorithm(**settings, **toy.parts())
        return made.fingerprints(federation, toy.run(made, federation, 2))

    first, again, changed = fingerprints(), fingerprints(), fingerprints(**other)
    assert first == again
    assert len(set(first)) == 2
    assert not set(first) & set(changed)


def test_clusters_and_common_models_have_no_fingerprints() -> None:
    for algorithm in (Ifca(**toy.parts()), FLProtector(personalise=False, weighting=False, **toy.parts())):
        federation = toy.federation(toy.targets(4.0, 8.0))
        assert algorithm.fingerprints(federation, toy.run(algorithm, federation)) == []


def test_own_steps_of_apfl_are_clipped_and_per_fedavg_has_no_weight_decay() -> None:
    federation = toy.federation(toy.targets(4.0))
    state = toy.run(Apfl(**toy.parts(replace(toy.FULL_BATCH, clip_norm=1.0))), federation)
    assert toy.weights(state) == pytest.approx([0.5])  # the gradient of -4 is cut to -1
    with pytest.raises(ConfigError, match="no weight_decay"):
        toy.run(PerFedAvg(**toy.parts(LocalTraining(weight_decay=0.1))), federation)


@pytest.mark.parametrize("name", ["apfl", "ditto", "fedbn", "fedper", "fedrep", "fine-tuning", "flprotector", "ifca",
                                  "per-fedavg", "pfedme"])
def test_a_policy_that_allows_an_algorithm_allows_its_evaluation(name: str) -> None:
    made = registry.find("algorithm", name).component(**toy.parts())
    asked = (made.inference.on_own, made.inference.on_sent, made.inference.fingerprint)
    assert {task.name for task in asked} <= tasks_of(frozenset({("algorithm", name)}))
