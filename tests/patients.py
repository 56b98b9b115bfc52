"""A made-up table as a hospital might export it, with everything in it that a newcomer's table has: odd names, an id, a
date, notes, gaps, few positives, a column that gives the answer away, one that gives the hospital away, and more."""

import csv

import numpy as np

HOSPITALS = {"North": 420, "St. Anna": 330, "Süd": 270, "Lakeside": 180}
WORDS = ["stable", "pain", "fever", "walking", "alone", "tired", "wound", "clean", "pressure", "family", "visit",
         "asked", "sleep", "appetite", "good", "cough", "dry", "home", "care", "plan", "check", "bloods", "again"]
LEAK = "readmission ward"


def patients(rows=1200, seed=5):
    """Columns by name, as texts; empty where a value is missing."""
    rng = np.random.default_rng(seed)
    hospital = np.repeat(list(HOSPITALS), list(HOSPITALS.values()))[rng.permutation(1200)][:rows]
    age = rng.normal(63, 14, rows).round().clip(18, 99).astype(int)
    severity = rng.choice(["low", "medium", "high"], rows, p=[0.5, 0.3, 0.2])
    crp = rng.lognormal(2, 1, rows).round(1)
    risk = 0.15 * (age - 63) + 3 * (severity == "high") + rng.logistic(0, 1, rows)
    readmitted = risk > np.quantile(risk, 0.93)
    numbers = rng.permutation(np.arange(100_000, 100_000 + 7 * rows, 7))
    columns = {
        "Patient Nr.": numbers,
        "Pat ID": [f"P-{number:06x}" for number in rng.permutation(numbers)],
        "Hospital": hospital,
        "admitted on": np.datetime64("2021-01-01") + rng.integers(0, 900, rows),
        "Arztbrief (frei)": [" ".join(rng.choice(WORDS, rng.integers(5, 14))) for _ in range(rows)],
        "Größe [cm]": rng.normal(171, 9, rows).round(1),
        'CRP "mg/l"': np.where(rng.random(rows) < 0.12, "", crp.astype(str)),
        "age": age,
        "severity": np.where(rng.random(rows) < 0.04, "NA", severity),
        "smoker?": rng.choice(["yes", "no", "former"], rows),
        "name": rng.choice(["A1", "B2", "C3", "D4"], rows),
        LEAK: np.where(readmitted, rng.choice(["W2", "W5"], rows), ""),
        "house.code": [f"H{sorted(HOSPITALS).index(one)}" for one in hospital],
        "country": ["DE"] * rows,
        "Alter": age,
        "empty": [""] * rows,
        "readmitted": np.where(readmitted, "yes", "no"),
    }
    return {name: [str(value) for value in values] for name, values in columns.items()}


def write(path, columns):
    """Columns as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
    return path
