"""What every tool answers, field by field, as the contract has it; the schema that it declares agrees."""

import json
from typing import Any
from uuid import uuid4

import jsonschema  # type: ignore[import-untyped]
import pytest

from philorag import __version__
from philorag.testing import ToolCallFailed, call

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOCATOR = {
    "page_index": (int, None),
    "page_label": (str, None),
    "page_label_confidence": (float, int, None),
    "section_path": (list,),
    "paragraph": (int, None),
    "char_start": (int,),
    "char_end": (int,),
    "canonical": (list,),
    "layer": (str,),
    "note_author": (str, None),
}
FACTS = {
    "title": (str, None),
    "tags": (list,),
    "category": (str, None),
    "created_at": (str,),
    "modified_at": (str,),
    "is_generated": (bool,),
    "word_count": (int,),
}
TRUST = {"content_trust": (str,)}
VECTOR = [0.5, *[0.0] * 383]
TEXT = "# Assent\n\nZeno showed with his hand what assent is. The open hand is an impression, the fist is grasping."


def assert_members(given: Any, members: Any) -> Any:
    """*given* has exactly *members*, each of one of the types named (`None` for null)."""
    assert set(given) == set(members)
    for name, types in members.items():
        allowed = tuple(type(None) if one is None else one for one in types)
        assert type(given[name]) in allowed, (name, given[name])
    if "content_trust" in members:
        assert given["content_trust"] == "untrusted"


async def ask(client: Any, tool: Any, /, **arguments: Any) -> Any:
    """A tool's answer, whose text is the same JSON, and which satisfies the schema that the tool declares."""
    declared = next(one for one in await client.list_tools() if one.name == tool)
    answer = await client.call_tool(tool, arguments)
    (block,) = answer.content
    assert json.loads(block.text) == answer.structured_content
    jsonschema.Draft202012Validator(declared.output_schema or {}).validate(answer.structured_content)
    return answer.structured_content


async def failure(client: Any, tool: Any, /, **arguments: Any) -> Any:
    with pytest.raises(ToolCallFailed) as failed:
        await call(client, tool, **arguments)
    return failed.value.payload


async def put(client: Any, text: Any = TEXT, **more: Any) -> Any:
    name = uuid4().hex
    answer = await call(client, "put_document", text=text, filepath=name, file_type="md", **more)
    return name, int(answer["details"]["document_id"])


async def added(client: Any, **more: Any) -> Any:
    uri = f"test:{uuid4().hex}"
    return uri, (await call(client, "add_document", source_uri=uri, **more))["doc_id"]


async def test_put_document_answers_as_before(client, library):
    """put_document answers with a status, a sentence and its details."""
    name = uuid4().hex
    answer = await ask(client, "put_document", text=TEXT, filepath=name, file_type="md")
    assert_members(answer, {"status": (str,), "message": (str,), "details": (dict,)})
    document_id = answer["details"].pop("document_id")
    assert document_id.isdecimal()
    assert answer["status"] == "success"
    assert answer["details"] == {
        "count": 1,
        "collection": library.library,
        "filepath": name,
        "vector_dimension": 384,
        "persist_directory": "postgresql",
        "chunk_count": 1,
    }


async def test_put_document_replaces_what_was_there(client):
    """A second text under one identifier keeps the document's id and replaces its text."""
    name, document_id = await put(client)
    again = await call(client, "put_document", text="Another text.", filepath=name, file_type="txt")
    assert again["details"]["document_id"] == str(document_id)
    document = await call(client, "get_document", path=f"put/{name}")
    assert (document["content"], document["metadata"]["url"]) == ("Another text.", f"put:{name}")


async def test_errors_of_put_document_have_the_older_members(client):
    """put_document's errors carry `status` and `error_type` beside the contract's own shape."""
    payload = await failure(client, "put_document", text="", filepath="x", file_type="md")
    assert (payload["success"], payload["status"], payload["error_type"]) == (False, "error", "INVALID_INPUT")
    assert set(payload["error"]) == {"code", "message", "details"}


async def test_errors_of_other_tools_have_success_alone(client):
    """The other tools' errors carry `success: false` beside the contract's own shape."""
    payload = await failure(client, "get_document", document_id=10**15)
    assert set(payload) == {"success", "error"}
    assert payload["success"] is False
    assert set(payload["error"]) == {"code", "message", "details"}


