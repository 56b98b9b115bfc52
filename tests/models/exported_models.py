"""Small models of every kind, trained on a table with numbers, texts and missing values, and rows to ask them about."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import onnxruntime

import tequio
from tequio.data.dataset import Dataset, Schema, Target
from tequio.learners.answers import One
from tequio.models.model import Model
from tequio.models.rows import Reading

KINDS = {
    "logistic": ("fedavg", "logistic", ["standardise", "one-hot"]),
    "two classes": ("fedavg", "logistic", [{"name": "drop", "columns": ["kind", "city"]}, "minmax"]),
    "mlp": ("fedavg", {"name": "mlp", "hidden": [8, 5], "activation": "tanh"}, ["one-hot", "minmax"]),
    "batch normalisation": ("fedavg", {"name": "torch", "module": "contracts.normalised:build",
                                       "arguments": {"inputs": 4, "outputs": 3}}, ["standardise", "ordinal"]),
    "logistic-regression": ("fedavg", "logistic-regression", ["log1p", "one-hot", "standardise"]),
    "sgd-classifier": ("fedavg", "sgd-classifier", ["discretise", "one-hot", "standardise"]),
    "id3": ("federated-id3", "id3", ["discretise"]),
    "id3, observed": ("federated-id3", {"name": "id3", "children": "observed", "depth": 4}, [
        {"name": "discretise", "bins": 9}, {"name": "regroup", "groups": {"city": {"north": ["oslo", "bergen"]}}}]),
    "cart": ("icdta4fl", "cart", ["standardise", "ordinal"]),
    "forest": ("fedrf", {"name": "random-forest", "depth": 4}, ["standardise", "one-hot"]),
    "majority": ("fedrf", {"name": "random-forest", "voting": "majority"}, ["one-hot"]),
    "boosted": ("histogram-gbdt", {"name": "boosted-trees", "depth": 3}, [
        {"name": "discretise", "method": "cuts", "cuts": {"age": [30, 40.5, 55]}}, "one-hot", "standardise"]),
    "xgboost": ("xgboost-bagging", {"name": "xgboost", "depth": 3}, ["one-hot", "log1p", "standardise"]),
    "voting": ({"name": "voting", "learners": ["cart", {"name": "mlp", "hidden": [4]}, "logistic-regression"]}, None,
               ["one-hot", "standardise"]),
}
"""Algorithm, learner and preparation of each kind of model."""

TREES = ["id3", "id3, observed", "cart", "forest", "majority", "boosted", "xgboost"]


def table(count=140, seed=0):
    """Columns as a CSV file holds them: texts, an empty one where a value is missing."""
    draw = np.random.default_rng(seed)
    age, income = np.round(draw.normal(40, 12, count), 1), np.round(draw.gamma(2, 1000, count), 2)
    city = draw.choice(["leon", "oslo", "rome", "bergen"], count)
    score = (age - 40) / 12 + 1.5 * (city == "oslo") - income / 3000 + draw.normal(0, 0.3, count)
    columns = {"age": age.astype(str).astype(object), "income": income.astype(str).astype(object),
               "city": city.astype(object), "kind": draw.choice(["a", "b"], count).astype(object)}
    columns["age"][[3, 50]] = columns["city"][[7, 9]] = ""
    return columns | {"y": np.where(score > 0.5, "high", np.where(score > -0.7, "mid", "low")).astype(object)}


def write(path, columns):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows(zip(*columns.values(), strict=True))
    return str(path)


def run(folder, algorithm, learner, prepare, columns=None, **data):
    """A run on rows of a CSV file."""
    columns = columns or table()
    path = write(folder / "rows.csv", columns)
    more = {"learner": learner} if learner else {}
    return tequio.run(name="small", seed=3, rounds=2, output={"folder": str(folder / "runs")}, algorithm=algorithm,
                      data={"name": "csv", "path": path, "target": "y", "missing": "median", "test": 0.2,
                            "prepare": prepare, "partition": {"name": "iid", "parties": 3}, **data},
                      engine={"name": "local", "workers": 1}, **more)


def trained(folder, kind):
    algorithm, learner, prepare = KINDS[kind]
    columns = table()
    if kind == "two classes":
        columns["y"] = np.where(columns["y"] == "high", "1", "-1").astype(object)
    return run(folder, algorithm, learner, prepare, columns).trained


def of_learner(learner, features, classes="abc"):
    """A model with fresh parameters for rows that are arrays."""
    shape = features.shape[1:]
    schema = Schema(Schema.of_images(shape, classes).features, Target("classes", tuple(classes)), shape)
    rows = Dataset.of(schema, features, np.zeros(len(features), np.int64))
    return Model(Reading.of(rows), One(learner, learner.initial(schema, np.random.default_rng(5))))


def inputs_of(session, columns):
    """What a session wants of columns that a CSV file holds."""
    return {given.name: columns[given.name][:, None] if given.type == "tensor(string)" else
            np.array([float(text) if text != "" else np.nan for text in columns[given.name]])[:, None]
            for given in session.get_inputs()}


def session_of(path):
    return onnxruntime.InferenceSession(str(path))


def edges(document, columns):
    """Rows exactly at every bound of a model's rules, and at the numbers next to it, with other columns drawn."""
    bounds = {}
    for condition in conditions(document):
        found = {condition[key] for key in ("above", "up_to") if key in condition}
        bounds.setdefault(condition["column"], set()).update(found)
    draw, rows = np.random.default_rng(1), {name: [] for name in columns if name != "y"}
    for name, found in bounds.items():
        for bound in sorted(found):
            for value in (np.nextafter(bound, -np.inf), bound, np.nextafter(bound, np.inf)):
                for other, kept in rows.items():
                    kept.append(repr(float(value)) if other == name else draw.choice(columns[other]))
    return {name: np.array(kept, dtype=object) for name, kept in rows.items()}


