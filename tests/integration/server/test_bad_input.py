"""Whatever is given to one `philorag-mcp` process, it says what is wrong, stores nothing of it, and goes on serving."""

import asyncio
import json
import math
import os
import sys

import pytest
from tests.integration.server.server_process import serving
from tests.support.files import make_epub, make_pdf, make_zip_bomb

from philorag.testing import temporary_settings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
TABLES = ("documents", "chunks", "chunk_embeddings", "lex_postings", "document_tags")
VECTOR = [0.1] * 384


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bad")


@pytest.fixture(scope="module")
def sources(folder):
    """A source folder with every kind of file that can't be ingested."""
    sources = folder / "sources"
    sources.mkdir()
    (folder / "outside.txt").write_text("A secret of somebody else.")
    pdf = make_pdf([["All men by nature desire to know."] * 20])
    files = {
        "empty.txt": b"",
        "blank.md": b" \n\n\t\n",
        "truncated.pdf": pdf[: len(pdf) // 2],
        "encrypted.pdf": make_pdf([["Secret."]], password="x"),
        "scanned.pdf": make_pdf([[]]),
        "bomb.epub": make_zip_bomb(128 << 20),
        "climbing.epub": make_epub({"../../../escaped.xhtml": "<p>Text.</p>"}),
        "no.epub": b"PK\x03\x04 but no archive",
        "binary.txt": bytes(range(256)) * 20,
        "latin.txt": "Über die Würde des Menschen.".encode("cp1252"),
        "picture.png": b"\x89PNG\r\n\x1a\n" + os.urandom(100),
    }
    for name, content in files.items():
        (sources / name).write_bytes(content)
    (sources / "link.txt").symlink_to(folder / "outside.txt")
    (sources / "folder").symlink_to(folder)
    (sources / "dangling.txt").symlink_to(sources / "gone.txt")
    os.mkfifo(sources / "pipe.txt")
    return sources


@pytest.fixture(scope="module")
def settings(data_dir, sources):
    return temporary_settings(data_dir, source_dir=sources, library_dir=sources.parent / "library")


@pytest.fixture(scope="module")
def server(folder, settings):
    environment = {
        "PHILORAG_DATA_DIR": str(settings.data_dir),
        "PHILORAG_SOURCE_DIR": str(settings.source_folder),
        "PHILORAG_LIBRARY_DIR": str(settings.library_folder),
        "PHILORAG_LIBRARY": settings.library,
    }
    with serving(folder, environment) as server:
        server.greet()
        server.call("gateway_status")
        yield server
        assert server.end() == 0


@pytest.fixture
def stored(database, settings):
    """How many rows of each table the library has."""

    def count():
        counts = ", ".join(f"(select count(*) from {table} where library_id = id) as {table}" for table in TABLES)
        (row,) = asyncio.run(database(f"select {counts} from libraries where name = $1", settings.library))
        return dict(row)

    return count


@pytest.fixture
def refusal(server, stored, folder):
    """Call a tool that must fail: gives the error, once nothing was stored and the next call has worked."""

    def refused(tool, /, **arguments):
        before = stored()
        answer = server.call(tool, **arguments)
        assert answer["success"] is False
        assert stored() == before
        assert server.call("list_documents", limit=1)["limit"] == 1
        text = json.dumps(answer)
        for hidden in (str(folder), "Traceback", "select ", "pydantic", "A secret"):
            assert hidden not in text
        return answer["error"]

    return refused


PUT = {"text": "A text.", "filepath": "a", "file_type": "txt"}
CHUNK = {"chunk_text": "A text.", "chunk_index": 0, "embedding": VECTOR}


@pytest.mark.parametrize(
    ("tool", "arguments", "argument"),
    [
        ("philograph_search", {}, "query"),
        ("philograph_search", {"query": ""}, "query"),
        ("philograph_search", {"query": "a\0b"}, "query"),
        ("philograph_search", {"query": " \n"}, "query"),
        ("philograph_search", {"query": "a", "filters": {"year": 1999, "year_from": 2005}}, "filters"),
        ("philograph_search", {"query": "a", "filters": {"year_from": 2005, "year_to": 1999}}, "filters"),
        ("search_documents", {"query": "a", "date_range": {"start": "2024-02-02", "end": "2024-02-01"}}, "date_range"),
        ("put_document", {"text": " \n", "filepath": "a.txt", "file_type": "txt"}, "text"),
        (
            "process_text_file",
            {"file_path": "a.txt", "doc_metadata": {"source_uri": "a", "publication_date": "1999-99-99"}},
            "doc_metadata",
        ),
        ("philograph_search", {"query": "a" * 1_001}, "query"),
        ("philograph_search", {"query": 5}, "query"),
        ("philograph_search", {"query": None}, "query"),
        ("philograph_search", {"query": "a", "limit": 0}, "limit"),
        ("philograph_search", {"query": "a", "limit": 101}, "limit"),
        ("philograph_search", {"query": "a", "limit": "5"}, "limit"),
        ("philograph_search", {"query": "a", "limit": True}, "limit"),
        ("philograph_search", {"query": "a", "top_k": 5}, "top_k"),
        ("philograph_search", {"query": "a", "filters": {"nobody_has_this": 1}}, "filters.nobody_has_this"),
        ("philograph_search", {"query": "a", "filters": {"year": 10**9}}, "filters.year"),
        ("philograph_search", {"query": "a", "filters": []}, "filters"),
        ("search_documents", {"query": "a", "max_results": 10**9}, "max_results"),
        ("search_documents", {"query": "a", "similarity_threshold": math.nan}, "similarity_threshold"),
        ("search_documents", {"query": "a", "similarity_threshold": 1.1}, "similarity_threshold"),
        ("search_documents", {"query": "a", "date_range": {"start": "2024-02-30"}}, "date_range.start"),
        ("search_documents", {"query": "a", "date_range": {"begin": "2024-02-28"}}, "date_range.begin"),
        ("search_documents", {"query": "a", "filter_tags": ["x"] * 21}, "filter_tags"),
        ("query_similar_chunks", {"query_embedding": VECTOR, "top_k": 0}, "top_k"),
        ("query_similar_chunks", {"query_embedding": VECTOR, "top_k": 10**9}, "top_k"),
        ("query_similar_chunks", {"query_embedding": VECTOR[1:]}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": [*VECTOR[1:], math.nan]}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": [*VECTOR[1:], math.inf]}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": [*VECTOR[1:], 1e300]}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": [0] * 384}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": []}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": [0.1] * 5_000}, "query_embedding"),
        ("query_similar_chunks", {"query_embedding": "[0.1]"}, "query_embedding"),
        ("batch_insert_chunks", {"document_id": 1, "chunks": []}, "chunks"),
        ("batch_insert_chunks", {"document_id": 1, "chunks": [CHUNK] * 2_001}, "chunks"),
        ("batch_insert_chunks", {"document_id": 1, "chunks": [{**CHUNK, "chunk_text": ""}]}, "chunks[0].chunk_text"),
        ("batch_insert_chunks", {"document_id": 1, "chunks": [{**CHUNK, "page": 1}]}, "chunks[0].page"),
        ("batch_insert_chunks", {"document_id": "1; drop", "chunks": [CHUNK]}, "document_id"),
        ("add_document", {}, "source_uri"),
        ("add_document", {"source_uri": "a", "publication_date": "1893"}, "publication_date"),
        ("add_document", {"source_uri": "a", "publication_date": "1893-02-30"}, "publication_date"),
        ("add_document", {"source_uri": "a", "metadata_jsonb": {"a": "\0"}}, "metadata_jsonb"),
        ("add_document", {"source_uri": "a", "metadata_jsonb": {"a": "b" * 70_000}}, "metadata_jsonb"),
        ("add_document", {"source_uri": "a", "title": "b\0"}, "title"),
        ("get_document", {}, "document_id"),
        ("get_document", {"document_id": 1, "path": "a"}, "document_id"),
        ("get_document", {"document_id": 0}, "document_id"),
        ("get_document", {"document_id": 2**63}, "document_id"),
        ("get_document", {"document_id": 1.0}, "document_id"),
        ("get_document", {"document_id": "01"}, "document_id"),
        ("get_document", {"document_id": 1, "offset": -1}, "offset"),
        ("get_document", {"document_id": 1, "max_chars": 0}, "max_chars"),
        ("get_document_metadata", {"doc_id": 1, "document_id": "1"}, "doc_id"),
        ("list_documents", {"limit": 201}, "limit"),
        ("list_documents", {"sort_by": "size"}, "sort_by"),
        ("list_documents", {"filter": {"is_generated": "no"}}, "filter.is_generated"),
        ("put_document", {**PUT, "text": ""}, "text"),
        ("put_document", {**PUT, "text": "a\0"}, "text"),
        ("put_document", {**PUT, "normalize": 1}, "normalize"),
        ("put_document", {**PUT, "filepath": ""}, "filepath"),
        ("put_document", {**PUT, "collection": "x"}, "collection"),
        ("process_text_file", {"file_path": "empty.txt", "doc_metadata": {}}, "doc_metadata.source_uri"),
        ("process_text_file", {"file_path": "gone.txt", "doc_metadata": {"source_uri": "x"}}, "file_path"),
        ("philograph_ingest", {"path": "gone.txt"}, "path"),
        ("philograph_ingest", {"path": ""}, "path"),
        ("philograph_ingest", {"path": "a\0b"}, "path"),
        ("philograph_ingest", {"path": ".", "recursive": "yes"}, "recursive"),
        ("philograph_ingest", {"path": ".", "recursiv": True}, "recursiv"),
        ("gateway_status", {"verbose": True}, "verbose"),
        ("no_such_tool", {}, "name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_argument_is_named(refusal, tool, arguments, argument):
    """A missing, unknown or unusable argument is INVALID_INPUT and is named."""
    error = refusal(tool, **arguments)
    assert error["code"] == "INVALID_INPUT"
    assert error["details"]["argument"] == argument
    assert len(error["message"]) < 600


@pytest.mark.parametrize("tool", ["get_document", "get_document_metadata"])
def test_what_is_not_there_is_not_found(refusal, tool):
    """An id and a path that don't exist are DOCUMENT_NOT_FOUND, with what was asked for."""
    assert refusal(tool, document_id="999999999")["details"] == {"document_id": "999999999"}
    error = refusal(tool, path="documents/none.md")
    assert (error["code"], error["details"]) == ("DOCUMENT_NOT_FOUND", {"path": "documents/none.md"})


def test_passages_of_no_document_are_not_found(refusal):
    """batch_insert_chunks to an unknown document is DOCUMENT_NOT_FOUND."""
    assert refusal("batch_insert_chunks", document_id=999_999_999, chunks=[CHUNK])["code"] == "DOCUMENT_NOT_FOUND"


def test_a_batch_with_one_bad_passage_stores_none(server, refusal):
    """One repeated index, one short vector or one NaN refuses the whole batch."""
    document_id = server.call("add_document", source_uri="batch")["doc_id"]
    for bad in (CHUNK, {**CHUNK, "chunk_index": 1, "embedding": VECTOR[1:]}):
        error = refusal("batch_insert_chunks", document_id=document_id, chunks=[CHUNK, bad])
        assert error["code"] == "INVALID_INPUT"
        assert error["details"]["argument"].startswith("chunks[1].")


def test_a_batch_over_the_limit_is_refused_with_the_limit(server, refusal):
    """batch_insert_chunks over 32 MB is refused, and the limit is told."""
    document_id = server.call("add_document", source_uri="large")["doc_id"]
    chunks = [{**CHUNK, "chunk_index": index, "chunk_text": "a" * 99_000} for index in range(330)]
    assert "32 MB" in refusal("batch_insert_chunks", document_id=document_id, chunks=chunks)["message"]


def test_fifty_megabytes_in_one_argument_are_refused(refusal):
    """A text of 50 MB is refused without being repeated."""
    error = refusal("put_document", **{**PUT, "text": "a" * 50_000_000})
    assert (error["code"], error["details"]["argument"]) == ("INVALID_INPUT", "text")
    assert len(json.dumps(error)) < 1_000


def test_a_text_of_nothing_but_space_has_no_text(refusal):
    """put_document of white space is refused, with the older servers' members."""
    assert refusal("put_document", **{**PUT, "text": " \n "})["code"] == "INVALID_INPUT"


@pytest.mark.parametrize(
    "path",
    ["../outside.txt", "a/../../outside.txt", "/etc/passwd", "link.txt", "folder", "folder/outside.txt", "..", "a/.."],
)
@pytest.mark.parametrize("tool", ["philograph_ingest", "process_text_file"])
def test_a_path_that_leaves_the_folder_is_refused(refusal, tool, path):
    """`..`, an absolute path and a link out of the source folder are PERMISSION_DENIED."""
    given = {"path": path} if tool == "philograph_ingest" else {"file_path": path, "doc_metadata": {"source_uri": "x"}}
    assert refusal(tool, **given)["code"] == "PERMISSION_DENIED"


BAD_FILES = [
    ("blank.md", "empty"),
    ("truncated.pdf", "corrupt"),
    ("encrypted.pdf", "encrypted"),
    ("scanned.pdf", "no_text"),
    ("bomb.epub", "too_large"),
    ("climbing.epub", "corrupt"),
    ("no.epub", "corrupt"),
    ("binary.txt", "unsupported_format"),
    ("latin.txt", "corrupt"),
    ("picture.png", "unsupported_format"),
    ("pipe.txt", "not_a_file"),
    ("dangling.txt", "vanished"),
]


@pytest.mark.parametrize(("name", "reason"), BAD_FILES, ids=[name for name, _ in BAD_FILES])
def test_a_bad_file_is_a_processing_error_with_its_reason(refusal, name, reason):
    """A named file that can't be read fails with PROCESSING_ERROR and the contract's word for why."""
    error = refusal("philograph_ingest", path=name)
    assert error["code"] == "PROCESSING_ERROR"
    assert error["details"]["reason"] == reason


@pytest.mark.parametrize(("name", "reason"), BAD_FILES[1:], ids=[name for name, _ in BAD_FILES[1:]])
def test_a_bad_file_fails_alike_under_given_metadata(refusal, name, reason):
    """process_text_file says of a bad file what philograph_ingest says."""
    error = refusal("process_text_file", file_path=name, doc_metadata={"source_uri": name})
    assert error["code"] == "PROCESSING_ERROR"
    assert error["details"]["reason"] == reason


def test_in_a_folder_bad_files_are_rows(server, stored):
    """Ingesting the folder lists every bad file with its code and stores none of them."""
    before = stored()
    answer = server.call("philograph_ingest", path=".")
    failed = {row["path"]: row["code"] for row in answer["documents_failed"]}
    assert failed.pop("documents/link.txt") == "PERMISSION_DENIED"
    assert failed.pop("documents/folder", "PERMISSION_DENIED") == "PERMISSION_DENIED"
    assert set(failed) == {f"documents/{name}" for name, _ in BAD_FILES} | {"documents/empty.txt"}
    assert set(failed.values()) == {"PROCESSING_ERROR"}
    assert answer["documents_added"] == 0
    assert stored() == before


@pytest.mark.parametrize("name", ["empty.txt", "blank.md"])
def test_an_empty_file_is_no_document(server, stored, name):
    """process_text_file of a file without text succeeds with no document."""
    before = stored()
    answer = server.call("process_text_file", file_path=name, doc_metadata={"source_uri": "empty"})
    assert answer == {"success": True, "doc_id": None, "chunk_count": 0}
    assert stored() == before


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_unreadable(refusal, sources):
    """A file in a folder that may not be entered is PROCESSING_ERROR with the reason `unreadable`."""
    closed = sources / "closed"
    closed.mkdir(mode=0)
    try:
        error = refusal("philograph_ingest", path="closed/a.txt")
        assert (error["code"], error["details"]["reason"]) == ("PROCESSING_ERROR", "unreadable")
    finally:
        closed.rmdir()


def test_one_line_of_ten_megabytes_is_no_matter(server, sources):
    """The length of a line costs nothing: ten megabytes of it with one sentence of text are ingested at once."""
    (sources / "line.html").write_bytes(b"<p>A short text.</p><!--" + b"a" * 10_000_000 + b"-->")
    try:
        assert server.call("philograph_ingest", path="line.html")["documents_added"] == 1
        assert server.call("get_document", path="documents/line.html")["content"] == "A short text."
    finally:
        (sources / "line.html").unlink()
