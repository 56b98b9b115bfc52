"""Write down the numbers of a version, to see later that they have not moved.

    python benchmarks/run_numbers.py record numbers.json     # model_sha256 and final metrics of everything below
    python benchmarks/run_numbers.py compare numbers.json    # run it again; exit 1 if anything differs
    python benchmarks/run_numbers.py compare numbers.json --only examples/quickstart

Everything: the examples as they are, and every algorithm in two small runs: that of the contract tests
(`tests/contracts/runs.py`), and one with their learners at full size, equal parties and three rounds.
One thread, so that sums come in one order on every machine. The package is the one on the Python path.
"""

# ruff: noqa: E402  (libraries read the number of threads, and Python its path, before they are imported)
from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import tomllib
from itertools import product
from math import isclose, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
os.environ |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}

import tequio
from contracts import runs
from tequio import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Numbers = dict[str, Any]

_COST = ("seconds", "bytes", "messages")
_NOISY = {"examples/bank-and-insurer": 1e-3}
"""Encryption that rounds differently each time: how far metrics may move."""


def jobs(examples: Path) -> Iterator[tuple[str, Callable[[str], Iterator[tuple[str, Any]]]]]:
    """Names and what to run: a function from a folder to labels and results."""
    for path in sorted(examples.glob("*.toml")):
        yield f"examples/{path.stem}", lambda folder, path=path: example(path, folder)
    for name in registry.names("algorithm"):
        yield f"small/{name}", lambda folder, name=name: single(runs.config_of(name), folder)
        yield f"contract/{name}", lambda folder, name=name: single(as_in_the_contract_tests(name), folder)


def example(path: Path, folder: str) -> Iterator[tuple[str, Any]]:
    """The runs of an example: one, or one per combination of its sweep; baselines come after their run."""
    output = {"folder": folder}
    axes = tomllib.loads(path.read_text(encoding="utf-8")).get("sweep", {})
    if not axes:
        yield from _with_baselines(tequio.run(path, output=output))
        return
    results = tequio.sweep(path, output=output).results
    seeds = axes.pop("seeds", [None])
    labels = [_label(dict(zip([*axes, "seed"], values, strict=True))) for values in product(*axes.values(), seeds)]
    yield from zip(labels, results, strict=True)


def single(config: dict[str, Any], folder: str) -> Iterator[tuple[str, Any]]:
    """One run."""
    yield from _with_baselines(tequio.run(**config, output={"folder": folder}))


def as_in_the_contract_tests(name: str) -> dict[str, Any]:
    """The same algorithm on 120 rows that all belong to parties of equal size, with larger learners, three rounds."""
    config = runs.config_of(name)
    config["data"] = data = {**config["data"], "test": 0.0}
    data["name"] = {column: values[:120] for column, values in data["name"].items()}
    if data["partition"]["name"] == "quantity":
        data["partition"] = {"name": "iid", "parties": 6}
    kind = runs.LEARNERS.get(name, "logistic")
    if kind in ("boosted-trees", "cart", "xgboost"):
        config["learner"] = {"name": config["learner"]["name"]}
    if kind == "random-forest":
        config["learner"] |= {"trees": 10, "depth": 2}
    if name == "voting":
        config["algorithm"] = {"name": name, "learners": ["cart", config.pop("learner")["name"]]}
    return config | {"rounds": 3}


def numbers_of(name: str, run: Callable[[str], Iterator[tuple[str, Any]]]) -> Numbers:
    """What a job's runs end with, and the seconds that all of it took."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        try:
            found = {label: {"model_sha256": result.summary["model_sha256"], "rounds": result.summary["rounds"],
                             "metrics": {key: value for key, value in result.summary["metrics"].items()
                                         if not any(word in key for word in _COST)},
                             "seen": runs.fingerprint(result)}
                     for label, result in run(folder)}
        except tequio.TequioError as error:
            found = {"error": str(error)}
        return {"seconds": round(time.perf_counter() - started, 2), "runs": found}


def differences(name: str, before: Numbers, after: Numbers) -> Iterator[str]:
    """What moved, a line each."""
    for label in dict.fromkeys([*before["runs"], *after["runs"]]):
        where = f"{name} [{label}]" if label else name
        old, new = before["runs"].get(label), after["runs"].get(label)
        if old is None or new is None:
            yield f"{where}: {'is new' if old is None else 'is gone'} {new if label == 'error' else ''}".rstrip()
        elif isinstance(old, str):
            if old != new:
                yield f"{where}: {old} -> {new}"
        elif name in _NOISY:
            if any(not isclose(value, new["metrics"].get(key, nan), rel_tol=_NOISY[name])
                   for key, value in old["metrics"].items() if value is not None):
                yield f"{where}: {_moved(old, new)}"
        elif old["model_sha256"] != new["model_sha256"]:
            yield f"{where}: model {old['model_sha256'][:12]} -> {new['model_sha256'][:12]}; {_moved(old, new)}"
        elif old["metrics"] != new["metrics"]:
            yield f"{where}: same model; {_moved(old, new)}"


def _moved(old: Numbers, new: Numbers) -> str:
    before, after = old["metrics"], new["metrics"]
    changed = [f"{key} {before.get(key)} -> {after.get(key)}" for key in dict.fromkeys([*before, *after])
               if before.get(key) != after.get(key)]
    return f"{len(changed)} metrics differ" + (f": {', '.join(changed[:3])}" if changed else "")


def _with_baselines(result: Any) -> Iterator[tuple[str, Any]]:
    yield "", result
    yield from result.baselines.items()


def _label(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]}={value.get('name', '-') if isinstance(value, dict) else value}"
                     for key, value in settings.items() if value is not None)


def main() -> int:
    """Record or compare; both print a line as soon as a job is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="jobs whose name begins so")
    parser.add_argument("--examples", type=Path, default=ROOT / "examples")
    given = parser.parse_args()
    recorded: Numbers = json.loads(given.file.read_text(encoding="utf-8")) if given.file.exists() else {}
    moved = []
    for name, run in jobs(given.examples):
        if not name.startswith(given.only) or (given.what == "record" and name in recorded):
            continue
        found = numbers_of(name, run)
        if given.what == "record":
            recorded[name] = found
            given.file.write_text(json.dumps(recorded, indent=1), encoding="utf-8")
            print(f"{name}: {found['seconds']} s{' ' + found['runs']['error'] if 'error' in found['runs'] else ''}",
                  flush=True)
            continue
        before = recorded.get(name)
        lines = [f"{name}: was not recorded"] if before is None else list(differences(name, before, found))
        moved += lines
        print("\n".join(lines) or f"{name}: the same, {found['seconds']} s (was {before['seconds']})", flush=True)
    print(f"{len(moved)} differences" if given.what == "compare" else f"{len(recorded)} jobs in {given.file}")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
