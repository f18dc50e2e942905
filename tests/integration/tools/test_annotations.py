"""Annotations are true: what says that it only reads changes nothing."""

from typing import Any
from uuid import uuid4

import pytest
from tests.integration.server.owner import owner_of

from philorag.testing import call

pytestmark = pytest.mark.asyncio(loop_scope="module")
TABLES = """select relname from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace
               and not relispartition order by relname"""
VECTOR = [0.5, *[0.0] * 383]
READS: dict[str, dict[str, Any]] = {
    "get_document": {"path": "put/a"},
    "get_document_metadata": {"path": "put/a"},
    "list_documents": {},
    "philograph_search": {"query": "assent"},
    "search_documents": {"query": "assent", "similarity_threshold": 0},
    "query_similar_chunks": {"query_embedding": VECTOR},
    "gateway_status": {},
}
WRITES: dict[str, dict[str, Any]] = {
    "add_document": {"source_uri": "test:a"},
    "batch_insert_chunks": {"chunks": [{"chunk_text": "A.", "chunk_index": 0, "embedding": VECTOR}]},
    "put_document": {"text": "Of assent.", "filepath": "a", "file_type": "txt"},
    "process_text_file": {"file_path": "b.txt", "doc_metadata": {"source_uri": "test:b"}},
    "philograph_ingest": {"path": "c.txt"},
}


@pytest.fixture(scope="module")
def contents(data_dir, library):
    """A function that gives a hash of everything that each table holds of this library."""
    owner = owner_of(data_dir)

    async def hashes():
        found = {}
        for (table,) in await owner(TABLES):
            columns = {
                row[0] for row in await owner("select attname from pg_attribute where attrelid = $1::regclass", table)
            }
            of_library = (
                "library_id = (select id from libraries where name = $1)" if "library_id" in columns else "$1 <> ''"
            )
            query = f"select count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) from {table} t where {of_library}"
            found[table] = tuple((await owner(query, library.library))[0])
        return found

    return hashes


async def annotations(client: Any) -> Any:
    return {tool.name: tool.annotations for tool in await client.list_tools()}


async def test_every_tool_is_annotated(client):
    """Every tool says whether it reads only, destroys, may be repeated and reaches outside; none does the last."""
    for hints in (await annotations(client)).values():
        given = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
        assert None not in given
        assert hints.open_world_hint is False
        assert not (hints.read_only_hint and hints.destructive_hint)


async def test_every_tool_is_in_one_of_the_two_lists(client):
    """The tools that say they only read are the ones tested here, and so are the others."""
    hints = await annotations(client)
    assert {name for name, one in hints.items() if one.read_only_hint} == set(READS)
    assert set(hints) == set(READS) | set(WRITES)


@pytest.mark.parametrize("tool", sorted(READS))
async def test_what_only_reads_changes_nothing(client, contents, tool):
    """No row of any table is another one after a tool that only reads."""
    await call(client, "put_document", **WRITES["put_document"])
    before = await contents()
    await call(client, tool, **READS[tool])
    assert await contents() == before


@pytest.mark.parametrize("tool", ["add_document", "put_document", "process_text_file", "philograph_ingest"])
async def test_what_is_idempotent_makes_no_second_document(client, contents, library, tool):
    """Calling a writer twice leaves as many documents, passages and vectors as calling it once."""
    for name in ("b.txt", "c.txt"):
        (library.source_folder / name).write_text("Of assent.")

    async def counts() -> Any:
        await call(client, tool, **WRITES[tool])
        found = await contents()
        return {table: found[table][0] for table in ("documents", "chunks", "chunk_embeddings", "lex_postings")}

    assert await counts() == await counts()


async def test_passages_are_inserted_once(client, contents):
    """batch_insert_chunks twice leaves as many passages as once."""
    doc_id = (await call(client, "add_document", source_uri=f"test:{uuid4().hex}"))["doc_id"]

    async def count() -> Any:
        await call(client, "batch_insert_chunks", document_id=doc_id, **WRITES["batch_insert_chunks"])
        return (await contents())["chunks"][0]

    assert await count() == await count()
