"""Row security, asked of the database itself with the serving role, past every repository."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.integration.storage.store_support import SPACE, connected, mentioned, passage, recorded, stored, vector_of

from philorag.model import SearchFilters
from philorag.storage.repositories.passages import Fusion
from philorag.storage.tables import metadata

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

OWNED = sorted({*metadata.tables.keys(), "canonical_refs"} - {"embedding_spaces", "libraries"})
NO_LIBRARY = [None, "", " ", "abc", "-1", "1.5", "1 or true", "9" * 18, "9" * 40, "\n1", "1\n", "٣"]
CHOOSE = "select set_config('philorag.library_id', $1, true)"
LIBRARY = "select nullif(current_setting('philorag.library_id', true), '')"
FILTERS = [
    SearchFilters(),
    SearchFilters(author="Arendt"),
    SearchFilters(title="Life"),
    SearchFilters(year_from=1900, year_to=2000),
    SearchFilters(published_after="1900", published_before="2000-01-01"),
    SearchFilters(created_from="2000-01-01", created_to="2100-01-01"),
    SearchFilters(language="en"),
    SearchFilters(tags=("mind", "will")),
    SearchFilters(category="book"),
    SearchFilters(document_id=1),
    SearchFilters(kinds=("captured", "generated")),
    SearchFilters(layer="main"),
    SearchFilters(metadata={"publisher": {"city": "New York"}}),
]


@pytest.fixture
async def filled(database, caller, server):
    """A library with a row in every owned table."""
    await stored(database, caller, "The life of the mind.", tags=("mind",))
    async with database.unit_of_work(caller) as work:
        await work.jobs.start(await work.jobs.new_id(), "ingest", {})
        await work.roots.name_of("/books", "books")
        await work.commit()
    reference = """
        insert into canonical_refs (library_id, document_id, chunk_id, system, value, char_start, char_end)
        select library_id, document_id, id, 'page', '1', 0, 1 from chunks where library_id = $1
    """
    async with connected(server) as connection:
        await connection.execute(reference, caller.library_id)
    return caller


async def counts(connection: asyncpg.Connection[Any], library: str | None) -> dict[str, int]:
    async with connection.transaction():
        if library is not None:
            await connection.execute(CHOOSE, library)
        return {table: await connection.fetchval(f"select count(*) from {table}") for table in [*OWNED, "libraries"]}


async def test_a_library_sees_its_rows(filled, serving):
    """With its own number set, a library finds its rows in every owned table."""
    assert all((await counts(serving, str(filled.library_id))).values())


async def test_what_names_no_library_sees_nothing(filled, serving):
    """A setting that is missing, empty, malformed, negative, huge or unknown gives no rows and no error."""
    seen = {setting: await counts(serving, setting) for setting in NO_LIBRARY}
    assert {setting: found for setting, found in seen.items() if any(found.values())} == {}


async def test_another_library_sees_nothing_of_it(filled, stranger, serving):
    """A library that is empty sees no row but its own in `libraries`."""
    seen = await counts(serving, str(stranger.library_id))
    assert seen.pop("libraries") == 1
    assert set(seen.values()) == {0}


async def test_every_table_with_a_library_is_secured(database, server):
    """No table with `library_id` is without row security, partitions aside, which the serving role can't touch."""
    query = """
        select c.relname, c.relrowsecurity or (c.relispartition and not has_table_privilege('philorag_app', c.oid,
               'select, insert, update, delete, truncate')) as safe
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'library_id'
         where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
    """
    async with connected(server) as connection:
        rows = await connection.fetch(query)
    assert [row["relname"] for row in rows if not row["safe"]] == []
    assert {row["relname"] for row in rows} >= set(OWNED)


@pytest.mark.parametrize(
    "statement",
    [
        "insert into roots (library_id, name, folder) values ($1, 'x', '/x')",
        "insert into documents (library_id, kind, origin, source_uri) values ($1, 'captured', 'x', 'x')",
        "insert into lex_statistics (library_id, analyzer, chunks, tokens) values ($1, 'x', 1, 1)",
        "update roots set library_id = $1",
        "update documents set library_id = $1",
    ],
)
async def test_no_row_goes_to_another_library(filled, stranger, serving, statement):
    """What would put a row into another library is refused by the database."""
    async with serving.transaction():
        await serving.execute(CHOOSE, str(filled.library_id))
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            async with serving.transaction():
                await serving.execute(statement, stranger.library_id)


