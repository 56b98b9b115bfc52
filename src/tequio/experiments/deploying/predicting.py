"""Predictions of a model that is spread over real parties, for new rows that are with the parties.

Each party brings a table of its own columns and ids (`tequio party bring`). When the coordinator asks (`tequio
coordinator predict`), the parties align these rows as they did the training rows, and score them with the parts of the
model that they keep. The label holder writes the answers into its own folder; whether another party or the coordinator
is told instead is for the label holder to say.
"""

from __future__ import annotations

import csv
import io
import json
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio import registry
from tequio.algorithms.vertical.alignment import TASKS_OF_REQUESTS
from tequio.algorithms.vertical.answering import Together, needed_of
from tequio.algorithms.vertical.requests import (
    COORDINATOR,
    Answers,
    give_key,
    hold_answers,
    open_answers,
    seal_answers,
    tell_answers,
)
from tequio.algorithms.vertical.vertical import VerticalAlgorithm
from tequio.data.dataset import Dataset, schema_from_json, schema_to_json
from tequio.data.partition import Split
from tequio.engines.network.engine import NetworkEngine
from tequio.engines.network.files import private_folder, write_private
from tequio.engines.network.holding import OwnRows, Question
from tequio.errors import ConfigError, EngineError, PermissionDenied, QuorumError, nearest
from tequio.experiments.deploying.holdings import NO_DATA, new_rows
from tequio.federation.exchange import Announcement
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import elsewhere, state_name
from tequio.models.folder import load
from tequio.registry import to_plain

if TYPE_CHECKING:
    from threading import Lock

    from tequio.algorithms.vertical.requests import Told
    from tequio.data.dataset import Array, Target
    from tequio.engines.network.engine import Network
    from tequio.engines.network.holding import Holding
    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.hub import Gateway
    from tequio.federation.payload import Payload
    from tequio.federation.task import AnyTask


@dataclass(frozen=True)
class Brought:
    """The new rows that a party has brought, by the run whose model is asked. They are good for one answer."""

    home: PartyHome
    holding: Holding

    def bring(self, run: str, path: Path, *, id: str, unseen: str, tell: str, out: Path | None) -> OwnRows:
        """Note a table for the next question to the model of a run, once it is known to fit."""
        known = sorted(place.name for place in (self.home.folder / "runs").glob("*"))
        if run not in known:
            raise ConfigError(f"this party took no part in a run '{run[:80]}'",
                              remedy=f"it did in: {', '.join(known)}" if known else "let it take part in one first")
        facts = {"path": str(path.resolve()), "id": id, "unseen": unseen, "tell": tell,
                 "out": str((out or self.home.folder / "predictions" / f"{run}.csv").resolve())}
        rows = self._rows(facts)
        write_private(self._note(run), json.dumps(facts).encode())
        return rows

    def about(self, run: str, facts: Payload, state: Payload) -> Question:
        """The question that a party's new rows are for; its part of the model is all that it gets of `state`."""
        component = registry.find("algorithm", str(facts["algorithm"])).component
        if not (isinstance(component, type) and issubclass(component, VerticalAlgorithm)):
            raise PermissionDenied(f"a model of '{facts['algorithm']}' is not spread over parties",
                                   remedy="predict with the model itself: tequio predict")
        note = self._note(run)
        brought: dict[str, Any] = json.loads(note.read_bytes()) if note.is_file() else {}
        has_rows = self.home.facts["data"].get("path") != NO_DATA
        if has_rows and not state:
            raise PermissionDenied(f"this party keeps no part of the model of run '{run}'",
                                   remedy="restore the party's folder from a backup, or train again")
        if has_rows and not brought:
            raise PermissionDenied(f"this party has brought no new rows for the model of run '{run}'",
                                   remedy=f"bring them there: tequio party bring {run} --data FILE")
        target = schema_from_json(facts["schema"]).target
        telling = self._telling(run, str(facts.get("tell", "")), str(brought.get("tell", "")))
        aligning = {known.name for known in TASKS_OF_REQUESTS}

        def done(task: str, state: Payload, rows: Dataset) -> None:
            if task not in aligning:
                note.unlink(missing_ok=True)  # whoever asks once more has to be let once more
            if task in (hold_answers.name, open_answers.name):
                kept, out = state[state_name(Answers)], Path(brought["out"])
                write_private(private_folder(out.parent) / out.name, table_of(
                    rows.take(kept["rows"]).ids.tolist(), kept["scores"], target).encode())

        return Question(self._rows(brought) if brought else self.holding, needed_of(state, component.kept_to_score),
                        frozenset(known.name for known in (*component.tasks_of_prediction(), *telling)),
                        frozenset({"features", "target"}), done)

    def _telling(self, run: str, tell: str, agreed: str) -> tuple[AnyTask, ...]:
        """What this party does with the answers: one that is not to be told takes none, so nobody can make some up."""
        own = self.holding.name
        if schema_from_json(self.holding.schema).target.kind == "none":
            return (give_key, open_answers) if tell == own else ()
        if tell in ("", own):
            return (hold_answers,)
        if tell != agreed:
            raise PermissionDenied(f"this party holds the labels and has not agreed that '{tell}' is told the answers",
                                   remedy=f"let it there: tequio party bring {run} --data FILE --tell {tell}")
        return (tell_answers,) if tell == COORDINATOR else (seal_answers,)

    def _rows(self, facts: dict[str, Any]) -> OwnRows:
        return new_rows(self.holding.name, self.home.facts["data"], facts["path"], facts["id"], facts["unseen"])

    def _note(self, run: str) -> Path:
        return private_folder(self.home.folder / "brought") / f"{run}.json"


