"""Every contribution score: one a player, the same for the same stream, indifferent to how players are numbered."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.federation.contributions import Game

from .subjects import every, make


def concave_game(parts):
    """Worth grows with the sum of the members' parts, and more slowly the larger it is."""
    def worth(coalitions):
        return np.array([np.sqrt(sum(part for player, part in enumerate(parts) if mask >> player & 1))
                         for mask in coalitions])
    return Game(len(parts), worth)


def scores(name, parts, seed=0):
    return make("contribution", name).scores(concave_game(parts), np.random.default_rng(seed)).values


@every("contribution")
def test_the_same_stream_gives_the_same_scores(name):
    assert scores(name, [1, 2, 3]).tolist() == scores(name, [1, 2, 3]).tolist()


@every("contribution")
def test_one_party_has_the_whole_gain(name):
    assert scores(name, [4.0]) == pytest.approx([2.0])


@every("contribution")
def test_scores_go_with_the_party_and_not_with_its_number(name):
    assert scores(name, [3, 1, 2])[[1, 2, 0]] == pytest.approx(scores(name, [1, 2, 3]))


@every("contribution")
def test_who_brings_more_gets_more_and_who_brings_nothing_gets_nothing(name):
    found = scores(name, [0, 1, 2, 5])
    assert found[0] == pytest.approx(0.0)
    assert np.all(np.diff(found) > 0)
