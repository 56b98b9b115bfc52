"""One ledger for a set of rows: exact over runs, never short of an entry, and quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from math import inf

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import sparse

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.mapped import write_rows
from tequio.errors import PermissionDenied, RunError
from tequio.privacy.accounting import _ORDERS, Release
from tequio.privacy.dataset_ledger import DatasetLedger, fingerprint_of
from tequio.privacy.local import LocalDP
from tequio.registry import to_plain

DELTA = 1e-5
GAUSSIAN = Release(20.0)


def charge(ledger, spent, run="first", digest="", epsilon=1e6, round=1):
    ledger.charge(spent, run=run, by="coordinator", task="train", round=round, digest=digest, mechanism="noise",
                  epsilon=epsilon, delta=DELTA)


@pytest.fixture(name="ledger")
def ledger_fixture(tmp_path):
    return DatasetLedger(tmp_path / "ledgers", "rows")


def again(ledger):
    return DatasetLedger(ledger.path.parent, "rows")


def by_hand(event, count, accountant):
    accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(("release", "event", "exactly"), [
    (Release(20.0), dp_accounting.GaussianDpEvent(20.0), 1e-3),
    (Release(50.0, "laplace"), dp_accounting.LaplaceDpEvent(50.0), 1e-9),
    (Release(2.0, sampling="poisson", rate=0.02),
     dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(2.0)), 1e-9)])
def test_epsilon_over_three_runs_is_what_the_library_composes(ledger, release, event, exactly):
    for run, count in (("first", 10), ("second", 25), ("third", 5)):
        for round in range(count):
            charge(ledger, {release: 1}, run=run, digest=f"{run} {round}")
    library = by_hand(event, 40, pld.PLDAccountant(value_discretization_interval=1e-3))
    assert again(ledger).epsilon(DELTA) == pytest.approx(library, rel=exactly)
    assert ledger.epsilon(DELTA, "rdp") == pytest.approx(
        min(by_hand(event, 40, rdp.RdpAccountant(_ORDERS)), 40 / 50 if release.shape == "laplace" else inf), rel=1e-9)


def test_skellam_noise_over_three_runs_composes_by_renyi_divergences(ledger):
    noise, steps = 30.0, 1024.0
    for run, count in (("first", 4), ("second", 3), ("third", 2)):
        charge(ledger, {Release(noise, "skellam", steps=steps): count}, run=run, digest=run)
    # Agarwal et al. 2021, corollary 3.6: sensitivity `steps`, variance (noise * steps)^2.
    variance = (noise * steps)**2
    losses = [9 * (a * steps**2 / (2 * variance) + min(((2 * a - 1) * steps**2 + 6 * steps**2) / (4 * variance**2),
                                                       3 * steps**2 / (2 * variance))) for a in _ORDERS]
    assert ledger.epsilon(DELTA) == pytest.approx(rdp.compute_epsilon(_ORDERS, losses, DELTA)[0], rel=1e-9)


def test_a_release_that_the_budget_does_not_pay_for_is_refused_and_not_noted(ledger):
    charge(ledger, {GAUSSIAN: 1}, digest="1", epsilon=0.3)
    spent = ledger.epsilon(DELTA)
    with pytest.raises(PermissionDenied, match=rf"from epsilon {spent:.6g} to .* the budget is 0.3.*budget.epsilon = "):
        charge(ledger, {GAUSSIAN: 10}, run="second", digest="2", epsilon=0.3)
    assert again(ledger).epsilon(DELTA) == spent
    assert again(ledger).left(0.3, DELTA) == pytest.approx(0.3 - spent)


def test_the_setting_that_a_refusal_names_is_enough(ledger):
    with pytest.raises(PermissionDenied) as refusal:
        charge(ledger, {GAUSSIAN: 10}, epsilon=0.3)
    enough = float(refusal.value.remedy.split("budget.epsilon = ")[1].split(",")[0])
    charge(ledger, {GAUSSIAN: 10}, epsilon=enough)
    assert ledger.epsilon(DELTA) <= enough < 1.02 * ledger.epsilon(DELTA)


def test_every_release_that_the_budget_pays_for_is_made_and_not_one_more(ledger):
    release, made = Release(2.0, sampling="poisson", rate=0.02), 0
    with suppress(PermissionDenied):
        while made < 10_000:
            charge(ledger, {release: 1}, digest=str(made), epsilon=0.6)
            made += 1

    def library(count):
        return by_hand(dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(2.0)), count,
                       pld.PLDAccountant(value_discretization_interval=1e-3))

    assert library(made) <= 0.6 < library(made + 1)


def test_noise_of_nothing_is_refused_with_what_would_do(ledger):
    with pytest.raises(PermissionDenied, match="local-dp"):
        charge(ledger, {Release(0.0): 1}, epsilon=100.0)


def test_the_same_bytes_in_a_run_are_one_release_and_in_another_run_another(ledger):
    for run, digest in (("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("a", ""), ("a", "")):
        charge(ledger, {GAUSSIAN: 1}, run=run, digest=digest)
    assert again(ledger).spent() == {GAUSSIAN: 5}
    assert {run: sum(spent.values()) for run, spent in ledger.by_run().items()} == {"a": 4, "b": 1}


def test_two_processes_lose_no_entry_of_each_other(ledger):
    script = ("import sys\nfrom pathlib import Path\nfrom tequio.privacy.accounting import Release\n"
              "from tequio.privacy.dataset_ledger import DatasetLedger\n"
              "ledger = DatasetLedger(Path(sys.argv[1]), 'rows')\n"
              "for number in range(200):\n"
              "    ledger.charge({Release(500.0): 1}, run=sys.argv[2], by='c', task='t', round=1, digest=str(number),"
              " mechanism='m', epsilon=10.0, delta=1e-5)\n")
    at_work = [subprocess.Popen([sys.executable, "-c", script, str(ledger.path.parent), run]) for run in "ab"]
    assert [process.wait(120) for process in at_work] == [0, 0]
    assert {run: sum(spent.values()) for run, spent in ledger.by_run().items()} == {"a": 200, "b": 200}


def test_two_processes_together_do_not_exceed_a_budget(ledger):
    one, other = ledger, again(ledger)
    for number in range(100):
        with pytest.raises(PermissionDenied) if number >= 40 else open(os.devnull):
            charge((one, other)[number % 2], {Release(40.0): 1}, digest=str(number), epsilon=exact(40, 40.0) * 1.0001)
    assert again(ledger).spent() == {Release(40.0): 40}


def exact(count, noise):
    return dp_accounting.get_epsilon_gaussian(noise / count**0.5, DELTA)


def test_a_line_that_a_crash_cut_short_is_dropped_and_the_rest_counts(ledger):
    charge(ledger, {GAUSSIAN: 1}, digest="1")
    with ledger.path.open("ab") as file:
        file.write(b'{"run":"first","by":"coo')
    other = again(ledger)
    charge(other, {GAUSSIAN: 1}, digest="2")
    assert again(ledger).spent() == ledger.spent() == {GAUSSIAN: 2}


def test_a_damaged_ledger_is_no_empty_one(ledger):
    charge(ledger, {GAUSSIAN: 1})
    ledger.path.write_bytes(b"{}\n" + ledger.path.read_bytes())
    with pytest.raises(RunError, match="damaged"):
        charge(again(ledger), {GAUSSIAN: 1})


def test_only_its_owner_reads_it(ledger):
    charge(ledger, {GAUSSIAN: 1})
    assert (ledger.path.stat().st_mode & 0o777, ledger.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_entry_says_what_was_released_for_whom_and_comes_back_as_it_was(ledger):
    ledger.charge({Release(9.0, "skellam", steps=64.0): 2, GAUSSIAN: 1}, run="r", by="clinic", task="train", round=7,
                  digest="d", mechanism="words", epsilon=1e6, delta=DELTA, federation="north", unit="row")
    one, other = ledger.entries()[0], again(ledger).entries()[0]
    assert one == other
    assert (other.run, other.by, other.federation, other.task, other.round, other.mechanism, other.unit, other.digest,
            other.releases) == ("r", "clinic", "north", "train", 7, "words", "row", "d", 3)
    assert other.at.endswith("+00:00")


def test_what_an_old_budget_book_says_is_taken_over_once(ledger, tmp_path):
    account = {"stage": to_plain(LocalDP(noise=40.0)), "local": None, "rows": 100, "noise": 40.0,
               "releases": [[1, 40.0], [2, 40.0]]}
    book = tmp_path / "budget.json"
    book.write_text(json.dumps({"old": {"accounts": [account], "charged": {}}}))
    ledger.take_over(book)
    ledger.take_over(book)
    assert not book.exists()
    assert again(ledger).by_run() == {"old": {Release(20.0): 2}}


def test_the_bill_of_a_simulated_run_replaces_its_earlier_one(ledger):
    ledger.record({GAUSSIAN: 3}, run="a", mechanism="m", unit="party")
    ledger.record({GAUSSIAN: 5}, run="a", mechanism="m", unit="party")
    ledger.record({GAUSSIAN: 5}, run="b", mechanism="m", unit="party")
    assert again(ledger).spent() == {GAUSSIAN: 10}


def test_two_simulated_runs_that_released_the_same_count_once(ledger):
    for run, digest in (("a", "same"), ("b", "same"), ("c", "other")):
        ledger.record({GAUSSIAN: 5}, run=run, mechanism="m", unit="party", digest=digest)
    assert again(ledger).spent() == {GAUSSIAN: 10}


def test_units_are_told_apart(ledger):
    ledger.record({GAUSSIAN: 5}, run="a", mechanism="m", unit="party")
    ledger.record({Release(3.0): 1}, run="b", mechanism="m", unit="row")
    assert (ledger.spent("party"), list(ledger.by_run("row"))) == ({GAUSSIAN: 5}, ["b"])


def test_a_fresh_start_is_remembered(ledger):
    charge(ledger, {GAUSSIAN: 1}, run="old")
    ledger.start_anew()
    charge(ledger, {GAUSSIAN: 2}, run="new")
    moment, runs = again(ledger).anew
    assert (again(ledger).spent(), list(again(ledger).by_run()), runs) == ({GAUSSIAN: 2}, ["new"], 1)
    assert moment.startswith("20")


def table(features, target=None, ids=None, name="data"):
    target = np.arange(len(target)) * 1.0 if target is None and ids is None else target
    schema = Schema.of_numbers([f"x{i}" for i in range(features.shape[1])], Target("number"))
    return Dataset.of(schema, features, np.asarray(target), ids=ids, name=name)


def test_a_fingerprint_is_of_the_rows_and_not_of_their_name_split_or_columns():
    features, target = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    whole = table(features, target)
    renamed = table(features.copy(), target.copy(), name="other")
    assert {fingerprint_of(one) for one in (whole, renamed, whole.take([3, 1]), whole.select([1]))} == {
        fingerprint_of(whole)}


@pytest.mark.parametrize("change", ["features", "target", "ids"])
def test_a_fingerprint_changes_with_one_value(change):
    parts = {"features": np.arange(12.0).reshape(6, 2), "target": np.arange(6.0), "ids": np.array(list("abcdef"))}
    before = fingerprint_of(table(**parts))
    parts[change] = parts[change].copy()
    parts[change].flat[3] = "z" if change == "ids" else -1
    assert fingerprint_of(table(**parts)) != before


def test_mapped_rows_have_the_fingerprint_of_the_same_rows_in_memory():
    features, target = np.random.default_rng(0).normal(size=(1000, 3)), np.arange(1000.0)
    mapped = write_rows([features[:400], features[400:]], features.dtype, (3,))
    assert fingerprint_of(table(mapped, target)) == fingerprint_of(table(features, target))


def test_sparse_rows_and_empty_ones_have_one_too():
    features, target = sparse.random(50, 8, 0.1, format="csr", random_state=0), np.arange(50.0)
    other = features.copy()
    other.data[0] += 1
    assert fingerprint_of(table(features, target)) != fingerprint_of(table(other, target))
    assert len(fingerprint_of(table(np.empty((0, 2)), np.empty(0)))) == 64
