"""What a client notices of a database that goes away, and of vectors that another model made."""

from uuid import uuid4

import pytest

from philorag.testing import ToolCallFailed, call, connected

LOSE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'philorag'"
FOREIGN = """insert into embedding_spaces (provider, model, revision, dimensions, folding)
             values ('openai', $1, '1', 3, 'none') returning id"""


@pytest.fixture(params=["auto", "legacy"])
async def client(request, settings):
    async with connected(settings, mode=request.param) as client:
        yield client


async def test_a_database_lost_between_two_calls_is_not_noticed(client, database):
    """When every connection was cut since the last call, the next call works."""
    await call(client, "put_document", text="Of assent.", filepath="a", file_type="txt")
    assert await database(LOSE)
    assert len((await call(client, "philograph_search", query="assent"))["result"]) == 1
    assert await database(LOSE)
    await call(client, "put_document", text="Of assent again.", filepath="a", file_type="txt")
    assert await database(LOSE)
    assert (await call(client, "gateway_status"))["store"]["state"] == "ready"


async def test_vectors_of_another_model_are_searched_by_words_only(client, settings, database):
    """With another model than the library's, only words are searched, with a warning, and nothing is embedded."""
    await call(client, "put_document", text="Of assent.", filepath="a", file_type="txt")
    model = uuid4().hex
    ((space_id,),) = await database(FOREIGN, model)
    await database("update libraries set active_space_id = $1 where name = $2", space_id, settings.library)
    answer = await call(client, "philograph_search", query="assent")
    assert [hit["matched_by"] for hit in answer["result"]] == [["lexical"]]
    assert model in answer["warnings"][0]
    for tool, arguments in (
        ("search_documents", {"query": "assent"}),
        ("put_document", {"text": "More.", "filepath": "b", "file_type": "txt"}),
        ("philograph_ingest", {"path": "."}),
    ):
        with pytest.raises(ToolCallFailed) as failed:
            await call(client, tool, **arguments)
        assert failed.value.error["code"] == "EMBEDDING_FAILED"
        assert failed.value.error["details"]["library_space"] == f"openai/{model}"
    with pytest.raises(ToolCallFailed, match="has 384 numbers; this library's embedding space has 3 dimensions"):
        await call(client, "query_similar_chunks", query_embedding=[0.1] * 384)
