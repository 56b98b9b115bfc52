"""Race tequio, its peers and a plain PyTorch loop on the same work, and write ``benchmarks/RESULTS.md``.

``.venv/bin/python benchmarks/compare.py`` runs every peer that has an environment (``benchmarks/peers/setup.py`` makes
them). First they all do one small problem and must end with the same weights; only then are they timed, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
RESULTS = HERE / "RESULTS.md"
METHOD = HERE / "METHOD.md"
PEER_NAMES = {"flower": "Flower", "pfl": "pfl-research", "flex": "FLEX", "fedjax": "FedJAX"}
OURS, PLAIN = "tequio", "plain PyTorch loop"

# Measured rounds in one turn. A round of the CNN takes seconds, so few of them are enough for a steady best.
ROUNDS = {"mlp": 10, "cnn": 2, "logistic": 20}
CASES = {
    "mlp": "100 parties x 600 rows x 784 features, MLP 784-128-10 (101,770 parameters), 20 parties a round, batch 20",
    "cnn": "1,000 parties x 50 images 3x32x32, CNN of 1,626,442 parameters, 50 parties a round, batch 10",
    "logistic": "1,000 parties x 50 rows x 784 features, multinomial logistic regression (7,850 parameters), "
    "50 parties a round, batch 10",
}
SAME_WEIGHTS_TOLERANCE = 1e-5
TURN_LIMIT_SECONDS = 1_800


class TurnFailed(Exception):
    """A contestant ended without a document; the message is its own last line."""


@dataclass
class Standing:
    """What one contestant has shown so far in one case."""

    name: str
    documents: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None

    @property
    def best(self) -> dict[str, Any] | None:
        """The document of its fastest turn."""
        return min(self.documents, key=seconds_of, default=None)


def seconds_of(document: dict[str, Any]) -> float:
    """Best seconds a round in a document, ours or a peer's."""
    return float(document["seconds"] if "seconds" in document else document["seconds_per_round"]["best"])


def cause_in(complaint: str) -> str:
    """The line of a program's complaint that names the cause: the first in tequio's box, the last of a traceback."""
    lines = [line.strip(" \t─│╭╮╰╯") for line in complaint.splitlines()]
    said = [line for line in lines if line]
    boxed = [number for number, line in enumerate(complaint.splitlines()) if line.startswith("╭")]
    if boxed:
        return " ".join(line for line in lines[boxed[-1] : boxed[-1] + 4] if line)
    return said[-1] if said else ""


def run_for_json(command: Sequence[str | Path]) -> dict[str, Any]:
    """Run a contestant and read the document it prints last."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TURN_LIMIT_SECONDS, cwd=HERE.parent, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TurnFailed(f"no result after {TURN_LIMIT_SECONDS} s") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise TurnFailed(cause_in(done.stderr) or f"exit code {done.returncode}")
    document: dict[str, Any] = json.loads(lines[-1])
    return document


def race_command(contestant: str, case: str, rounds: int, workers: int) -> list[str | Path]:
    """How a contestant other than ours is started."""
    if contestant == PLAIN:
        start: list[str | Path] = [sys.executable, HERE / "plain_loop.py"]
    else:
        start = [PEERS / ".envs" / contestant / "bin" / "python", PEERS / f"run_{contestant}.py"]
    return [*start, "--case", case, "--rounds", str(rounds), "--workers", str(workers), "--json"]


def take_turn(contestant: str, case: str, rounds: int, workers: int) -> dict[str, Any]:
    """One turn of one contestant."""
    if contestant != OURS:
        return run_for_json(race_command(contestant, case, rounds, workers))
    bench = [sys.executable, "-m", "tequio", "bench", "--case", case, "--repeats", str(rounds), "--json"]
    answer = run_for_json([*bench, "--workers", str(workers)])
    [ours] = (measured for measured in answer["cases"] if measured["name"] == case)
    return {**ours, "workers": workers}


def installed_peers() -> list[str]:
    """The peers that have an environment."""
    return [peer for peer in PEER_NAMES if (PEERS / ".envs" / peer / "bin" / "python").exists()]


def check_same_numbers(contestants: Iterable[str], workers: int) -> dict[str, str]:
    """Two rounds in which every party takes part, from zero weights: one line a contestant, the weights' norm."""
    norms: dict[str, float] = {}
    said: dict[str, str] = {}
    for contestant in contestants:
        try:
            norms[contestant] = float(run_for_json(race_command(contestant, "check", 1, workers))["weights_norm"])
            said[contestant] = f"{norms[contestant]:.6f}"
        except TurnFailed as failure:
            said[contestant] = f"did not run: {failure}"
    for contestant, norm in norms.items():
        if abs(norm - norms[PLAIN]) > SAME_WEIGHTS_TOLERANCE:
            raise SystemExit(f"{contestant} ends with other weights (norm {norm}) than the plain loop ({norms[PLAIN]})")
    return said