@pytest.mark.parametrize("verb", ["update {} set library_id = library_id", "delete from {}"])
async def test_rows_of_another_library_are_not_changed(filled, stranger, serving, verb):
    """Updates and deletions without any condition reach no row of another library."""
    async with serving.transaction():
        await serving.execute(CHOOSE, str(stranger.library_id))
        tags = [await serving.execute(verb.format(table)) for table in OWNED]
    assert {tag.split()[-1] for tag in tags} == {"0"}


@pytest.mark.parametrize(
    "statement",
    [
        "update libraries set name = 'mine'",
        "insert into libraries (name) values ('mine')",
        "delete from libraries",
        "insert into embedding_spaces (provider, model, revision, dimensions, folding) values ('a', 'b', 'c', 1, 'd')",
        "select * from documents_p00",
        "truncate documents",
        "set row_security = off; select count(*) from documents",
        "alter table documents disable row level security",
        "update alembic_version set version_num = '0'",
        "create table mine (id bigint)",
    ],
)
async def test_the_serving_role_may_do_no_more_than_it_needs(serving, statement):
    """Libraries, spaces, partitions, the schema and row security itself are not the serving role's to change."""
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await serving.execute(statement)


async def test_a_library_changes_its_own_settings_only(filled, stranger, serving):
    """The columns of `libraries` that may be changed are changed for the current library alone."""
    async with serving.transaction():
        await serving.execute(CHOOSE, str(filled.library_id))
        assert await serving.execute("update libraries set settings = settings") == "UPDATE 1"


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_the_library_is_forgotten_with_the_transaction(database, caller, ending):
    """A connection that goes back to the pool carries no library to whoever takes it next."""
    async with database.unit_of_work(caller) as work:
        first = await work._connection.scalar(text("select pg_backend_pid()"))
        assert await work._connection.scalar(text(LIBRARY)) == str(caller.library_id)
        await getattr(work._connection, ending)()
        assert await work._connection.scalar(text(LIBRARY)) is None
    async with database._plain() as connection:
        assert await connection.scalar(text("select pg_backend_pid()")) == first
        assert await connection.scalar(text(LIBRARY)) is None
        assert await connection.scalar(text("select count(*) from documents")) == 0


async def failed(connection: AsyncConnection) -> None:
    with pytest.raises(DBAPIError, match="division"):
        await connection.execute(text("select 1 / 0"))
    await connection.rollback()


async def test_the_role_survives_every_ending(database, caller):
    """After commits, rollbacks and errors the connection still is the serving role's."""
    async with database._plain() as connection:
        for ending in (connection.commit, connection.rollback, partial(failed, connection)):
            await connection.execute(text("select 1"))
            await ending()
            assert await connection.scalar(text("select current_user::text")) == "philorag_app"
            await connection.rollback()
    status = await database.status()
    assert (status.serving_role, status.row_security, status.kind) == ("philorag_app", True, "embedded")


async def test_an_invented_library_number_reaches_nothing(database, caller, filled):
    """A caller whose library doesn't exist reads nothing and can't write."""
    nobody = type(caller)(user_id="x", library_id=caller.library_id + 10**9, library="x")
    async with database.unit_of_work(nobody) as work:
        assert (await work.passages.size(), await work.documents.id_of("file:x")) == (0, None)
        with pytest.raises(Exception, match="foreign key"):
            await work.roots.name_of("/books", "books")


def partitions(plan: dict[str, Any]) -> list[str]:
    """The partitions that a plan reads, without their numbers."""
    return sorted(
        re.sub(r"_p\d\d$", "", name) for name in mentioned(plan, "Relation Name") if re.search(r"_p\d\d$", name)
    )


async def test_each_filter_reads_one_partition_of_each_table(database, filled):
    """As the serving role, every filter runs, and is planned over a single partition of every partitioned table."""
    async with database.unit_of_work(filled) as work:
        space = await work.libraries.adopt_space(SPACE)
        recorder = recorded(work)
        for filters in FILTERS:
            await work.passages.hybrid("mind", vector_of("mind"), space, filters, limit=5, fusion=Fusion())
            found = partitions(await recorder.plan())
            assert set(found) >= {"chunks", "documents", "chunk_embeddings", "lex_postings"}, filters
            assert len(found) == len(set(found)), filters


async def test_bulk_writing_works_under_row_security(database, caller, serving):
    """COPY goes through a temporary table: straight into a secured table PostgreSQL refuses it."""
    await stored(database, caller, *(passage(f"Passage number {n}.") for n in range(300)))
    async with database.unit_of_work(caller) as work:
        assert await work.passages.size() == 300
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="row-level security"):
        await serving.copy_records_to_table(
            "roots", records=[(caller.library_id, "x", "/x")], columns=["library_id", "name", "folder"]
        )
