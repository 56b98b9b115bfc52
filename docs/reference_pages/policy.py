"""The page on a party's policy: every key, its type and its default, from the class that checks it."""

from __future__ import annotations

from typing import Any

import msgspec

from reference_pages.markup import code, first_line, page, table, text
from tequio.gate.policy import Budget, Intersections, OwnSplit, Policy, Requirement
from tequio.views.components import type_text

MEANINGS: dict[type, dict[str, str]] = {
    Policy: {
        "coordinators": "fingerprints of the coordinators' authorities; `tequio coordinator init` and `tequio party "
                        "join` print them",
        "algorithms": "algorithms that may run, and with them the tasks that their code can name",
        "tasks": "exactly these tasks, whatever the algorithm",
        "components": "what others may have built here, as `kind/name`, such as `learner/mlp`",
        "parameters": "parameters of free text that others may set although they could name a file, as "
                      "`kind/name.parameter`; none unless listed",
        "functions": "`module:function` names that settings may hold; none unless listed, because importing one runs "
                     "code",
        "minimum_rows": "rows that have to stand behind each reply: those of training, a batch times `local.steps`, "
                        "those of a fitted model, and of exact statistics (0: 20 for these, where anything else "
                        "protects rows)",
        "minimum_batch": "rows that have to stand behind each step of training (1: as many as behind each count, where "
                         "`minimum_rows` is set)",
        "minimum_count": "rows that have to stand behind each count; metrics leave in multiples of it (0: 5, where "
                         "anything else protects rows, and in the cross tables of exact statistics)",
        "minimum_parties": "no run with fewer parties, if the coordinator tells the truth about them",
        "split": "the party's own split (left out: that of the first run that it accepts, which then stays)",
        "require": "stages that updates have to pass, with bounds",
        "exempt_tasks": "tasks that need not pass the required stages or be paid for, and whose metrics leave exactly",
        "budget": "the privacy loss that is accepted over all runs on these rows together",
        "evaluation": "how metrics leave: exact, coarse (rounded at random to multiples of `minimum_count`) or no "
                      "(left out: coarse where anything else protects rows, no where `tell_rows` is no, else exact; "
                      "with a budget, see `evaluation_noise`)",
        "overrides": "keys of [local] that a run may set for this party alone, and `learner`; none with a budget or "
                     "required stages",
        "maximum_reply_megabytes": "a longer reply does not leave",
        "maximum_task_seconds": "a task that takes longer fails alone (0: no limit)",
        "maximum_task_gigabytes": "a task that takes more memory fails alone (0: no limit)",
        "approval": "whether a person approves each run before it begins: none or run",
        "tell_rows": "what the coordinator learns of numbers of rows: exact, hundreds (rounded down) or no (always 1)",
        "share_rows": "allow methods that share raw rows",
        "saturation": "columns of an exact statistic's design, and levels of a factor, as a share of the party's rows "
                      "at most (left out: 0.33, where anything else protects rows)",
        "maximum_levels": "levels that a factor may have in an exact statistic (left out: 40, where anything else "
                          "protects rows)",
        "psi": "what set intersections may learn about the party's ids",
        "private_randomness": "whether the party's random numbers follow from a secret of its own, so that the "
                              "coordinator cannot take noise off again"},
    Intersections: {
        "per_day": "intersections that the party takes part in within 24 hours",
        "per_dataset": "intersections that it takes part in with the same rows, ever",
        "most_ids": "the longest list of another party, after padding",
        "times_own": "the same, as a multiple of the own list",
        "minimum": "with fewer common ids the party reports nothing (left out: 100, or a tenth of its rows where that "
                   "is less)",
        "secret_file": "a file of 32 bytes or more that hardens ids, the same at all parties (left out: the first "
                       "party makes a secret for each intersection)"},
    Requirement: {
        "stage": "the stage that updates have to pass",
        "at_least": "lower bounds on its parameters",
        "at_most": "upper bounds on its parameters"},
    Budget: {
        "epsilon": "the privacy loss of all runs on these rows together",
        "delta": "the delta that it is stated at",
        "evaluation_noise": "standard deviation, in rows, of the noise on each count of an evaluation, which is "
                            "charged (0: no metrics leave)"},
    OwnSplit: {
        "validation": "share of the rows that models are chosen by",
        "test": "share of the rows that is reported on",
        "stratify": "whether all parts have the classes in the same shares"}}
TITLES = {Requirement: "[[require]]", Budget: "[budget]", OwnSplit: "[split]", Intersections: "[psi]"}


def policy_page() -> str:
    """Every key of a policy."""
    return page("Policy file", "What a party's owner allows: `policy.toml` in the party's folder, or `policy` of a "
                "config for simulated parties. Every key may be left out; an empty list of names allows all that is "
                "installed, unless the table says otherwise; an unknown key is an error that names the nearest right "
                "one. [How to write one](../how-to/policies.md).",
                _keys(Policy), *(f"## {title}\n\n{text(first_line(kind))}\n\n{_keys(kind)}"
                                 for kind, title in TITLES.items()))


def _keys(kind: Any) -> str:
    return table(["key", "type", "default", "meaning"],
                 [[f"`{field.name}`", text(_type(field.type)), _default(field), MEANINGS[kind][field.name]]
                  for field in msgspec.structs.fields(kind)])


def _type(hint: Any) -> str:
    table_of = next((title for kind, title in TITLES.items() if kind.__name__ in str(hint)), "")
    return f"table {table_of}" if table_of else type_text(hint)


def _default(field: Any) -> str:
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return "needed" if default is msgspec.NODEFAULT else "" if default is None or isinstance(
        default, Intersections) else code(default)