def predict_with_parties(folder: Path, service: Gateway, terms: Network, *, tell: str = "",
                         turn: Lock | None = None) -> Told:
    """Let the parties of a finished run predict the rows that they have brought; those who are missing are named."""
    model = load(folder)
    common = model.common
    if not isinstance(common, Together) or model.own:
        raise ConfigError(f"the model of '{folder.name}' is " + ("not spread over parties" if not model.own else
                          "here as a whole: its parties were simulated"),
                          remedy=f"predict with it: tequio predict {folder.name} --data FILE")
    names, dealt = common.names, common.partition
    if tell not in ("", COORDINATOR, *names) or (tell in names and names.index(tell) == dealt.key_holder):
        raise ConfigError(f"there is no party '{tell}' with rows to be told about", remedy=nearest(
            tell, [name for party, name in enumerate(names) if party != dealt.key_holder]))
    population = elsewhere(common.schema, names, [0] * len(names), Split(), common.seed, {}, columns=dealt.columns,
                           key_holder=dealt.key_holder, holds_target=dealt.holds_target)
    algorithm = registry.name_of(type(common.algorithm))
    question = Announcement(f"predict-{folder.name}-{time.time_ns():x}", {
        "name": folder.name, "algorithm": algorithm, "learner": {}, "rounds": 0, "stages": [],
        "components": [to_plain(sent) for sent in common.algorithm.sent_components],
        "schema": schema_to_json(common.schema), "predicts": folder.name, "tell": tell})
    with closing(NetworkEngine(terms, service, turn)) as engine:
        engine.announce(question)
        try:
            engine.open(population)
        except EngineError as cause:
            raise EngineError(cause.message, remedy=cause.remedy.replace("engine.wait", "--wait")) from cause
        federation = Federation(population, engine, common.seed, Rules(on_failure="continue"), round=common.round)
        try:
            return common.algorithm.predict_there(federation, common.state, tell)
        except QuorumError as cause:
            raise QuorumError(cause.message, remedy="every party is needed; when it is back, let all bring their rows "
                              f"again and ask again: tequio coordinator predict {folder.name}") from cause
        finally:
            engine.finish()


def table_of(ids: list[Any], scores: Array, target: Target) -> str:
    """Predictions as CSV: the id of each row, what is predicted, and how surely where that is known."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    classes = target.kind == "classes"
    out.writerow(["id", "prediction", *(["probability"] if classes else [])])
    for identity, score in zip(ids, np.asarray(scores), strict=True):
        out.writerow([identity, target.names[int(score.argmax())], float(score.max())] if classes else
                     [identity, float(score)])
    return text.getvalue()


def told_table(folder: Path, told: Told) -> str:
    """What the label holder told the coordinator, as CSV."""
    assert told.answers is not None
    return table_of(list(told.answers["ids"]), told.answers["scores"], load(folder).target)
