from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fastmcp import Client

from philorag.settings import Settings
from philorag.testing import connected, temporary_settings


@pytest.fixture(scope="module")
def library(data_dir, tmp_path_factory) -> Settings:
    """A library of the module's own."""
    sources = tmp_path_factory.mktemp("library") / "sources"
    sources.mkdir()
    return temporary_settings(data_dir, source_dir=sources, library_dir=sources.parent)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["auto", "legacy"])
async def client(request, library: Settings) -> AsyncIterator[Client[Any]]:
    """A client of the gateway, once in each era of the protocol."""
    async with connected(library, mode=request.param) as client:
        yield client
