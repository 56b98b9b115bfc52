"""An encrypted mask: rows that are not common count for nothing, and no party is told which these are."""

from __future__ import annotations

import numpy as np
import pytest
from encrypted import PACKAGES, SCHEMES, central, holders, regression, rows_in_clear, trained, weights_of
from joint import assert_no_ids, assert_no_rows, federation_of, kept, play

from tequio.algorithms.vertical.conversation import UNKNOWN, meaning_of
from tequio.algorithms.vertical.quadratic import QUADRATICS, constants
from tequio.algorithms.vertical.regression_tasks import KeptByLabels
from tequio.algorithms.vertical.rows import CommonRows
from tequio.data.partition import Split
from tequio.errors import DataError


@pytest.fixture(params=SCHEMES)
def scheme(request):
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    return request.param


def test_only_common_rows_count(scheme):
    _, federation, state = trained(scheme, holders(40, overlap=0.5), 3, hide_matches=True)
    rows, targets = rows_in_clear(federation)
    mask = state.memory["mask"]
    assert 0 < mask.sum() < len(mask) == len(rows)
    expected = central(rows, targets, 3, mask=mask.astype(float))
    assert weights_of(federation) == pytest.approx(expected, abs=3e-4)


def test_common_rows_share_a_place(scheme):
    _, federation, state = trained(scheme, holders(40, overlap=0.5), 1, hide_matches=True)
    states, who = federation.engine.states(), federation.population
    ids = [who.whole(party).ids[kept(states[party], CommonRows)["rows"]] for party in (0, 1)]
    assert (ids[0] == ids[1]).astype(int).tolist() == state.memory["mask"].tolist()


def test_the_loss_counts_common_rows_only():
    for kind, target in (("logistic", "classes"), ("linear", "number")):
        who = holders(40, overlap=0.5, target=target)
        _, federation, state = trained("plain", who, 1, kind=kind, hide_matches=True, patience=3)
        rows, targets = rows_in_clear(federation)
        form, scores = QUADRATICS[kind], rows @ weights_of(federation)
        each = scores * (form.curve / 2 * scores - form.pull * targets) + constants(kind, targets)
        scale = kept(federation.engine.states()[0], KeptByLabels)["target"]
        unit = 1.0 if kind == "logistic" else scale["deviation"] ** 2
        assert state.memory["losses"] == pytest.approx([unit * (each * state.memory["mask"]).mean()], abs=1e-4)


def test_models_are_tried_on_common_rows_only():
    who = holders(80, overlap=0.5, split=Split(validation=0.2, test=0.2))
    algorithm, federation, state = trained("plain", who, 2, hide_matches=True)
    common = [kept(federation.engine.states()[party], CommonRows) for party in (0, 1)]
    ids = [federation.population.whole(party).ids[common[party]["rows"][common[party]["part"] == 2]]
           for party in (0, 1)]
    assert len(ids[0]) == state.model["rows"]["test"] > 0
    assert np.array_equal(ids[0], ids[1])
    tally = algorithm.evaluate(federation, state, "test", federation.everyone())
    assert tally[0]["rows"] == len(ids[0])


def test_no_message_tells_a_party_which_training_rows_are_common():
    pytest.importorskip("gmpy2")
    who = holders(40, overlap=0.5)
    _, federation, state = trained("paillier", who, 1, hide_matches=True)
    mask = state.memory["mask"]
    assert_no_ids(federation.engine, who)
    assert_no_rows(federation.engine, who)
    for name, _, receiver, payload in federation.engine.messages:
        for value in payload.values():
            if receiver != "coordinator" and isinstance(value, np.ndarray) and value.size == mask.size:
                assert not np.array_equal(value.ravel(), mask), name


def test_every_field_of_a_message_is_described():
    who = holders(40, overlap=0.5)
    _, federation, _ = trained("plain", who, 1, hide_matches=True, patience=1)
    fields = {(task, field) for task, _, _, payload in federation.engine.messages for field in payload}
    assert not [pair for pair in sorted(fields) if meaning_of(*pair) == UNKNOWN]


def test_without_common_rows_there_is_nothing_to_learn():
    federation = federation_of(holders(40, overlap=0.0))
    with pytest.raises(DataError, match="no ids in common"):
        play(regression(hide_matches=True), federation, 1)
