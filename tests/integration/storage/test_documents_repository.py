"""Documents: one row a source, its versions, its pages."""

from __future__ import annotations

import asyncio
import unicodedata
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.integration.storage.store_support import fields, stored

from philorag.errors import PermissionDenied
from philorag.library.documents import DocumentService
from philorag.model import SourceState
from philorag.storage.repositories.documents import SUMMARY_CHARS, DocumentListing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from philorag.model import Caller
    from philorag.storage.database import Database
    from philorag.storage.repositories.documents import SavedDocument
    from philorag.storage.unit_of_work import UnitOfWork

SOURCE = SourceState(sha256="ab", size=10, mtime_ns=20)


@asynccontextmanager
async def committed(database: Database, caller: Caller) -> AsyncIterator[UnitOfWork]:
    async with database.unit_of_work(caller) as work:
        yield work
        await work.commit()


async def saved(
    database: Database, caller: Caller, source_uri: str, content: str | None = "Text", **more: Any
) -> SavedDocument:
    async with committed(database, caller) as work:
        return await work.documents.save(fields(source_uri, **more), content)


async def titles(database: Database, caller: Caller, **listing: Any) -> list[str | None]:
    async with database.unit_of_work(caller) as work:
        found, total = await work.documents.page(DocumentListing(**listing))
    assert total >= len(found)
    return [document.title for document in found]


async def got(database: Database, caller: Caller, document_id: int) -> Any:
    async with database.unit_of_work(caller) as work:
        return await work.documents.get(document_id)


async def test_saving_again_keeps_the_id_and_raises_the_version(database, caller):
    """What the same tool stores under the same source replaces everything but id, creation and library."""
    first = await saved(database, caller, "file:a", title="Old", tags=("x",), metadata={"a": 1})
    before = await got(database, caller, first.id)
    second = await saved(database, caller, "file:a", title="New")
    after = await got(database, caller, first.id)
    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert (before.version, after.version, after.title, after.tags, after.metadata) == (1, 2, "New", (), {})
    assert after.created_at == before.created_at
    assert after.modified_at > before.modified_at


async def test_everything_that_was_given_comes_back(database, caller):
    """All fields of a document survive the way through the database."""
    given_fields = {
        "path": "documents/a.txt",
        "title": "Σ",
        "authors": ("One", "Two"),
        "publication_date": "1958-05",
        "language": "grc",
        "category": "book",
        "tags": ("b", "a", "b"),
        "metadata": {"n": [1, {"ü": None}]},
        "extracted_text_hash": "h",
    }
    document = await got(database, caller, (await saved(database, caller, "file:a", "a b  c", **given_fields)).id)
    assert {name: getattr(document, name) for name in given_fields} == given_fields
    assert (document.word_count, document.summary, document.last_processed_at) == (3, "a b  c", None)


async def test_a_text_that_is_not_given_stays(database, caller):
    """Saving without content leaves the text, its hash and its length as they are."""
    document_id = (await saved(database, caller, "file:a", "one two")).id
    await saved(database, caller, "file:a", None, title="New")
    async with database.unit_of_work(caller) as work:
        assert await work.documents.content(document_id) == ("one two", 7)
    assert (await got(database, caller, document_id)).word_count == 2


async def test_another_tool_may_not_replace_it(database, caller):
    """A document made by one tool is refused to every other, and stays."""
    document_id = (await saved(database, caller, "file:a", title="Mine")).id
    with pytest.raises(PermissionDenied) as caught:
        await saved(database, caller, "file:a", title="Yours", origin="put_document")
    assert caught.value.details == {"source_uri": "file:a"}
    assert (await got(database, caller, document_id)).title == "Mine"


async def test_saving_one_new_source_many_times_at_once_makes_one_document(database, caller):
    """Of many who bring the same new document at once, one makes it and the others replace it."""
    results = await asyncio.gather(*(saved(database, caller, "file:a") for _ in range(6)))
    assert len({result.id for result in results}) == 1
    assert sorted(result.created for result in results) == [False] * 5 + [True]
    assert (await got(database, caller, results[0].id)).version == 6


async def test_the_same_source_in_two_libraries_is_two_documents(database, caller, stranger):
    """Sources and paths are unique in a library, not beyond it."""
    ours = await saved(database, caller, "file:a", path="documents/a")
    theirs = await saved(database, stranger, "file:a", path="documents/a")
    assert ours.id != theirs.id
    assert await got(database, caller, theirs.id) is None


