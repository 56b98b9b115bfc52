"""`tequio forget`: the run as it would be if a party, or some of its rows, had never been there.

The rounds are played again without them, from the last kept checkpoint before the party took part where that provably
gives the same, else from the start. Other parties keep their rows, splits and random streams (`running/leaving.py`), so
the `model_sha256` is that of a run whose config says `data.without` from the beginning.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.experiments.api import gather, run_with_baselines, shown_while
from tequio.experiments.config.complete import complete, config_hash, load_config, resolved
from tequio.experiments.config.leaving import NAMING
from tequio.experiments.running import store
from tequio.experiments.running.limits import Progress
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import make_algorithm, make_scenario
from tequio.federation.selection import AllParties
from tequio.models.registry import registries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.scenario import Scenario
    from tequio.experiments.running.store import Checkpoint, Plain


def forget(run: str | Path, *, party: str, rows: str | Path | Sequence[int | str] = (), out: str | Path | None = None,
           why: str = "", data: object = None, models: str | Path = "models", listen: Listener = ignore,
           progress: bool = False) -> Result:
    """Make a finished run anew without a party, or without those of its `rows`, and give back the new run.

    `rows` are ids, or a file with one id per line. `out` is where the folder of the new run is made (default: beside
    other runs of this config), and `why` goes into its record, `forgotten.json`. Rows that the run was handed as an
    object have to be handed over again as `data`. The old run gets a note of it, and its model is flagged wherever
    it is a version in the folder `models`.
    """
    result = Result(store.find_folder(run))
    before, ids = result.summary, _ids(rows)
    config = load_config(result.folder / store.CONFIG)
    given = _left_out(config, party, ids)
    if out is not None:
        given["output"] = {**given["output"], "folder": str(out)}
    given, dataset = gather(given, {} if data is None else {"data": data})
    if given["data"].get("sha256") != config.data.parameters.get("sha256"):
        raise ConfigError("these are not the rows that the run was handed", remedy="hand over the same ones: data=...")
    wanted = complete(given, source=f"{result.folder.name} without '{party}'")
    scenario = make_scenario(wanted, dataset)
    checkpoint, reason = _where_to_begin(result, wanted, scenario, party, is_whole=not ids)
    place = store.new_folder(wanted.output.folder, wanted.name, config_hash(wanted))
    record: Plain = {
        "party": party, "rows": len(ids) or "all", "why": why, "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": before["run"], "model_sha256_before": before["model_sha256"],
        "model_folder_sha256_before": before.get("model_folder_sha256", ""), "way": "replay",
        "from_round": checkpoint.round if checkpoint else 0, "because": reason}
    if ids:
        record["rows_sha256"] = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
    store.write_json(place / store.FORGOTTEN, record)
    if checkpoint is not None:
        index = scenario.population.index(party)
        others = {number: state for number, state in checkpoint.parties.items() if number != index}
        # Of how the run was doing, the party's own validation rows have a share.
        facts = checkpoint.facts | {"progress": asdict(Progress(loss=checkpoint.facts["progress"]["loss"]))}
        store.write_checkpoint(place, replace(checkpoint, parties=others, facts=facts,
                                              kept={store.EVENTS: 0, store.METRICS: 0}))
    with shown_while(progress, listen) as heard:
        after = run_with_baselines(wanted, dataset=dataset, listen=heard, folder=place)
    record |= {
        "model_sha256": after.summary["model_sha256"],
        "exact": f"the model_sha256 is that of a run that never had {'these rows' if ids else f'party {party!r}'}: "
                 "'tequio run config.toml' in this folder gives it again"}
    flagged = [f"{one.name} {version.number}" for one in registries(Path(models))
               for version in one.flag(record["model_folder_sha256_before"], _words(record))]
    store.write_json(place / store.FORGOTTEN, record | {"flagged": flagged})
    _note(result.folder, {key: record[key] for key in ("party", "rows", "why", "when", "model_sha256")}
          | {"run": place.name})
    return Result(place)


def _words(record: Plain) -> str:
    what = "party" if record["rows"] == "all" else "rows of party"
    return f"it learned from {what} '{record['party']}', forgotten since"


def _note(folder: Path, note: Plain) -> None:
    """Say in the folder of the old run what replaced it; a note for each time that something was forgotten."""
    path = folder / store.SUPERSEDED
    before = json.loads(path.read_bytes())["by"] if path.is_file() else []
    store.write_json(path, {"by": [*before, note]})


def _left_out(config: Config, party: str, rows: Sequence[str] = ()) -> Given:
    """A config without a party, or without some of its rows, as plain data; it no longer names a party that is gone."""
    given = resolved(config)
    given["baselines"] = [baseline for baseline in config.baselines if baseline != "centralised"]
    data = given["data"]
    if rows:
        before = map(str, data["without_rows"].get(party, []))
        data["without_rows"][party] = sorted({*before, *rows})
        return given
    data["without"] = sorted({*data["without"], party})
    data["without_rows"].pop(party, None)
    given["overrides"].pop(party, None)
    for table, key in NAMING:
        named = given[table].get(key, [])
        if party in named:
            given[table][key] = [name for name in named if name != party]
            if table == "attack" and not given[table][key]:
                given["attack"] = {}
    return given


def _ids(rows: str | Path | Sequence[int | str]) -> list[str]:
    """Ids as text, from a file with one per line or as they are."""
    if not isinstance(rows, str | Path):
        return [str(row) for row in rows]
    try:
        found = [line.strip() for line in Path(rows).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"'{rows}' cannot be read: {cause}", remedy="give a text file with one row id per line: "
                          "--rows FILE") from cause
    if not found:
        raise ConfigError(f"'{rows}' names no row", remedy="write one row id per line, or leave --rows out to forget "
                          "the whole party")
    return found


def _where_to_begin(result: Result, config: Config, scenario: Scenario, party: str,
                    *, is_whole: bool) -> tuple[Checkpoint | None, str]:
    """The last kept checkpoint that nothing of the party is in, and why it is that one; none: from the start."""
    reason = _touched_before(config, scenario, result, is_whole=is_whole)
    if reason:
        return None, reason
    index = scenario.population.index(party)
    first = next((event["round"] for event in result.events
                  if event["event"] == "selection" and index in event["parties"]), result.summary["rounds"] + 1)
    kept = [(round, place) for round, place in store.kept_checkpoints(result.folder).items() if round < first]
    if not kept:
        return None, f"party '{party}' took part first in round {first}, and no checkpoint before it was kept " \
                     "(output.keep_every)"
    round, place = kept[-1]
    return store.read_checkpoint(place), f"party '{party}' took part first in round {first}, and nothing of it is in " \
                                         f"the checkpoint of round {round}"


def _touched_before(config: Config, scenario: Scenario, result: Result, *, is_whole: bool) -> str:
    """How a party can move a run before it is first chosen, if it can: then nothing but the start is free of it."""
    algorithm, population = make_algorithm(config), scenario.population
    selector = algorithm.components.selector
    disclosure = algorithm.disclosure(population.schema)
    if not any(event["event"] == "start" for event in result.events):
        return "who took part in its first rounds is on record in another run"
    if config.data.steps and config.data.prepare_scope == "federated":
        return "the statistics of data.prepare hold its rows"
    if any(event["event"] == "exchange" and event["round"] == 0 for event in result.events):
        return f"'{config.algorithm['name']}' asks parties before the first round"
    if disclosure is None or disclosure.counts_answers:
        return f"'{config.algorithm['name']}' may look at parties that it does not choose"
    if selector is None or selector.sampling is None:
        return f"the selector '{config.selector.get('name')}' may look at parties that it does not choose"
    absent = len(population.left_out)
    redraws = selector.forgets(len(population) - absent, absent) and absent == 1
    if is_whole and not isinstance(selector, AllParties) and not redraws:
        return f"the selector '{config.selector['name']}' draws other cohorts where there are fewer parties"
    if config.stop.target is not None or config.stop.patience or "train.loss" not in result.metrics.columns:
        return "the stop rules look at its validation rows"
    rules = scenario.rules
    if rules.minimum_rows > 1 or rules.categories or rules.held_out:
        return "[rules] say who may be chosen"
    others = [name for name, used in {
        "devices": scenario.clock, "attack": config.attack, "stages": config.stages, "policy": config.policy,
        "privacy": scenario.ledger, "contribution": config.contribution,
        "topology": config.topology["name"] != "client-server"}.items() if used]
    return f"[{others[0]}] may look at parties that are not chosen" if others else ""
