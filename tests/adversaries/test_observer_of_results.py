"""The observer of results sees every model, metric and report that was published of any run (spec 005, 2.13 and 2.14).

What all of them let out together is what the ledger of the rows states, and no less.
"""

from __future__ import annotations

import json
import shutil

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

import tequio
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.experiments.api import resume_run
from tequio.experiments.config.complete import complete
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.scenario import start_ledgers_anew
from tequio.experiments.running.store import read_checkpoint
from tequio.federation.rng import stream
from tequio.noise.coins import Coins

DELTA, NOISE, RATE, ROUNDS = 1e-5, 2.0, 0.5, 3


@pytest.fixture(name="given")
def given_fixture(tmp_path):
    def given(**changes):
        return {"name": "toy", "data": {"name": "breast-cancer", "partition": {"name": "iid", "parties": 8},
                                        "split": {"validation": 0.0, "test": 0.0}},
                "rounds": ROUNDS, "algorithm": {"name": "fedavg", "weights": "uniform"},
                "local": {"learning_rate": 1e-4, "epochs": 1}, "stages": [{"name": "central-dp", "noise": NOISE}],
                "selector": {"name": "poisson", "fraction": RATE}, "evaluation": {"at": ["coordinator"], "every": 9},
                "engine": {"workers": 1}, "output": {"folder": str(tmp_path / "runs")}} | changes

    return given


def composed(releases, noise=NOISE):
    """What the library says of so many noised sums of sampled parties."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(noise)), releases)
    return accountant.get_epsilon(DELTA)


def test_other_seeds_and_names_start_where_the_last_run_ended(given):
    """2.13: three runs with other seeds and names cost three runs."""
    runs = [tequio.run(given(seed=seed, name=f"name {seed}")) for seed in range(3)]
    assert [run.privacy["epsilon"] for run in runs] == pytest.approx([composed(ROUNDS)] * 3)
    assert [run.privacy_over_runs["runs"] for run in runs] == [1, 2, 3]
    assert [run.privacy_over_runs["epsilon"] for run in runs] == pytest.approx(
        [composed(ROUNDS * number) for number in (1, 2, 3)])
    assert "Over 3 runs on these rows: epsilon" in runs[2].privacy_over_runs["words"]
    assert "over 3 runs on these rows" in repr(runs[2])


def test_another_split_partition_learner_and_preparation_are_the_same_rows(given):
    """2.13: what is done with rows does not make them others."""
    tequio.run(given())
    data = {"name": "breast-cancer", "test": 0.3, "prepare": ["standardise"], "prepare_scope": "local",
            "partition": {"name": "dirichlet", "parties": 8, "alpha": 100.0}, "one_class": "allow",
            "split": {"validation": 0.0, "test": 0.1}}
    assert tequio.run(given(data=data, learner="mlp")).privacy_over_runs["runs"] == 2


def test_a_fork_of_a_run_folder_is_a_run_of_its_own(given):
    """2.13: a copy of a run that goes on differently has seen the rows again."""
    first = tequio.run(given())
    fork = first.folder.with_name("fork")
    shutil.copytree(first.folder, fork)
    forked = resume_run(str(fork), None, {"rounds": ROUNDS + 2})
    assert forked.privacy_over_runs["runs"] == 2
    assert forked.privacy_over_runs["epsilon"] == pytest.approx(composed(2 * ROUNDS + 2))


def test_a_sweep_costs_all_of_its_cells_also_where_processes_share_the_work(given):
    """2.13: a sweep over seeds, whose cells two processes run side by side."""
    swept = tequio.sweep(given(sweep={"seeds": [0, 1, 2, 3]}, engine={"name": "local", "workers": 2}))
    told = [run.privacy_over_runs for run in swept.results]
    assert max(one["runs"] for one in told) == 4
    assert max(one["epsilon"] for one in told) == pytest.approx(composed(4 * ROUNDS))


def test_a_search_costs_all_of_its_trials_and_says_so(given):
    """2.13: the best trial was chosen by looking at all."""
    data = {**given()["data"], "validation": 0.2}
    found = tequio.search(given(data=data, evaluation={"at": ["coordinator"]},
                                search={"space": {"local.learning_rate": [1e-5, 1e-4]}, "seeds": [0, 1]}))
    releases = sum(run.privacy["releases"] for trial in found.trials for run in trial.results)
    assert 3 * ROUNDS < releases <= 4 * ROUNDS  # a run whose noise has driven it off stops early
    assert (found.privacy["runs"], found.privacy["epsilon"]) == (4, pytest.approx(composed(releases)))
    assert found.to_dict()["privacy"]["words"].startswith("The best of 2 trials was chosen by looking at all 4 runs")
    again = tequio.run(found.best_config)
    assert again.privacy_over_runs["runs"] == 4  # the very run that won, which is no news


def test_a_search_by_the_private_rows_themselves_is_refused_with_what_would_do(given):
    """2.13: choosing by validation rows of the parties."""
    data = {**given()["data"], "split": {"validation": 0.2, "test": 0.0}}
    with pytest.raises(ConfigError, match=r"parties' own validation rows.*data.validation = 0.1"):
        tequio.search(given(data=data, search={"space": {"local.learning_rate": [1e-5, 1e-4]}}))


def test_a_resumed_run_and_a_run_that_is_repeated_count_once(given):
    """What was seen already costs nothing."""
    straight = tequio.run(given(rounds=4))
    assert tequio.run(given(rounds=4)).privacy_over_runs["runs"] == 1
    short = tequio.run(given(rounds=2, seed=5))
    resumed = resume_run(str(short.folder), None, {"rounds": 4})
    assert (straight.privacy_over_runs["runs"], resumed.privacy_over_runs["runs"]) == (1, 2)
    assert resumed.privacy_over_runs["epsilon"] == pytest.approx(composed(8))


class Failing(InlineEngine):
    """Loses its parties after some exchanges."""

    left = 4  # two rounds of eight parties, which come in two chunks

    def collect(self):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().collect()


def test_a_run_that_was_stopped_on_its_way_has_cost_what_it_released(given):
    """2.13: stop before the end, begin anew, and nothing was spent."""
    engine = Failing()
    with pytest.raises(KeyboardInterrupt):
        run_config(complete(given(selector="all", rounds=9)), engine=engine)
    after = tequio.run(given(selector="all", seed=1))
    assert after.privacy_over_runs["epsilon"] == pytest.approx(
        dp_accounting.get_epsilon_gaussian(NOISE / (2 + ROUNDS) ** 0.5, DELTA), rel=1e-3)


def test_a_run_without_a_guarantee_leaves_none_to_the_rows(given):
    """2.13: one run that is allowed to be void is enough for everybody's rows."""
    tequio.run(given(aggregator="median", privacy={"when_void": "warn"}))
    after = tequio.run(given(seed=1)).privacy_over_runs
    assert (after["runs"], after["epsilon"]) == (2, None)
    assert "no guarantee, because toy-" in after["words"]


