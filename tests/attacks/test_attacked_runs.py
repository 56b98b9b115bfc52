"""Attacks through a whole run: the config table, honest evaluation, attack success, refused updates by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tequio
from tequio import registry
from tequio.cli.main import call
from tequio.errors import ConfigError, PartyError
from tequio.experiments.showing.results import result_table

DATA = {"name": "digits", "partition": {"name": "iid", "parties": 8}}


def run(tmp_path: Any, **keys: Any) -> Any:
    return tequio.run(data=DATA, learner="logistic", engine={"workers": 1}, evaluation={"every": 3},
                      output={"folder": str(tmp_path)}, **{"rounds": 3, **keys})


def test_the_mean_attack_ruins_a_mean_and_not_a_median(tmp_path: Any) -> None:
    attack = {"name": "mean", "fraction": 0.25}
    ruined = run(tmp_path, attack=attack).summary["metrics"]["test.accuracy"]
    held = run(tmp_path, attack=attack, aggregator="median").summary["metrics"]["test.accuracy"]
    clean = run(tmp_path).summary["metrics"]["test.accuracy"]
    assert ruined < 0.5 < held <= clean + 0.05


def test_only_honest_parties_are_reported_on(tmp_path: Any) -> None:
    names = run(tmp_path, attack={"name": "sign-flip", "parties": ["2", "5"]}).parties["party"]
    assert [str(name) for name in names] == ["0", "1", "3", "4", "6", "7"]


def test_the_success_of_a_backdoor_is_reported(tmp_path: Any) -> None:
    metrics = run(tmp_path, attack={"name": "backdoor", "parties": ["1"]}, rounds=6).summary["metrics"]
    assert metrics["attack.success"] > 0.9
    assert metrics["attack.success_on_all"] >= metrics["attack.success"]
    assert "attack.success" not in run(tmp_path, attack={"name": "mean", "parties": ["1"]}).summary["metrics"]


def test_an_attack_that_has_not_begun_changes_nothing(tmp_path: Any) -> None:
    attack = {"name": "gaussian", "first_round": 3, "parties": ["0"]}
    one, other = run(tmp_path, attack=attack), run(tmp_path)
    losses = [[row["train.loss"] for row in result.metrics.rows] for result in (one, other)]
    assert len(losses[0]) == 3
    assert losses[0] == losses[1]  # the loss of a round is that of its training, before anything is forged
    assert one.summary["model_sha256"] != other.summary["model_sha256"]
    assert one.summary["config_hash"] != other.summary["config_hash"]


def test_an_attack_that_never_begins_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"begins in round 4, and the run ends after 3"):
        run(tmp_path, attack={"name": "gaussian", "first_round": 4, "parties": ["0"]})


def moved(result: Any) -> list[dict[str, float]]:
    """By whom and how far updates were moved in each attacked round."""
    return [event["moved"] for event in result.events if event["event"] == "attack"]


@pytest.mark.parametrize(("attack", "distance"), [
    ({"name": "sign-flip"}, 2.0), ({"name": "sign-flip", "scale": 3.0}, 4.0), ({"name": "mean"}, 4.0),
    ({"name": "free-rider", "deviation": 0.0}, 1.0), ({"name": "label-flip"}, 1.0)])
def test_its_effect_is_recorded_in_every_round(tmp_path: Any, attack: Any, distance: float) -> None:
    result = run(tmp_path, attack={**attack, "parties": ["2", "5"]})
    assert [sorted(by_party) for by_party in moved(result)] == [["2", "5"]] * 3
    distances = [value for by_party in moved(result) for value in by_party.values()]
    assert distances == pytest.approx([distance] * 6, rel=1e-5)
    assert result.metrics["attack.moved"] == pytest.approx([distance] * 3, rel=1e-5)
    assert result.summary["metrics"]["attack.moved"] == pytest.approx(distance, rel=1e-5)


def test_on_rows_it_is_the_share_of_rows_that_were_changed(tmp_path: Any) -> None:
    half, = {value for by_party in moved(run(tmp_path, attack={"name": "label-flip", "share": 0.5, "parties": ["1"]}))
             for value in map(round, [10 * value for value in by_party.values()])}
    assert 3 <= half <= 7
    shares = [by_party["1"] for by_party in moved(run(tmp_path, attack={
        "name": "backdoor", "share": 0.5, "scale": 1.0, "parties": ["1"]}))]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.01)  # one copy of every other row


def test_attackers_that_know_all_updates_are_seen_to_move_theirs(tmp_path: Any) -> None:
    for name in ("alie", "inner-product", "sybils"):
        assert all(value > 0 for by_party in moved(run(tmp_path, attack={"name": name, "parties": ["0", "3"]}))
                   for value in by_party.values())


def test_nothing_is_recorded_of_rounds_in_which_nobody_attacks(tmp_path: Any) -> None:
    result = run(tmp_path, attack={"name": "mean", "parties": ["0"], "first_round": 2, "last_round": 2})
    assert [event["round"] for event in result.events if event["event"] == "attack"] == [2]
    assert [value is not None for value in result.metrics["attack.moved"]] == [False, True, False]
    assert "attack.moved" not in run(tmp_path).metrics.columns


def test_a_little_is_enough_is_refused_with_the_numbers_where_it_would_be_nothing(tmp_path: Any) -> None:
    attack = {"name": "alie", "deviations": "paper", "parties": ["0"]}
    with pytest.raises(ConfigError, match=r"0 with 1 of 8 parties hostile.*set attack\.deviations = 1\.5"):
        run(tmp_path, attack=attack)
    assert not any(tmp_path.iterdir())


def test_the_table_says_that_nobody_attacks_the_baselines(tmp_path: Any) -> None:
    attacked = run(tmp_path, attack={"name": "mean", "parties": ["0"]}, baselines=["centralised"])
    bytes_only = "Bytes are those of training, without evaluation."
    assert result_table(attacked, 80).caption.startswith("Baselines are not attacked.")
    assert "moved by" in " ".join(str(column.header) for column in result_table(attacked, 80).columns)
    assert result_table(run(tmp_path, baselines=["centralised"]), 80).caption == bytes_only
    assert result_table(run(tmp_path, attack={"name": "mean", "parties": ["0"]}), 120).caption == bytes_only


@pytest.mark.parametrize("name", registry.names("attack"))
def test_show_lists_who_attacks_and_when(name: str, capfd: Any) -> None:
    assert call(["show", name, *(["--kind", "attack"] if name == "mean" else [])]) == 0
    shown = capfd.readouterr().out
    for key in ("parties", "fraction", "first_round", "last_round", "every"):
        assert f"  {key} " in shown


def test_two_workers_see_the_same_attack(tmp_path: Any) -> None:
    keys: Any = {"attack": {"name": "label-flip", "parties": ["0", "3"]}}
    assert run(tmp_path, **keys).summary["model_sha256"] == \
        run(tmp_path, **keys, **{"engine.workers": 2}).summary["model_sha256"]


@pytest.mark.parametrize(("attack", "complaint"), [
    ({"parties": ["1"]}, "does not say which attack"), ({"name": "mean", "fracton": 0.2}, "no parameter 'fracton'"),
    ({"name": "men"}, "did you mean 'mean'"), ({"name": "mean", "fraction": 1.5}, "fraction"),
])
def test_a_wrong_table_is_refused_before_work_starts(tmp_path: Any, attack: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        run(tmp_path, attack=attack)


@pytest.mark.parametrize("deviation", [1e308, 1e30])
def test_infinite_and_huge_updates_are_refused_by_name_and_the_round_goes_on(tmp_path: Any, deviation: float) -> None:
    rules = {"on_failure": "continue", "largest_update": 10.0}
    attack = {"name": "gaussian", "deviation": deviation, "parties": ["6"]}
    with np.errstate(over="ignore"):
        result = run(tmp_path, attack=attack, rules=rules)
    assert result.summary["metrics"]["test.accuracy"] > 0.5
    events = (result.folder / "events.jsonl").read_text()
    assert events.count('"event": "failure"') == 3
    assert '"party": "6"' in events


def test_without_leave_to_go_on_the_run_stops_and_names_the_party(tmp_path: Any) -> None:
    with pytest.raises(PartyError, match=r"party '6'.*largest allowed"):
        run(tmp_path, attack={"name": "gaussian", "deviation": 1e9, "parties": ["6"]}, rules={"largest_update": 10.0})


def test_fltrust_trains_on_rows_that_no_party_has(tmp_path: Any) -> None:
    from tequio.experiments.config.complete import complete
    from tequio.experiments.running.scenario import make_scenario

    scenario = make_scenario(complete({"data": DATA, "aggregator": {"name": "fltrust", "root_rows": 60}}))
    assert scenario.root is not None
    assert scenario.test is not None
    root, dealt = set(scenario.root.ids.tolist()), set(scenario.population.dataset.ids.tolist())
    assert len(root) == 60
    assert not root & dealt
    assert not root & set(scenario.test.ids.tolist())
    attack = {"name": "mean", "fraction": 0.4}
    held, ruined = (run(tmp_path, attack=attack, rounds=6, aggregator=name).summary["metrics"]["test.accuracy"]
                    for name in ("fltrust", "mean"))
    assert held > 0.5 > ruined
    with pytest.raises(ConfigError, match="no rows for the parties"):
        run(tmp_path, aggregator={"name": "fltrust", "root_rows": 5000})
