"""The operator's PostgreSQL: who migrates, who serves, and what is said when it can't be."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from sqlalchemy import text
from tests.integration.storage.store_support import connected, new_database, open_caller, stored

from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.settings import Settings
from philorag.storage import database as database_module
from philorag.storage.database import Database
from philorag.storage.embedded import EmbeddedPostgres
from philorag.testing import temporary_database

if TYPE_CHECKING:
    from collections.abc import Callable

ROLE = "philorag_app"

# The shared database is migrated first, so that its server has the role.
pytestmark = pytest.mark.usefixtures("database")


def url(parameters: dict[str, Any]) -> str:
    """*parameters* as an operator writes them; the embedded server's host is the folder of a socket."""
    values = {name: quote(str(value), safe="") for name, value in parameters.items()}
    return "postgresql://{user}:{password}@/{database}?host={host}&port={port}".format(**values)


def settings_for(serving: dict[str, Any], owner: dict[str, Any] | None = None) -> Settings:
    return Settings(database_url=url(serving), migrate_url=url(owner) if owner else None)


@asynccontextmanager
async def role(server, options: str = ""):
    """A user of the server with a password, gone afterwards; yields its part of the parameters."""
    name, password = f"user_{uuid4().hex}", uuid4().hex
    async with connected(server) as connection:
        await connection.execute(f"create role {name} login password '{password}' {options}")
        try:
            yield {"user": name, "password": password}
        finally:
            await connection.execute(f"drop owned by {name}; drop role {name}")


@asynccontextmanager
async def operators(server, options: str = "", *, extension: bool = True):
    """A database with an owner who is no superuser; yields the owner's parameters."""
    async with (
        role(server, options) as owner,
        new_database(server, f"operator_{uuid4().hex}", f"owner {owner['user']}") as parameters,
    ):
        if extension:
            async with connected(parameters) as connection:
                await connection.execute("create extension vector")
        yield {**parameters, **owner}


@asynccontextmanager
async def opened(settings: Settings):
    database = await Database.open(settings)
    try:
        yield database
    finally:
        await database.close()


async def refused(settings: Settings) -> DatabaseUnavailable:
    with pytest.raises(DatabaseUnavailable) as caught:
        await Database.open(settings)
    return caught.value


async def seen_from(database, library_id) -> int:
    """How many documents plain SQL finds from a library."""
    async with database._plain() as connection:
        await connection.execute(
            text("select set_config('philorag.library_id', :library_id, true)"), {"library_id": str(library_id)}
        )
        found: int = await connection.scalar(text("select count(*) from documents"))
        return found


async def isolates(database) -> bool:
    """Whether a library that has a document is invisible from another, and from nowhere."""
    ours, theirs = await open_caller(database), await open_caller(database)
    await stored(database, ours, "The will is free.")
    return [await seen_from(database, who) for who in (ours.library_id, theirs.library_id, "")] == [1, 0, 0]


async def test_an_owner_who_may_take_the_role_serves_through_it(server):
    """An ordinary owner with the serving role granted migrates, and serves as that role."""
    async with operators(server) as owner:
        async with connected(server) as connection:
            await connection.execute(f"grant {ROLE} to {owner['user']} with admin option")
        async with opened(settings_for(owner)) as database:
            status = await database.status()
            assert (status.kind, status.serving_role, status.row_security) == ("external", ROLE, True)
            assert status.schema_revision == status.schema_head
            assert "vector" in status.extensions
            assert await isolates(database)


@pytest.mark.parametrize(("options", "through_role"), [("createrole", True), ("", False)])
async def test_on_a_new_server_the_role_is_made_where_it_may_be(bare, options, through_role):
    """The first migration of a server makes the role if its user may; if not, the owner serves, bound as well."""
    async with operators(bare, options) as owner, opened(settings_for(owner)) as database:
        status = await database.status()
        assert status.serving_role == (ROLE if through_role else owner["user"])
        assert status.row_security
        assert await isolates(database)


async def test_an_owner_without_the_role_serves_under_forced_row_security(server, caplog):
    """When the role exists but isn't the owner's to take, the owner serves and is bound all the same."""
    async with operators(server) as owner, opened(settings_for(owner)) as database:
        status = await database.status()
        assert (status.serving_role, status.row_security) == (owner["user"], True)
        assert "forced row security" in caplog.text
        assert await isolates(database)


async def test_a_role_that_comes_later_changes_nothing_for_a_forced_database(server):
    """An owner who is given the role after the migration goes on working, whichever way it serves."""
    async with operators(server) as owner:
        await (await Database.open(settings_for(owner))).close()
        async with connected(server) as connection:
            await connection.execute(f"grant {ROLE} to {owner['user']}")
        async with opened(settings_for(owner)) as database:
            assert await isolates(database)


