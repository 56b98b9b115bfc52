"""What holds for every algorithm of the family: order, absence and faults of parties, batching, convergence."""

from __future__ import annotations

import numpy as np
import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.algorithms.horizontal.fair import Agnostic, QFedAvg
from tequio.algorithms.horizontal.fedavg import FedAvg, FedAvgMix, FedSGD
from tequio.algorithms.horizontal.feddyn import FedDyn
from tequio.algorithms.horizontal.fednova import FedNova
from tequio.algorithms.horizontal.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from tequio.algorithms.horizontal.fedprox import FedProx
from tequio.algorithms.horizontal.scaffold import Scaffold
from tequio.errors import PartyError, QuorumError
from tequio.federation.federation import Rules
from tequio.federation.selection import Choice, FixedParties, Selector
from tequio.learners.learner import LocalTraining

FAMILY = [FedSGD, FedAvg, FedAvgMix, FedProx, Scaffold, FedAvgM, FedAdagrad, FedAdam, FedYogi, FedNova, FedDyn, QFedAvg,
          Agnostic]
LOCAL = LocalTraining(epochs=2, batch=2, learning_rate=0.05)
every_algorithm = pytest.mark.parametrize("algorithm", FAMILY, ids=lambda algorithm: algorithm.__name__.lower())


class Backwards(Selector):
    """All parties, listed last to first."""

    def choose(self, context):
        return Choice(context.eligible[::-1])


@every_algorithm
def test_the_order_in_which_parties_are_chosen_does_not_matter(algorithm) -> None:
    rows = toy.random_parties([3, 5, 4, 2])
    forwards = toy.run(algorithm(**toy.parts(LOCAL)), toy.federation(rows), rounds=3)
    backwards = toy.run(algorithm(**toy.parts(LOCAL, selector=Backwards())), toy.federation(rows), rounds=3)
    assert toy.weights(backwards).tobytes() == toy.weights(forwards).tobytes()


@settings(deadline=None, max_examples=15)
@given(order=st.permutations(range(5)), which=st.sampled_from(FAMILY))
def test_which_party_has_which_number_does_not_matter(order: list[int], which) -> None:
    rows, local = toy.random_parties([3, 5, 4, 2, 6]), LocalTraining(epochs=2, batch=0, learning_rate=0.05)
    as_listed = toy.run(which(**toy.parts(local)), toy.federation(rows), rounds=3)
    permuted = toy.run(which(**toy.parts(local)), toy.federation([rows[party] for party in order]), rounds=3)
    np.testing.assert_allclose(toy.weights(permuted), toy.weights(as_listed), rtol=1e-9)


@every_algorithm
def test_dropping_out_is_the_same_as_not_being_chosen(algorithm) -> None:
    rows, rules = toy.random_parties([3, 5, 4, 2]), Rules(dropout=0.5, quorum=0.0)
    federation = toy.federation(rows, rules=rules)
    federation.round = 1
    present = [party for party in range(4) if federation.rng("dropout", party).random() >= 0.5]
    assert 0 < len(present) < 4
    federation.round = 0
    dropped = toy.run(algorithm(**toy.parts(LOCAL)), federation)
    selector = FixedParties(tuple(str(party) for party in present))
    left_out = toy.run(algorithm(**toy.parts(LOCAL, selector=selector)), toy.federation(rows))
    assert toy.weights(dropped).tobytes() == toy.weights(left_out).tobytes()


@every_algorithm
def test_a_round_in_which_all_drop_out_keeps_everything(algorithm) -> None:
    made, federation = algorithm(**toy.parts(LOCAL)), toy.federation(toy.random_parties([3, 5]))
    before = toy.run(made, federation, rounds=2)
    federation.rules = Rules(dropout=1.0, quorum=0.0)
    after = toy.one_more(made, federation, before)
    assert after.model is before.model
    assert after.memory == before.memory
    federation.rules = Rules(dropout=1.0)
    with pytest.raises(QuorumError, match="only 0 of 2 parties answered"):
        toy.one_more(made, federation, after)


@every_algorithm
def test_an_update_that_is_not_finite_is_refused_and_its_party_named(algorithm) -> None:
    rows, spoilt = toy.random_parties([3, 5, 4]), toy.parts(LOCAL, stages=(toy.Spoil(party=1),))
    with pytest.raises(PartyError, match=r"party '1' failed in round 1 .* values that are not finite"):
        toy.run(algorithm(**spoilt), toy.federation(rows))
    without = toy.run(algorithm(**toy.parts(LOCAL, selector=FixedParties(("0", "2")))), toy.federation(rows))
    goes_on = toy.run(algorithm(**spoilt), toy.federation(rows, rules=Rules(on_failure="continue")))
    assert toy.weights(goes_on).tobytes() == toy.weights(without).tobytes()


@every_algorithm
def test_batched_training_is_asked_for_and_gives_the_same(algorithm) -> None:
    rows = toy.random_parties([3, 5, 4])
    one_by_one = toy.run(algorithm(**toy.parts(LOCAL)), toy.federation(rows), rounds=3)
    toy.batched_calls.clear()
    learner = toy.LeastSquares(batched=True)
    together = toy.run(algorithm(**toy.parts(LOCAL, learner)), toy.federation(rows), rounds=3)
    assert toy.batched_calls == [3, 3, 3]
    assert toy.weights(together).tobytes() == toy.weights(one_by_one).tobytes()


@every_algorithm
def test_it_comes_to_the_least_squares_solution(algorithm) -> None:
    rng = np.random.default_rng(1)
    x = [rng.normal(size=(40, 2)) for _ in range(3)]
    rows = [(features, features @ np.array([1.0, -2.0])) for features in x]
    state = toy.run(algorithm(**toy.parts(LocalTraining(epochs=2, batch=0, learning_rate=0.3))),
                    toy.federation(rows), rounds=400)
    # Wide enough for Adagrad at its default rate, whose steps only ever shrink.
    np.testing.assert_allclose(toy.weights(state), [1.0, -2.0], atol=0.05)
