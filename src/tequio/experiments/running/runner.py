"""The loop: start, rounds, evaluations and checkpoints, until a stop rule says enough."""

from __future__ import annotations

import os
import platform
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tequio
from tequio.algorithms.personal.answering import with_epochs
from tequio.data.dataset import schema_to_json
from tequio.errors import ConfigError, PartyError, PayloadError, QuorumError
from tequio.experiments.config.complete import config_hash, data_hash, resolved_toml, to_sendable
from tequio.experiments.running import store
from tequio.experiments.running.headline import measured_headline, require_measured
from tequio.experiments.running.limits import LEDGERS, Progress, Spending, StopRules
from tequio.experiments.running.measuring import Measured, among_honest, hand_over, measure
from tequio.experiments.running.participation import participation, participation_table, selection_metrics
from tequio.experiments.running.recording import Listener, Recorder, as_json, ignore, tracked
from tequio.experiments.running.results import Result, model_sha256, write_model, write_round_model
from tequio.experiments.running.scenario import Scenario, check_columns, make_engine, make_scenario
from tequio.experiments.running.signs import signs_in_results
from tequio.experiments.running.store import Checkpoint, Pace, Plain, read_checkpoint, write_checkpoint
from tequio.experiments.running.transcripts import kept_transcript, write_messages
from tequio.federation.aggregation import difference, squared_norm
from tequio.federation.exchange import Announcement, Announcing
from tequio.federation.federation import Federation, Traffic
from tequio.federation.population import Party
from tequio.gate.simulated import GatedEngine, policy_of
from tequio.learners.learner import GradientLearner
from tequio.models import folder
from tequio.models.model import Model
from tequio.privacy.dataset_ledger import DatasetLedger, fingerprint_of
from tequio.privacy.ledger import statement
from tequio.registry import COMPONENT_KEY, to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.catalogue.entry import Rows
    from tequio.experiments.config.tables import Config
    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.exchange import Engine
    from tequio.learners.answers import Answer


def run_config(config: Config, *, dataset: Rows | None = None, listen: Listener = ignore,
               folder: Path | None = None, scenario: Scenario | None = None, engine: Engine | None = None) -> Result:
    """Run a config to its end in a new run folder, or in `folder`, going on from its checkpoint if it has one.

    A scenario and an engine that are at hand already are used instead of those that the config describes.
    """
    listen("prepare", {"name": config.name, "rounds": config.rounds})
    scenario = scenario or make_scenario(config, dataset)
    check_columns(scenario.population, scenario.algorithm)
    engine = engine or make_engine(config)
    if config.policy and isinstance(engine, Announcing):
        raise ConfigError("[policy] is for simulated parties, and those of this engine have policies of their own",
                          remedy="leave policy out, and write a policy.toml in each party's folder")
    parent_is_new = not os.path.exists(config.output.folder)
    place = folder or store.new_folder(config.output.folder, config.name, config_hash(config))
    checkpoint = read_checkpoint(place)
    (place / store.SUMMARY).unlink(missing_ok=True)
    store.write_whole(place / store.CONFIG, resolved_toml(config).encode())
    with (store.kept_if_begun(place, is_new=folder is None, parent_is_new=parent_is_new),
          tracked(config, place, listen) as heard,
          closing(Recorder(place, heard, checkpoint.kept if checkpoint else None)) as recorder, closing(engine)):
        store.write_json(place / store.ENVIRONMENT, describe_environment())
        try:
            if isinstance(engine, Announcing):
                engine.announce(announcement_of(config, place, scenario.announced, scenario.algorithm))
            if config.policy:
                engine = gated(config, place, scenario, engine)
                scenario = replace(scenario, notes=(*scenario.notes, *engine.policy.notes()))
            engine.open(scenario.population)
            Run(config, scenario, engine, recorder, place).to_its_end(checkpoint)
            if isinstance(engine, Announcing):
                engine.finish()
        except BaseException as error:
            recorder.event("error", {"kind": type(error).__name__, "message": str(error)})
            raise
    return Result(place)


_ANNOUNCED = ("algorithm", "local", "selector", "aggregator", "topology", "contribution", "rules")


