"""Attacks by hand: what exactly a hostile party trains on and sends, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tequio.attacks.attack import Circumstances
from tequio.attacks.hostility import Hostility, Schedule
from tequio.attacks.together import hiding_deviations
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition
from tequio.errors import ConfigError, DataError
from tequio.federation.population import Population
from tequio.federation.rng import stream
from tequio.registry import build

NOW = Circumstances(round=1, hostile=2, parties=10)
CLASSES = tuple("0123456789")


def pictures(count: int = 40, side: int = 8) -> Dataset:
    draw = np.random.default_rng(0)
    return Dataset.of(Schema.of_images((3, side, side), CLASSES), draw.random((count, 3, side, side)) * 0.5,
                      np.arange(count) % 10)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def u(*values: float) -> dict[str, Any]:
    return {"w": np.array(values, dtype=np.float64)}


def test_random_labels_are_all_wrong_and_in_range() -> None:
    rows = pictures(200)
    flipped = build("attack", "label-flip").poison(rows, rng()).target
    assert (flipped != rows.target).all()
    assert set(np.unique(flipped)) <= set(range(10))
    assert 0.3 < (build("attack", "label-flip", {"share": 0.5}).poison(rows, rng()).target != rows.target).mean() < 0.7


def test_opposite_labels() -> None:
    flipped = build("attack", "label-flip", {"labels": "opposite"}).poison(pictures(), rng()).target
    np.testing.assert_array_equal(flipped, 9 - np.arange(40) % 10)


@pytest.mark.parametrize(("trigger", "lit"), [("diagonal", {(4, 6), (5, 5), (6, 4), (6, 6)}),
                                              ("block", {(7, 7), (7, 6), (6, 7), (6, 6)})])
def test_the_trigger_lights_the_published_pixels_in_all_channels(trigger: str, lit: set[tuple[int, int]]) -> None:
    rows = pictures()
    stamped = build("attack", "backdoor", {"trigger": trigger}).triggered(rows, every_class=True)
    changed = np.argwhere((stamped.features != rows.features).any(axis=(0, 1)))
    assert {(int(row), int(column)) for row, column in changed} == lit
    assert all((stamped.features[:, :, row, column] == 1.0).all() for row, column in lit)


def test_a_backdoor_duplicates_half_of_the_rows_and_labels_the_copies() -> None:
    rows = pictures()
    poisoned = build("attack", "backdoor", {"target": 3}).poison(rows, rng())
    assert len(poisoned) == 60
    np.testing.assert_array_equal(poisoned.features[:40], rows.features)
    np.testing.assert_array_equal(poisoned.target[:40], rows.target)
    assert (poisoned.target[40:] == 3).all()
    assert (poisoned.features[40:, :, -2, -2] == 1.0).all()


def test_its_success_is_counted_on_rows_of_other_classes() -> None:
    attack = build("attack", "backdoor", {"target": 3})
    assert len(attack.triggered(pictures())) == 36
    assert len(attack.triggered(pictures(), every_class=True)) == 40
    assert set(attack.triggered(pictures()).target) == {3}


def test_a_backdoor_needs_a_class_and_room_for_its_trigger() -> None:
    with pytest.raises(ConfigError, match="no class"):
        build("attack", "backdoor", {"target": 10}).poison(pictures(), rng())
    with pytest.raises(DataError, match="4 x 4"):
        build("attack", "backdoor").poison(pictures(side=3), rng())
    numbers = Dataset.of(Schema.of_numbers("ab", Target("number")), np.zeros((3, 2)), np.zeros(3))
    for name in ("backdoor", "label-flip", "sybils"):
        with pytest.raises(ConfigError, match="kind 'number'"):
            build("attack", name).poison(numbers, rng())


@pytest.mark.parametrize(("name", "parameters", "expected"), [
    ("sign-flip", {}, [-1.0, 2.0]), ("sign-flip", {"scale": 3.0}, [-3.0, 6.0]), ("mean", {}, [-4.0, 8.0]),
    ("backdoor", {}, [4.0, -8.0]), ("backdoor", {"scale": 2.5}, [2.5, -5.0]),
    ("free-rider", {"deviation": 0.0}, [0, 0]),
])
def test_forged_updates(name: str, parameters: dict[str, Any], expected: list[float]) -> None:
    np.testing.assert_array_equal(build("attack", name, parameters).forge(u(1, -2), NOW, rng())["w"], expected)


def test_the_mean_attack_cancels_a_plain_mean() -> None:
    forged = [build("attack", "mean").forge(u(1, -2), NOW, rng())["w"]] * 2
    np.testing.assert_allclose(np.mean([*forged, *([u(1, -2)["w"]] * 8)], axis=0), 0, atol=1e-15)


def test_noise_has_its_deviation_and_fades_for_free_riders() -> None:
    zero = {"w": np.zeros(20_000)}
    noise = build("attack", "gaussian", {"deviation": 3.0}).forge(zero, NOW, rng())["w"]
    assert noise.std() == pytest.approx(3.0, rel=0.03)
    later = Circumstances(round=4, hostile=1, parties=3)
    rider = build("attack", "free-rider", {"deviation": 2.0, "fading": 0.5})
    assert rider.forge(zero, later, rng())["w"].std() == pytest.approx(1.0, rel=0.03)


def test_inner_product_and_a_little_is_enough() -> None:
    honest, hostile = [u(1, 4), u(3, 8)], [u(9, 9), u(9, 9)]
    for sent in build("attack", "inner-product", {"scale": 0.5}).conspire(hostile, honest, NOW, rng()):
        np.testing.assert_array_equal(sent["w"], [-1, -3])
    for sent in build("attack", "alie", {"deviations": 1.5}).conspire(hostile, honest, NOW, rng()):
        np.testing.assert_allclose(sent["w"], [2 - 1.5, 6 - 3.0])


def test_the_deviations_that_hide() -> None:
    """n = 50, m = 24: two supporters are needed, and 24 of 26 honest parties lie nearer than z."""
    assert hiding_deviations(50, 24) == pytest.approx(1.4260768722)
    assert hiding_deviations(10, 0) == pytest.approx(0.0)


@pytest.mark.parametrize(("hostile", "parties", "fraction"), [(2, 10, 0.3), (1, 5, 0.4), (2, 12, 0.25)])
def test_where_the_papers_deviations_are_nought_it_takes_the_usual_ones(hostile: int, parties: int,
                                                                         fraction: float) -> None:
    assert hiding_deviations(parties, hostile) == 0.0
    honest = [u(*values) for values in np.random.default_rng(0).normal(size=(parties - hostile, 3))]
    now = Circumstances(1, hostile, parties)
    auto = build("attack", "alie")
    auto.check(now)
    matrix = np.stack([update["w"] for update in honest])
    for sent in auto.conspire([u(9, 9, 9)] * hostile, honest, now, rng()):
        np.testing.assert_allclose(sent["w"], matrix.mean(axis=0) - 1.5 * matrix.std(axis=0))
    advice = rf"set attack\.deviations = 1\.5, or attack\.fraction = {fraction:.2f}"
    with pytest.raises(ConfigError, match=rf"is 0 with {hostile} of {parties} parties hostile.*{advice}"):
        build("attack", "alie", {"deviations": "paper"}).check(now)
    more = Circumstances(1, round(fraction * parties), parties)
    build("attack", "alie", {"deviations": "paper"}).check(more)


def test_where_the_papers_deviations_are_not_nought_it_takes_them() -> None:
    honest, now = [u(*values) for values in np.random.default_rng(0).normal(size=(26, 3))], Circumstances(1, 24, 50)
    auto, paper = (build("attack", "alie", {"deviations": how}).conspire([u(9, 9, 9)] * 24, honest, now, rng())[0]["w"]
                   for how in ("auto", "paper"))
    matrix = np.stack([update["w"] for update in honest])
    np.testing.assert_allclose(paper, matrix.mean(axis=0) - 1.4260768722 * matrix.std(axis=0))
    np.testing.assert_array_equal(auto, paper)


def test_an_attack_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"attack\.source and attack\.target are both 3"):
        build("attack", "sybils", {"source": 3, "target": 3}).check(NOW)
    with pytest.raises(ConfigError, match=r"attack\.last_round = 2 is before attack\.first_round = 3"):
        Hostility.of(build("attack", "mean"), Schedule(first_round=3, last_round=2), people())


def test_sybils_share_a_purpose_and_an_update() -> None:
    attack = build("attack", "sybils", {"source": 1, "target": 7, "disguise": 0.01})
    rows = pictures()
    target = attack.poison(rows, rng()).target
    assert (target[rows.target == 1] == 7).all()
    np.testing.assert_array_equal(target[rows.target != 1], rows.target[rows.target != 1])
    sent = attack.conspire([u(*np.ones(1000)), u(*np.zeros(1000)), u(*np.zeros(1000))], [], NOW, rng())
    assert all(0.005 < np.std(one["w"]) < 0.02 for one in sent)
    assert not np.array_equal(sent[0]["w"], sent[1]["w"])


def people(count: int = 10) -> Population:
    rows = pictures()
    names = tuple(f"p{number}" for number in range(count))
    return Population(rows, Partition.of(np.array_split(np.arange(40), count), names=names), seed=3)


def test_hostile_parties_are_named_or_drawn() -> None:
    assert Schedule(parties=("p7", "p2")).hostile(people()) == (2, 7)
    drawn = Schedule(fraction=0.3).hostile(people())
    assert len(drawn) == 3
    assert drawn == tuple(sorted(stream(3, "hostile").choice(10, 3, replace=False).tolist()))
    assert len(Schedule(fraction=0.01).hostile(people())) == 1
    with pytest.raises(ConfigError, match=r"all 2 parties would be hostile; name fewer in attack\.parties"):
        Schedule(parties=("p0", "p1")).hostile(people(2))
    with pytest.raises(DataError, match="no party called"):
        Schedule(parties=("nobody",)).hostile(people())


def test_the_schedule_says_when() -> None:
    schedule = Schedule(parties=("p1",), first_round=3, last_round=8, every=2)
    hostility = Hostility.of(build("attack", "mean"), schedule, people())
    assert [round for round in range(1, 12) if hostility._attacks(1, round)] == [3, 5, 7]
    assert not any(hostility._attacks(0, round) for round in range(12))
