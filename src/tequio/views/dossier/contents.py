"""The sections of a dossier, from the model to the files. What no file says reads "not stated"."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import tequio
from tequio import registry
from tequio.data.catalogue.entry import facts_of
from tequio.errors import ConfigError, TequioError
from tequio.experiments.config.complete import load_config
from tequio.experiments.config.composition import is_private
from tequio.experiments.running import store
from tequio.experiments.running.results import Result, is_finished
from tequio.experiments.running.transcripts import TRANSCRIPT
from tequio.experiments.running.transcripts import read_lines as transcript_lines
from tequio.federation.task import find_task
from tequio.gate.gate import what_it_reveals
from tequio.models import folder as model_folder
from tequio.models import publishing
from tequio.models.audit import FILE as AUDIT
from tequio.models.audit import Audit
from tequio.models.statistics import wilson
from tequio.probing.probe import SHOWN, stored_table
from tequio.views.dossier.evidence import Section, unstated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tequio.experiments.running.store import Plain
    from tequio.views.dossier.evidence import Evidence

_SUMMARY, _CONFIG, _MODEL = store.SUMMARY, store.CONFIG, model_folder.FILE


_WORDS = {
    "model": ("Model", "What was made, by which method, and by which hashes to know it again."),
    "data": ("Data", "What the parties declared of their rows: names and types of columns, and counts. No value of "
                     "any row is in this dossier."),
    "method": ("Config and components", "Every setting of the run, defaults included: the run can be repeated from "
                                        "config.toml."),
    "crossing": ("What crossed", "Every reply that left a party, what it tells of rows, and who can read it. Rows "
                                 "themselves leave no party unless a line says so."),
    "privacy": ("Privacy statement", "What differential privacy promises of this model, by the ledger of the run, "
                                     "and of all runs on the same rows together."),
    "probes": ("Probes", "Attacks on this very model: success with its 95 % interval, beside guessing. What was "
                         "not tried is not stated; 'tequio probe RUN' tries it."),
    "robustness": ("Robustness", "What went wrong or was made to go wrong, and how updates were combined."),
    "performance": ("Performance", "On rows that no training saw. Intervals are those of Wilson at 95 %; they hold "
                                   "for rows like these, and say nothing of other places and times."),
    "fairness": ("Fairness", "How parties, and their categories where there are such, differ. Groups of persons "
                             "are compared by 'tequio fairness', next to the rows."),
    "provenance": ("Provenance", "Each step follows from the one above it; run again, it has the same hash."),
    "forgetting": ("Forgetting", "Parties and rows that were taken out, exactly: the hash is that of a run that "
                                 "never had them."),
    "environment": ("Environment", "The machine and the packages that the numbers follow from; all installed "
                                   "packages are in the bill of materials of the JSON file (CycloneDX 1.6)."),
    "signatures": ("Signatures and logs", "By whom the record was signed, and the last hash of each chain."),
    "files": ("Files", "What everything above rests on. 'tequio verify' compares each file with its hash.")}
"""By the id of a section its title, and how to read it."""


def _section(id: str, facts: Sequence[Plain] = ()) -> Section:
    title, words = _WORDS[id]
    return Section(id, title, words, list(facts))


def model(e: Evidence) -> Section:
    """What the model is."""
    target = e.json(_MODEL).get("reading", {}).get("schema", {}).get("target", {})
    features = e.json(_MODEL).get("reading", {}).get("schema", {}).get("features", [])
    return _section("model", [
        e.fact("run", _SUMMARY, "run"), e.fact("name", _CONFIG, "name"), e.fact("algorithm", _CONFIG, "algorithm/name"),
        e.fact("learner", _CONFIG, "learner/name"),
        e.fact("predicts", _MODEL, "reading/schema/target", f"{target['name']} ({target['kind']})" if target else ""),
        e.fact("classes or labels", _MODEL, "reading/schema/target/names", ", ".join(target.get("names", ()))),
        e.fact("columns", _MODEL, "reading/schema/features", len(features) or ""),
        e.fact("who answers", _MODEL, "speaks"), e.fact("parties", _SUMMARY, "parties"),
        e.fact("rounds", _SUMMARY, "rounds"), e.fact("stopped by", _SUMMARY, "stopped"),
        e.fact("seed", _CONFIG, "seed"),
        e.fact("model_sha256", _SUMMARY, "model_sha256"), e.fact("hash of the model's folder", _MODEL, "sha256"),
        e.fact("config_hash", _SUMMARY, "config_hash"),
        *map(unstated, ("intended use", "uses that are out of scope", "who is answerable for it", "human oversight",
                  "known limitations"))])


def data(e: Evidence) -> Section:
    """What was learned from, as declared; no value of any row."""
    known = _catalogue(e)
    section = _section("data", [
        e.fact("dataset", _CONFIG, "data/name"),
        *(e.fact(name, _CONFIG, "data/name", known.get(name, "")) for name in ("licence", "citation", "source")),
        e.fact("dealt to parties by", _CONFIG, "data/partition/name"), e.fact("preparation", _CONFIG, "data/prepare"),
        e.fact("statistics of the preparation", _CONFIG, "data/prepare_scope"),
        e.fact("share of the coordinator's test rows", _CONFIG, "data/test"),
        e.fact("shares of parties' validation and test rows", _CONFIG, "data/split"),
        e.fact("parties left out", _CONFIG, "data/without"), e.fact("missing values", _MODEL, "reading/missing"),
        *map(unstated, ("when the rows were collected", "legal basis", "consent", "ethical approval"))])
    section.add_table("Columns", [{"column": column["name"], "type": _type_of(column),
                                   "categories": len(column.get("domain", ())) or None}
                                  for column in _columns(e)], e.origin(_MODEL, "reading/schema"))
    section.add_table("Parties that were chosen", e.table(store.PARTICIPATION).rows, e.origin(store.PARTICIPATION))
    return section


def croissant(e: Evidence) -> Plain:
    """The columns in the words of Croissant 1.0, for programs that read it."""
    known, types = _catalogue(e), {"number": "sc:Float", "date": "sc:Date", "flag": "sc:Boolean"}
    return {"@context": {"@vocab": "https://schema.org/", "sc": "https://schema.org/",
                         "cr": "http://mlcommons.org/croissant/"},
            "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0",
            "name": e.config.get("data", {}).get("name", "not stated"), "license": known.get("licence", "not stated"),
            "citeAs": known.get("citation", "not stated"), "url": known.get("source", "not stated"),
            "recordSet": [{"@type": "cr:RecordSet", "name": "rows", "field": [
                {"@type": "cr:Field", "name": column["name"], "dataType": types.get(_type_of(column), "sc:Text")}
                for column in _columns(e)]}]}


def _columns(e: Evidence) -> list[Plain]:
    schema = e.json(_MODEL).get("reading", {}).get("schema", {})
    found: list[Plain] = schema.get("features", [])
    return found


def _type_of(column: Mapping[str, Any]) -> str:
    return str(column.get("kind", "category" if "domain" in column else "number"))


def _catalogue(e: Evidence) -> dict[str, str]:
    """What the catalogue says of the dataset, if it is in it."""
    try:
        facts = facts_of(registry.find("dataset", e.config.get("data", {}).get("name", "")).component)
    except ConfigError:
        return {}
    return {} if facts is None else {"licence": facts.licence, "citation": facts.citation, "source": facts.source}


def method(e: Evidence) -> Section:
    """The config and its components."""
    section = _section("method")
    section.add_table("Components", list(_components(e.config)), e.origin(_CONFIG))
    section.add_table("Settings", [{"key": key, "value": str(value)} for key, value in _flat(e.config)],
                      e.origin(_CONFIG))
    return section


_TABLES = {"learner": "learner", "local": "training", "algorithm": "algorithm", "selector": "selector",
           "aggregator": "aggregator", "topology": "topology", "contribution": "contribution", "stages": "stage",
           "attack": "attack", "devices": "devices", "engine": "engine"}


def _components(config: Mapping[str, Any]) -> Iterator[Plain]:
    for table, kind in _TABLES.items():
        given = config.get(table) or []
        for one in given if isinstance(given, list) else [given]:
            try:
                entry = registry.find(kind, one.get("name", ""))
            except ConfigError:
                yield {"kind": kind, "name": one.get("name", ""), "what it does": "not stated", "paper": "not stated",
                       "version": "not stated", "licence": "not stated"}
                continue
            ours = entry.component.__module__.startswith("tequio.")
            yield {"kind": kind, "name": entry.name, "what it does": entry.summary, "paper": entry.paper or "none",
                   "version": f"tequio {tequio.__version__}" if ours else "not stated",
                   "licence": "Apache-2.0" if ours else "not stated"}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def crossing(e: Evidence) -> Section:
    """What left the parties, what it tells, and to whom."""
    stages = [str(stage["name"]) for stage in e.config.get("stages", [])]
    section = _section("crossing", [
        e.fact("bytes from parties in training", _SUMMARY, "bytes_up"),
        e.fact("bytes to parties in training", _SUMMARY, "bytes_down"),
        e.fact("messages in training", _SUMMARY, "messages"),
        e.fact("bytes from parties in evaluation", _SUMMARY, "evaluation_bytes_up"),
        e.fact("stages on the way", _CONFIG, "stages", ", ".join(stages))])
    hiding = [stage for stage in stages if _hides(stage)]
    reader = f"the coordinator; of updates the sum only ({hiding[0]})" if hiding else "the coordinator"
    totals: dict[str, Plain] = defaultdict(lambda: {"replies": 0, "bytes_up": 0, "bytes_down": 0})
    for event in e.events("exchange"):
        row = totals[event["task"]]
        row["replies"] += event["answered"]
        row["bytes_up"] += event["bytes_up"]
        row["bytes_down"] += event["bytes_down"]
    rows = [{"task": task, "reveals": _reveals(task), "read by": reader, **row} for task, row in totals.items()]
    section.add_table("Replies by task", rows, e.origin(store.EVENTS, "exchange"))
    section.add_table("Who saw what", e.table(store.LEAKAGE).rows, e.origin(store.LEAKAGE))
    return section


def _hides(stage: str) -> bool:
    try:
        return bool(registry.build("stage", stage, {}).spec.hides)
    except TequioError:
        return False


def _reveals(task: str) -> str:
    try:
        return what_it_reveals(find_task(task))
    except ConfigError:
        return "not stated"


def privacy(e: Evidence) -> Section:
    """What the ledgers state."""
    stated = e.json(_SUMMARY).get("privacy", {})
    config = load_config(e.folder / place) if (place := e.path(_CONFIG)) else None
    none = "none: nothing in the config adds noise" if config is not None and not is_private(config) else ""
    return _section("privacy", [
        e.fact("differential privacy", _SUMMARY if stated else _CONFIG, "privacy/words" if stated else "stages",
               stated.get("words") or none),
        *(e.fact(name, _SUMMARY, f"privacy/{name}") for name in stated if name != "words"),
        e.fact("over all runs on these rows", _SUMMARY, "privacy_over_runs/words")])


def probes(e: Evidence) -> Section:
    """What attacks on the finished run found."""
    section = _section("probes")
    rows = stored_table(Result(e.folder)).rows if is_finished(e.folder) and e.path(store.PROBES) else []
    section.add_table("Probes", rows, e.origin(store.PROBES), SHOWN)
    tried = " ".join(str(row["attack"]) for row in rows)
    wanted = {"membership inference": "membership", "inversion of gradients": "inversion",
              "inference of properties": "propert"}
    section.facts += [unstated(name) for name, mark in wanted.items() if mark not in tried]
    return section


def robustness(e: Evidence) -> Section:
    """Attacks, failures and warnings."""
    failures = sum(1 for _ in e.events("failure"))
    exchanges = list(e.events("exchange"))
    section = _section("robustness", [
        e.fact("aggregator", _CONFIG, "aggregator/name"), e.fact("attack of hostile parties", _CONFIG, "attack/name"),
        e.fact("injected chance of dropping out", _CONFIG, "rules/dropout"),
        e.fact("failures of parties", store.EVENTS, "failure", failures if exchanges else None),
        e.fact("replies that dropped out", store.EVENTS, "exchange/dropped",
               sum(event["dropped"] for event in exchanges) if exchanges else None),
        e.fact("warnings", _SUMMARY, "warnings")])
    section.add_table("Under attack", _metrics(e, "attack."), e.origin(_SUMMARY, "metrics"))
    return section


def performance(e: Evidence) -> Section:
    """How well the model does, overall and party by party."""
    parties: list[Plain] = [row | _interval(row) for row in e.table(store.PARTIES).rows]
    measured = [(float(row["accuracy"]), int(row["rows"])) for row in parties if row.get("accuracy") not in (None, "")]
    rows, held = sum(count for _, count in measured), sum(int(row.get("rows") or 0) for row in parties)
    right = sum(accuracy * count for accuracy, count in measured)
    interval = "{:.4f} ({:.4f} to {:.4f})".format(right / rows, *wilson(right, rows)) if rows else None
    section = _section("performance", [
        e.fact("metric that stands for the run", _SUMMARY, "headline"),
        e.fact("accuracy over the parties' own test rows", store.PARTIES, "accuracy, rows", interval),
        e.fact("test rows of parties", store.PARTIES, "rows", held or None),
        unstated("validation at another place or time")])
    section.add_table("Metrics", _metrics(e, "test.", "validation.", "newcomers."), e.origin(_SUMMARY, "metrics"))
    section.add_table("By party", parties, e.origin(store.PARTIES))
    section.add_table("By party and label", e.table(store.LABELS).rows, e.origin(store.LABELS))
    return section


def _interval(row: Mapping[str, Any]) -> Plain:
    if row.get("accuracy") is None or not row.get("rows"):
        return {}
    low, high = wilson(float(row["accuracy"]) * int(row["rows"]), int(row["rows"]))
    return {"accuracy from": round(low, 4), "accuracy to": round(high, 4)}


def fairness(e: Evidence) -> Section:
    """How evenly the model serves parties and groups."""
    section = _section("fairness", [*map(unstated, (
        "groups of persons that were compared", "steps against unequal treatment"))])
    section.add_table("Between parties and groups", _metrics(e, "parties.", "groups.", "selection."),
                      e.origin(_SUMMARY, "metrics"))
    return section


def _metrics(e: Evidence, *prefixes: str) -> list[Plain]:
    return [{"metric": name, "value": value} for name, value in e.json(_SUMMARY).get("metrics", {}).items()
            if name.startswith(prefixes)]


def provenance(e: Evidence) -> Section:
    """From the data to the model, by hashes."""
    forgotten, given = e.json(store.FORGOTTEN), e.config.get("data", {})
    steps = [("data", given.get("name"), given.get("sha256", "not stated"), _CONFIG),
             ("preparation", ", ".join(map(str, given.get("prepare") or [])) or "none",
              e.origin(_CONFIG).get("sha256"), _CONFIG),
             ("run before", forgotten.get("run"), forgotten.get("model_sha256_before"), store.FORGOTTEN),
             ("run", e.json(_SUMMARY).get("run"), e.json(_SUMMARY).get("config_hash"), _SUMMARY),
             ("model", e.json(_SUMMARY).get("model"), e.json(_SUMMARY).get("model_sha256"), _SUMMARY),
             ("model that answers", e.path(_MODEL), e.json(_MODEL).get("sha256"), _MODEL)]
    section = _section("provenance", [unstated("runs that were made before this one was chosen")])
    section.add_table("From data to model", [{"step": step, "what": what, "hash": value, "file": e.path(file)}
                                             for step, what, value, file in steps if what], e.origin(_SUMMARY))
    return section


def forgetting(e: Evidence) -> Section:
    """What was taken out of the model."""
    later = e.json(store.SUPERSEDED).get("by", [])
    section = _section("forgetting", [
        *(e.fact(name, store.FORGOTTEN, key) for name, key in (
            ("forgotten party", "party"), ("its rows", "rows"), ("when", "when"), ("why", "why"),
            ("model before", "model_sha256_before"), ("played again after round", "from_round"),
            ("because", "because")))])
    section.add_table("Careful: forgotten since, in newer runs", later, {})
    return section


def environment(e: Evidence) -> Section:
    """What it ran on."""
    return _section("environment", [
        *(e.fact(name, store.ENVIRONMENT, name) for name in ("tequio", "python", "platform", "processor", "cores")),
        *(e.fact(name, store.ENVIRONMENT, f"packages/{name}")
          for name in e.json(store.ENVIRONMENT).get("packages", {}))])


def signatures(e: Evidence) -> Section:
    """Who signed what."""
    lines = transcript_lines(e.folder) if e.path(TRANSCRIPT) else []
    receipts = sum(len(line["body"].get("parties", ())) for line in lines if line["body"].get("kind") == "receipts")
    log = e.folder.parent.parent / AUDIT
    steps = Audit(log).entries() if log.is_file() and e.folder.parent.name == "versions" else []
    return _section("signatures", [
        e.fact("coordinator's key", TRANSCRIPT, "line 1", lines[0]["body"].get("coordinator") if lines else None),
        e.fact("lines of the transcript", TRANSCRIPT, "", len(lines) or None),
        e.fact("root of the transcript", TRANSCRIPT, "last line", lines[-1].get("hash") if lines else None),
        e.fact("receipts signed by parties", TRANSCRIPT, "receipts", receipts if lines else None),
        e.fact("model signed by the coordinator's certificate", publishing.FILE, "signature"),
        {"name": "root of the log of what was done to the model", "value": steps[-1]["sha256"],
         "from": {"file": f"../../{AUDIT}", "sha256": "the chain itself"}} if steps else
        unstated("root of the log of what was done to the model")])


def record(e: Evidence) -> Section:
    """The files themselves."""
    section = _section("files")
    section.add_table("Files", [{"file": name, **facts} for name, facts in e.files.items()], {})
    return section


SECTIONS = (model, data, method, crossing, privacy, probes, robustness, performance, fairness, provenance, forgetting,
            environment, signatures, record)