def announcement_of(config: Config, folder: Path, announced: Mapping[str, object],
                    algorithm: Algorithm) -> Announcement:
    """What parties that judge for themselves are told: all that decides what is done with their rows."""
    share = {} if "schema" in announced else {"share": data_hash(config)}
    work = {table: dict(getattr(config, table)) for table in _ANNOUNCED if getattr(config, table)}
    work |= {table: getattr(config, table).model_dump() for table in ("privacy", "evaluation", "stop", "adoption")}
    sent, tuning = list(algorithm.sent_components), config.adoption.fine_tune_epochs
    local = algorithm.components.local
    if tuning and local is not None:
        sent.append(with_epochs(local, tuning))
    return Announcement(folder.name, {
        "name": config.name, "algorithm": config.algorithm["name"], "learner": dict(config.learner),
        "rounds": config.rounds, "stages": [dict(stage) for stage in config.stages],
        "components": [to_plain(component) for component in sent], "work": to_sendable(work),
        "preparation": {"steps": to_sendable(config.data.steps), "statistics": []}, **share, **announced})


@dataclass
class Situation:
    """Where a run stands: what a checkpoint holds besides the states of algorithm and parties."""

    progress: Progress = field(default_factory=Progress)
    seconds: float = 0.0
    training: Traffic = field(default_factory=Traffic)
    evaluation: Traffic = field(default_factory=Traffic)
    clock: Plain = field(default_factory=dict)
    privacy: Plain = field(default_factory=dict)
    agreed: Plain = field(default_factory=dict)

    def to_plain(self) -> Plain:
        """For a checkpoint."""
        return asdict(self)

    @classmethod
    def from_plain(cls, facts: Plain) -> Situation:
        """Back from a checkpoint."""
        return cls(Progress(**facts["progress"]), facts["seconds"], Traffic(**facts["training"]),
                   Traffic(**facts["evaluation"]), facts["clock"], facts.get("privacy", {}), facts.get("agreed", {}))