async def test_philograph_ingest_reports_what_it_did(client, library):
    """philograph_ingest counts what was added, updated and unchanged, and lists what failed."""
    folder = library.source_folder / uuid4().hex
    folder.mkdir()
    (folder / "good.md").write_text(TEXT)
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    answer = await ask(client, "philograph_ingest", path=folder.name)
    assert_members(
        answer,
        {
            "message": (str,),
            "job_id": (str,),
            "status": (str,),
            "documents_added": (int,),
            "documents_updated": (int,),
            "documents_unchanged": (int,),
            "documents_failed": (list,),
            "chunks_added": (int,),
            "duration_s": (float,),
        },
    )
    assert (answer["status"], answer["documents_added"], answer["chunks_added"]) == ("completed", 1, 1)
    assert answer["documents_failed"] == [
        {"path": f"documents/{folder.name}/bad.pdf", "code": "PROCESSING_ERROR", "reason": "corrupt"}
    ]


async def test_philograph_ingest_does_nothing_twice(client, library):
    """An unchanged file is unchanged the second time, read again with `force`, and updated when it changed."""
    file = library.source_folder / f"{uuid4().hex}.md"
    file.write_text(TEXT)
    fields = ("documents_added", "documents_updated", "documents_unchanged")

    async def ingested(**more: Any) -> Any:
        answer = await call(client, "philograph_ingest", path=file.name, **more)
        return tuple(answer[field] for field in fields)

    assert await ingested() == (1, 0, 0)
    assert await ingested() == (0, 0, 1)
    assert await ingested(force=True) == (0, 1, 0)
    file.write_text(TEXT + " More.")
    assert await ingested() == (0, 1, 0)


async def test_philograph_ingest_stays_in_the_folder_unless_told(client, library):
    """`recursive: false` leaves subfolders alone; the default goes into them."""
    folder = library.source_folder / uuid4().hex
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("A text.")
    assert (await call(client, "philograph_ingest", path=folder.name, recursive=False))["documents_added"] == 0
    assert (await call(client, "philograph_ingest", path=folder.name))["documents_added"] == 1


async def test_process_text_file_stores_what_it_is_told(client, library):
    """process_text_file answers with doc_id and chunk_count, and further members become metadata."""
    file, uri = library.source_folder / f"{uuid4().hex}.txt", f"test:{uuid4().hex}"
    file.write_text("A text.")
    given = {"source_uri": uri, "title": "T", "authors": "A. One; B. Two", "publication_date": "1893", "shelf": 7}
    answer = await ask(client, "process_text_file", file_path=file.name, doc_metadata=given)
    assert_members(answer, {"success": (bool,), "doc_id": (int,), "chunk_count": (int,)})
    again = await call(client, "process_text_file", file_path=file.name, doc_metadata=given)
    assert again == answer
    metadata = (await call(client, "get_document_metadata", doc_id=answer["doc_id"]))["metadata"]
    assert {name: metadata[name] for name in given} == given


async def test_add_document_is_an_upsert_that_forgets(client):
    """add_document on a known source_uri keeps the id, and fields that are left out become null."""
    uri, doc_id = await added(client, title="T", authors="A. One", metadata_jsonb={"shelf": 7})
    answer = await ask(client, "add_document", source_uri=uri)
    assert answer == {"success": True, "doc_id": doc_id}
    metadata = (await call(client, "get_document_metadata", doc_id=doc_id))["metadata"]
    assert (metadata["title"], metadata["authors"], "shelf" in metadata) == (None, None, False)


async def test_batch_insert_chunks_makes_the_text(client):
    """Passages are counted, joined by blank lines in order of their index, and replaced by index."""
    _, doc_id = await added(client)
    chunks = [{"chunk_text": f"Part {index}.", "chunk_index": index, "embedding": VECTOR} for index in (1, 0)]
    answer = await ask(client, "batch_insert_chunks", document_id=doc_id, chunks=chunks)
    assert answer == {"success": True, "inserted_count": 2}
    third = {"chunk_text": "Other.", "chunk_index": 1, "embedding": VECTOR}
    await call(client, "batch_insert_chunks", document_id=str(doc_id), chunks=[third])
    assert (await call(client, "get_document", document_id=doc_id))["content"] == "Part 0.\n\nOther."


async def test_query_similar_chunks_orders_by_distance(client):
    """Passages come by ascending cosine distance, with the document's metadata, whose own keys win."""
    shelf = uuid4().hex
    uri, doc_id = await added(client, title="T", metadata_jsonb={"shelf": shelf, "title": "own"})
    far = [0.5, 0.5, *[0.0] * 382]
    chunks = [
        {"chunk_text": "Near.", "chunk_index": 0, "embedding": VECTOR},
        {"chunk_text": "Far.", "chunk_index": 1, "embedding": far},
    ]
    await call(client, "batch_insert_chunks", document_id=doc_id, chunks=chunks)
    answer = await ask(client, "query_similar_chunks", query_embedding=VECTOR, filters={"shelf": shelf})
    assert [one["chunk_text"] for one in answer["results"]] == ["Near.", "Far."]
    near, other = answer["results"]
    assert_members(
        near,
        {
            "chunk_id": (int,),
            "document_id": (int,),
            "chunk_text": (str,),
            "score": (float,),
            "metadata": (dict,),
            **TRUST,
        },
    )
    assert near["score"] == pytest.approx(0, abs=1e-3)
    assert other["score"] == pytest.approx(1 - 2**-0.5, abs=1e-3)
    assert near["metadata"] == {
        "source_uri": uri,
        "title": "own",
        "authors": None,
        "publication_date": None,
        "shelf": shelf,
    }