async def test_an_owner_from_whom_the_role_was_taken_may_not_serve(server):
    """Without the role and without forced row security nothing would part libraries: the start stops."""
    async with operators(server) as owner, connected(server) as connection:
        await connection.execute(f"grant {ROLE} to {owner['user']}")
        await (await Database.open(settings_for(owner))).close()
        await connection.execute(f"revoke {ROLE} from {owner['user']}")
        with pytest.raises(ConfigurationError, match="keeps libraries apart"):
            await Database.open(settings_for(owner))


async def test_a_serving_user_of_its_own_is_given_the_role(server):
    """With PHILORAG_MIGRATE_URL the owner migrates, and the serving user gets the role and nothing else."""
    async with operators(server) as owner, role(server) as user:
        async with connected(server) as connection:
            await connection.execute(f"grant {ROLE} to {owner['user']} with admin option")
        settings = settings_for({**owner, **user}, owner)
        async with opened(settings) as database:
            assert (await database.status()).serving_role == ROLE
            assert await isolates(database)
        await (await Database.open(settings)).close()


async def test_a_serving_user_who_has_the_role_needs_no_grant(server):
    """An administrator who granted the role before leaves the owner nothing to grant."""
    async with (
        operators(server) as owner,
        role(server, f"in role {ROLE}") as user,
        opened(settings_for({**owner, **user}, owner)) as database,
    ):
        assert await isolates(database)


async def test_a_serving_user_who_cannot_be_given_the_role_is_refused(server):
    """When the owner may not grant the role, the start says which right is missing."""
    async with operators(server) as owner, role(server) as user:
        failure = await refused(settings_for({**owner, **user}, owner))
    assert (failure.reason, "permission denied to grant role" in failure.message) == ("auth", True)


async def test_the_variables_of_libpq_lead_there_too(server):
    """PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD name the same database as an address does."""
    settings = Settings(**{f"pg_{name}": value for name, value in server.items()})
    async with opened(settings) as database:
        status = await database.status()
    assert (status.kind, status.serving_role) == ("external", ROLE)


async def test_a_wrong_password_is_auth(server):
    """A refused password is `auth`, and the message doesn't repeat it."""
    failure = await refused(settings_for({**server, "password": "not-the-password"}))
    assert failure.reason == "auth"
    assert "not-the-password" not in failure.message


async def test_a_wrong_password_of_the_serving_user_is_auth(server):
    """The serving user's connection is tried at the start, not at the first tool call."""
    async with role(server) as user:
        failure = await refused(settings_for({**server, **user, "password": "wrong"}, server))
    assert failure.reason == "auth"


async def test_an_unknown_database_is_unreachable(server):
    """A database that doesn't exist is `unreachable`."""
    assert (await refused(settings_for({**server, "database": "nowhere"}))).reason == "unreachable"


async def test_nothing_that_listens_is_unreachable(unused_port):
    """A port where nothing answers is `unreachable`."""
    settings = Settings(pg_host="127.0.0.1", pg_port=unused_port, pg_password="x")
    assert (await refused(settings)).reason == "unreachable"


async def test_an_extension_that_may_not_be_created_is_missing(server):
    """An owner who may not create pgvector is told that it is missing, and nothing stays behind."""
    async with operators(server, extension=False) as owner:
        failure = await refused(settings_for(owner))
        async with connected(owner) as connection:
            assert await connection.fetchval("select to_regclass('alembic_version')") is None
    assert failure.reason == "missing_extension"


async def test_a_user_who_may_not_make_tables_is_auth(server):
    """A user who doesn't own the database can't migrate, and is told so."""
    async with new_database(server, f"others_{uuid4().hex}") as parameters, role(server) as user:
        async with connected(parameters) as connection:
            await connection.execute("create extension vector")
        failure = await refused(settings_for({**parameters, **user}))
    assert (failure.reason, "permission denied for schema public" in failure.message) == ("auth", True)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgres+asyncpg"])
def test_every_spelling_of_the_scheme_is_taken(scheme):
    """An address written for another library's driver leads to the same place."""
    assert database_module._plain_scheme(f"{scheme}://u:p@h/d") == "postgresql://u:p@h/d"


@pytest.fixture(scope="module")
def new_server():
    with temporary_database() as folder:
        embedded = EmbeddedPostgres(folder / "postgres")
        yield asdict(embedded.start())
        embedded.stop()


@pytest.fixture
async def bare(new_server):
    """A server on which philorag has never been."""
    yield new_server
    async with connected(new_server) as connection:
        await connection.execute(f"drop role if exists {ROLE}")


@pytest.fixture
def unused_port(unused_tcp_port_factory: Callable[[], int]) -> int:
    return unused_tcp_port_factory()
