"""The baselines with learners that fit trees: own trees at the parties, and one tree of the pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rivals import (
    CONTINUE,
    blobs,
    categories,
    federation,
    kept,
    one_more,
    replies_changed,
    run,
    same_payload,
    spoilt_at,
)

from parts import Parts
from tequio.algorithms.adoption import Adoption, adopt
from tequio.algorithms.baselines.unfederated import Alone, Centralised
from tequio.algorithms.trees.federated_id3 import FederatedID3
from tequio.algorithms.trees.fitting import fit
from tequio.data.partition import Split
from tequio.errors import PartyError
from tequio.experiments.api import baseline_config
from tequio.experiments.config.complete import complete
from tequio.federation.evaluation import OwnModel
from tequio.federation.rng import stream
from tequio.federation.selection import FixedParties
from tequio.learners.metrics import merge
from tequio.registry import build

LEARNERS: dict[str, dict[str, Any]] = {"cart": {}, "random-forest": {"trees": 3}, "boosted-trees": {"trees": 3}}


def parts(learner: str = "cart", parties: tuple[str, ...] = ()) -> Parts:
    chosen = {"selector": FixedParties(parties)} if parties else {}
    return Parts(learner=build("learner", learner, LEARNERS.get(learner)), **chosen)


@pytest.mark.parametrize("learner", LEARNERS)
def test_alone_each_party_fits_its_own_rows_once(learner: str) -> None:
    asking = federation(blobs(120), 3, seed=2)
    algorithm = Alone(**parts(learner))
    state = run(algorithm, asking, rounds=2)
    own = {party: own["model"] for party, own in kept(asking, OwnModel).items()}
    for party in range(3):
        expected = algorithm.learner.fit(asking.population.view(party).train, stream(2, "fit", 1, party)).to_payload()
        assert same_payload(own[party], expected)
    assert state.memory["trained"].tolist() == [0, 1, 2]
    assert state.model == {}


def test_alone_is_scored_by_the_mean_of_the_parties_trees() -> None:
    data, algorithm = blobs(120), Alone(**parts())
    asking = federation(data, 3)
    start = algorithm.start(asking)
    assert algorithm.score(asking, start, data) is None
    assert algorithm.evaluate(asking, start, "train", asking.everyone()) == {}
    state = one_more(algorithm, asking, start)
    models = [own["model"] for own in kept(asking, OwnModel).values()]
    expected = merge(algorithm.learner.evaluate(model, data) for model in models)
    np.testing.assert_array_equal(algorithm.score(asking, state, data)["confusion"], expected["confusion"])


def test_alone_only_chosen_parties_have_a_tree_to_evaluate() -> None:
    asking = federation(blobs(120), 3)
    algorithm = Alone(**parts(parties=("1",)))
    state = run(algorithm, asking)
    assert list(algorithm.evaluate(asking, state, "train", asking.everyone())) == [1]


@pytest.mark.parametrize("learner", LEARNERS)
def test_centralised_is_the_learner_on_all_rows(learner: str) -> None:
    data = blobs(120)
    asking, algorithm = federation(data, 1, seed=2), Centralised(**parts(learner))
    state = run(algorithm, asking, rounds=3)
    assert same_payload(state.model, algorithm.learner.fit(data, stream(2, "fit", 1, 0)).to_payload())
    whole = algorithm.evaluate(asking, state, "train", asking.everyone())[0]
    np.testing.assert_array_equal(whole["confusion"], algorithm.score(asking, state, data)["confusion"])


def test_a_model_that_cannot_be_used_is_refused() -> None:
    with replies_changed(fit, spoilt_at(0, {"model": {"kind": "binary"}})):
        with pytest.raises(PartyError, match="party '0' sent something that is not a tree"):
            run(Centralised(**parts()), federation(blobs(60), 1))
        assert run(Centralised(**parts()), federation(blobs(60), 1, rules=CONTINUE)).model == {}


def test_the_baseline_of_a_tree_is_that_tree_on_all_rows() -> None:
    config = complete({"learner": "random-forest", "algorithm": {"name": "fedrf", "trees": 3}})
    baseline = baseline_config(config, "centralised")
    assert baseline.algorithm["name"] == "centralised"
    assert baseline.data.partition["name"] == "pooled"
    assert baseline.learner == config.learner


def test_federated_and_centralised_id3_are_the_same_tree() -> None:
    draw = np.random.default_rng(0)
    data = categories(draw.integers(0, 3, (200, 6)), draw.integers(0, 3, 200))
    together = run(FederatedID3(**parts("id3")), federation(data, 5)).model
    assert same_payload(together, run(Centralised(**parts("id3")), federation(data, 1)).model)


def test_a_party_adopts_the_common_tree_only_if_it_beats_its_own() -> None:
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 3, (400, 4))
    data = categories(codes, codes[:, 0] + codes[:, 1])
    few = np.arange(15)  # too few to learn it alone
    asking = federation(data, [few, np.arange(15, 400)], split=Split(validation=0.4, test=0.0))
    algorithm = FederatedID3(**parts("id3"))
    decisions = adopt(asking, algorithm, run(algorithm, asking), asking.everyone(), Adoption(metric="accuracy"))
    assert decisions[0]["adopted"]
    assert decisions[0]["global"] == 1.0 > decisions[0]["own"]
    assert not decisions[1]["adopted"]