async def test_query_similar_chunks_gives_five(client):
    """Without top_k five passages come; dates are exclusive."""
    shelf = uuid4().hex
    _, doc_id = await added(client, publication_date="1893-05-01", metadata_jsonb={"shelf": {"row": shelf}})
    chunks = [{"chunk_text": f"{index}.", "chunk_index": index, "embedding": VECTOR} for index in range(7)]
    await call(client, "batch_insert_chunks", document_id=doc_id, chunks=chunks)

    async def count(**filters: Any) -> Any:
        filters["shelf"] = {"row": shelf}
        answer = await call(client, "query_similar_chunks", query_embedding=VECTOR, filters=filters)
        return len(answer["results"])

    assert await count() == 5
    assert await count(publication_date_after="1893-04-30", publication_date_before="1893-05-02") == 5
    assert await count(publication_date_after="1893-05-01") == 0
    assert await count(publication_date_before="1893-05-01") == 0


@pytest.mark.parametrize("spelling", [int, str])
async def test_a_document_has_one_identity_in_two_spellings(client, spelling):
    """doc_id and document_id take the number and its decimal string."""
    _, number = await put(client)
    given = spelling(number)
    for named in ({"doc_id": given}, {"document_id": given}):
        answer = await call(client, "get_document_metadata", **named)
        assert (answer["document_id"], answer["metadata"]["doc_id"]) == (str(number), number)
    assert (await call(client, "get_document", document_id=given))["document_id"] == str(number)
    found = await call(client, "philograph_search", query="assent", filters={"document_id": given})
    assert {hit["document_id"] for hit in found["result"]} == {str(number)}


async def test_get_document_metadata_has_every_field(client):
    """get_document_metadata answers with the contract's members, and with the document's own keys."""
    uri, doc_id = await added(client, title="T", authors="A. One; B. Two", metadata_jsonb={"shelf": 7})
    answer = await ask(client, "get_document_metadata", doc_id=doc_id)
    assert_members(
        answer,
        {
            "success": (bool,),
            "document_id": (str,),
            "path": (None,),
            "metadata": (dict,),
            "frontmatter": (str,),
            **TRUST,
        },
    )
    assert {"last_processed_at", *FACTS} <= set(answer["metadata"])
    expected = {"doc_id": doc_id, "source_uri": uri, "authors": "A. One; B. Two", "shelf": 7, "is_generated": False}
    assert expected.items() <= answer["metadata"].items()


async def test_get_document_pages_by_code_points(client):
    """get_document gives max_chars code points from offset on, and says where to go on."""
    text = "Ἀρετὴ γὰρ 𝛼 ἐπιστήμη ἐστίν."
    name, _ = await put(client, text=text)
    answer = await ask(client, "get_document", path=f"put/{name}", offset=10, max_chars=3)
    assert_members(
        answer,
        {
            "document_id": (str,),
            "path": (str,),
            "content": (str,),
            "metadata": (dict,),
            "frontmatter": (str,),
            "next_offset": (int,),
            "total_chars": (int,),
            **TRUST,
        },
    )
    content = (await call(client, "get_document", path=f"put/{name}"))["content"]
    assert (answer["content"], answer["next_offset"], answer["total_chars"]) == (content[10:13], 13, len(content))
    assert_members(answer["metadata"], {**FACTS, "url": (str,)})


async def test_get_document_leaves_metadata_out_when_told(client):
    """`include_metadata: false` gives null; the last page has no next offset."""
    name, _ = await put(client)
    answer = await ask(client, "get_document", path=f"put/{name}", include_metadata=False)
    assert (answer["metadata"], answer["next_offset"]) == (None, None)


async def test_list_documents_gives_rows_without_texts(client):
    """list_documents answers with rows, the total, and the page; the newest comes first."""
    word = uuid4().hex
    ids = [(await added(client, title=f"{word} {number}"))[1] for number in range(3)]
    answer = await ask(client, "list_documents", filter={"search_title": word})
    assert [row["document_id"] for row in answer["documents"]] == [str(one) for one in reversed(ids)]
    assert (answer["total"], answer["limit"], answer["offset"]) == (3, 50, 0)
    row = {**FACTS, "document_id": (str,), "path": (str, None), "summary": (str,), **TRUST}
    assert_members(answer["documents"][0], row)
    page = await call(
        client, "list_documents", filter={"search_title": word}, sort_by="title", sort_order="asc", limit=1, offset=1
    )
    assert [row["document_id"] for row in page["documents"]] == [str(ids[1])]


