"""What a secure sum costs from 10 to 10,000 simulated parties, in processor time: a table and a plot.

Run it on one core: `python benchmarks/secure_sum.py --out benchmarks`. All parties and the coordinator share a process,
so that a signature which many parties check is checked once there; in a deployment each party does so itself, and the
column `party ms` adds that. The first sum of a cohort also makes joint randomness; later ones use it.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population, state_name
from tequio.privacy.updates import Held
from tequio.registry import build

SIZES = {10: 10_000, 30: 10_000, 100: 10_000, 300: 10_000, 1000: 10_000, 3000: 1_000, 10_000: 100}
"""Numbers in an update, by parties."""

VERIFY = 40e-6
"""Seconds to check a signature on the machine of the table."""


class Timed(InlineEngine):
    """Adds up the processor time that parties take, by phase."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def collect(self):
        task, started = self._waiting[0].task, time.process_time()
        outcome = super().collect()
        self.seconds[task] += time.process_time() - started
        return outcome


def federation(parties: int, size: int) -> Federation:
    """Parties that hold random updates."""
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((parties, 1)), np.zeros(parties))
    population = Population(dataset, Partition(np.arange(parties), np.arange(parties + 1)), Split(0.0, 0.0))
    engine = Timed()
    engine.open(population)
    here = Federation(population, engine, rules=Rules(on_failure="continue", quorum=0.0))
    hold(here, size, 1)
    return here


def hold(here: Federation, size: int, round: int) -> None:
    """New updates for a round."""
    here.round, states = round, here.engine.states()
    draw = np.random.default_rng(round)
    here.engine.restore({party: {**states.get(party, {}), state_name(Held): {
        "round": round, "vectors": {"update": draw.standard_normal(size).astype(np.float32)}}}
        for party in range(len(here))})


def measure(parties: int, size: int) -> dict[str, float]:
    """The first and a later sum of a cohort."""
    here, stage = federation(parties, size), build("stage", "secure-sum", {})
    found: dict[str, float] = {"parties": parties, "numbers": size}
    for which, round in (("first s", 1), ("later s", 2)):
        if round > 1:
            hold(here, size, round)
        here.engine.seconds.clear()
        up, started = here.traffic.bytes_up, time.process_time()
        summed = stage.total(here, here.everyone(), "update", np.ones(parties), size)
        found[which] = time.process_time() - started
    at_parties, degree = sum(here.engine.seconds.values()), summed.notes["secure_sum"]["neighbours"]
    found |= {"neighbours": degree, "coordinator s": found["later s"] - at_parties,
              "party ms": 1e3 * (at_parties / parties + VERIFY * 3 * degree),
              "KB up": (here.traffic.bytes_up - up) / parties / 1e3}
    return found


def main() -> None:
    """Measure, and write what was found after each size."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path(__file__).parent)
    options.add_argument("--most", type=int, default=max(SIZES))
    given = options.parse_args()
    rows = []
    for parties in (count for count in SIZES if count <= given.most):
        rows.append(measure(parties, SIZES[parties]))
        write(rows, given.out)
        print({key: round(value, 2) for key, value in rows[-1].items()}, flush=True)


def write(rows: list[dict[str, float]], folder: Path) -> None:
    """The table, and the plot where matplotlib is."""
    names = ["parties", "numbers", "neighbours", "first s", "later s", "coordinator s", "party ms", "KB up"]
    lines = ["# What a secure sum costs", "", "Processor time on one core, all parties simulated in one process "
             "(`python benchmarks/secure_sum.py`). `first s` includes joint randomness.", "",
             f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += ["| " + " | ".join(f"{row[name]:,.2f}" if " " in name else f"{row[name]:,.0f}" for name in names) + " |"
              for row in rows]
    (folder / "SECURE_SUM.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.4))
    at = [row["parties"] for row in rows]
    for name, key, factor in (("a party", "party ms", 1.0), ("the coordinator, per party", "coordinator s", 1e3)):
        values = [row[key] * factor / (1 if key == "party ms" else row["parties"]) for row in rows]
        axes.loglog(at, values, marker="o", label=name)
    axes.set_xlabel("parties")
    axes.set_ylabel("ms of one core per sum")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(folder / "secure_sum.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
