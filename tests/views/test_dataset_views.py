"""Where a dataset comes from, in a word or two."""

from __future__ import annotations

from tequio import registry
from tequio.views.components import facts_of, where_is


def test_every_set_says_in_a_word_or_two_where_it_comes_from():
    """A long answer would squeeze the other columns of `tequio data list` out."""
    registry.load_everything()
    answers = {entry.name: where_is(facts_of(entry)) for entry in registry.entries("dataset")}
    assert {name: answer for name, answer in answers.items() if not 0 < len(answer) <= 16} == {}
