"""The table of claims is what mechanisms claim and what dp-accounting says when it is called by hand."""

from __future__ import annotations

import json
from importlib import import_module
from math import exp, sqrt

import numpy as np
import pytest

from tequio.privacy.factorisation import exponentials

from .blocks import ROOT

library = pytest.importorskip("dp_accounting")


@pytest.fixture(name="audits")
def audits_fixture(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module("reference_pages.audits")


def by_pld(event, count=1):
    from dp_accounting import pld

    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(event, count)
    return accountant.get_epsilon(1e-5)


def by_hand():
    """From what each mechanism is, and none of our code."""
    from dp_accounting import rdp
    from dp_accounting.pld import privacy_loss_distribution as losses

    gaussian, drawn = library.GaussianDpEvent, library.PoissonSampledDpEvent
    column = exponentials(8, 4, 2, 3).column(8)
    renyi = rdp.RdpAccountant([*range(2, 64)])
    renyi.compose(gaussian(2.2))  # Skellam noise of a million steps
    return {
        "central": by_pld(gaussian(1.0)),
        "central-sampled": by_pld(drawn(0.5, gaussian(2.0)), 4),
        "central-hidden": by_pld(gaussian(1.0)),
        # In turns of four a party is in rounds 1 and 5 of 8. It moves two nodes of one leaf, two of two and two of four
        # leaves by one, and that of eight by two: 6 + 4.
        "ftrl": by_pld(gaussian(2.0 / sqrt(10))),
        # What a party sends in rounds 1 and 5 stays in all rounds after them, as the filter's column says.
        "matrix": by_pld(gaussian(2.0 / np.linalg.norm(column + np.r_[np.zeros(4), column[:4]]))),
        "distributed": renyi.get_epsilon(1e-5),
        "local": by_pld(gaussian(1.0)),  # an update may turn round, which is twice the clip
        "local-laplace": by_pld(library.LaplaceDpEvent(1.0)),
        "sgd": by_pld(drawn(0.5, gaussian(2.0)), 4),
        "sums": by_pld(gaussian(1.0)),
        "labels": losses.from_randomized_response(2 * 1 / (1 + exp(2.0)), 2).get_epsilon_for_delta(1e-5),
        "counts": losses.from_discrete_gaussian_mechanism(2.0).get_epsilon_for_delta(1e-5),
        "leaves": losses.from_discrete_laplace_mechanism(1.0).get_epsilon_for_delta(1e-5),
    }


def test_claims_are_what_dp_accounting_says(audits):
    kept, found = json.loads(audits.KEPT.read_text(encoding="utf-8")), by_hand()
    assert list(kept) == list(audits.cases())
    assert set(found) <= set(kept)
    for name, case in audits.cases().items():
        assert kept[name]["claimed"] == pytest.approx(audits.claimed(case), abs=1e-4), name
        assert kept[name]["dp_accounting"] == pytest.approx(found[name], abs=1e-3), name
        assert kept[name]["claimed"] == pytest.approx(found[name], rel=3e-3), name


def test_the_page_has_the_table_that_is_kept(audits):
    kept, text = json.loads(audits.KEPT.read_text(encoding="utf-8")), audits.PAGE.read_text(encoding="utf-8")
    assert text.partition(audits.BEGIN)[2].partition(audits.END)[0].strip() == audits.rendered(kept).strip()