@pytest.mark.parametrize("way", ["get", "lock", "by_path", "id_of", "content", "known_sources"])
async def test_what_belongs_to_another_library_looks_missing(database, caller, stranger, way):
    """Every way of asking answers alike for a foreign document and for none."""
    document_id = (await saved(database, caller, "file:a", path="documents/a", source=SOURCE)).id
    foreign = {"by_path": "documents/a", "id_of": "file:a", "known_sources": ["documents/a"]}.get(way, document_id)
    missing = {"by_path": "documents/z", "id_of": "file:z", "known_sources": ["documents/z"]}.get(way, 2**62)
    async with database.unit_of_work(stranger) as work:
        ask = getattr(work.documents, way)
        assert await ask(foreign) == await ask(missing)


CODE_POINTS = "Aé😀e\u0301 λόγος 👩‍🔬 ἀρχή\n𝔸"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(
    content=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    offset=st.integers(0, 30),
    length=st.none() | st.integers(0, 30),
)
async def test_slices_count_code_points(database, caller, content, offset, length):
    """A part of the text is what Python's slice of it is, whatever is in it."""
    content += CODE_POINTS
    document_id = (await saved(database, caller, "file:a", content)).id
    async with database.unit_of_work(caller) as work:
        part = await work.documents.content(document_id, offset, length)
    assert part == (content[offset : None if length is None else offset + length], len(content))


async def test_the_summary_counts_code_points_too(database, caller):
    """A listing shows the first 200 code points, and never half of one."""
    document_id = (await saved(database, caller, "file:a", "😀" * 300)).id
    assert (await got(database, caller, document_id)).summary == "😀" * SUMMARY_CHARS


async def test_pages_together_are_the_whole_in_order(database, caller):
    """Pages neither repeat nor leave out, even where the key is equal, and the total is that of all pages."""
    async with committed(database, caller) as work:
        ids = [(await work.documents.save(fields(title=None if n % 3 else "Same"), "")).id for n in range(7)]
    for sort_by in ("created_at", "modified_at", "title"):
        async with database.unit_of_work(caller) as work:
            pages = [
                await work.documents.page(DocumentListing(sort_by=sort_by, limit=2, offset=at))
                for at in (0, 2, 4, 6, 8)
            ]
        assert sorted(document.id for page, _ in pages for document in page) == ids
        assert {total for _, total in pages} == {7}


async def test_titles_are_sorted_as_a_reader_does(database, caller):
    """Capitals don't come before small letters, and what has no title comes last either way."""
    for title in ("banana", "Apple", "cherry", None):
        await saved(database, caller, f"file:{title}", title=title)
    assert await titles(database, caller, sort_by="title", descending=False) == ["Apple", "banana", "cherry", None]
    assert await titles(database, caller, sort_by="title") == ["cherry", "banana", "Apple", None]


async def test_the_latest_comes_first(database, caller):
    """By default what was made last is first, and by modification what was saved last."""
    for title in ("a", "b"):
        await saved(database, caller, f"file:{title}", title=title)
    await saved(database, caller, "file:a", title="a")
    assert await titles(database, caller) == ["b", "a"]
    assert await titles(database, caller, sort_by="modified_at") == ["a", "b"]
    assert await titles(database, caller, sort_by="modified_at", descending=False) == ["b", "a"]


LISTINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"tags": ("mind",)}, ["Ethics", "100% Ethics"]),
    ({"tags": ("mind", "will")}, ["Ethics"]),
    ({"tags": ("Mind",)}, []),
    ({"category": "book"}, ["Ethics"]),
    ({"is_generated": True}, ["100% Ethics"]),
    ({"is_generated": False}, ["Ethics", "Ἠθικά"]),
    ({"search_title": "ETHIC"}, ["Ethics", "100% Ethics"]),
    ({"search_title": "ἠθικὰ"}, []),
    ({"search_title": "Ἠθικά"}, ["Ἠθικά"]),
    ({"search_title": "0% e"}, ["100% Ethics"]),
    ({"search_title": "t_i"}, []),
    ({"search_title": "%"}, ["100% Ethics"]),
]


