import numpy as np
import pytest

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario


def table(labels, groups, values=None):
    target = Target("classes", ("no", "yes"))
    values = np.arange(len(labels), dtype=float) if values is None else np.asarray(values, dtype=float)
    features = np.column_stack([values, np.arange(len(labels)) % 2])
    return Dataset.of(Schema((Feature("size"), Feature("kind", ("a", "b"))), target), features, labels, groups=groups)


def scenario(dataset, **data):
    keys = {"name": "given", "test": 0.0, "partition": {"name": "natural"}, "split": {"validation": 0, "test": 0}}
    return make_scenario(complete({"data": keys | data}), dataset)


def test_rows_are_held_out_before_they_are_dealt():
    dataset = table([0, 1] * 20, np.arange(40) // 10)
    made = scenario(dataset, test=0.25)
    held_out, dealt = set(made.test.ids), set(made.population.dataset.ids[made.population.partition.rows])
    assert (len(held_out), len(dealt)) == (10, 30)
    assert not held_out & dealt


def test_an_official_test_part_is_kept_as_it_is(given):
    made = make_scenario(complete({**given, "data": {**given["data"], "official_test": True, "test": 0.5}}))
    assert list(made.test.target) == [7.0]
    assert len(made.population.dataset) == 6


def test_federated_preparation_uses_the_statistics_of_all_training_rows():
    made = scenario(table([0, 1] * 3, [0, 0, 0, 1, 1, 1], [1, 2, 3, 4, 5, 9]), prepare=["standardise"])
    pooled = np.array([1, 2, 3, 4, 5, 9.0])
    assert made.population.dataset.features[:, 0] == pytest.approx((pooled - 4) / pooled.std())


def test_preparation_never_looks_at_rows_that_judge_the_model():
    rows = 40
    dataset = table([0, 1] * 20, np.arange(rows) // 20, np.arange(rows) ** 2)
    made = scenario(dataset, prepare=["standardise"], test=0.25, split={"validation": 0.25, "test": 0.25})
    trains = [made.population.view(party).train for party in range(2)]
    joined = np.concatenate([part.features[:, 0] for part in trains])
    assert joined.mean() == pytest.approx(0, abs=1e-6)
    assert joined.std() == pytest.approx(1, rel=1e-6)
    original = {int(row): value for row, value in zip(dataset.ids, dataset.features[:, 0], strict=True)}
    fitted_on = np.concatenate([[original[int(row)] for row in part.ids] for part in trains])
    expected = [(original[int(row)] - fitted_on.mean()) / fitted_on.std() for row in made.test.ids]
    assert made.test.features[:, 0] == pytest.approx(np.array(expected), rel=1e-5)


def test_local_preparation_uses_each_partys_own_statistics():
    made = scenario(table([0, 1] * 3, [0, 0, 0, 1, 1, 1], [1, 2, 3, 4, 5, 9]), prepare=["standardise"],
                    prepare_scope="local")
    for party, own in enumerate(([1, 2, 3], [4, 5, 9])):
        expected = (np.array(own) - np.mean(own)) / np.std(own)
        assert made.population.view(party).train.features[:, 0] == pytest.approx(expected)
    assert made.population.name(1) == "1"
    assert list(made.population.view(1).train.target) == [1, 0, 1]


def test_preparation_may_change_the_columns():
    made = scenario(table([0, 1] * 3, [0, 0, 0, 1, 1, 1]), prepare=["one-hot"])
    assert made.population.schema.names == ("size", "kind=a", "kind=b")


def test_a_party_with_one_class_is_refused_and_may_be_allowed():
    dataset = table([0, 1, 0, 1, 1, 1], ["ana", "ana", "beto", "beto", "caro", "caro"])
    with pytest.raises(DataError, match="1 of 3 parties have rows of one class only: party 'caro'") as caught:
        scenario(dataset)
    assert "data.one_class = 'allow'" in caught.value.remedy
    said = "1 of 3 parties have rows of one class only: party 'caro'"
    assert scenario(dataset, one_class="allow").warnings[0].startswith(said)
    assert not any("one class" in warning for warning in scenario(table([0, 1, 0, 1], [0, 0, 1, 1])).warnings)


def test_overrides_name_parties_that_exist(given):
    with pytest.raises(DataError, match="there is no party called 'zoe'"):
        make_scenario(complete({**given, "overrides": {"zoe": {"share_rows": True}}}))


def test_stop_rules_without_validation_rows_are_refused(given):
    with pytest.raises(ConfigError, match="look at the parties' validation rows, and there are none"):
        make_scenario(complete({**given, "stop": {"patience": 3}}))
    with pytest.raises(ConfigError, match="there is no metric called 'acuracy'; did you mean 'accuracy'"):
        make_scenario(complete({**given, "stop": {"metric": "acuracy"}}))


def test_a_given_dataset_has_to_be_given_again():
    with pytest.raises(ConfigError, match="handed over as an object"):
        scenario(None)
