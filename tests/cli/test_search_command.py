"""`tequio search`: the table, the best config, JSON, and what it refuses."""

from __future__ import annotations

import json

SEARCH = """
[search]
metric = "validation.loss"
seeds = [0, 1]
[search.space]
"local.learning_rate" = [0.5, 0.01]
"""


def test_the_best_config_is_written_and_runs(tequio, toy):
    toy.write_text(toy.read_text() + SEARCH)
    code, out, _ = tequio("search", "toy.toml", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["best"] == {"local.learning_rate": 0.5}
    assert (found["seeds"], len(found["table"])) == (2, 2)
    assert tequio("run", found["config"], "--quiet")[0] == 0
    _, out, _ = tequio("search", "toy.toml")
    assert "best of 2 trials" in out
    assert "config    runs/toy-search/best.toml" in out


def test_test_rows_are_refused_and_run_points_to_search(tequio, toy):
    toy.write_text(toy.read_text() + SEARCH)
    code, _, err = tequio("search", "toy.toml", "--set", "search.metric=test.loss")
    assert code == 2
    assert "may not choose by 'test.loss'" in err
    code, _, err = tequio("run", "toy.toml")
    assert code == 2
    assert "tequio search toy.toml" in err
