import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the cache of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEQUIO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def needs_data(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("data") and not os.environ.get("TEQUIO_DATA"):
        pytest.skip("TEQUIO_DATA is not set")