class Run:
    """One run under way."""

    def __init__(self, config: Config, scenario: Scenario, engine: Engine, recorder: Recorder, folder: Path) -> None:
        self._config, self._scenario, self._engine = config, scenario, engine
        self._recorder, self._folder = recorder, folder
        self._rules = StopRules(config.stop, config.rounds, scenario.headline, scenario.ignorance)
        self._warnings, self._cause = list(scenario.warnings), ""
        self._situation = Situation()
        self._measured: Measured | None = None
        self._federation = Federation(scenario.population, engine, config.seed, scenario.rules, scenario.topology,
                                      recorder.event, scenario.validation, scenario.clock, root=scenario.root)
        self._spending: Spending | None = None

    def to_its_end(self, checkpoint: Checkpoint | None) -> None:
        """Rounds until a stop rule says enough; then the model and the summary are written."""
        self._federation.notary = kept_transcript(self._folder, self._scenario.algorithm,
                                                  checkpoint.round if checkpoint else 0)
        if self._scenario.ledger is not None and self._scenario.rows:
            self._spending = Spending(self._config, self._scenario.ledger, self._scenario.rows, self._folder,
                                      resumed=checkpoint is not None)
        try:
            self._rounds(self._start(checkpoint))
        finally:  # what was released before an error has been seen too
            if self._spending is not None:
                self._spending.note()

    def _rounds(self, state: State) -> None:
        pace = Pace(self._config.output.checkpoint_every)
        while not self._situation.progress.reason:
            try:
                state = self._round(state)
            except PartyError as error:
                self._end_diverged(error, state)
                break
            keeps = self._is_kept
            if keeps or pace.due(self._federation.round) or self._situation.progress.reason or self._is_secret:
                pace.took(self._save(state))
                if keeps:
                    store.keep_checkpoint(self._folder, self._federation.round)
            else:
                self._recorder.flush()
        self._finish(state)

    def _start(self, checkpoint: Checkpoint | None) -> State:
        facts = {"folder": str(self._folder), "name": self._config.name, "rounds": self._config.rounds,
                 "parties": len(self._federation), "algorithm": self._config.algorithm["name"],
                 "headline": self._scenario.headline}
        if checkpoint is None:
            self._recorder.event("start", facts)
            for warning in self._scenario.warnings:
                self._recorder.event("warning", {"message": warning})
            for note in self._scenario.notes:
                self._recorder.event("note", {"message": note})
            if self._scenario.facts:
                self._recorder.event("data", dict(self._scenario.facts))
            started = time.perf_counter()
            state = self._scenario.algorithm.start(self._federation)
            self._situation.seconds = time.perf_counter() - started
            self._let_ledger_know(state)
            return state
        self._situation = Situation.from_plain(checkpoint.facts)
        self._federation.traffic, self._federation.agreed = self._situation.training, self._situation.agreed
        if self._federation.clock is not None:
            self._federation.clock.restore(self._situation.clock)
        if self._scenario.ledger is not None:
            self._scenario.ledger.restore(self._situation.privacy)
            self._scenario.ledger.resumed()
        self._let_ledger_know(checkpoint.state)
        self._federation.round = checkpoint.round
        self._engine.restore(checkpoint.parties)
        # The rules are asked again, because rounds and stop rules may have been changed since.
        rows = self._recorder.metrics.rows
        self._situation.progress = self._rules.judge(self._situation.progress, checkpoint.round,
                                                     rows[-1] if rows else {}, self._situation.seconds)
        self._let_others_end(checkpoint.state)
        self._recorder.event("resume", {**facts, "round": checkpoint.round})
        return checkpoint.state

    def _round(self, state: State) -> State:
        started, before = time.perf_counter(), replace(self._federation.traffic)
        clock = self._federation.clock
        earlier = (clock.now, replace(clock.totals)) if clock is not None else ()
        self._federation.round += 1
        after = self._scenario.algorithm.round(self._federation, state)
        row: Plain = {"round": self._federation.round, "seconds": time.perf_counter() - started,
                               **_added(before, self._federation.traffic), **self._recorder.taken(),
                               **(clock.metrics(*earlier) if clock is not None else {})}
        if self._config.stop.tolerance:
            row["update_norm"] = _distance(state, after)
        if self._federation.round % self._config.evaluation.every == 0:
            row |= self._measure(after)
        self._situation.seconds += time.perf_counter() - started
        self._judge(row, after)
        self._keep_model(after)
        self._recorder.row(row)
        self._recorder.event("round", row)
        return after

    def _end_diverged(self, error: PartyError, state: State) -> None:
        """End with the model before this round, where training led a party to numbers that are none."""
        if not error.diverged:
            raise error
        self._federation.round -= 1
        self._situation.progress = replace(self._situation.progress, reason="diverged")
        self._cause = error.message
        if self._measured is None or self._federation.round % self._config.evaluation.every:
            self._measure(state)

    def _keep_model(self, state: State) -> None:
        every, round = self._config.output.models_every, self._federation.round
        if every and round % every == 0:
            write_round_model(self._folder, round, self._scenario.algorithm.result(state))

    def _judge(self, row: Plain, state: State) -> None:
        """Ask the stop rules; the last round is always evaluated."""
        self._situation.training = replace(self._federation.traffic)
        if self._federation.clock is not None:
            self._situation.clock = self._federation.clock.to_plain()
        progress = self._rules.judge(self._situation.progress, self._federation.round, row, self._situation.seconds)
        self._situation.progress = progress
        if self._scenario.ledger is not None:
            self._situation.privacy = self._scenario.ledger.to_plain()
        self._let_others_end(state)
        if self._situation.progress.reason and self._federation.round % self._config.evaluation.every:
            row |= self._measure(state)

    @property
    def _is_secret(self) -> bool:
        """Whether a round cannot be played again as it was, so that each is saved before the next one shows it."""
        ledger = self._scenario.ledger
        return ledger is not None and ledger.mechanism.secret

    @property
    def _is_kept(self) -> bool:
        """Whether the checkpoint of this round stays when later ones follow."""
        every = self._config.output.keep_every
        return bool(every) and self._federation.round % every == 0

    def _let_ledger_know(self, state: State) -> None:
        """What the model looks like, so that a private round that nobody answers can release noise like any other.
        Where noise does not follow from the seed, neither does who is drawn: the ledger counts on both."""
        ledger = self._scenario.ledger
        if ledger is not None:
            ledger.template = dict(state.model)
            if ledger.mechanism.secret and ledger.context.sampling != "none":
                self._federation.secret = ledger.secret()

    def _let_others_end(self, state: State) -> None:
        """An algorithm may know that it has come to its end, or the privacy budget may not pay for another round; a
        stop rule that has spoken keeps its word."""
        progress, ledger = self._situation.progress, self._scenario.ledger
        ended = self._scenario.algorithm.finished(state)
        if not ended and not progress.reason and ledger is not None and not ledger.affords_more():
            ended = "privacy"
        if ended and progress.reason in ("", "rounds"):
            self._situation.progress = replace(progress, reason=ended)

    def _measure(self, state: State) -> dict[str, float]:
        self._measured = measure(self._scenario, self._config.evaluation, self._federation, state)
        require_measured(self._config.evaluation.headline, self._measured.metrics)
        spent = self._situation.evaluation
        spent.bytes_up += self._measured.traffic.bytes_up
        spent.bytes_down += self._measured.traffic.bytes_down
        spent.messages += self._measured.traffic.messages
        ledger = self._scenario.ledger
        return self._measured.metrics | ({} if ledger is None else {"privacy.epsilon": ledger.epsilon()})

    def _save(self, state: State) -> float:
        """Write a checkpoint; how long that took."""
        started = time.perf_counter()
        if self._spending is not None:
            self._spending.note()
        self._situation.agreed = self._federation.agreed
        kept = self._recorder.flush(sync=True)
        write_checkpoint(self._folder, Checkpoint(self._federation.round, state, self._engine.states(),
                                                  self._situation.to_plain(), kept))
        return time.perf_counter() - started

    def _finish(self, state: State) -> None:
        if self._measured is None:  # killed between the last checkpoint and this point
            self._measured = measure(self._scenario, self._config.evaluation, self._federation, state)
        model = self._scenario.algorithm.result(state)
        sha256 = model_sha256(model, self._fingerprints(state))
        final = hand_over(self._config, self._scenario, self._federation, state, self._measured)
        store.write_whole(self._folder / store.PARTIES, final.parties.to_csv().encode())
        if len(final.labels):
            store.write_whole(self._folder / store.LABELS, final.labels.to_csv().encode())
        path = write_model(self._folder, model)
        answers = self._keep_answers(state)
        summary = self._summary() | {"model": path.name, "model_sha256": sha256, **answers}
        if self._federation.notary is not None:
            self._federation.notary.append("end", {"rounds": self._federation.round,
                                                   "model_sha256": summary["model_sha256"]})
        summary["metrics"] |= final.metrics
        summary["headline"] = measured_headline(self._scenario.headline, summary["metrics"])
        if self._scenario.ledger is not None:
            summary["privacy"] = statement(self._scenario.ledger)
        if self._spending is not None:
            self._spending.note(sha256)
            summary["privacy_over_runs"] = self._spending.statement()
        for sign in signs_in_results(self._config, summary["metrics"], final.constant, summary["stopped"],
                                     self._cause, clips=isinstance(self._scenario.algorithm.components.learner,
                                                                   GradientLearner)):
            self._warn(sign)
        self._recorder.event("stop", {"round": self._federation.round, "reason": summary["stopped"]})
        self._recorder.flush(sync=True)
        took_part = participation(self._folder, len(self._federation))
        summary["metrics"] |= selection_metrics(self._federation, took_part)
        table = participation_table(self._federation, took_part)
        store.write_whole(self._folder / store.PARTICIPATION, table.to_csv().encode())
        write_messages(self._folder)
        store.write_json(self._folder / store.SUMMARY, as_json(summary))

    def _keep_answers(self, state: State) -> Plain:
        """Write the model as something to ask: how it reads rows and how it answers them."""
        if self._scenario.reading is None:
            return {}
        try:
            model = trained_model(self._config, self._scenario, self._asking(), self._engine, state)
            with store.explained(self._folder / folder.FOLDER):
                sha256 = folder.save(model, self._folder / folder.FOLDER)
        except (ConfigError, PayloadError, QuorumError) as cause:  # the run itself is sound
            self._warn(f"this model cannot be asked about rows: {cause.message}")
            return {}
        return {"model_folder": folder.FOLDER, "model_folder_sha256": sha256}

    def _warn(self, message: str) -> None:
        """Say something on the screen, and in the record of the run."""
        self._warnings.append(message)
        self._recorder.event("warning", {"message": message})

    def _fingerprints(self, state: State) -> list[str]:
        """Hashes of the parties' own models, which stay with them; of those parties that can still be reached."""
        return self._scenario.algorithm.fingerprints(self._asking(), state)

    def _asking(self) -> Federation:
        """The parties after the last round: who cannot be reached any more is left out."""
        asking = self._federation.off_the_clock()
        rules = replace(asking.rules, on_failure="continue", quorum=0.0)
        return replace(asking, traffic=self._situation.evaluation, rules=rules)

    def _summary(self) -> Plain:
        now, metrics = self._situation, self._recorder.metrics
        final = {column: metrics.last(column) for column in metrics.columns if "." in column}
        return {"run": self._folder.name, "name": self._config.name, "config_hash": config_hash(self._config),
                "data": self._config.data.name, "algorithm": self._config.algorithm["name"],
                "seed": self._config.seed, "rounds": self._federation.round, "stopped": now.progress.reason,
                "metric": now.progress.metric, "best_round": now.progress.best_round, "metrics": final,
                "parties": len(self._federation), "seconds": now.seconds, "bytes_up": now.training.bytes_up,
                "bytes_down": now.training.bytes_down, "messages": now.training.messages,
                "evaluation_bytes_up": now.evaluation.bytes_up, "evaluation_bytes_down": now.evaluation.bytes_down,
                "warnings": self._warnings}


