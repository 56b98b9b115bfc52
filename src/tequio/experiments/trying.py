"""A policy held against a config before anybody signs it: what would be refused, why, and what the run would cost."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tequio.errors import PermissionDenied, TequioError
from tequio.experiments.config.tables import Stop
from tequio.experiments.running.recording import Recorder, ignore
from tequio.experiments.running.runner import Run, gated
from tequio.experiments.running.scenario import make_engine, make_scenario
from tequio.gate.simulated import Seen, policy_of
from tequio.privacy.accounting import epsilon_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from tequio.experiments.config.tables import Config
    from tequio.experiments.running.store import Plain
    from tequio.gate.policy import Policy
    from tequio.privacy.accounting import Spent

MOST_ROUNDS = 2
_MOST_NAMED = 8


@dataclass
class Tried:
    """What came of it: the gates' verdict on each task, and epsilon of the costliest party over all rounds."""

    policy: Policy
    algorithm: str
    parties: int
    rounds: int
    played: int
    tasks: list[Seen] = field(default_factory=list)
    epsilon: float | None = None
    problem: str = ""

    @property
    def allowed(self) -> bool:
        """Whether nothing would be refused."""
        budget = self.policy.budget
        within = budget is None or self.epsilon is None or self.epsilon <= budget.epsilon
        return not self.problem and not any(task.refused for task in self.tasks) and within


def try_policy(config: Config, policy: str) -> Tried:
    """Play a run's first rounds with simulated parties that have this policy, and refuse nothing."""
    played = min(config.rounds, MOST_ROUNDS)
    with TemporaryDirectory() as folder:
        short = config.model_copy(update={
            "rounds": played, "stop": Stop(), "policy": policy, "baselines": [],
            "evaluation": config.evaluation.model_copy(update={"every": 1}),
            "output": config.output.model_copy(update={"folder": folder, "track": []})})
        scenario = make_scenario(short)
        found = Tried(policy_of(policy), config.algorithm["name"], len(scenario.population), config.rounds, played)
        engine = gated(short.model_copy(update={"rounds": config.rounds}), Path(folder), scenario, make_engine(short),
                       only_try=True)
        try:
            with closing(engine), closing(Recorder(Path(folder), ignore)) as recorder:
                engine.open(scenario.population)
                Run(short, scenario, engine, recorder, Path(folder)).to_its_end(None)
        except PermissionDenied as cause:
            found.problem = str(cause)
        except TequioError as cause:
            if not engine.seen:
                raise
            found.problem = str(cause)
        found.tasks = list(engine.seen.values())
        if found.policy.budget is not None:
            found.epsilon = max((epsilon_of(_over_all(by_round, config.rounds), found.policy.budget.delta)
                                 for by_round in engine.spent.values()), default=0.0)
    return found


def _over_all(by_round: dict[int, Spent], rounds: int) -> Spent:
    """What a party spends over all rounds, if those that were not played are like the last one that was."""
    total: Spent = {}
    last = max(by_round)
    for round, spent in by_round.items():
        times = rounds - last + 1 if round == last and round else 1
        for release, count in spent.items():
            total[release] = total.get(release, 0) + count * times
    return total


def tried_table(found: Tried) -> Table:
    """One line per task: what it reveals, and what the policy makes of it."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", max_width=26)
    table.add_column("reveals", max_width=24)
    table.add_column("verdict")
    for task in found.tasks:
        verdict = f"[red]refused[/red] at {task.refused} of {task.asked}" if task.asked else "[red]refused[/red]"
        table.add_row(task.task, task.reveals, verdict if task.refused else f"[green]allowed[/green]: {task.covered}")
    return table


def tried_lines(found: Tried) -> Iterator[str]:
    """Why tasks would be refused, and the run as a whole."""
    yield ""
    for task in found.tasks:
        if task.refused:
            yield f"{task.task}: {task.cause}; {task.remedy}"
            if len(task.at) < found.parties:
                rows = [f"party {party} ({rows} rows to train on)" for party, rows in sorted(task.at.items())]
                yield f"  refused by: {', '.join(rows[:_MOST_NAMED])}" + (
                    f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else "")
    if found.problem:
        yield f"the run could not be played to its end: {found.problem}"
    budget = found.policy.budget
    if budget is None:
        yield "cost: the policy has no budget, so nothing is charged"
    elif found.epsilon is not None and isfinite(found.epsilon):
        what = "cost of what is allowed" if any(task.refused for task in found.tasks) else "cost"
        yield (f"{what}: epsilon {found.epsilon:.3g} of {budget.epsilon:g} at delta {budget.delta:g} for the costliest "
               f"party, over {found.rounds} round{'' if found.rounds == 1 else 's'}")
    else:
        yield "cost: no noise bounds what this run would show"
    if found.policy.approval == "run":
        yield "a person approves each run before it begins"
    yield "this policy lets the run do its work" if found.allowed else "this policy would stop the run"


def document(found: Tried) -> Plain:
    """The same as plain data."""
    return {"algorithm": found.algorithm, "parties": found.parties, "rounds": found.rounds, "played": found.played,
            "allowed": found.allowed, "epsilon": found.epsilon if found.epsilon is None or isfinite(found.epsilon) else
            None, "problem": found.problem, "approval": found.policy.approval,
            "tasks": [{"task": task.task, "reveals": task.reveals, "asked": task.asked, "refused": task.refused,
                       "covered": task.covered, "cause": task.cause, "remedy": task.remedy,
                       "refused_by": task.at} for task in found.tasks]}