def race(case: str, contestants: Iterable[str], repeats: int, workers: int) -> list[Standing]:
    """Let the contestants take turns, so that a busy spell of the machine meets all of them alike."""
    standings = [Standing(contestant) for contestant in contestants]
    for turn in range(repeats):
        for standing in standings:
            if standing.failure is not None:
                continue
            try:
                document = take_turn(standing.name, case, ROUNDS[case], workers)
            except TurnFailed as failure:
                standing.failure = str(failure)
                print(f"{case}, turn {turn + 1}, {standing.name}: {failure}", file=sys.stderr, flush=True)
                continue
            standing.documents.append(document)
            message = f"{case}, turn {turn + 1}, {standing.name}: {seconds_of(document):.4f} s a round"
            print(message, file=sys.stderr, flush=True)
    return standings


def table(standings: list[Standing]) -> list[str]:
    """The Markdown table of one case, fastest first."""
    best = {standing.name: standing.best for standing in standings}
    ours, plain = best[OURS], best[PLAIN]
    lines = [
        "| | seconds a round | times ours | times the plain loop | workers | first round done after | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for standing in sorted(standings, key=lambda one: seconds_of(one.best) if one.best else float("inf")):
        name = PEER_NAMES.get(standing.name, standing.name)
        document = standing.best
        if document is None:
            lines.append(f"| {name} | did not run: {standing.failure} | | | | | |")
            continue
        cells = [
            name,
            f"{seconds_of(document):.4f}",
            _ratio(document, ours),
            _ratio(document, plain),
            str(document["workers"]),
            f"{document['start_seconds']:.1f} s" if "start_seconds" in document else "",
            f"{document['peak_rss_mb']:,.0f} MB" if "peak_rss_mb" in document else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(document: dict[str, Any], reference: dict[str, Any] | None) -> str:
    return f"{seconds_of(document) / seconds_of(reference):.2f}" if reference else ""


def own_ratio_line(standings: list[Standing]) -> list[str]:
    """What ``tequio bench`` itself says, whose plain loop takes turns with the engine round by round."""
    ours = next(standing.best for standing in standings if standing.name == OURS)
    if ours is None or not ours.get("ratio_to_plain_loop"):
        return []
    ratio = ours["ratio_to_plain_loop"]
    return [
        "",
        f"`tequio bench --case {ours['name']}`, in one process beside its own plain loop: {ratio:.3f} of its time.",
    ]


def versions(cases: dict[str, list[Standing]]) -> list[str]:
    """One line for each contestant that ran: what exactly it was."""
    from tequio import __version__

    known = {OURS: f"tequio {__version__}"}
    for standing in (standing for standings in cases.values() for standing in standings):
        if standing.best and "version" in standing.best:
            known[standing.name] = standing.best["version"]
    return [f"- {PEER_NAMES.get(name, name)}: {version}" for name, version in known.items()]


def results_page(cases: dict[str, list[Standing]], same_numbers: dict[str, str], *, repeats: int, workers: int) -> str:
    """The whole of ``RESULTS.md``."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    lines = [
        "# Speed against the peers",
        "",
        "Generated by `benchmarks/compare.py`; do not edit.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine}.",
        "",
        *versions(cases),
    ]
    for case, standings in cases.items():
        work = f"{CASES[case]}, one epoch of SGD with rate 0.1, uniform averaging, no evaluation."
        lines += ["", f"## `{case}`", "", work, "", *table(standings), *own_ratio_line(standings)]
    lines += ["", METHOD.read_text().format(repeats=repeats, workers=workers)]
    lines += [f"- {PEER_NAMES.get(name, name)}: {norm}" for name, norm in same_numbers.items()]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this case; may be repeated")
    parser.add_argument("--repeats", type=int, default=3, help="turns each contestant takes (default: 3)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file to write (default: benchmarks/RESULTS.md)")
    return parser.parse_args()


def main() -> None:
    """Check, race, and write the page."""
    arguments = parse_arguments()
    peers = installed_peers()
    same_numbers = check_same_numbers([PLAIN, *peers], arguments.workers)
    contestants = [OURS, PLAIN, *peers]
    cases: dict[str, list[Standing]] = {}
    for case in arguments.case or list(CASES):
        cases[case] = race(case, contestants, arguments.repeats, arguments.workers)
        # After every case, so that an interrupted comparison keeps the cases it finished.
        page = results_page(cases, same_numbers, repeats=arguments.repeats, workers=arguments.workers)
        arguments.output.write_text(page)


if __name__ == "__main__":
    main()
