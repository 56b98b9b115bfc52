"""Which stages go together, and in which order: compress before masking, clip before noise.

Read from the specs and mechanisms that stages declare, so that a new stage is composed or refused without a list of
pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.stages import Form, NoisePlace, Stage

_IN_WORDS: dict[Form, str] = {
    "model": "numbers in the shapes of the model", "common": "fewer numbers, in places that all parties share",
    "own": "numbers whose places or factors are each party's own, which do not add up", "code": "codes for numbers",
    "bytes": "packed bytes", "hidden": "hidden numbers, which only a sum reveals"}


def check_stages(stages: Sequence[Stage]) -> None:
    """Refuse stages that do not go together in this order, with the reason."""
    reason = why_not(stages)
    if reason:
        raise ConfigError(f"these stages do not go together in this order: {', '.join(map(_name, stages))}; {reason}",
                          remedy="change the order of [[stages]] or leave one out (docs: Compress updates)")


def why_not(stages: Sequence[Stage]) -> str:
    """Why stages cannot be composed in this order; empty if they can."""
    names = [_name(stage) for stage in stages]
    for index, (stage, name) in enumerate(zip(stages, names, strict=True)):
        if stage.spec.alone:
            return "" if len(stages) == 1 else \
                f"'{name}' does not declare by its `spec` what it does to an update, so it is used alone"
        if name in names[:index]:
            return f"'{name}' is there twice"
    return _wrong_order(stages) or _wrong_form(stages) or _never_summed(stages)


def _never_summed(stages: Sequence[Stage]) -> str:
    """Noise that is enough in a sum only needs a stage that shows nothing else."""
    for index, stage in enumerate(stages):
        if _noise(stage) == "sum" and not any(later.spec.hides for later in stages[index + 1:]):
            return (f"'{_name(stage)}' adds shares of noise that are enough in a hidden sum only: a stage that hides "
                    "updates, such as 'secure-sum', has to come after it")
    return ""


def _wrong_form(stages: Sequence[Stage]) -> str:
    """Each stage must be able to work on what the one before it leaves."""
    form: Form = "model"
    for index, stage in enumerate(stages):
        spec = stage.spec
        if form not in spec.takes:
            return (f"'{_name(stage)}' works on {' or '.join(_IN_WORDS[taken] for taken in spec.takes)}, and "
                    f"'{_name(stages[index - 1])}' before it leaves {_IN_WORDS[form]}")
        form = spec.gives or form
    return ""


def _wrong_order(stages: Sequence[Stage]) -> str:
    pairs = ((stage, later) for index, stage in enumerate(stages) for later in stages[index + 1:])
    return next((reason for pair in pairs if (reason := _in_groups(*pair) or _conflict(*pair))), "")


def _in_groups(stage: Stage, later: Stage) -> str:
    """What does not go with means of groups: nothing is counted there in whole numbers, and aggregators see updates."""
    if later.spec.sums_in_groups and _noise(stage) in ("coordinator", "sum"):
        return (f"'{_name(later)}' adds up in groups, whose aggregators see single updates, and the account of "
                f"'{_name(stage)}' knows of the coordinator only")
    if stage.spec.sums_in_groups and later.spec.proves:
        return (f"'{_name(later)}' proves sums in whole numbers, and '{_name(stage)}' makes means of groups")
    return ""


def _conflict(stage: Stage, later: Stage) -> str:
    """Why one stage may not come before another, forms aside."""
    spec, later_spec, noise, later_noise = stage.spec, later.spec, _noise(stage), _noise(later)
    name, later_name = _name(stage), _name(later)
    if later_spec.first:
        return f"'{later_name}' works on what the task made, so it comes before '{name}'"
    if noise and later_noise:
        return f"'{name}' and '{later_name}' both add noise for privacy, and one account is kept"
    if noise and later_spec.bounds:
        return f"'{later_name}' would bound the noise of '{name}' with the update: clip before noise"
    if spec.bounds and noise != "party" and later_spec.stretches:
        return f"'{later_name}' may send more than the bound that '{name}' promises"
    if "coordinator" in (noise, later_noise) and (spec.proves or later_spec.proves):
        noisy, proving = (name, later_name) if noise else (later_name, name)
        return f"'{proving}' could not tell the noise that '{noisy}' adds at the coordinator from tampering"
    if spec.proves and (later_spec.gives or later_spec.bounds or later_noise or later_spec.stretches):
        return f"'{name}' commits to what crosses, so it comes after '{later_name}', which changes that"
    if later_spec.hides and not spec.adds_up:
        return f"the coordinator half of '{name}' looks at each update, and '{later_name}' shows it their sum only"
    return ""


def _noise(stage: Stage) -> NoisePlace | None:
    """Where a stage adds noise, if it adds any."""
    return None if stage.mechanism is None else stage.mechanism.place


def _name(stage: Stage) -> str:
    return name_of(type(stage))
