from __future__ import annotations

from tequio import registry
from tequio.federation import task
from tequio.privacy.updates import PROTOCOL_TASKS


def test_every_task_of_a_hiding_or_proving_stage_is_listed() -> None:
    registry.load_everything()
    stages = ("joint.", "secure-sum.", "one-shot-sum.", "verified.", "attested.", "group-sum.")
    assert {name for name in task._tasks if name.startswith(stages)} == PROTOCOL_TASKS
