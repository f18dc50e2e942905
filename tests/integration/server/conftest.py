from pathlib import Path

import pytest
from tests.integration.server.owner import Ask, owner_of


@pytest.fixture(scope="module")
def database(data_dir: Path) -> Ask:
    """The database itself, past the gateway and its row security."""
    return owner_of(data_dir)
