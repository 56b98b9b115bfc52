from __future__ import annotations

import pytest

from .warm import warmed_up


@pytest.fixture(scope="session")
def socket():
    """Where a warm Python listens."""
    with warmed_up() as place:
        yield place
