"""Shadow models are runs like the one that is attacked, on other halves of the rows; they go on where they stopped."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from dataclasses import replace

import numpy as np
import pytest

import tequio
from tequio.attacks.label_leakage import area_under_curve
from tequio.attacks.privacy.membership import lira_online
from tequio.errors import ConfigError
from tequio.experiments.running.scenario import make_scenario
from tequio.probing.probe import probe, probe_table, stored_table
from tequio.probing.shadows import Candidates, shadow_folder, shadows_of, train_shadow, train_shadows
from tequio.views.report import save_report

BASE = {"data": {"name": "digits", "test": 0.6, "one_class": "allow", "split": {"validation": 0.1, "test": 0.1},
                 "prepare": ["standardise"], "partition": {"name": "dirichlet", "parties": 5}},
        "rounds": 3, "learner": {"name": "mlp", "hidden": [32]},
        "local": {"name": "minibatch", "epochs": 10, "batch": 8, "learning_rate": 0.3},
        "algorithm": {"name": "fedavg", "weights": "uniform"}, "evaluation": {"at": ["coordinator"]}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tequio.run(BASE, output={"folder": str(tmp_path_factory.mktemp("shadowed"))})


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return tequio.run({"data": {"name": "breast-cancer", "test": 0.5, "partition": {"name": "iid", "parties": 3}},
                       "algorithm": {"name": "histogram-gbdt"}, "learner": {"name": "boosted-trees"}, "rounds": 5},
                      output={"folder": str(tmp_path_factory.mktemp("trees"))})


def candidates_of(result):
    found = []
    make_scenario(result.config, dealt=lambda population, test: found.append(
        Candidates.of(population, test, result.config.seed)) or population)
    return found[0]


def held(population, party, part="train"):
    """Rows of one part by their place in the population's data."""
    mine = np.isin(population.whole(party).rows, population.view(party).part(part).rows)
    return set(population.partition.party_rows(party)[mine].tolist())


def test_every_candidate_is_in_exactly_half_of_the_shadows_and_every_party_is_as_large_as_it_was(run):
    candidates = candidates_of(run)
    before = candidates.population
    inside = np.stack([candidates.inside(number, 0) for number in range(8)])
    assert (inside.sum(axis=0) == 4).all()
    assert len({line.tobytes() for line in inside}) == 8
    labels = candidates.rows.target
    chosen = set(candidates.chosen.tolist())
    for number in range(3):
        after = candidates.dealt(inside[number], seed=number + 1)
        taken = set(candidates.chosen[inside[number]].tolist())
        trained = set()
        for party in range(len(before)):
            assert Counter(labels[list(held(after, party))]) == Counter(labels[list(held(before, party))])
            assert held(after, party) - chosen == held(before, party) - chosen
            for part in ("validation", "test"):
                assert held(after, party, part) == held(before, party, part)
            trained |= held(after, party)
        assert trained & chosen == taken
        assert after.seed != before.seed


def test_members_are_the_rows_that_parties_trained_on_and_others_are_as_many_of_each_class(run):
    candidates = candidates_of(run)
    trained = set().union(*(held(candidates.population, party) for party in range(5)))
    members, others = (candidates.chosen[candidates.is_member == side] for side in (True, False))
    assert set(members.tolist()) <= trained
    assert not set(others.tolist()) & trained
    labels = candidates.rows.target
    assert Counter(labels[members]) == Counter(labels[others])


def test_a_row_that_two_parties_hold_is_no_candidate(run):
    candidates = candidates_of(run)
    population, test = candidates.population, candidates.rows.take(np.arange(len(candidates.population.dataset),
                                                                             len(candidates.rows)))
    rows = population.partition.rows.copy()
    shared = int(rows[-1])
    rows[0] = shared
    other = replace(population, partition=replace(population.partition, rows=rows), _views=OrderedDict())
    assert shared not in Candidates.of(other, test, 0).chosen


def test_dealt_the_members_again_parties_hold_what_they_held_prepared_as_it_was(run):
    candidates, again = candidates_of(run), make_scenario(run.config)
    scenario = make_scenario(run.config, dealt=lambda population, test: candidates.dealt(candidates.is_member, 7))
    for party in range(5):
        mine, own = (each.population.view(party).train.features.reshape(-1, 64) for each in (scenario, again))
        np.testing.assert_allclose(mine[np.lexsort(mine.T)], own[np.lexsort(own.T)], atol=1e-5)


