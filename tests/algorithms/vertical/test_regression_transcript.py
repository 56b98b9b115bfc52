"""What crosses in an encrypted regression: ciphertexts and padded numbers, and nothing that tells rows or labels."""

from __future__ import annotations

import numpy as np
import pytest
from encrypted import PACKAGES, holders, regression, rows_in_clear, weights_of
from joint import assert_no_ids, assert_no_labels, assert_no_rows, federation_of, kept, play, said

from tequio.algorithms.vertical.regression_tasks import KeptSecret
from tequio.data.partition import Split
from tequio.federation.payload import encode
from tequio.learners.learner import LocalTraining
from tequio.privacy.encryption.numbers import from_bytes

ROUNDS = 2


@pytest.fixture(params=["paillier", "ckks"], scope="module")
def heard(request):
    """A federation of three holders of columns after two rounds and an evaluation, with all that crossed."""
    pytest.importorskip(PACKAGES[request.param])
    who = holders(60, parties=3, columns=6, split=Split(validation=0.2, test=0.2))
    federation = federation_of(who)
    algorithm = regression(request.param, local=LocalTraining(batch=20, learning_rate=0.5), patience=3)
    state = play(algorithm, federation, ROUNDS)
    algorithm.evaluate(federation, state, "test", federation.everyone())
    return request.param, federation, state


def test_no_row_id_or_label_crosses(heard):
    _, federation, _ = heard
    assert_no_ids(federation.engine, federation.population)
    assert_no_rows(federation.engine, federation.population)
    assert_no_labels(federation.engine, federation.population, federation.engine.states()[0])


def test_no_weight_residual_gradient_or_score_crosses_in_clear(heard):
    _, federation, _ = heard
    rows, targets = rows_in_clear(federation)
    weights = weights_of(federation)
    scores = rows @ weights
    secret = np.concatenate([weights, scores, scores / 4 - targets / 2, rows.T @ targets, rows.T @ targets / len(rows)])
    for name, _, _, value in said(federation.engine):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert not (np.abs(value.ravel()[:, None] - secret[None, :]) < 1e-4).any(), name


def test_floats_cross_only_under_pads(heard):
    """With Paillier no float array at all; with CKKS what the key holder opened, padded by up to 2**30."""
    scheme, federation, _ = heard
    floats = [(name, value) for name, _, _, value in said(federation.engine)
              if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    if scheme == "paillier":
        assert floats == []
    else:
        assert {name for name, _ in floats} == {"regression.open", "regression.residual", "regression.loss",
                                                "regression.keep scores", "regression.calibrate"}
        assert np.median(np.abs(np.concatenate([value for _, value in floats]))) > 2.0 ** 27


def test_the_key_holder_sees_padded_numbers_only(heard):
    scheme, federation, _ = heard
    opened = [payload["opened"] for name, sender, _, payload in federation.engine.messages
              if name == "regression.open" and sender != "coordinator"]
    numbers = []
    for tables in opened:
        for given in tables.values():
            array = given["numbers"]
            numbers += from_bytes(array, signed=True) if scheme == "paillier" else array.tolist()
            fraction = given.get("fraction", 0)
    # Gradients of these rows are below 2**6; the pads are longer by 40 bits, or up to 2**30 with CKKS.
    least = 2.0 ** (30 + fraction) if scheme == "paillier" else 2.0 ** 15
    assert np.mean([abs(number) > least for number in numbers]) > 0.99


def test_only_the_key_holder_has_the_secret_key(heard):
    _, federation, state = heard
    states = federation.engine.states()
    key_holder = len(states) - 1
    own = kept(states[key_holder], KeptSecret)
    assert set(own) == {"secret", "opened"}
    assert list(states[key_holder].values()) == [own]
    public = set(state.memory["key"])
    hidden = [array.tobytes() for name, array in own["secret"].items() if name not in public]
    crossed = b"".join(encode(payload) for _, _, _, payload in federation.engine.messages)
    at_others = encode({"model": state.model, "memory": dict(state.memory),
                        "others": {str(party): states[party] for party in states if party != key_holder}})
    assert hidden
    assert not any(secret in crossed or secret in at_others for secret in hidden)


def test_messages_to_the_key_holder_are_hidden_ciphertexts_only(heard):
    _, federation, _ = heard
    key_holder = len(federation.engine.states()) - 1
    fields = {name for task, _, receiver, payload in federation.engine.messages if receiver == key_holder
              for name in payload}
    assert fields == {"hidden", "openings", "has"}


def test_equal_residuals_never_cross_as_equal_ciphertexts(heard):
    _, federation, _ = heard
    seen = [row.tobytes() for name, sender, _, payload in federation.engine.messages
            if name == "regression.residual" and sender != "coordinator" and "residual" in payload
            for row in payload["residual"]["content"]]
    assert len(set(seen)) == len(seen)
