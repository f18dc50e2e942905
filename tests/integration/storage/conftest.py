"""A store of one's own in seconds: vectors of eight numbers, no model, extra databases beside the shared one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.integration.storage.store_support import Parameters, connected, new_database, open_caller

from philorag.storage.database import Database
from philorag.storage.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    import asyncpg

    from philorag.model import Caller
    from philorag.settings import Settings


@pytest.fixture(scope="session")
def server(data_dir: Path) -> Iterator[Parameters]:
    """The shared embedded server, as the superuser that owns its schema."""
    embedded = EmbeddedPostgres(data_dir / "postgres")
    yield asdict(embedded.start())
    embedded.stop()


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    opened = await Database.open(settings)
    yield opened
    await opened.close()


@pytest.fixture
async def caller(database: Database) -> Caller:
    return await open_caller(database)


@pytest.fixture
async def stranger(database: Database) -> Caller:
    """A caller of another library of the same database."""
    return await open_caller(database)


@pytest.fixture
async def empty(server: Parameters) -> AsyncIterator[Parameters]:
    """A database with nothing in it, on the shared server."""
    async with new_database(server, f"empty_{uuid4().hex}") as parameters:
        yield parameters


@pytest.fixture
async def serving(database: Database, server: Parameters) -> AsyncIterator[asyncpg.Connection]:
    """A raw connection with the serving role, which has chosen no library yet."""
    async with connected(server, role="philorag_app") as connection:
        yield connection
