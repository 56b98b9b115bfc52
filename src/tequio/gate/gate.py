"""The gate: everything that a party is asked passes it, on every engine.

It knows the whole announcement, the party's own split and numbers of rows, what may be built here, and the ledger of
these rows. From what a task declares to reveal, and from what of that its stages act on, it decides whether the task
runs, what it costs, and in which form the reply leaves. Nothing that the coordinator sends widens what it allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tequio.data.preprocessing import preparations
from tequio.errors import PermissionDenied
from tequio.federation.stages import SUMS, summing_stage
from tequio.federation.task import NoSettings, Reveals, Sums, find_task
from tequio.gate.announcement import FILLED_IN
from tequio.gate.components import check_components, check_steps
from tequio.gate.policy import check_listed, refused
from tequio.gate.tasks import PREPARING, tasks_of_run
from tequio.learners.descent import steps_of_epochs
from tequio.learners.learner import LocalTraining, Tally
from tequio.learners.private_training import PrivateTraining, batch_chance
from tequio.learners.trees.learner import TreeLearner
from tequio.privacy.accounting import Release, epsilon_of
from tequio.privacy.ledger import Context, Entry
from tequio.privacy.noising import OPEN
from tequio.privacy.psi.limits import BEGINS
from tequio.privacy.updates import PROTOCOL_TASKS
from tequio.registry import COMPONENT_KEY, from_plain, name_of, parameter_model, to_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.dataset import Schema
    from tequio.federation.stages import Stage
    from tequio.federation.task import AnyTask
    from tequio.gate.announcement import Announcement
    from tequio.gate.policy import Policy, Requirement
    from tequio.privacy.accounting import Spent
    from tequio.privacy.dataset_ledger import DatasetLedger
    from tequio.privacy.mechanism import Mechanism
    from tequio.privacy.psi.limits import IntersectionLog

_ME = 0
MOST_STEPS = 1_000_000
"""As many epochs or steps a task may take: a task is a round's work."""

_SMALLEST, _LARGEST = 1e-20, 1e20
"""Between these, noise and what it hides are both held by numbers of single precision."""

_MOVING = frozenset({"clip"})
"""Parameters of stages that may move from round to round, as an adaptive clip does; bounds of the policy still hold."""
_HOLDING = frozenset({"secure-sum", "one-shot-sum", "group-sum"})
_MAKE_COUNTS = (("one-hot", "", None), ("ordinal", "which", "all"), ("impute", "indicators", True))
"""Steps of a preparation that make columns of which the mean is a count, with the parameter by which they do."""

_CARRIED = (Reveals.UPDATE, Reveals.STRUCTURE, Reveals.SCORES, Reveals.ROWS)


@dataclass(frozen=True)
class PartyRows:
    """How many rows a party has in each part of its own split."""

    train: int
    validation: int = 0
    test: int = 0

    def part(self, name: str) -> int:
        """The rows of a part."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    @property
    def all(self) -> int:
        """All of them."""
        return self.train + self.validation + self.test


@dataclass(frozen=True)
class Passed:
    """A task that may run, what covers its reply, what that costs, and what else the reply may hold.

    `metrics` says in which form metrics leave, `most` how many rows they may speak of, `only` which entries a reply has
    that is paid for, `trainings` how the party trained for it, and `counted` how many rows a count
    stands for at least, and of how many.
    """

    task: AnyTask
    covered: str
    spent: Spent = field(default_factory=dict)
    mechanism: str = ""
    unit: str = ""
    metrics: str = ""
    most: int = 0
    only: frozenset[str] | None = None
    trainings: Sequence[LocalTraining] = ()
    counted: tuple[int, int] | None = None


def judge_run(policy: Policy, announcement: Announcement, authority: str, rows: int) -> None:
    """Refuse a run that the policy does not allow."""
    if policy.coordinators and not authority:
        raise refused("it lists 'coordinators', and this one shows no certificate of its own",
                      "leave 'coordinators' out where the link is made by others, as in a Flower federation")
    if policy.coordinators and authority not in policy.coordinators:
        raise refused("it is not among the policy's 'coordinators'", f"add '{authority}' there")
    check_listed(announcement.algorithm, policy.algorithms, "algorithm", "algorithms")
    if 0 < rows < policy.minimum_rows:
        raise refused(f"it wants at least {policy.minimum_rows} rows behind anything that this party sends, and there "
                      "are fewer", "lower 'minimum_rows' if that is too strict")
    if announcement.parties < policy.minimum_parties:
        raise refused(f"the run has {announcement.parties} parties, the policy wants at least "
                      f"{policy.minimum_parties}", "lower 'minimum_parties' if that is too strict")
    described = {key: value for key, value in announcement.learner.items() if key != "name"}
    learner = [{COMPONENT_KEY: ["learner", announcement.learner["name"]], "parameters": described}] \
        if "name" in announcement.learner else []
    check_components([*announcement.components, *learner], policy, "the announcement")
    check_steps(announcement.preparation.steps, policy)
    _check_preparation(policy, announcement.preparation.steps)
    _check_overrides(policy, announcement.overrides)


def _check_preparation(policy: Policy, plain: Sequence[Any]) -> None:
    """What steps find in rows, and whether they fail, says nothing of single ones. A step after one that comes with
    numbers of the coordinator's could be made to fail where a value is above a threshold."""
    seen: list[str] = []
    for step in preparations(plain) if policy.protects_rows else ():
        name = name_of(type(step))
        if name == "log1p" and set(seen) - {"drop", "log1p"}:
            raise refused("'log1p' fails on values of -1 and less, and after other steps it would show whether there "
                          "are any above a threshold", "put 'log1p' first in data.prepare")
        seen.append(name)


