"""Runs without a party, and forgetting: what is played again, from where, and what is written down of it."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

import tequio
from tequio.cli.main import call
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import complete, config_hash
from tequio.federation.algorithm import State
from tequio.federation.averaging import select
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.selection import RandomParties
from tequio.federation.selectors.drawn import PoissonParties
from tequio.models.registry import ModelRegistry

SITES = np.repeat(list("abcdef"), [40, 25, 25, 22, 20, 18])


def table(kept=None):
    draw = np.random.default_rng(0)
    features = draw.standard_normal((150, 3)) * [1, 10, 100] + [0, 5, SITES.size]
    features[SITES == "f"] += 1000  # so that a statistic that saw the party is far off
    columns = {"row": np.arange(1000, 1150), "site": SITES, **dict(zip("xyz", features.T, strict=True)),
               "target": np.where(features[:, 0] + draw.standard_normal(150) > 0, "yes", "no")}
    return {name: values if kept is None else values[kept] for name, values in columns.items()}


def data(kept=None, **keys):
    return {"name": table(kept), "target": "target", "group": "site", "id": "row", "test": 0.0, "prepare": [],
            "partition": "natural", "one_class": "allow", **keys}


def run(tmp_path, kept=None, *, rounds=6, of=None, **keys):
    return tequio.run(data=data(kept, **(of or {})), rounds=rounds, seed=3, engine={"workers": 1},
                      output={"folder": str(tmp_path / "runs"), "keep_every": 1}, **keys)


def sha(result):
    return result.summary["model_sha256"]


def chosen(result):
    return [tuple(event["parties"]) for event in result.events if event["event"] == "selection"]


def record_of(result):
    return json.loads((result.folder / "forgotten.json").read_bytes())


# Without a party


@pytest.mark.parametrize("scope", ["federated", "local"])
def test_nothing_is_fitted_to_the_rows_of_a_party_that_a_run_is_without(scope, tmp_path):
    of = {"prepare": ["standardise"], "prepare_scope": scope}
    without = run(tmp_path, of={**of, "without": ["f"]})
    assert sha(without) == sha(run(tmp_path, SITES != "f", of=of))
    assert without.summary["model_folder_sha256"] != run(tmp_path, of=of).summary["model_folder_sha256"]
    assert [row["party"] for row in without.parties] == list("abcde")


def test_rows_may_be_left_out_too(tmp_path):
    kept = ~np.isin(np.arange(1000, 1150), [1003, 1004, 1030])
    assert sha(run(tmp_path, of={"without_rows": {"a": [1003, 1004, "1030"]}})) == sha(run(tmp_path, kept))


def test_all_others_hold_what_they_held(tmp_path):
    of = {"partition": {"name": "quantity", "parties": 6, "minimum_rows": 8}, "feature_noise": {"largest": 0.5}}
    rows = {row["party"]: row["rows"] for row in run(tmp_path, of=of).parties}
    fewer = {row["party"]: row["rows"] for row in run(tmp_path, of={**of, "without": ["2"]}).parties}
    assert fewer == {party: count for party, count in rows.items() if party != 2}


@pytest.mark.parametrize("selector", [RandomParties(count=2), PoissonParties(fraction=0.4)], ids=["random", "poisson"])
def test_cohorts_that_miss_the_party_stay_and_the_others_are_drawn_as_if_it_had_never_been(selector):
    whole, without = federation(), federation(left_out=(4,))
    drawn, kept = [], 0
    for round in range(3000):
        whole.round = without.round = round
        before, after = (tuple(select(Choosing(selector), one, State({})).parties.tolist()) for one in (whole, without))
        assert 4 not in after
        assert before == after or 4 in before
        kept += before == after
        drawn.append(after)
    never = Counter(tuple(np.flatnonzero(np.array(list(np.binary_repr(code, 4))) == "1")) for code in range(16))
    chances = {cohort: chance(selector, len(cohort)) for cohort in never}
    counts = Counter(drawn)
    cohorts = [cohort for cohort, share in chances.items() if share]
    assert set(counts) <= set(cohorts)
    expected = [3000 * chances[cohort] for cohort in cohorts]
    assert chisquare([counts[cohort] for cohort in cohorts], expected).pvalue > 0.01
    assert 0 < kept < 3000


def chance(selector, size):
    """That of a cohort of this size among four parties, by hand: one of six pairs, or four coins."""
    return (size == 2) / 6 if isinstance(selector, RandomParties) else 0.4**size * 0.6**(4 - size)


class Choosing:
    """An algorithm as far as `select` looks at it."""

    def __init__(self, selector):
        self.selector, self.components = selector, type("Parts", (), {"learner": None, "local": None})


def federation(left_out=()):
    rows = Dataset.of(Schema.of_numbers("a", Target("none")), np.zeros((5, 1)))
    sizes = [0 if party in left_out else 1 for party in range(5)]
    partition = Partition(np.arange(sum(sizes)), np.concatenate([[0], np.cumsum(sizes)]))
    people = Population(rows, partition, Split(0.0, 0.0), left_out=left_out)
    return Federation(people, InlineEngine(), seed=5)


@pytest.mark.parametrize(("of", "keys", "message"), [
    ({"without": ["g"]}, {}, "there is no party called 'g'"),
    ({"without": list("abcdef")}, {}, "data.without leaves no party in the run"),
    ({"without_rows": {"b": [1000]}}, {}, "party 'b' holds no row with the id '1000'"),
    ({"without_rows": {"f": list(range(1132, 1150))}}, {}, "data.without_rows.f takes all rows of the party"),
    ({"without": ["f"], "without_rows": {"f": [1140]}}, {}, "data.without_rows.f would do nothing"),
    ({"without": ["f"]}, {"overrides": {"f": {"local": {"epochs": 2}}}}, r"\[overrides.f\] would do nothing"),
    ({"without": ["f"]}, {"rules": {"held_out": ["f"]}}, "rules.held_out names party 'f'"),
    ({"without": ["f"]}, {"selector": {"name": "fixed", "parties": ["a", "f"]}}, "selector.parties names party 'f'"),
    ({"without": ["f"]}, {"attack": {"name": "sign-flip", "parties": ["f"]}}, "attack.parties names party 'f'"),
    ({"without": ["f"]}, {"baselines": ["centralised"]}, "the baseline 'centralised' puts all rows in one place"),
])
def test_what_cannot_be_left_out_or_would_do_nothing_is_refused(of, keys, message, tmp_path):
    with pytest.raises((ConfigError, DataError), match=message):
        run(tmp_path, of=of, **keys)


def test_a_config_that_leaves_nobody_out_is_hashed_as_before():
    given = {"data": {"name": "wine"}}
    assert config_hash(complete(given)) == config_hash(complete({"data": {"name": "wine", "without": []}}))
    assert config_hash(complete(given)) != config_hash(complete({"data": {"name": "wine", "without": ["1"]}}))


# Forgetting


def test_only_rounds_since_the_party_joined_are_played_again(tmp_path):
    whole = run(tmp_path, rounds=8, selector={"name": "random", "count": 1})
    cohorts = chosen(whole)
    party = max(range(6), key=lambda one: next((place for place, now in enumerate(cohorts) if one in now), -1))
    joined = next(place for place, now in enumerate(cohorts) if party in now)  # counted from 0: rounds before it
    assert joined >= 2
    forgotten = tequio.forget(whole.folder, party="abcdef"[party], data=data())
    never = run(tmp_path, rounds=8, selector={"name": "random", "count": 1}, of={"without": ["abcdef"[party]]})
    assert sha(forgotten) == sha(never) != sha(whole)
    assert record_of(forgotten)["from_round"] == joined
    assert forgotten.metrics["round"] == list(range(joined + 1, 9))
    assert chosen(never)[:joined] == cohorts[:joined]
    assert chosen(forgotten) == chosen(never)[joined:]
    assert forgotten.summary["rounds"] == 8


def test_who_took_part_before_a_replay_is_not_forgotten_by_the_next(tmp_path):
    keys = {"rounds": 8, "selector": {"name": "random", "count": 1}}
    whole = run(tmp_path, **keys)
    first, *_, last = dict.fromkeys(party for cohort in chosen(whole) for party in cohort)
    once = tequio.forget(whole.folder, party="abcdef"[last], data=data())
    assert record_of(once)["from_round"] > 0
    twice = tequio.forget(once.folder, party="abcdef"[first], data=data())
    assert sha(twice) == sha(run(tmp_path, of={"without": ["abcdef"[first], "abcdef"[last]]}, **keys))
    assert record_of(twice)["because"] == "who took part in its first rounds is on record in another run"


def test_the_best_round_of_the_old_run_is_not_carried_over(tmp_path):
    whole = run(tmp_path, rounds=4, selector={"name": "random", "count": 2})
    forgotten = tequio.forget(whole.folder, party="f", data=data())
    assert forgotten.summary["best_round"] == 0 or forgotten.summary["best_round"] > record_of(forgotten)["from_round"]


@pytest.mark.parametrize(("keys", "of", "because"), [
    ({}, {}, "took part first in round 1"),
    ({"selector": {"name": "random", "count": 2}}, {"prepare": ["standardise"]}, "data.prepare hold its rows"),
    ({"selector": {"name": "random", "count": 2}, "algorithm": "scaffold"}, {}, "'scaffold' may look at parties"),
    ({"selector": {"name": "in-turn", "count": 2}}, {}, "the selector 'in-turn' draws other cohorts"),
    ({"selector": {"name": "random", "fraction": 0.25}}, {}, "the selector 'random' draws other cohorts"),
    ({"selector": {"name": "power-of-choice", "count": 2}}, {}, "the selector 'power-of-choice' may look"),
    ({"selector": {"name": "random", "count": 2}, "stop": {"patience": 5}}, {}, "stop rules look at its validation"),
    ({"selector": {"name": "random", "count": 2}, "stages": ["top-k"]}, {}, "[stages] may look"),
    ({"selector": {"name": "random", "count": 2}, "devices": "mobile"}, {}, "[devices] may look"),
    ({"selector": {"name": "random", "count": 2}, "rules": {"minimum_rows": 19}}, {}, "[rules] say who"),
])
def test_what_else_of_the_party_may_be_in_a_run_makes_it_start_anew(keys, of, because, tmp_path):
    whole = run(tmp_path, rounds=3, of=of, **keys)
    forgotten = tequio.forget(whole.folder, party="e", data=data(**of))
    assert because in record_of(forgotten)["because"]
    assert record_of(forgotten)["from_round"] == 0
    assert sha(forgotten) == sha(run(tmp_path, rounds=3, of={**of, "without": ["e"]}, **keys))


def test_rows_are_forgotten_from_a_file_of_ids(tmp_path):
    (tmp_path / "rows.txt").write_text("1003\n1004\n\n1030\n")
    whole = run(tmp_path)
    forgotten = tequio.forget(whole.folder, party="a", rows=tmp_path / "rows.txt", data=data())
    kept = ~np.isin(np.arange(1000, 1150), [1003, 1004, 1030])
    assert sha(forgotten) == sha(run(tmp_path, kept)) != sha(whole)
    assert record_of(forgotten)["rows"] == 3
    again = tequio.forget(forgotten.folder, party="a", rows=[1005], data=data())
    assert again.config.data.without_rows == {"a": ["1003", "1004", "1005", "1030"]}


def test_a_hostile_party_that_is_forgotten_takes_its_attack_along(tmp_path):
    whole = run(tmp_path, attack={"name": "sign-flip", "parties": ["f"]}, overrides={"f": {"local": {"epochs": 2}}})
    assert sha(tequio.forget(whole.folder, party="f", data=data())) == sha(run(tmp_path, SITES != "f"))


def test_other_rows_than_those_of_the_run_are_refused(tmp_path):
    whole = run(tmp_path, rounds=1)
    with pytest.raises(ConfigError, match="these are not the rows that the run was handed"):
        tequio.forget(whole.folder, party="f", data=data(SITES != "a"))


def test_it_is_written_down_and_versions_that_learned_from_it_are_flagged(tmp_path, capsys):
    wine = tequio.run(data={"name": "wine", "partition": {"name": "iid", "parties": 4}}, rounds=2,
                      engine={"workers": 1}, output={"folder": str(tmp_path / "runs")})
    registry = ModelRegistry(tmp_path / "models", "wine")
    registry.add(wine.folder)
    assert call(["forget", str(wine.folder), "--party", "2", "--models", str(tmp_path / "models"), "--why",
                 "asked to be forgotten", "--json", "--quiet"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["party"], said["why"], said["flagged"]) == ("2", "asked to be forgotten", ["wine 1"])
    assert json.loads((wine.folder / "superseded.json").read_bytes())["by"][0]["model_sha256"] == said["model_sha256"]
    with pytest.raises(ConfigError, match="version 1 of 'wine' is flagged: it learned from party '2', forgotten since"):
        registry.promote()
    registry.add(Path(said["folder"]))
    assert registry.promote().number == 2
    assert registry.flags() == {1: "it learned from party '2', forgotten since"}