def conditions(part):
    if isinstance(part, dict):
        if "column" in part:
            yield from ({"column": part["column"], **one} for one in part.get("any_of", [part]))
        else:
            for inner in part.values():
                yield from conditions(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from conditions(inner)


def answer_by_rules(document, row):
    """An evaluator of rules that knows nothing but the file."""
    values = {}
    for column in document["columns"]:
        if column["kind"] == "flag":
            values[column["name"]] = float(row[column["of"]] == "")
            continue
        text = row[column["name"]]
        values[column["name"]] = column["missing"] if text == "" else \
            float(text) if column["kind"] == "number" else text
    scores = list(document["start"])
    for tree in document.get("trees", []):
        [rule] = [rule for rule in tree if all(holds(part, values[part["column"]]) for part in rule["if"])]
        scores = [one + more for one, more in zip(scores, rule["adds"], strict=True)]
    for term in document.get("terms", []):
        value = values[term["column"]]
        if "times" in term:
            for step in term.get("steps", []):
                value = math.log1p(value) if step == "log1p" else (value - step[0]) / step[1]
            scores = [one + factor * value for one, factor in zip(scores, term["times"], strict=True)]
        elif holds(term, value):
            scores = [one + more for one, more in zip(scores, term["adds"], strict=True)]
    scores = [one / document["divide"] for one in scores]
    if document["link"] == "softmax":
        powers = [math.exp(one - max(scores)) for one in scores]
        return [power / sum(powers) for power in powers]
    if document["link"] in ("logistic", "labels"):
        scores = [1 / (1 + math.exp(-one)) for one in scores]
    return [1 - scores[0], scores[0]] if document["link"] == "logistic" else scores


def holds(part, value):
    if "in" in part:
        return value in part["in"]
    if "any_of" in part:
        return any(holds(one, value) for one in part["any_of"])
    return part.get("above", -math.inf) < value <= part.get("up_to", math.inf)


def rules_of(model, folder):
    return json.loads(model.export("rules", folder / "rules.json").read_text())


def rows_of(columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