async def test_list_documents_shows_the_first_200_characters(client):
    """A summary is the first 200 characters of the text."""
    name, document_id = await put(client, text="word " * 100)
    listed = (await call(client, "list_documents", limit=200))["documents"]
    summary = next(row["summary"] for row in listed if row["document_id"] == str(document_id))
    content = (await call(client, "get_document", path=f"put/{name}"))["content"]
    assert summary == content[:200]


async def test_philograph_search_gives_hits_with_locators(client):
    """philograph_search answers with hits that have every member, and with warnings."""
    _, document_id = await put(client)
    answer = await ask(client, "philograph_search", query="What is assent?", filters={"document_id": document_id})
    assert_members(answer, {"result": (list,), "warnings": (list,)})
    (hit,) = answer["result"]
    assert_members(
        hit,
        {
            "chunk_id": (int,),
            "document_id": (str,),
            "title": (str, None),
            "authors": (list,),
            "text": (str,),
            "score": (float,),
            "scores": (dict,),
            "matched_by": (list,),
            "locator": (dict,),
            "citation": (str,),
            "metadata": (dict,),
            **TRUST,
        },
    )
    assert_members(hit["locator"], LOCATOR)
    assert_members(hit["scores"], {"dense": (float,), "lexical": (float,)})
    assert 0 <= hit["score"] <= 1
    content = (await call(client, "get_document", document_id=document_id))["content"]
    assert content[hit["locator"]["char_start"] : hit["locator"]["char_end"]] == hit["text"]


async def test_philograph_search_gives_ten(client):
    """Without a limit a search gives at most ten hits."""
    for number in range(11):
        await put(client, text=f"Zeno showed assent with hand number {number}.")
    assert len((await call(client, "philograph_search", query="assent"))["result"]) == 10


async def test_search_documents_gives_one_row_a_document(client):
    """search_documents answers with a row a document, its best passage, the total and the time of the model."""
    _, document_id = await put(client)
    answer = await ask(client, "search_documents", query="What is assent?", similarity_threshold=0, max_results=100)
    assert_members(
        answer, {"results": (list,), "total_found": (int,), "query_embedding_time_ms": (int,), "warnings": (list,)}
    )
    ids = [row["document_id"] for row in answer["results"]]
    assert len(ids) == len(set(ids))
    row = next(row for row in answer["results"] if row["document_id"] == str(document_id))
    assert_members(
        row,
        {
            "document_id": (str,),
            "path": (str, None),
            "title": (str, None),
            "snippet": (str,),
            "similarity_score": (float,),
            "metadata": (dict,),
            "locator": (dict,),
            **TRUST,
        },
    )
    assert_members(row["metadata"], {"url": (str,), "tags": (list,), "category": (str, None), "created_at": (str,)})
    assert_members(row["locator"], LOCATOR)


async def test_search_documents_keeps_to_its_threshold(client):
    """Rows are at or over the threshold, 0.6 if none is given, and best first."""
    await put(client)
    for threshold in ({}, {"similarity_threshold": 0.9}):
        answer = await call(client, "search_documents", query="What is assent?", **threshold)
        scores = [row["similarity_score"] for row in answer["results"]]
        assert scores == sorted(scores, reverse=True)
        assert all(score >= threshold.get("similarity_threshold", 0.6) for score in scores)
        assert answer["total_found"] >= len(scores)


async def test_gateway_status_says_what_runs(client, library):
    """gateway_status answers with version, store, space, library, plugins and queue."""
    answer = await ask(client, "gateway_status")
    assert_members(
        answer,
        {
            "version": (str,),
            "store": (dict,),
            "embedding_space": (dict,),
            "lexical_engine": (str,),
            "library": (str,),
            "plugins": (list,),
            "queue_depth": (int,),
            "sources": (dict,),
        },
    )
    assert (answer["version"], answer["library"]) == (__version__, library.library)
    assert (answer["store"]["kind"], answer["store"]["state"]) == ("embedded", "ready")
    assert set(answer["embedding_space"]) == {"provider", "model", "revision", "dimensions"}
    for plugin in answer["plugins"]:
        assert set(plugin) == {"name", "version", "distribution", "toolset", "tools", "problem"}


async def test_nothing_tells_where_the_server_keeps_its_files(client, library):
    """No answer of the gateway's own state names a folder of the server."""
    assert str(library.data_dir) not in json.dumps(await call(client, "gateway_status"))
