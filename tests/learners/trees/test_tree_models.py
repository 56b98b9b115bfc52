"""What trees, forests and boosted ensembles have in common: any of them comes back from a payload."""

from __future__ import annotations

import numpy as np
import pytest
from tree_tables import numbers, walks

from tequio.errors import PayloadError
from tequio.federation import payload as payloads
from tequio.learners.metrics import summarise
from tequio.learners.trees.boosting import Boosting
from tequio.learners.trees.forest import Cart, RandomForest
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.learner import model_from_payload

LEARNERS = [ID3(), Cart(), RandomForest(trees=3), Boosting(trees=3)]
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)


def fitted(learner):
    data = walks() if isinstance(learner, ID3) else numbers()
    return data, learner.fit(data, np.random.default_rng(0))


@every_learner
def test_a_model_comes_back_as_what_it_was(learner):
    data, model = fitted(learner)
    content = payloads.encode(model.to_payload())
    back = model_from_payload(payloads.decode(content), features=len(data.schema.features),
                              classes=data.schema.target.size)
    assert type(back) is type(model)
    assert payloads.encode(back.to_payload()) == content


@every_learner
def test_the_sender_of_a_model_that_does_not_fit_is_named(learner):
    data, model = fitted(learner)
    columns, classes = len(data.schema.features), data.schema.target.size
    with pytest.raises(PayloadError, match=r"party 'x' .*classes"):
        model_from_payload(model.to_payload(), features=columns, classes=classes + 1, whose="party 'x'")
    with pytest.raises(PayloadError, match=r"party 'x' .*column"):
        model_from_payload(model.to_payload(), features=0, classes=classes, whose="party 'x'")


@every_learner
def test_a_model_of_unknown_kind_is_refused(learner):
    data, model = fitted(learner)
    with pytest.raises(PayloadError, match=r"not a tree|bush"):
        learner.predict({**model.to_payload(), "kind": "bush"}, data)


def test_any_tree_learner_scores_any_model():
    data, model = fitted(Cart())
    tallies = [learner.evaluate(model.to_payload(), data) for learner in LEARNERS]
    values = [summarise(data.schema.target, tally) for tally in tallies]
    assert values[0]["accuracy"] == (model.predict(data.features).argmax(axis=1) == data.target).mean()
    assert all(value == values[0] for value in values)