def trained_model(config: Config, scenario: Scenario, federation: Federation, engine: Engine, state: State) -> Model:
    """What a state of a run has learnt, to be asked about rows. Models of real parties stay with them."""
    asking, algorithm = among_honest(scenario, federation), scenario.algorithm
    who = algorithm.answering(asking, state)
    own: dict[str, Answer] = {}
    if who.parties and isinstance(engine, Announcing):
        algorithm.keep_answers(asking, state, np.array(who.parties, dtype=np.int64))
    elif who.parties:
        states = engine.states()
        for party in who.parties:
            home = Party(party, federation.round, dict(states.get(party, {})), scenario.population)
            answer = algorithm.own_answer(home, asking, state)
            if answer is not None:
                own[federation.name(party)] = answer
    assert scenario.reading is not None
    facts = {"run": config.name, "algorithm": config.algorithm["name"], "data": config.data.name,
             "config_hash": config_hash(config), "rounds": federation.round, "seed": config.seed}
    return Model(scenario.reading, algorithm.answer(asking, state), own, who.speaks,
                 tuple(federation.name(party) for party in who.scored), facts)


def _added(before: Traffic, after: Traffic) -> dict[str, int]:
    earlier, later = asdict(before), asdict(after)
    return {name: later[name] - earlier[name] for name in earlier}


