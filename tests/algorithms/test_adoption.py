"""Adopt-if-better by hand: decisions by validation rows, own models trained where there are none, fine-tuning."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import toy

from contracts.transcripts import kept
from tequio.algorithms.adoption import Adoption, adopt, evaluate_adopted, evaluate_fine_tuned
from tequio.algorithms.baselines.unfederated import Alone
from tequio.algorithms.horizontal.fedavg import FedAvg, FedAvgMix
from tequio.data.partition import Split
from tequio.errors import ConfigError, DataError, PartyError
from tequio.federation.evaluation import OwnModel

SPLIT = Split(validation=0.25, test=0.25)
# Four rows a party: two to train on, one to validate and one to test.


def test_a_party_adopts_the_global_model_only_if_it_is_better_for_it() -> None:
    # Two rounds at rate 0.5. Own models: 8 -> 6, 0 -> 0. Global: 0 -> 2 -> 3. For target 8, 6 beats 3 (errors 2, 5);
    # for target 3.1 the own 2.325 loses to 3.
    rows = toy.targets([8.0] * 4, [0.0] * 4, [3.1] * 4)
    federation, events = toy.federation(rows, split=SPLIT), []
    federation.record = lambda kind, facts: events.append(facts) if kind == "adoption" else None
    algorithm = FedAvg(**toy.parts())
    federation.round = 2
    state = algorithm.start(federation).next({"w": np.array([3.0])})
    decisions = adopt(federation, algorithm, state, federation.everyone())
    assert [decision["adopted"] for decision in decisions.values()] == [False, False, True]
    assert [decision["global"] for decision in decisions.values()] == pytest.approx([25.0, 9.0, 0.01])
    assert [decision["own"] for decision in decisions.values()] == pytest.approx([4.0, 0.0, 0.775**2])
    assert events == [{"round": 2, "party": str(party), "metric": "loss", **decision}
                      for party, decision in decisions.items()]
    kept = evaluate_adopted(federation, algorithm, "test", federation.everyone())
    assert [tally["squared_error"] for tally in kept.values()] == pytest.approx([4.0, 0.0, 0.01])


def test_own_models_are_those_of_the_baseline_alone() -> None:
    rows, parts = toy.random_parties([8, 12]), toy.parts()
    alone, here = toy.federation(rows, split=SPLIT), toy.federation(rows, split=SPLIT)
    toy.run(Alone(**parts), alone, rounds=3)
    here.round = 3
    worst = {"w": np.full(3, 1e6)}
    adopt(here, FedAvg(**parts), FedAvg(**parts).start(here).next(worst), here.everyone())
    for party, state in alone.engine.states().items():
        assert (kept(here.engine.states()[party], OwnModel)["model"]["w"].tobytes()
                == kept(state, OwnModel)["model"]["w"].tobytes())


def test_models_that_parties_already_keep_are_not_trained_again() -> None:
    federation, algorithm = toy.federation(toy.targets([8.0] * 4), split=SPLIT), FedAvgMix(mix=0.5, **toy.parts())
    state = toy.run(algorithm, federation)
    federation.round = 5
    decision, = adopt(federation, algorithm, state, federation.everyone()).values()
    assert decision == {"adopted": False, "global": 16.0, "own": 16.0}  # both 4: not better, so not adopted


def test_the_rounds_of_training_alone_can_be_set() -> None:
    federation, algorithm = toy.federation(toy.targets([8.0] * 4), split=SPLIT), FedAvg(**toy.parts())
    decision, = adopt(federation, algorithm, algorithm.start(federation), federation.everyone(),
                      Adoption(metric="rmse", rounds=3)).values()
    assert decision == {"adopted": False, "global": 8.0, "own": 1.0}


def test_higher_may_be_better() -> None:
    rows = [(np.arange(1.0, 9.0), np.arange(1.0, 9.0))]
    federation, algorithm = toy.federation(rows, split=SPLIT), FedAvg(**toy.parts())
    perfect = algorithm.start(federation).next({"w": np.ones(1)})
    decision, = adopt(federation, algorithm, perfect, federation.everyone(), Adoption(metric="r2")).values()
    assert decision["adopted"]
    assert decision["global"] == 1.0


def test_a_party_without_validation_rows_keeps_its_own_model() -> None:
    federation, algorithm = toy.federation(toy.targets([8.0] * 4, 8.0), split=SPLIT), FedAvg(**toy.parts())
    perfect = algorithm.start(federation).next({"w": np.array([8.0])})
    decisions = adopt(federation, algorithm, perfect, federation.everyone())
    assert decisions[0]["adopted"]
    assert decisions[1] == {"adopted": False, "global": None, "own": None}
    assert kept(federation.engine.states()[1], OwnModel)["model"]["w"] == [4.0]


def test_nothing_to_validate_on_and_wrong_metrics_are_refused() -> None:
    algorithm = FedAvg(**toy.parts())
    federation = toy.federation(toy.targets([8.0] * 4))
    state = algorithm.start(federation)
    with pytest.raises(DataError, match="no party has validation rows"):
        adopt(federation, algorithm, state, federation.everyone())
    with pytest.raises(ConfigError, match="did you mean 'loss'"):
        adopt(federation, algorithm, state, federation.everyone(), Adoption(metric="los"))
    federation = toy.federation(toy.targets([8.0] * 4), split=SPLIT)
    with pytest.raises(PartyError, match="cannot be compared by 'accuracy' here"):
        adopt(federation, algorithm, state, federation.everyone(), Adoption(metric="accuracy"))


@pytest.mark.parametrize(("scorer", "local"), [(toy.LeastSquares(), None), (object(), toy.FULL_BATCH)])
def test_what_is_not_trained_by_steps_cannot_be_fine_tuned(scorer: object, local: object) -> None:
    class Fitted(SimpleNamespace):
        """An algorithm that fits models in one go."""

    algorithm = Fitted(scorer=scorer, components=SimpleNamespace(local=local))
    with pytest.raises(ConfigError, match=r"cannot be fine-tuned: they are fitted in one go.*fine_tune_epochs = 0"):
        evaluate_fine_tuned(toy.federation(toy.targets(1.0)), algorithm, None, "test", np.arange(1), epochs=2)


def test_fine_tuning_is_reported_beside_the_model_as_it_is_and_keeps_nothing() -> None:
    # Global 4; two epochs at rate 0.5 go from 4 to 7 for target 8, and from 4 to 1 for target 0.
    federation, algorithm = toy.federation(toy.targets([8.0] * 4, [0.0] * 4), split=SPLIT), FedAvg(**toy.parts())
    state = algorithm.start(federation).next({"w": np.array([4.0])})
    everyone = federation.everyone()
    without = algorithm.evaluate(federation, state, "test", everyone)
    tuned = evaluate_fine_tuned(federation, algorithm, state, "test", everyone, epochs=2)
    assert [tally["squared_error"] for tally in without.values()] == [16.0, 16.0]
    assert [tally["squared_error"] for tally in tuned.values()] == [1.0, 1.0]
    assert federation.engine.states() == {}
