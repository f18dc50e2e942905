"""All or nothing, and connections that are lost."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.integration.storage.store_support import connected, fields, open_caller, put, stored

from philorag.errors import DatabaseUnavailable
from philorag.storage import database as database_module
from philorag.storage.database import Database
from philorag.storage.embedded import ConnectionParameters, EmbeddedPostgres
from philorag.testing import temporary_database, temporary_settings

if TYPE_CHECKING:
    from tests.integration.storage.store_support import Parameters

    from philorag.model import Caller
    from philorag.storage.unit_of_work import UnitOfWork


async def kill_backend(server: Parameters, pid: int) -> None:
    """End a connection on the server's side, and wait until the server has forgotten it."""
    async with connected(server) as connection:
        await connection.fetchval("select pg_terminate_backend($1, 5000)", pid)


async def backend(work: UnitOfWork) -> Any:
    return await work._connection.scalar(text("select pg_backend_pid()"))


async def listed(database: Database, caller: Caller) -> int | None:
    async with database.unit_of_work(caller) as work:
        return await work.documents.id_of("file:a")


async def test_what_is_not_committed_does_not_stay(database, caller):
    """Leaving without `commit()` takes everything back."""
    async with database.unit_of_work(caller) as work:
        await work.documents.save(fields("file:a"), "Text")
    assert await listed(database, caller) is None


async def test_what_is_committed_stays(database, caller):
    """`commit()` makes it last."""
    async with database.unit_of_work(caller) as work:
        saved = await work.documents.save(fields("file:a"), "Text")
        await work.commit()
    assert await listed(database, caller) == saved.id


async def test_an_exception_takes_everything_back(database, caller):
    """An exception passes through unchanged, and nothing stays."""
    with pytest.raises(LookupError):  # noqa: PT012 - leaving is the matter
        async with database.unit_of_work(caller) as work:
            await work.documents.save(fields("file:a"), "Text")
            raise LookupError
    assert await listed(database, caller) is None


async def test_a_cancelled_unit_of_work_takes_everything_back(database, caller):
    """Cancelling in the middle leaves nothing, neither rows nor a connection that is still in use."""
    begun = asyncio.Event()

    async def work_for_ever() -> None:
        async with database.unit_of_work(caller) as work:
            await work.documents.save(fields("file:a"), "Text")
            begun.set()
            await work._connection.execute(text("select pg_sleep(60)"))

    task = asyncio.create_task(work_for_ever())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await listed(database, caller) is None
    assert database._engine.pool.checkedout() == 0


async def test_bulk_writing_is_taken_back_too(database, caller):
    """Passages and vectors that went in by COPY vanish with the transaction."""
    with pytest.raises(LookupError):  # noqa: PT012 - leaving is the matter
        async with database.unit_of_work(caller) as work:
            await put(work, ["One.", "Two."])
            raise LookupError
    async with database.unit_of_work(caller) as work:
        assert await work.passages.size() == 0


async def test_a_connection_lost_between_two_units_is_not_noticed(database, caller, server):
    """A pooled connection that died is replaced before it is used."""
    async with database.unit_of_work(caller) as work:
        pid = await backend(work)
    await kill_backend(server, pid)
    async with database.unit_of_work(caller) as work:
        assert await backend(work) != pid


async def test_a_connection_lost_inside_is_unavailable(database, caller, server):
    """A connection that dies inside a unit of work is `DATABASE_UNAVAILABLE`, and the next unit works."""
    with pytest.raises(DatabaseUnavailable) as caught:  # noqa: PT012 - leaving is the matter
        async with database.unit_of_work(caller) as work:
            await kill_backend(server, await backend(work))
            await work.documents.id_of("file:a")
    assert caught.value.reason == "unreachable"
    assert await listed(database, caller) is None


async def test_a_connection_lost_before_the_commit_is_unavailable(database, caller, server):
    """A commit that reached nobody is `DATABASE_UNAVAILABLE`, and nothing was stored."""
    async with database.unit_of_work(caller) as work:
        await work.documents.save(fields("file:a"), "Text")
        await kill_backend(server, await backend(work))
        with pytest.raises(DatabaseUnavailable):
            await work.commit()
    assert await listed(database, caller) is None


async def test_a_connection_lost_before_bulk_writing_is_unavailable(database, caller, server):
    """COPY, which goes past SQLAlchemy, reports a lost connection alike."""
    with pytest.raises(DatabaseUnavailable):  # noqa: PT012 - leaving is the matter
        async with database.unit_of_work(caller) as work:
            await kill_backend(server, await backend(work))
            await work.chunks._copy("nowhere", ["a"], [(1,)])
    assert database._engine.pool.checkedout() == 0
    assert await listed(database, caller) is None


async def test_a_connection_lost_after_the_last_question_costs_nothing(database, caller, server):
    """Who only wanted to leave leaves, and the dead connection doesn't go back to the pool."""
    async with database.unit_of_work(caller) as work:
        await kill_backend(server, await backend(work))
    assert database._engine.pool.checkedout() == 0
    assert await listed(database, caller) is None


async def test_a_connection_lost_beside_a_unit_of_work_is_unavailable(database, server):
    """What is asked outside a unit of work reports a lost connection alike."""
    with pytest.raises(DatabaseUnavailable):  # noqa: PT012 - leaving is the matter
        async with database._plain() as connection:
            await kill_backend(server, await connection.scalar(text("select pg_backend_pid()")))
            await connection.scalar(text("select 1"))


async def test_a_wrong_argument_is_not_a_lost_database(database, caller):
    """A number that PostgreSQL can't hold is a mistake of ours, and isn't called an outage that may pass."""
    with pytest.raises(DBAPIError):
        async with database.unit_of_work(caller) as work:
            await work.documents.get(2**70)


async def test_more_units_than_connections_take_turns(database, caller):
    """Forty units of work at once share the pool, and all are done."""
    assert await asyncio.gather(*(listed(database, caller) for _ in range(40))) == [None] * 40


async def test_a_killed_server_is_started_again():
    """When the embedded server was killed, the units of work that come next find what was committed."""
    with temporary_database() as folder:
        database = await Database.open(temporary_settings(folder))
        caller = await open_caller(database)
        document_id = await stored(database, caller, "One.", source_uri="file:a")
        os.kill(EmbeddedPostgres(folder / "postgres").pid or 0, signal.SIGKILL)
        assert await asyncio.gather(*(listed(database, caller) for _ in range(4))) == [document_id] * 4
        assert await stored(database, caller, "Two.") != document_id
        await database.close()


async def test_a_server_that_came_back_elsewhere_is_followed(server):
    """New connections go to where the embedded server listens now."""
    asleep = {**server, "host": "/nowhere"}
    moved: Any = SimpleNamespace(ensure_running=lambda: ConnectionParameters(**server), stop=lambda: None)
    database = Database(database_module._engine(asleep, role=None), asleep, kind="embedded", embedded=moved)
    async with database._plain() as connection:
        assert await connection.scalar(text("select 1")) == 1
    await database.close()


async def test_an_external_server_is_not_started(server):
    """What the operator runs is the operator's to start."""
    nowhere = {**server, "host": "/nowhere"}
    database = Database(database_module._engine(nowhere, role=None), nowhere, kind="external")
    with pytest.raises(DatabaseUnavailable):
        await database.status()
    await database.close()
