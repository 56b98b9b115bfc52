"""Private runs: what voids them is refused with the reason, the budget stops them, and a resumed run remembers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError
from tequio.experiments.api import baseline_config, resume_run
from tequio.experiments.config.complete import complete, config_hash, with_key
from tequio.experiments.config.toml import parse_setting
from tequio.experiments.running.scenario import make_scenario
from tequio.privacy.accounting import Release, epsilon_of

CENTRAL = {"name": "central-dp", "noise": 1.0}
LOCAL = {"name": "local-dp", "noise": 20.0}


def given(**changes):
    config = {"data": {"name": "breast-cancer", "partition": {"name": "iid", "parties": 8},
                       "split": {"validation": 0.0, "test": 0.0}},
              "rounds": 4, "algorithm": {"name": "fedavg", "weights": "uniform"},
              "local": {"learning_rate": 1e-4}, "stages": [CENTRAL], "evaluation": {"at": ["coordinator"]},
              "engine": {"workers": 1}}
    return config | changes


def scenario(**changes):
    return make_scenario(complete(given(**changes)))


def data(**changes):
    return {**given()["data"], **changes}


VOIDS = {
    "parties weigh by their rows, without a limit": {"algorithm": {"name": "fedavg"}},
    "all parties weigh alike": {"stages": [{**CENTRAL, "most_rows": 10}]},
    "'median' is not a mean": {"aggregator": "median"},
    "'krum' is not a mean": {"aggregator": "krum"},
    "'trimmed-mean' is not a mean": {"aggregator": "trimmed-mean"},
    "the algorithm 'q-fedavg' lets more cross": {"algorithm": {"name": "q-fedavg"}},
    "the algorithm 'fednova' lets more cross": {"algorithm": {"name": "fednova", "weights": "uniform"}},
    "the algorithm 'agnostic' lets more cross": {"algorithm": {"name": "agnostic"}},
    "the algorithm 'ifca' lets more cross": {"algorithm": {"name": "ifca"}},
    "uses how many parties answered": {"algorithm": {"name": "scaffold", "weights": "uniform"},
                                       "selector": {"name": "poisson", "fraction": 0.5}},
    "the selector 'oort' chooses by what it learns": {"selector": {"name": "oort", "count": 2}},
    "the selector 'power-of-choice' chooses by what it learns": {"selector": {"name": "power-of-choice", "count": 2}},
    "rules.largest_update leaves parties out": {"rules": {"largest_update": 3.0}},
    "contributions are computed from the parties' own updates": {"contribution": "leave-one-out"},
    "stop.patience look at the parties' own validation rows": {
        "stop": {"patience": 2}, "data": data(split={"validation": 0.1, "test": 0.0}),
        "evaluation": {"at": ["parties"]}},
    "data.prepare shares exact statistics": {"data": data(prepare=["standardise"])},
    "parties that see everybody's updates": {"attack": {"name": "inner-product"}},
}


@pytest.mark.parametrize("reason", VOIDS)
def test_what_voids_the_guarantee_is_refused_with_the_reason(reason):
    with pytest.raises(ConfigError) as refused:
        scenario(**VOIDS[reason])
    assert "this run would not be private" in str(refused.value)
    assert reason in str(refused.value)


FAULTS = {"algorithm": {"name": "fedavg"}, "aggregator": "median", "selector": {"name": "oort", "count": 2},
          "rules": {"largest_update": 3.0}, "contribution": "leave-one-out",
          "stop": {"patience": 2}, "evaluation": {"at": ["parties"]}, "privacy": {"epsilon": 0.5},
          "data": data(prepare=["standardise"], split={"validation": 0.1, "test": 0.0})}


def test_all_that_voids_the_guarantee_is_said_at_once_and_what_to_set_makes_it_run(tmp_path):
    with pytest.raises(ConfigError) as refused:
        scenario(**FAULTS)
    reasons = refused.value.message.splitlines()[1:]
    assert [reason[:2] for reason in reasons] == [f"{number}." for number in range(1, 9)]
    assert refused.value.message.startswith("this run would not be private, for 8 reasons:")
    config = given(**FAULTS, output={"folder": str(tmp_path)})
    for reason in reasons:
        settings = re.findall(r"set ([\w.]+ = (?:'[^']*'|\[.*?\]|{}|[\w.]+))", reason)
        assert settings, reason
        for setting in settings[:None if "stop.patience" in reason else 1]:
            config = with_key(config, *parse_setting(setting))
    assert tequio.run(config).privacy["epsilon"] <= config["privacy"]["epsilon"]


def test_all_that_needs_single_updates_is_said_at_once_where_they_are_hidden():
    with pytest.raises(ConfigError) as refused:
        complete(given(stages=["secure-sum"], aggregator="median", rules={"largest_update": 3.0, "replays": "refuse"},
                       contribution="leave-one-out"))
    reasons = refused.value.message.splitlines()[1:]
    assert [reason.split(": ")[-1] for reason in reasons] == [
        "set aggregator.name = 'mean'", "leave [contribution] out", "set rules.largest_update = 0",
        "set rules.replays = 'allow'"]


def test_what_needs_single_updates_is_one_of_the_reasons_of_a_private_run():
    """The stage that hides updates adds a reason of its own, also where a run without a guarantee was allowed."""
    faults = {"stages": [CENTRAL, "secure-sum"], "topology": "hierarchical", "algorithm": "fedavg",
              "rules": {"largest_update": 3.0, "replays": "refuse"}}
    for when in ("refuse", "warn"):
        with pytest.raises(ConfigError) as refused:
            scenario(**faults, privacy={"when_void": when})
        reasons = refused.value.message.splitlines()[1:]
        for setting in ("set algorithm.weights = 'uniform'", "set rules.largest_update = 0",
                        "set rules.replays = 'allow'", "set topology.name = 'client-server'"):
            assert any(setting in reason for reason in reasons), setting


def test_the_budget_that_a_refusal_names_is_enough_for_a_round():
    with pytest.raises(ConfigError) as refused:
        scenario(privacy={"epsilon": 0.5})
    enough = float(re.search(r"set privacy.epsilon = ([\d.]+)", str(refused.value))[1])
    assert scenario(privacy={"epsilon": enough}).ledger.affords_more()
    assert epsilon_of({Release(1.0): 1}, 1e-5) <= enough <= epsilon_of({Release(1.0): 1}, 1e-5) + 0.01


def test_a_void_run_may_be_had_with_a_warning_and_without_a_guarantee():
    ledger = scenario(aggregator="median", privacy={"when_void": "warn"}).ledger
    assert ledger.epsilon() == float("inf")
    warned = scenario(aggregator="median", privacy={"when_void": "warn"}).warnings
    assert warned[0].startswith("this run is not private: the aggregator 'median'")


@pytest.mark.parametrize("changes", [
    {"algorithm": {"name": "fedprox", "weights": "uniform"}}, {"algorithm": {"name": "fedadam", "weights": "uniform"}},
    {"algorithm": {"name": "scaffold", "weights": "uniform"}}, {"algorithm": {"name": "feddyn"}},
    {"algorithm": {"name": "fednova", "weights": "uniform"}, "local": {"steps": 3, "learning_rate": 1e-4}},
    {"algorithm": {"name": "fedavg"}, "stages": [{**CENTRAL, "most_rows": 30}]},
    {"stages": [LOCAL], "aggregator": "median"}, {"selector": {"name": "in-turn", "count": 2}},
    {"data": data(prepare=["standardise"], prepare_scope="local")}, {"topology": "hierarchical"},
], ids=str)
def test_what_keeps_the_guarantee_runs(changes, tmp_path):
    result = tequio.run(given(**changes, output={"folder": str(tmp_path)}))
    assert 0 < result.privacy["epsilon"] < 200
    assert result.privacy["releases"] == 4
    assert "Epsilon" in result.privacy["words"]


ROWS = {"stages": [], "local": {"name": "dp-sgd", "noise": 1.0, "batch": 10, "learning_rate": 1e-3}}


def test_private_rows_cost_what_the_steps_of_their_party_cost(tmp_path):
    result = tequio.run(given(**ROWS, rounds=2, output={"folder": str(tmp_path)}))
    rows = [len(part) for part in np.array_split(np.arange(455), 8)]  # 57 of 455 rows, or 56
    by_hand = [epsilon_of({Release(1.0, sampling="poisson", rate=10 / count): 2 * 6}, 1e-5) for count in set(rows)]
    assert result.privacy["epsilon"] == pytest.approx(max(by_hand), rel=1e-6)
    assert result.privacy["unit"] == "row"
    assert "train.loss" not in result.metrics.columns


def test_the_noise_of_private_rows_is_calibrated_too():
    made = scenario(stages=[], local={"name": "dp-sgd", "batch": 10}, privacy={"epsilon": 4.0, "accountant": "rdp"})
    assert made.algorithm.local.noise == made.ledger.mechanism.noise > 0.5


@pytest.mark.parametrize(("reason", "changes"), [
    ("also sends gradients", {"algorithm": {"name": "scaffold", "control_from": "gradient"}}),
    ("only torch learners", {"learner": "logistic-regression"}),
    ("the selector 'oort'", {"selector": {"name": "oort", "count": 2}})])
def test_what_voids_private_rows_is_refused(reason, changes):
    with pytest.raises(ConfigError, match=reason):
        scenario(**ROWS, **changes)


def test_a_baseline_of_private_rows_trains_without_noise():
    made = baseline_config(complete(given(**ROWS)), "centralised")
    assert made.local["name"] == "minibatch"
    assert made.local["batch"] == 10


def test_metrics_at_the_parties_are_said_aloud():
    warned = scenario(evaluation={"at": ["parties"]}, data=data(split={"validation": 0.0, "test": 0.2})).warnings
    assert any("metrics on the parties' own rows are exact" in warning for warning in warned)


def test_no_training_loss_is_recorded(tmp_path):
    result = tequio.run(given(output={"folder": str(tmp_path)}))
    assert "train.loss" not in result.metrics.columns


def test_epsilon_of_a_run_is_that_of_its_rounds(tmp_path):
    result = tequio.run(given(selector={"name": "poisson", "fraction": 0.5}, output={"folder": str(tmp_path)}))
    by_round = [epsilon_of({Release(1.0, sampling="poisson", rate=0.5): rounds}, 1e-5) for rounds in range(1, 5)]
    assert result.metrics["privacy.epsilon"] == pytest.approx(by_round)
    assert result.privacy["epsilon"] == pytest.approx(by_round[-1])


def test_parties_drawn_without_replacement_are_hidden_from_a_replacement(tmp_path):
    result = tequio.run(given(selector={"name": "random", "count": 2}, stages=[{**CENTRAL, "noise": 4.0}],
                              output={"folder": str(tmp_path)}))
    expected = epsilon_of({Release(2.0, sampling="fixed-size", rate=0.25): 4}, 1e-5)
    assert result.privacy["epsilon"] == pytest.approx(expected)
    assert expected < epsilon_of({Release(2.0): 4}, 1e-5)


def test_the_virtual_clock_takes_amplification_away():
    ledger = scenario(selector={"name": "random", "count": 2}, devices="mobile").ledger
    assert ledger.context.sampling == "none"


def test_noise_is_calibrated_for_the_budget(tmp_path):
    config = given(stages=["central-dp"], privacy={"epsilon": 3.0}, output={"folder": str(tmp_path)})
    result = tequio.run(config)
    assert 2.98 < result.privacy["epsilon"] <= 3.0
    assert result.summary["stopped"] == "rounds"
    assert result.privacy["noise"] == pytest.approx(make_scenario(complete(config)).ledger.mechanism.noise)


def test_the_budget_stops_the_run(tmp_path):
    budget = epsilon_of({Release(1.0): 2}, 1e-5) + 0.01
    result = tequio.run(given(privacy={"epsilon": budget}, output={"folder": str(tmp_path)}))
    assert (result.summary["stopped"], result.summary["rounds"]) == ("privacy", 2)
    assert result.privacy["epsilon"] <= budget


def test_a_budget_that_does_not_pay_for_one_round_is_refused():
    with pytest.raises(ConfigError, match="does not pay for a single round"):
        scenario(privacy={"epsilon": 0.5})


def test_a_budget_without_a_mechanism_is_refused():
    with pytest.raises(ConfigError, match="nothing in this run is private"):
        scenario(stages=[], privacy={"epsilon": 1.0})


def test_a_resumed_run_goes_on_with_what_it_has_spent(tmp_path):
    config = given(stages=[{**CENTRAL, "quantile": 0.5, "noise": 0.3}], rounds=6, output={"folder": str(tmp_path)})
    straight = tequio.run(config)
    short = tequio.run(config | {"rounds": 3})
    resumed = resume_run(str(short.folder), None, {"rounds": 6})
    assert resumed.privacy == straight.privacy
    assert resumed.summary["model_sha256"] == straight.summary["model_sha256"]


def test_resuming_cannot_forget_what_a_budget_has_paid_for(tmp_path):
    budget = epsilon_of({Release(1.0): 3}, 1e-5) + 0.01
    short = tequio.run(given(rounds=2, privacy={"epsilon": budget}, output={"folder": str(tmp_path)}))
    resumed = resume_run(str(short.folder), None, {"rounds": 9})
    assert (resumed.summary["stopped"], resumed.summary["rounds"]) == ("privacy", 3)


def test_drop_outs_change_neither_the_noise_nor_the_bill(tmp_path):
    result = tequio.run(given(rules={"dropout": 0.5, "quorum": 0.0}, output={"folder": str(tmp_path)}))
    assert result.privacy["epsilon"] == pytest.approx(epsilon_of({Release(1.0): 4}, 1e-5))


def test_a_config_without_privacy_keeps_its_hash():
    plain = complete({"data": {"name": "digits"}})
    assert config_hash(plain) == config_hash(complete({"data": {"name": "digits"}, "privacy": {"delta": 1e-5}}))
    assert config_hash(plain) != config_hash(complete({"data": {"name": "digits"}, "privacy": {"epsilon": 1.0}}))


def test_a_private_model_does_not_tell_the_most_frequent_categories(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("colour,size,y\n" + "red,1.5,yes\nblue,2.5,no\nred,3.5,yes\nblue,0.5,no\nred,1.0,no\n" * 16)
    table = data(name="csv", path=str(rows), target="y", prepare=["one-hot"], one_class="allow")
    assert scenario(data=table).reading.usual == {}
    assert scenario(data=table, stages=[]).reading.usual == {"colour": "red"}
