"""The schema: made from nothing, once, whole, and as `tables` says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import ProgrammingError
from tests.integration.storage.store_support import connected

from philorag.errors import DatabaseUnavailable
from philorag.storage import database as database_module
from philorag.storage.migrations import HEAD, current_revision, migrate
from philorag.storage.migrations import _scripts as scripts
from philorag.storage.tables import metadata

# Owned by Alembic, and not written from Python yet.
WITHOUT_TWIN = {"alembic_version", "canonical_refs"}

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]

COLUMNS = """
select c.relname as "table", a.attname as name, format_type(a.atttypid, a.atttypmod) as type,
       not a.attnotnull as nullable
  from pg_class c join pg_attribute a on a.attrelid = c.oid
 where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
   and a.attnum > 0 and not a.attisdropped
 order by c.relname, a.attnum
"""
KEYS = """
select c.conrelid::regclass::text as "table", array_agg(a.attname::text order by k.place) as columns
  from pg_constraint c, unnest(c.conkey) with ordinality as k (number, place), pg_attribute a
 where c.contype = 'p' and a.attrelid = c.conrelid and a.attnum = k.number
   and c.connamespace = 'public'::regnamespace and not (select relispartition from pg_class where oid = c.conrelid)
 group by c.conrelid
"""


async def migrated(parameters: dict[str, Any]) -> str | None:
    """Migrate as a starting gateway does."""
    engine = database_module._engine(parameters, role=None)
    try:
        async with engine.begin() as connection:
            await migrate(connection)
        async with engine.connect() as connection:
            return await current_revision(connection)
    finally:
        await engine.dispose()


async def set_revision(parameters: dict[str, Any], revision: str) -> None:
    async with connected(parameters) as connection:
        await connection.execute("create table alembic_version (version_num varchar(32) primary key)")
        await connection.execute("insert into alembic_version values ($1)", revision)


def test_head_is_what_the_scripts_end_at():
    """`HEAD`, which spares a start the import of Alembic, is the scripts' only head."""
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    heads: list[str] = ScriptDirectory.from_config(config).get_heads()
    assert heads == [HEAD]


async def test_an_empty_database_comes_to_head_by_two_gateways_at_once(empty):
    """Two gateways that start on an empty database both find it migrated, once."""
    assert set(await asyncio.gather(migrated(empty), migrated(empty))) == {HEAD}
    assert await migrated(empty) == HEAD


async def test_the_tables_are_what_python_thinks(database, server):
    """Every column in `tables` has the type and the nullability that the migrations gave it, and none is missing."""
    async with connected(server) as connection:
        rows = await connection.fetch(COLUMNS)
    found = {(row["table"], row["name"], row["type"], row["nullable"]) for row in rows}
    expected = {
        (table.name, column.name, column.type.compile(DIALECT).lower(), column.nullable)
        for table in metadata.tables.values()
        for column in table.columns
    }
    assert expected == {column for column in found if column[0] not in WITHOUT_TWIN}


async def test_the_keys_are_what_python_thinks(database, server):
    """Every table in `tables` has the migrations' primary key, and an owned table's begins with the library."""
    async with connected(server) as connection:
        found = {row["table"]: row["columns"] for row in await connection.fetch(KEYS)}
    expected = {table.name: {column.name for column in table.primary_key} for table in metadata.tables.values()}
    assert expected == {name: set(columns) for name, columns in found.items() if name not in WITHOUT_TWIN}
    shared = {"alembic_version", "libraries", "embedding_spaces"}
    assert {columns[0] for name, columns in found.items() if name not in shared} == {"library_id"}


async def test_a_database_of_a_later_release_is_refused(empty):
    """A revision after `HEAD` is `schema_newer`, and names both."""
    await set_revision(empty, "9999")
    with pytest.raises(DatabaseUnavailable, match=f"9999.*{HEAD}") as caught:
        await migrated(empty)
    assert caught.value.reason == "schema_newer"


async def test_a_migration_that_fails_leaves_nothing(empty):
    """When something of a stranger is in the way, the database stays as it was."""
    async with connected(empty) as connection:
        await connection.execute("create table roots (mine text)")
        with pytest.raises(ProgrammingError, match="already exists"):
            await migrated(empty)
        assert await connection.fetchval("select to_regclass('libraries')") is None
        assert await connection.fetchval("select to_regclass('alembic_version')") is None
        assert await connection.fetchval("select count(*) from pg_extension where extname = 'vector'") == 0
        await connection.execute("drop table roots")
    assert await migrated(empty) == HEAD


async def test_somebody_elses_objects_beside_ours_are_left_alone(empty):
    """A table and a sequence of somebody else neither stop the migration nor are given to the serving role."""
    async with connected(empty) as connection:
        await connection.execute("create table theirs (id bigint generated always as identity)")
        await migrated(empty)
        granted = await connection.fetchval("select has_sequence_privilege('philorag_app', 'theirs_id_seq', 'usage')")
    assert granted is False
