"""Makes the toy components known while tests of algorithms run (and puts this folder on the path, to import `toy`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from toy import LeastSquares, Spoil

from tequio import registry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def _toy_components() -> Iterator[None]:
    # Not at import: the contract battery collects every registered component, and these are not the package's.
    toys = {("learner", "toy_least_squares"): LeastSquares, ("stage", "toy_spoil"): Spoil}
    for (kind, name), component in toys.items():
        registry.register(kind, name)(component)
    yield
    for key in toys:
        registry._entries.pop(key)