def test_shadows_tell_members_and_are_trained_once(run):
    heard = []
    train_shadows(run, 4, listen=lambda kind, facts: heard.append((kind, facts["number"])))
    assert heard == [("cell", number) for number in (1, 2, 3, 4)]
    shadows, is_member = shadows_of(run, 4)
    assert area_under_curve(lira_online(shadows), is_member) > 0.55
    assert len(np.unique(shadows.answers, axis=0)) == 4
    train_shadows(run, 4, listen=lambda kind, facts: heard.append((kind, facts["number"])))
    assert len(heard) == 4


def test_shadows_of_trees_that_are_missing_are_trained_on_other_processes_and_come_out_the_same(trees):
    assert probe(trees, "rmia", shadows=4)["success"] > 0.5
    place, heard = shadow_folder(trees), []
    kept = {path.name: path.read_bytes() for path in place.iterdir()}
    assert sorted(kept) == ["0.npy", "1.npy", "2.npy", "3.npy"]
    for number in (1, 3):
        (place / f"{number}.npy").unlink()
    train_shadows(trees, 4, workers=2, listen=lambda kind, facts: heard.append(facts["number"]))
    assert heard == [2, 4]
    assert {path.name: path.read_bytes() for path in place.iterdir()} == kept


def test_a_shadow_that_was_interrupted_goes_on_from_its_checkpoint(run, monkeypatch):
    place = shadow_folder(run)
    shadows_of(run, 4)
    expected = np.load(place / "0.npy")
    (place / "0.npy").unlink()
    from tequio.experiments.running import runner

    rounds = runner.Run._round

    def fails_in_round_2(self, state):
        if self._federation.round == 1:
            raise KeyboardInterrupt
        return rounds(self, state)

    monkeypatch.setattr(runner.Run, "_round", fails_in_round_2)
    with pytest.raises(KeyboardInterrupt):
        train_shadow(run, 0)
    monkeypatch.undo()
    assert (place / "0" / "run" / "checkpoint").is_file()
    train_shadow(run, 0)
    np.testing.assert_array_equal(np.load(place / "0.npy"), expected)
    assert not (place / "0").exists()


def test_what_was_found_stands_in_table_json_and_report(run, tmp_path):
    table = probe_table([run], ["lira", "rmia"], {"shadows": 4})
    for row in table:
        assert row["low"] < row["success"] < row["high"]
        assert "found_at_1_percent" not in row  # 600 others are too few
    assert json.loads(json.dumps(table.rows)) == table.rows
    stored = [row for row in stored_table(run) if row["more"] == "shadows: 4"]
    assert [row["success"] for row in stored] == [row["success"] for row in table]
    save_report([run.folder], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Attacks on privacy" in page
    assert "the attacker is taken to know the rows in question" in page
    assert f"{table.rows[0]['success']:.3f} [{table.rows[0]['low']:.3f}, {table.rows[0]['high']:.3f}]" in page


def test_results_are_kept_for_each_number_of_shadows(run):
    assert probe(run, "lira", shadows=4) != probe(run, "lira", shadows=6)
    assert probe(run, "lira", shadows=4) != probe(run, "lira", shadows=4, offline=True)


@pytest.mark.parametrize("count", [2, 5])
def test_shadows_come_in_pairs(run, count):
    with pytest.raises(ConfigError, match="shadows"):
        probe(run, "lira", shadows=count)


def test_runs_without_rows_to_compare_with_are_refused(tmp_path, run):
    everything = tequio.run(BASE | {"data": BASE["data"] | {"test": 0.0}, "evaluation": {"at": ["parties"]},
                                    "rounds": 1, "local": {"epochs": 1}},
                            output={"folder": str(tmp_path)})
    with pytest.raises(ConfigError, match="no rows that the run was not trained on"):
        probe(everything, "lira")
    by_columns = {"name": "breast-cancer", "test": 0.5, "partition": {"name": "columns", "parties": 2}}
    columns = tequio.run({"data": by_columns, "algorithm": {"name": "split-nn"}, "rounds": 1},
                         output={"folder": str(tmp_path)})
    with pytest.raises(ConfigError, match="finds nothing of its kind"):
        probe(columns, "lira")