def test_runs_that_hide_rows_and_runs_that_hide_parties_are_not_added_up(given):
    """Their neighbours differ, and the reader is told."""
    tequio.run(given())
    rows = tequio.run(given(stages=[], local={"name": "dp-sgd", "noise": 4.0, "batch": 10, "learning_rate": 1e-3}))
    assert (rows.privacy_over_runs["unit"], rows.privacy_over_runs["apart"]) == ("row", {"party": 1})
    # One bill above those of all parties, whose rows differ in number.
    assert rows.privacy["epsilon"] <= rows.privacy_over_runs["epsilon"] < 1.05 * rows.privacy["epsilon"]
    assert "1 more protected a party instead, and is counted apart" in rows.privacy_over_runs["words"]


def test_a_fresh_ledger_is_said_aloud_from_then_on(given):
    """2.13: forgetting is possible, silently forgetting is not."""
    tequio.run(given())
    start_ledgers_anew([complete(given())])
    told = [tequio.run(given(seed=seed)).privacy_over_runs for seed in (1, 2)]
    assert [one["runs"] for one in told] == [1, 2]
    assert all("was started anew on 20" in one["words"] and "the 1 run before that is not counted" in one["words"]
               for one in told)


def test_the_ledger_is_for_its_owner_only_and_holds_no_values(given, tmp_path):
    tequio.run(given())
    files = list((tmp_path / "runs" / "ledgers").iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600]
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert {key for line in lines for key in line} == {"run", "by", "task", "round", "mechanism", "spent", "digest",
                                                       "federation", "unit", "whole", "at"}


def drawn(result):
    """Who took part, by round, as the run folder says."""
    return [event["parties"] for event in result.events if event["event"] == "selection"]


def predicted(seed, rounds, parties=8):
    """Who takes part, by the seed alone."""
    return [np.flatnonzero(stream(seed, "select", round).random(parties) < RATE).tolist()
            for round in range(1, rounds + 1)]


def predicted_in_secret(secret, rounds):
    """The same by the secret of a run."""
    seeds = [Coins.derived(secret, "selection", "select", round).words(2).tobytes() for round in range(1, rounds + 1)]
    return [predicted(int.from_bytes(seed, "little"), round)[-1] for round, seed in enumerate(seeds, 1)]


def test_who_knows_the_seed_does_not_know_who_was_drawn_where_noise_is_secret(given):
    """2.14: an epsilon that counts on the draw needs a draw that is as secret as the noise."""
    secret = [{"name": "central-dp", "noise": NOISE, "secret": True}]
    open_draw = tequio.run(given(rounds=6, seed=3))
    hidden = [tequio.run(given(rounds=6, seed=3, stages=secret)) for _ in range(2)]
    assert drawn(open_draw) == predicted(3, 6)
    assert len({str(drawn(run)) for run in (open_draw, *hidden)}) == 3
    assert hidden[0].privacy["epsilon"] == pytest.approx(composed(6))


def test_a_resumed_run_draws_the_same_parties_again(given):
    """2.14: the secret of the draw lies in the checkpoint, so that a round that is played again shows nothing new."""
    secret = [{"name": "central-dp", "noise": NOISE, "secret": True}]
    short = tequio.run(given(rounds=3, stages=secret))
    hidden = int(read_checkpoint(short.folder).facts["privacy"]["memory"]["secret"], 16)
    assert drawn(resume_run(str(short.folder), None, {"rounds": 6})) == predicted_in_secret(hidden, 6)