def _check_overrides(policy: Policy, overrides: Mapping[str, Any]) -> None:
    """What a run may set for this party alone: keys of its training that the policy names, and a learner."""
    own = overrides.get("local") or {}
    try:
        parameter_model(PrivateTraining).model_validate(own)
    except ValueError:
        raise refused("overrides.*.local holds what no training has", "send keys of [local] with values that fit"
                      ) from None
    for key in own:
        if key not in policy.overrides or policy.budget is not None or policy.require:
            raise refused(f"the run sets local.{key} for this party alone, which could undo what protects its rows",
                          f"leave overrides.*.local.{key} out, or list '{key}' under 'overrides' of the policy (with a "
                          "budget or required stages nothing may be set)")
    if overrides.get("learner") and "learner" not in policy.overrides and policy.protects_rows:
        raise refused("the run sets a learner for this party alone", "leave overrides.*.learner out, or list 'learner' "
                                                                     "under 'overrides' of the policy")
    if overrides.get("share_rows") and not policy.share_rows:
        raise refused("the run sets share_rows for this party", "only the party's own policy can: share_rows = true")


class Gate:
    """One party's gate in one run."""

    def __init__(self, policy: Policy, announcement: Announcement, rows: PartyRows, schema: Schema, *,
                 ledger: DatasetLedger | None = None, run: str = "", by: str = "here",
                 tasks: frozenset[str] | None = None, intersections: IntersectionLog | None = None) -> None:
        self.policy, self.announcement, self.rows = policy, announcement, rows
        self._schema, self._ledger, self._run, self._by = schema, ledger, run, by
        self._intersections = intersections
        self.tasks = tasks_of_run(announcement) if tasks is None else tasks
        self.rounds = 0  # in a rehearsal: what round 1 costs stands for so many rounds
        self._agreed: dict[tuple[str, str], list[Mapping[str, Any]]] = {}

    def admit(self, task: str, round: int, settings: Mapping[str, Any], stages: Sequence[Mapping[str, Any]],
              digest: str) -> Passed:
        """Let a task in and write down what its reply costs, or refuse it. `digest` is the party's own."""
        passed = self.decide(task, round, settings, stages)
        if task == BEGINS and self._intersections is not None:
            self._intersections.begin(self._run, self._by, self.policy.psi.per_day, self.policy.psi.per_dataset)
        budget, spent = self.policy.budget, passed.spent
        if self.rounds and round:
            spent = {release: count * self.rounds for release, count in spent.items()} if round == 1 else {}
        if spent and budget is not None and self._ledger is not None:
            # What was asked again is free, as it is the same release: not so where noise is drawn anew.
            digest = "" if any(stage.get("parameters", {}).get("secret") for stage in stages) else digest
            self._ledger.charge(spent, run=self._run, by=self._by, task=task, round=round, digest=digest,
                                mechanism=passed.mechanism, epsilon=budget.epsilon, delta=budget.delta,
                                federation=self._by, unit=passed.unit)
        return passed

    def outlook(self, task: AnyTask) -> str:
        """What is done about the reply of a task, as far as that can be said before it is asked for."""
        policy, reveals = self.policy, task.reveals
        if task.name in policy.exempt_tasks:
            return "exempt by the policy"
        if reveals is Reveals.NOTHING or task.name in PROTOCOL_TASKS:
            return "nothing of the rows leaves"
        if reveals is Reveals.METRICS:
            return {"exact": "exact metrics", "coarse": f"rounded at random to multiples of {policy.cell}",
                    "noised": "counts with noise", "no": "no metrics leave"}[policy.metrics]
        noised = [_name(mechanism) for mechanism in self._mechanisms()]
        hidden = "hidden in a sum over parties" if self.hides else ""
        return " and ".join(filter(None, (", ".join(noised), hidden))) or "as it is"

    @property
    def hides(self) -> bool:
        """Whether a stage of the run hides what single parties send."""
        return summing_stage(self._stages()) is not None

    def epsilon(self) -> float | None:
        """What all announced rounds would cost by noise of this party's own; nothing where none bounds that."""
        total: Spent = {}
        for mechanism in self._mechanisms():
            if mechanism.protects != "updates":
                return None  # depends on what tasks come with
            for bill in mechanism.spent([Entry(1, mechanism.noise or 0.0, 1, (_ME,))], Context(1, 1.0)):
                total |= {release: count * self.announcement.rounds for release, count in bill.items()}
        return epsilon_of(total, self.policy.budget.delta) if total and self.policy.budget is not None else None

    def _stages(self) -> list[Stage]:
        return [from_plain(dict(spec)) for spec in self.announcement.components if spec[COMPONENT_KEY][0] == "stage"]

    def _mechanisms(self) -> list[Mechanism]:
        """What the announced stages add at this party."""
        return [stage.mechanism for stage in self._stages()
                if stage.mechanism is not None and stage.mechanism.place == "party"]

    def decide(self, name: str, round: int, settings: Mapping[str, Any],
               stages: Sequence[Mapping[str, Any]]) -> Passed:
        """Whether a task may run, without any trace of the question."""
        policy = self.policy
        if policy.tasks:
            check_listed(name, policy.tasks, "task", "tasks")
        elif name not in self.tasks:
            raise refused(f"the task '{name[:80]}' is no part of the algorithm '{self.announcement.algorithm}'",
                          "list it under 'tasks' if it is wanted")
        if not self.announcement.predicts and not 0 <= round <= max(self.announcement.rounds, 1):
            raise refused(f"the task '{name}' is for round {round}, and {self.announcement.rounds} rounds were "
                          "announced", "announce the rounds that take place")
        task = find_task(name)
        check_components([settings, list(stages)], policy, f"task '{name}'")
        if "steps" in settings:
            check_steps(settings["steps"], policy)
        decoded, built = task.decode(settings), [from_plain(dict(stage)) for stage in stages]
        # As they were built, so that nothing hides in another spelling: a plain table, or a default left out.
        self._check_announced(task, task.encode(decoded), to_plain(built))
        self._check_sizes(decoded, built)
        for stage in built:
            if stage.mechanism is not None and stage.mechanism.protects == "sums":
                self._moves_enough(task, decoded, stage)
        self._check_rows(task, decoded)
        passed = self._covered(task, decoded, built)
        self._check_whole_way(task, built)
        return replace(passed, trainings=self._trainings(decoded))

    def _check_announced(self, task: AnyTask, settings: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> None:
        """Tasks come with the components and steps that were announced, and with no others."""
        steps = list(settings["steps"]) if task.name == PREPARING else []
        if steps != self.announcement.preparation.steps[:len(steps)]:
            raise refused(f"task '{task.name}' comes with other steps than were announced",
                          "announce the steps of data.prepare")
        agreed = self._agreed or self._build_announced()
        for spec in _outer_components([settings, list(stages)]):
            kind, name = spec[COMPONENT_KEY]
            if kind == "training" and task.name in PROTOCOL_TASKS:
                continue  # it says only what the virtual clock charges
            known, given = agreed.get((kind, name)), spec["parameters"]
            if known is None:
                raise refused(f"task '{task.name}' comes with the {kind} '{name}', which was not announced",
                              "announce every component of the run")
            wrong = [key for one in known for key in [next((key for key in one if given[key] != one[key]
                                                           and key not in _MOVING), "")]]
            if all(wrong):
                key = wrong[0]
                raise refused(f"task '{task.name}' comes with {key} = {str(given[key])[:80]} in the {kind} '{name}', "
                              f"and {str(known[0][key])[:80]} was announced", "announce what the run does")

    def _check_whole_way(self, task: AnyTask, stages: Sequence[Stage]) -> None:
        """Updates, and sums that noise is made for, pass every stage that a person was shown, or that hides them."""
        policy, there = self.policy, {"attack", *map(_name, stages)}
        passing = task.reveals is Reveals.UPDATE or (isinstance(task.reveals, Sums) and task.reveals.moves is not None)
        if passing and task.name not in {*PROTOCOL_TASKS, *policy.exempt_tasks} and (
                policy.protects_rows or policy.approval != "none"):
            missing = next((name for kind, name in self._agreed if kind == "stage" and name not in there), None)
            if missing is not None:
                raise refused(f"task '{task.name}' comes without the stage '{missing}' that was announced",
                              "send it through every stage of the run")

    def _build_announced(self) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
        """All parameters of each announced component, held against what the announcement says elsewhere."""
        told = self.announcement
        for component in told.components:
            kind, name = component[COMPONENT_KEY]
            plain = to_plain(from_plain(dict(component)))["parameters"]
            self._agreed.setdefault((kind, name), []).append(plain)
            if len([1 for _, other in self._agreed if other in _HOLDING]) > 1:
                raise refused("the run announces two stages that add up what parties hold, and one could open what "
                              "the other hides", f"leave out the stage '{name}'")
            for table in [table for table in told.stages if kind == "stage" and table.get("name") == name]:
                wrong = next((key for key in sorted(table.keys() & plain.keys() - FILLED_IN)
                              if plain[key] != table[key] and table[key] is not None), None)
                if wrong is not None:
                    raise refused(f"the run announces {wrong} = {str(table[wrong])[:80]} of the stage '{name}', and "
                                  f"comes with {str(plain[wrong])[:80]}", "announce what the run does")
        return self._agreed

    def _check_sizes(self, settings: object, stages: Sequence[Stage]) -> None:
        """No training without end, and no noise that numbers of single precision do not hold. What stages expect of a
        round is held against what the party knows of it."""
        trainings = self._trainings(settings)
        for local in trainings:
            if max(local.epochs, local.steps) > MOST_STEPS:
                raise refused(f"a task would train for {max(local.epochs, local.steps)} epochs or steps",
                              f"set local.epochs and local.steps to {MOST_STEPS} or less")
        for part in (*trainings, *stages):
            for key in ("clip", "noise", "row_clip"):
                given = vars(part).get(key)
                if given and not _SMALLEST <= given <= _LARGEST:
                    raise refused(f"a task comes with {key} = {given:g}, by which no noise can be drawn",
                                  f"set {key} between {_SMALLEST:g} and {_LARGEST:g}")
        for stage in stages:
            expected = vars(stage).get("expected", 0.0)
            if not 0 <= expected <= self.announcement.parties:
                raise refused(f"a stage expects {expected:g} parties in a round of a run with "
                              f"{self.announcement.parties}, which would make each share of noise too small",
                              "let the run say how many parties there are")

    def _check_rows(self, task: AnyTask, settings: object) -> None:
        """As many rows behind each step and each reply as the policy wants; metrics have rules of their own."""
        policy = self.policy
        if task.reveals is Reveals.NOTHING or task.name in PROTOCOL_TASKS or task.reply is Tally:
            return
        behind = self.rows.train
        for local in self._trainings(settings):
            batch = min(local.batch or behind, behind)
            if batch < min(policy.least_batch, behind):
                raise refused(f"a step of task '{task.name}' rests on {batch} rows, the policy wants at least "
                              f"{policy.least_batch}", f"set local.batch = {policy.least_batch} or more")
            if policy.least_batch > 1 and batch < behind and not (local.shuffle or isinstance(local, PrivateTraining)):
                raise refused(f"task '{task.name}' takes rows in the order in which they are stored, so that two "
                              "batches show by how much they differ", "set local.shuffle = true, or local.batch = 0")
            if local.steps:
                behind = min(behind, local.steps * batch)
        if behind < policy.minimum_rows:
            more = "set local.steps = 0, or a larger local.batch" if behind < self.rows.train else \
                "lower data.split.validation and data.split.test, let the party bring more rows"
            raise refused(f"it wants at least {policy.minimum_rows} rows behind each reply, and the reply of task "
                          f"'{task.name}' would rest on fewer", f"{more}, or lower 'minimum_rows'")

    def _trainings(self, settings: object) -> list[LocalTraining]:
        """How this party would train by the settings of a task."""
        given = vars(settings).values() if type(settings) is not NoSettings else ()
        return [self._own_training(one) for one in given if isinstance(one, LocalTraining)]

    def _own_training(self, local: LocalTraining) -> LocalTraining:
        """How this party really trains: with what the run sets for it alone."""
        return replace(local, **dict(self.announcement.overrides.get("local") or {}))

    def _covered(self, task: AnyTask, settings: object, stages: Sequence[Stage]) -> Passed:
        """What covers the reply of a task."""
        policy, reveals = self.policy, task.reveals
        if task.name in policy.exempt_tasks:
            return Passed(task, "exempt by the policy", metrics="exact")
        if task.name in PROTOCOL_TASKS or reveals is Reveals.NOTHING:
            return Passed(task, "nothing of the rows leaves" if task.name not in PROTOCOL_TASKS else
                          "covered by its protocol")
        if reveals is Reveals.COUNTS:
            return Passed(task, "numbers of rows, as the policy reports them")
        if reveals is Reveals.METRICS:
            return self._metrics(task, settings)
        for requirement in policy.require:
            _check_stage(requirement, task, stages)
        if policy.budget is not None:
            return self._paid(task, settings, stages)
        if reveals is Reveals.SCORES and policy.protects_rows:
            raise refused(f"the reply of task '{task.name}' has a value for each single row",
                          "list it under 'exempt_tasks' if that is wanted")
        if reveals is Reveals.ROWS and not policy.share_rows:
            raise refused(f"task '{task.name}' hands over rows", "set share_rows = true if the owner consents")
        if policy.cell > 1:
            _check_extremes(task, settings, policy.cell)
        hidden = summing_stage(stages) is not None
        if isinstance(reveals, Sums) and not hidden and policy.tell_rows in (
                ("no", "hundreds") if reveals.guarded else ("no",)):
            raise refused(f"sums in the reply of task '{task.name}' say how many rows there are",
                          f"set tell_rows = '{'exact' if reveals.guarded else 'hundreds'}', or hide them in a "
                          "'secure-sum'")
        if isinstance(reveals, Sums) and reveals.guarded:
            rules = policy.small_cells
            return Passed(task, (f"sums over {rules.get('minimum_rows', 1)} rows or more, with cells of "
                                 f"{rules['minimum_count']}" if rules else "as it is")
                          + (", hidden in a sum over parties" if hidden else ""))
        if isinstance(reveals, Sums) and policy.cell > 1:
            return self._counted(task, settings, stages)
        return Passed(task, "hidden in a sum over parties" if hidden else
                      "passes the required stages" if policy.require else "as it is")

    def _metrics(self, task: AnyTask, settings: object) -> Passed:
        policy, how = self.policy, self.policy.metrics
        if how == "exact":
            return Passed(task, "exact metrics", metrics="exact")
        if vars(settings).get("part", "") == "train":
            raise refused(f"task '{task.name}' judges a model by the rows that this party trains on",
                          "judge by validation or test rows, or set evaluation = 'exact'")
        if how == "no" or (how == "noised" and task.reply is not Tally):
            if task.reply is not Tally:
                raise refused(f"the metrics in the reply of task '{task.name}' cannot leave under this policy",
                              "set evaluation = 'coarse' without a budget, or list the task under 'exempt_tasks'")
            return Passed(task, "no metrics leave", metrics="no")
        if how == "coarse":
            return Passed(task, f"rounded at random to multiples of {policy.cell}", metrics="coarse",
                          most=policy.told_rows(self.rows.all))
        assert policy.budget is not None
        if self._schema.target.kind != "classes":
            return Passed(task, "no metrics leave: only classes can be counted with noise", metrics="no")
        noise = policy.budget.evaluation_noise
        return Passed(task, f"counts with noise of {noise:g} rows", {Release(noise, "discrete-gaussian"): 1},
                      "evaluation with noise", "row", metrics="noised", most=policy.told_rows(self.rows.all))

    def _counted(self, task: AnyTask, settings: object, stages: Sequence[Stage]) -> Passed:
        """Sums over rows, some of which may be behind few: counted with a minimum, hidden, or noised here."""
        if summing_stage(stages) is not None:
            return Passed(task, "hidden in a sum over parties")
        if any(stage.mechanism is not None and stage.mechanism.place == "party" for stage in stages):
            return Passed(task, "sums with noise of this party")
        if vars(settings).get("minimum_count", 0) > 1:  # held against the policy above
            behind = self.rows.part(vars(settings).get("part", "train"))
            return Passed(task, f"counts of {vars(settings)['minimum_count']} rows and their multiples",
                          counted=(vars(settings)["minimum_count"], behind))
        raise refused(f"sums in the reply of task '{task.name}' may stand for fewer than {self.policy.cell} rows",
                      "add the stage 'dp-sums' or 'secure-sum' where the algorithm takes it, or list the task under "
                      "'exempt_tasks'")

    def _paid(self, task: AnyTask, settings: object, stages: Sequence[Stage]) -> Passed:
        """A reply under a budget: noise of this party's own is on everything that the task reveals, and is charged."""
        for stage in stages:
            mechanism = stage.mechanism
            if mechanism is None or mechanism.place != "party":
                continue
            noise, descent = mechanism.noise, None
            if mechanism.protects == "training":
                local = vars(settings).get("local")
                if not (task.reveals is Reveals.UPDATE and task.by_training and isinstance(local, PrivateTraining)):
                    continue
                own, rows = self._own_training(local), self.rows.train
                assert isinstance(own, PrivateTraining)
                noise = own.noise
                terms = (batch_chance(rows, own), sum(steps_of_epochs(rows, own)))
                descent = lambda party, terms=terms: terms  # noqa: E731
            elif mechanism.protects == "sums":
                if not self._moves_enough(task, settings, stage):
                    continue
            elif task.reveals is not Reveals.UPDATE:
                continue
            context = Context(1, 1.0, descent=descent)
            bills = mechanism.spent([Entry(1, noise or 0.0, 1, (_ME,))], context)
            spent: Spent = {}
            for release, count in (pair for bill in bills for pair in bill.items()):
                spent[release] = spent.get(release, 0) + count
            arrays = tuple(vars(stage).get("arrays", ())) or (SUMS if mechanism.protects == "sums" else "update",)
            return Passed(task, f"noise of this party: {_name(stage)}", spent, _name(stage), mechanism.unit,
                          only=frozenset({*arrays, *OPEN, "buffers"} if mechanism.protects == "training" else
                                         {*arrays, *OPEN}))
        raise refused(f"it has a privacy budget, and no noise of the party's own is on what the task '{task.name}' "
                      f"reveals ({what_it_reveals(task)})",
                      "add a stage such as 'local-dp' to the config's [[stages]], or the task to 'exempt_tasks' of the "
                      "policy")

    def _moves_enough(self, task: AnyTask, settings: object, stage: Stage) -> bool:
        """Whether the noise is made for as much as one row really moves each sum, by this party's own reckoning."""
        if not isinstance(task.reveals, Sums) or task.reveals.moves is None:
            return False
        known, claimed = task.reveals.moves(settings, self._schema), vars(stage).get("moves", {})
        for name, moved in known.items():
            if not claimed.get(name, 0.0) >= moved * (1 - 1e-9):
                raise refused(f"the noise on '{name}' in the reply of task '{task.name}' is made for rows that move it "
                              f"by {claimed.get(name, 0.0):.3g}, and one row moves it by {moved:.3g}",
                              "let the run derive it: leave 'moves' out of the stage")
        return True


def what_it_reveals(task: AnyTask) -> str:
    """What the reply of a task says about rows, in words."""
    return "sums over rows" if isinstance(task.reveals, Sums) else str(task.reveals.value)


def _check_stage(requirement: Requirement, task: AnyTask, stages: Sequence[Stage]) -> None:
    found = next((stage for stage in stages if _name(stage) == requirement.stage), None)
    if found is None:
        raise refused(f"the policy wants the reply of task '{task.name}' to pass the stage '{requirement.stage}', and "
                      "the run has none",
                      "add it to the config's [[stages]], or the task to 'exempt_tasks' of the policy")
    acts_on = found.mechanism.protects if found.mechanism is not None else "updates"
    fits = isinstance(task.reveals, Sums) if acts_on == "sums" else task.reveals is Reveals.UPDATE and (
        acts_on != "training" or task.by_training)
    if not fits:
        raise refused(f"the stage '{requirement.stage}' does not act on what the task '{task.name}' reveals "
                      f"({what_it_reveals(task)})",
                      "list the task under 'exempt_tasks' if its reply may leave as it is")
    parameters = vars(found)
    for bounds, fit, word in ((requirement.at_least, float.__ge__, "at least"),
                              (requirement.at_most, float.__le__, "at most")):
        for key, bound in bounds.items():
            given = parameters.get(key)
            if not (isinstance(given, int | float) and fit(float(given), float(bound))):
                raise refused(f"the stage '{requirement.stage}' comes with {key} = {given}, the policy wants {word} "
                              f"{bound}", "change the config's [[stages]]")


def _check_extremes(task: AnyTask, settings: object, cell: int) -> None:
    """Extremes and counts that stand for single rows do not leave a party that wants several behind each."""
    if vars(settings).get("minimum_count", cell) < cell:
        raise refused(f"extremes and counts in the reply of task '{task.name}' may stand for fewer than {cell} rows",
                      f"set algorithm.minimum_count = {cell}")
    values = [one for value in vars(settings).values()
              for one in (value if isinstance(value, list | tuple) else [value])] \
        if task.reveals is Reveals.STRUCTURE else []
    if any(isinstance(one, TreeLearner) and vars(one).get("min_leaf", 1) < cell for one in values):
        raise refused(f"leaves in the reply of task '{task.name}' may stand for fewer than {cell} rows",
                      f"set learner.min_leaf = {cell}, with the learner 'cart', 'id3' or 'random-forest'")
    steps = preparations(vars(settings)["steps"]) if task.name == PREPARING else []
    for step in steps:
        if step.looks_at_rows() and name_of(type(step)) != "standardise" and not (
                name_of(type(step)) == "impute" and vars(step)["numbers"] != "median"):
            raise refused(f"the preparation '{name_of(type(step))}' reports values of single rows, or how many have a "
                          "value", "set data.prepare = ['standardise'], or numbers = 'mean' where 'impute' fills in")
    made = [name for name, key, value in _MAKE_COUNTS for step in steps[:-1]
            if name_of(type(step)) == name and vars(step).get(key, value) == value]
    if made and steps[-1].looks_at_rows():
        raise refused(f"'{name_of(type(steps[-1]))}' after '{made[0]}' reports how many rows have a category or no "
                      "value, however few they are", "set data.prepare = ['standardise', 'one-hot'] in this order, and "
                      "indicators = false where 'impute' fills in")


def _outer_components(plain: object) -> list[Mapping[str, Any]]:
    """The components in plain data that lie in no other component."""
    if isinstance(plain, Mapping):
        return [plain] if COMPONENT_KEY in plain else [found for value in plain.values()
                                                       for found in _outer_components(value)]
    return [found for value in plain for found in _outer_components(value)] if isinstance(plain, list | tuple) else []


def _name(stage: Stage) -> str:
    return str(type(stage).__dict__.get("__tequio__", ("", type(stage).__name__))[1])


def refuse_unknown(run: str) -> PermissionDenied:
    """A request of a run that was never announced here."""
    return PermissionDenied(f"this party takes no part in the run '{run[:80]}'")
