"""The table of docs/explanation/privacy.md: what mechanisms claim, what dp-accounting says, what audits find.

`docs/audits.json` keeps the numbers by case. `PYTHONPATH=docs python -m reference_pages.audits` computes claims anew
and writes the table into the page. `--runs 1000` also audits all cases with as many runs, half of them with the canary,
in a few minutes: `lower_right` is what they find with the noise as it is, `lower_fifth` with a fifth of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reference_pages.markup import table
from tequio.bench.audits import AUDITS, found
from tequio.privacy.accounting import Release, Spent, epsilon_of
from tequio.privacy.ledger import Context
from tequio.registry import build

if TYPE_CHECKING:
    from tequio.privacy.mechanism import Mechanism

KEPT = Path(__file__).parents[1] / "audits.json"
PAGE = Path(__file__).parents[1] / "explanation" / "privacy.md"
BEGIN, END = "<!-- audits: begin -->", "<!-- audits: end -->"
DELTA = 1e-5


class Case(NamedTuple):
    """A mechanism in a setting, and the bill of a whole run."""

    mechanism: str
    setting: str
    spent: Spent
    accountant: str = "pld"


def cases() -> dict[str, Case]:
    """Every mechanism, each in a setting that is quickly computed and quickly audited."""
    everybody = Context(10, 10.0, rounds=1)
    hidden = Context(10, 10.0, rounds=1, hidden="secure-sum", largest=64.0, scale=2.0**24)
    return {
        "central": _case("central-dp", "one round of all", everybody, noise=1.0),
        "central-sampled": _case("central-dp", "four rounds of a half, drawn by coins",
                                 Context(4, 2.0, "poisson", rounds=4), noise=2.0),
        "central-hidden": _case("central-dp", "under `secure-sum`, one round of all", hidden, noise=1.0),
        "ftrl": _case("dp-ftrl", "eight rounds, parties take turns of four", Context(40, 10.0, rounds=8, turns=4),
                      noise=2.0),
        "matrix": _case("dp-mf", "eight rounds, parties take turns of four", Context(40, 10.0, rounds=8, turns=4),
                        noise=2.0),
        "distributed": _case("distributed-dp", "under `secure-sum`, one round of all", hidden, noise=2.2),
        "local": _case("local-dp", "Gaussian, one round", everybody, noise=2.0),
        "local-laplace": _case("local-dp", "Laplace, one round", everybody, noise=2.0, shape="laplace"),
        "sgd": _case("silent-training", "`dp-sgd`: four steps on a half of the rows",
                     Context(1, 1.0, descent=lambda party: (0.5, 4), everybody=(0,)), noise=2.0),
        "sums": _case("dp-sums", "one release", everybody, noise=1.0),
        "labels": _case("randomised-response", "epsilon = 2", everybody, epsilon=2.0),
        "counts": Case("evaluation of a party with a budget", "one evaluation, noise of 2 rows",
                       {Release(2.0, "discrete-gaussian"): 1}),
        "leaves": Case("`icdta4fl-plus`", "epsilon = 1", {Release(1.0, "laplace"): 1}),
    }


def _case(name: str, setting: str, context: Context, **parameters: Any) -> Case:
    stage: Mechanism = build("stage", name, parameters)
    ready = stage.opened(stage.known_noise, context)
    [spent] = ready.spent(ready.planned(ready.known_noise, context), context)
    return Case(f"`{name}`" if name != "silent-training" else "`dp-sgd`", setting.replace("`dp-sgd`: ", ""), spent,
                stage.accountant or "pld")


def claimed(case: Case) -> float:
    """As a run's ledger claims it."""
    return epsilon_of(case.spent, DELTA, case.accountant)  # type: ignore[arg-type]


def rendered(kept: dict[str, Any]) -> str:
    """The table, as it stands in the page."""
    rows = [[case.mechanism, case.setting, *(_number(kept[name].get(column)) for column in
                                             ("claimed", "dp_accounting", "lower_right", "lower_fifth"))]
            for name, case in cases().items()]
    return table(["mechanism", "setting", "epsilon claimed", "dp-accounting's", "audit, right noise",
                  "audit, a fifth of it"], rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> None:
    """Compute all claims anew, and what audits find if they are asked; keep that, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=0, help="audit with that many runs")
    runs = parser.parse_args().runs
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    kept = {name: kept.get(name, {}) for name in cases()}
    for name, case in cases().items():
        kept[name] = {**kept[name], "claimed": round(claimed(case), 4)}
        if runs:
            kept[name] |= {**found(AUDITS[name], runs // 2), "runs": runs}
            print(name, kept[name], flush=True)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{rendered(kept)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
