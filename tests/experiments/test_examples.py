from pathlib import Path

import pytest

from tequio.experiments.config.complete import read_given
from tequio.experiments.sweep import sweep_cells

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_config_that_can_run(path):
    given = read_given(path)
    cells = sweep_cells({**given, "baselines": []}, source=path.name)
    assert len(cells) == {"sweep": 12, "attack-grid": 104}.get(path.stem, 1)


def test_there_is_a_quickstart():
    assert "quickstart" in {path.stem for path in EXAMPLES}
