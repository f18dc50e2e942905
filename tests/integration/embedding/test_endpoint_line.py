"""Libraries and models that fit together, and those that don't, over MCP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.support.endpoint import FakeEndpoint, Reply, running_endpoint

from philorag.cli.doctor import examine
from philorag.settings import Settings
from philorag.testing import ToolCallFailed, call, connected

QUERY = "With what gesture did Zeno explain assent?"


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    with running_endpoint() as running:
        yield running


@pytest.fixture
def over_http(settings: Settings, endpoint: FakeEndpoint, example_library: Path) -> Settings:
    """The test's library, with a text to read, configured for the endpoint."""
    shutil.copy(example_library / "stoic-assent.txt", settings.source_folder)
    chosen = {"embedding_base_url": endpoint.base_url, "embedding_model": "bag-of-words", "embedding_api_key": "sk-key"}
    return settings.model_copy(update=chosen)


async def test_a_library_made_through_an_endpoint_is_searched_through_it(over_http: Settings):
    """Ingest, both searches and the status work with an endpoint's vectors."""
    async with connected(over_http) as client:
        report = await call(client, "philograph_ingest", path=".")
        passages = await call(client, "philograph_search", query=QUERY)
        documents = await call(client, "search_documents", query=QUERY, similarity_threshold=0.1)
        put = await call(client, "put_document", text="Zeno's hand.", filepath="note", file_type="txt")
        status = await call(client, "gateway_status")
    assert report["documents_added"] == 1
    assert passages["warnings"] == []
    assert passages["result"][0]["matched_by"] == ["dense", "lexical"]
    assert "gesture" in passages["result"][0]["text"]
    assert documents["total_found"] == 1
    assert put["details"]["vector_dimension"] == 16
    assert status["embedding_space"] == {
        "provider": "openai",
        "model": "bag-of-words",
        "revision": "plain",
        "dimensions": 16,
    }


async def test_a_library_of_another_model_is_searched_by_words_only(settings: Settings, over_http: Settings):
    """With another model than the library's, ingest refuses with what to do and search goes on by words, saying so."""
    async with connected(settings) as client:
        await call(client, "philograph_ingest", path=".")
    (settings.source_folder / "new.txt").write_text("A new text about assent.")
    async with connected(over_http) as client:
        with pytest.raises(ToolCallFailed) as ingested:
            await call(client, "philograph_ingest", path=".", force=True)
        passages = await call(client, "philograph_search", query=QUERY)
        with pytest.raises(ToolCallFailed) as searched:
            await call(client, "search_documents", query=QUERY)
    for refused in (ingested, searched):
        assert refused.value.error["code"] == "EMBEDDING_FAILED"
        assert "local/multilingual-e5-small" in refused.value.error["message"]
        assert "PHILORAG_LIBRARY" in refused.value.error["message"]
    assert passages["result"][0]["matched_by"] == ["lexical"]
    assert "Only words were searched" in passages["warnings"][0]


async def test_a_file_that_the_endpoint_fails_on_leaves_nothing(over_http: Settings, endpoint: FakeEndpoint):
    """What couldn't be embedded isn't there afterwards, and comes in at the next ingest."""
    given = over_http.model_copy(update={"embedding_dimensions": 16})
    endpoint.always = Reply(401, {"error": {"message": "no"}})
    async with connected(given) as client:
        with pytest.raises(ToolCallFailed) as refused:
            await call(client, "philograph_ingest", path="stoic-assent.txt")
        assert "PHILORAG_EMBEDDING_API_KEY" in refused.value.error["message"]
        assert refused.value.error["code"] == "EMBEDDING_FAILED"
        endpoint.always = None
        report = await call(client, "philograph_ingest", path="stoic-assent.txt")
    assert report["documents_added"] == 1


async def test_an_endpoint_that_refuses_at_the_start_is_tried_again(over_http: Settings, endpoint: FakeEndpoint):
    """While the dimensions can't be found every call says why; afterwards all is well."""
    endpoint.replies = [Reply(401, {"error": {"message": "no"}})]
    async with connected(over_http) as client:
        problems = [await call(client, "gateway_status")]
        while endpoint.replies:
            problems.append(await call(client, "gateway_status"))
        assert (await call(client, "philograph_search", query=QUERY))["result"] == []
    assert "PHILORAG_EMBEDDING_API_KEY" in str(problems[0]["store"]["problem"])


async def test_the_doctor_asks_the_endpoint(over_http: Settings, endpoint: FakeEndpoint):
    """`philorag doctor` embeds a word and shows the model, or what the endpoint refused; never the key."""

    async def shown() -> str:
        console = Console(file=StringIO(), width=300)
        await examine(console, over_http)
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    healthy = await shown()
    endpoint.always = Reply(403, {"error": {"message": "no"}})
    refused = await shown()
    assert "openai/bag-of-words at 127.0.0.1" in healthy
    assert "16 dimensions, passages of 1000 tokens" in healthy
    assert "PHILORAG_EMBEDDING_API_KEY" in refused
    assert "sk-key" not in healthy + refused
