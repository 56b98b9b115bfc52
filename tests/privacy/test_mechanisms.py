"""Every mechanism of the registry is audited: below its claim with its noise, above it with a fifth of that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tequio import registry
from tequio.bench.audits import AUDITS, FIFTH, OfLabels
from tequio.privacy.mechanism import Mechanism

KEPT = json.loads((Path(__file__).parents[2] / "docs" / "audits.json").read_text(encoding="utf-8"))


def test_every_mechanism_of_the_registry_has_an_audit():
    mechanisms = {name for name in registry.names("stage")
                  if issubclass(registry.find("stage", name).component, Mechanism)}
    assert {audit.mechanism for audit in AUDITS.values()} - {""} == mechanisms


def test_what_is_kept_stays_below_each_claim_and_a_fifth_of_the_noise_is_above():
    assert list(KEPT) == list(AUDITS)
    for name, line in KEPT.items():
        assert line["lower_right"] <= line["claimed"] < line["lower_fifth"], name
        assert line["runs"] >= 1000, name


@pytest.mark.parametrize("name", AUDITS)
def test_what_runs_are_charged_is_what_the_table_claims(name):
    claim = AUDITS[name].claim()
    assert claim is None or claim == pytest.approx(KEPT[name]["claimed"], abs=1e-3)


QUICK = {name: 1000 if isinstance(audit, OfLabels) else 40 for name, audit in AUDITS.items()
         if KEPT[name]["lower_fifth"] > 10 or isinstance(audit, OfLabels)}
"""Audits to which few runs say enough, and how many."""


def test_most_mechanisms_are_audited_in_every_run_of_the_tests():
    assert {AUDITS[name].mechanism for name in QUICK} >= {"central-dp", "dp-ftrl", "dp-mf", "local-dp", "dp-sums",
                                                          "randomised-response"}


@pytest.mark.parametrize("name", QUICK)
def test_few_runs_catch_a_fifth_of_the_noise_and_do_not_accuse_the_right_one(name):
    audit, claim = AUDITS[name], KEPT[name]["claimed"]
    assert audit.bound(FIFTH, QUICK[name], first=10_000) > claim
    assert audit.bound(1.0, QUICK[name], first=10_000) <= claim


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_other_runs_say_the_same(name):
    claim = KEPT[name]["claimed"]
    assert AUDITS[name].bound(FIFTH, 1000, first=20_000) > claim
    assert AUDITS[name].bound(1.0, 1000, first=20_000) <= claim