def _distance(before: State, after: State) -> float:
    """How far the model moved in a round."""
    try:
        return float(squared_norm(difference(after.model, before.model)) ** 0.5)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError("stop.tolerance looks at how far the model moves, and this algorithm's model is not a set of "
                          "arrays of fixed shape", remedy="use stop.target, stop.patience or rounds") from None


_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pydantic", "msgspec", "safetensors")


def gated(config: Config, folder: Path, scenario: Scenario, engine: Engine, *, only_try: bool = False) -> GatedEngine:
    """The engine with the config's policy in front of every simulated party."""
    announcement = announcement_of(config, folder, {"schema": schema_to_json(scenario.population.schema)},
                                   scenario.algorithm)
    policy, ledger_of, questions_of = policy_of(config.policy), None, None
    if policy.protects_rows and not only_try:
        fingerprint, place = fingerprint_of(scenario.population.dataset), Path(config.output.folder) / LEDGERS

        def own(party: str) -> str:
            return sha256(f"{fingerprint} {party}".encode()).hexdigest()

        questions_of = lambda party: {"folder": str(place), "rows": own(party)}  # noqa: E731
        if policy.budget is not None:
            place.mkdir(parents=True, exist_ok=True)
            ledger_of = lambda party: DatasetLedger(place, own(party))  # noqa: E731

    facts = dict(announcement.facts)
    # What hostile parties do is their own idea, and nobody announces it.
    facts["components"] = [sent for sent in facts["components"] if sent[COMPONENT_KEY] != ["stage", "attack"]]
    return GatedEngine(engine, policy, facts, folder.name, ledger_of, only_try, questions_of)


def describe_environment() -> Plain:
    """Versions of what takes part in the numbers, and the machine."""
    return {"tequio": tequio.__version__, "python": platform.python_version(), "platform": platform.platform(),
            "processor": platform.machine(), "cores": os.cpu_count(),
            "packages": {name: found for name in _PACKAGES if (found := installed_version(name))}}


@cache
def installed_version(package: str) -> str:
    """The version of an installed package; empty where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