async def test_a_listing_narrows(database, caller):
    """Each filter of a listing leaves exactly what it names, and a wildcard in a title is itself."""
    await saved(database, caller, "file:1", title="Ethics", tags=("mind", "will"), category="book")
    await saved(database, caller, "file:2", title="100% Ethics", tags=("mind",), kind="generated")
    await saved(database, caller, "file:3", title="Ἠθικά")
    for listing, expected in LISTINGS:
        assert await titles(database, caller, **listing, descending=False) == expected, listing


async def test_dates_are_inclusive(database, caller):
    """A listing from a day to the same day has what was made on it, by UTC."""
    await saved(database, caller, "file:a", title="a")
    async with committed(database, caller) as work:
        late = datetime(2020, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
        await work._connection.execute(text("update documents set created_at = :late"), {"late": late})
    day, one = date(2020, 2, 29), timedelta(days=1)
    assert await titles(database, caller, created_from=day, created_to=day) == ["a"]
    assert await titles(database, caller, created_to=day - one) == []
    assert await titles(database, caller, created_from=day + one) == []


async def test_materials_are_never_shown(database, caller):
    """What somebody's extraction brought is neither listed nor found by id or path."""
    material = await saved(database, caller, "file:a", title="Secret", kind="material", path="documents/a")
    assert await titles(database, caller) == []
    async with database.unit_of_work(caller) as work:
        assert await work.documents.get(material.id) is None
        assert await work.documents.lock(material.id) is None
        assert await work.documents.by_path("documents/a") is None


async def test_the_table_of_tags_follows(database, caller):
    """Tags are found by what was saved last, and go with the document."""
    document_id = (await saved(database, caller, "file:a", title="a", tags=("x", "y", "x"))).id
    await saved(database, caller, "file:a", title="a", tags=("y", "z"))
    assert [await titles(database, caller, tags=(tag,)) for tag in "xyz"] == [[], ["a"], ["a"]]
    async with committed(database, caller) as work:
        await work.documents.delete(document_id)
        assert await work._connection.scalar(text("select count(*) from document_tags")) == 0


async def test_a_known_source_is_remembered(database, caller):
    """What was read is known by its path, and a document that came otherwise has no source."""
    read = await saved(database, caller, "file:a", path="documents/a", source=SOURCE, pipeline_version="1")
    await saved(database, caller, "put:b", path="put/b")
    async with committed(database, caller) as work:
        await work.documents.touch_sources({read.id: SourceState(sha256="other", size=11, mtime_ns=21)})
        known = await work.documents.known_sources(["documents/a", "put/b", "documents/none"])
    assert known.keys() == {"documents/a", "put/b"}
    assert known["documents/a"].source == SourceState(sha256="ab", size=11, mtime_ns=21)
    assert (known["documents/a"].version, known["documents/a"].pipeline_version) == (1, "1")
    assert known["put/b"].source is None


async def test_a_path_is_found_however_its_accents_are_typed(database, caller):
    """Paths are stored in NFC, and asked for in any form."""
    path = unicodedata.normalize("NFC", "documents/Ἠθικά é.txt")
    document_id = (await saved(database, caller, "file:a", path=path)).id
    found = await DocumentService(database).get(caller, path=unicodedata.normalize("NFD", path))
    assert (found.id, found.path) == (document_id, path)


async def test_changing_the_text_alone_raises_the_version(database, caller):
    """New text is counted, and the document changed."""
    document_id = (await saved(database, caller, "file:a", "one")).id
    async with committed(database, caller) as work:
        await work.documents.set_content(document_id, "one two three")
    document = await got(database, caller, document_id)
    assert (document.version, document.word_count) == (2, 3)


async def test_a_locked_document_waits(database, caller):
    """Whoever locked a document changes it before the next one does."""
    document_id = (await saved(database, caller, "file:a", "one", title="0")).id
    async with committed(database, caller) as work:
        assert await work.documents.lock(document_id)
        later = asyncio.create_task(saved(database, caller, "file:a", None, title="2"))
        await work.documents.set_content(document_id, "first")
    await later
    assert (await got(database, caller, document_id)).version == 3


async def test_removing_takes_everything_along(database, caller):
    """With a document go its passages, vectors, tags and postings."""
    document_id = await stored(database, caller, "The will is free.", "So is the mind.", tags=("x",))
    await DocumentService(database).remove(caller, document_id=document_id)
    async with database.unit_of_work(caller) as work:
        for table in ("documents", "document_tags", "chunks", "chunk_embeddings", "lex_postings"):
            assert await work._connection.scalar(text(f"select count(*) from {table}")) == 0
        assert await work.passages.size() == 0
