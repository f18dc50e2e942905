from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from philorag.errors import DocumentNotFound, InvalidInput, PermissionDenied
from philorag.library.store import ClientChunk, checked_vector
from philorag.model import Caller, Chunk, DocumentFields, SearchFilters
from philorag.services import Services
from philorag.testing import temporary_settings

FIELDS = DocumentFields(origin="add_document", source_uri="urn:a", title="A", authors=("X",), metadata={"k": 1})
DIMENSIONS = 384


def axis(n: int, length: float = 1.0) -> list[float]:
    return [length if position == n else 0.0 for position in range(DIMENSIONS)]


def chunk(index: int, text: str, vector: Sequence[float] | None = None) -> ClientChunk:
    return ClientChunk(text, index, axis(index % DIMENSIONS) if vector is None else vector)


async def content_and_chunks(services: Services, caller: Caller, document_id: int) -> tuple[str, list[Chunk]]:
    async with services.database.unit_of_work(caller) as work:
        content, _ = await work.documents.content(document_id)
        return content, await work.chunks.of_document(document_id)


async def nearest(services: Services, caller: Caller, vector: Sequence[float]) -> str:
    (near,) = await services.store.query_similar(caller, vector, 1, SearchFilters())
    return near.passage.text


@pytest.fixture
async def document_id(services: Services, caller: Caller) -> int:
    return await services.store.add_document(caller, FIELDS)


async def test_a_document_is_replaced_under_its_source_uri(services: Services, caller: Caller, document_id: int):
    """The same source_uri is the same document: what isn't given again is gone, its passages stay."""
    await services.store.insert_chunks(caller, document_id, [chunk(0, "one")])
    again = await services.store.add_document(caller, DocumentFields(origin="add_document", source_uri="urn:a"))
    document = await services.documents.get(caller, document_id=again)
    assert again == document_id
    assert (document.title, document.authors, document.metadata) == (None, (), {})
    assert (await content_and_chunks(services, caller, again))[0] == "one"


async def test_passages_are_put_in_order_of_their_indexes(services: Services, caller: Caller, document_id: int):
    """Indexes may have gaps and come in any order; the text is the passages joined, and offsets follow."""
    await services.store.insert_chunks(
        caller, document_id, [chunk(40, "last"), chunk(7, "first"), chunk(9, "ὁ βίος 🦉")]
    )
    assert await services.store.insert_chunks(caller, document_id, [chunk(8, "between"), chunk(40, "the end")]) == 2
    content, chunks = await content_and_chunks(services, caller, document_id)
    assert content == "first\n\nbetween\n\nὁ βίος 🦉\n\nthe end"
    assert [one.index for one in chunks] == [7, 8, 9, 40]
    assert all(content[one.locator.char_start : one.locator.char_end] == one.text for one in chunks)


async def test_an_unchanged_passage_keeps_its_id_and_takes_its_new_vector(
    services: Services, caller: Caller, document_id: int
):
    """Inserting the same text again under its index changes its vector alone."""
    await services.store.insert_chunks(caller, document_id, [chunk(0, "one", axis(0)), chunk(1, "two", axis(1))])
    _, before = await content_and_chunks(services, caller, document_id)
    await services.store.insert_chunks(caller, document_id, [chunk(0, "one", axis(5))])
    _, after = await content_and_chunks(services, caller, document_id)
    assert [one.id for one in before] == [one.id for one in after]
    assert await nearest(services, caller, axis(5)) == "one"


async def test_equal_texts_have_each_their_own_vector(services: Services, caller: Caller, document_id: int):
    """A refrain that comes before one that is stored already is a passage of its own."""
    await services.store.insert_chunks(caller, document_id, [chunk(5, "Refrain.", axis(5))])
    await services.store.insert_chunks(caller, document_id, [chunk(0, "Refrain.", axis(0))])
    near = await services.store.query_similar(caller, axis(5), 2, SearchFilters())
    assert [pytest.approx(one.cosine, abs=1e-3) for one in near] == [1.0, 0.0]
    assert near[0].passage.chunk_id != near[1].passage.chunk_id


async def test_passages_are_found_by_their_words(services: Services, caller: Caller, document_id: int):
    """Lexical entries follow what is inserted and replaced."""
    await services.store.insert_chunks(caller, document_id, [chunk(0, "zebras"), chunk(1, "owls")])
    await services.store.insert_chunks(caller, document_id, [chunk(0, "herons")])
    answers = [await services.search.passages(caller, word, SearchFilters(), 5) for word in ("zebras", "herons")]
    assert [[hit.passage.text for hit in answer.hits if "lexical" in hit.matched_by] for answer in answers] == [
        [],
        ["herons"],
    ]


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([0.5] * 3, "384 dimensions"), ([], "384 dimensions"), (axis(0, float("nan")), "NaN"),
        (axis(0, float("inf")), "NaN"), (axis(0, -float("inf")), "NaN"),
        ([0.0] * DIMENSIONS, "zeros"), (axis(0, 1e-12), "zeros"),
        (axis(0, 70_000.0), "half precision"), (axis(0, -1e300), "half precision"),
    ],
)  # fmt: skip
async def test_a_bad_vector_is_refused_and_nothing_is_stored(
    services: Services, caller: Caller, document_id: int, vector: list[float], problem: str
):
    """One vector that can't be compared refuses the whole call and names itself."""
    await services.store.insert_chunks(caller, document_id, [chunk(0, "old")])
    with pytest.raises(InvalidInput, match=problem) as caught:
        await services.store.insert_chunks(caller, document_id, [chunk(1, "fine"), chunk(2, "bad", vector)])
    assert caught.value.details["argument"] == "chunks[1].embedding"
    assert (await content_and_chunks(services, caller, document_id))[0] == "old"
    with pytest.raises(InvalidInput, match=problem):
        await services.store.query_similar(caller, vector, 1, SearchFilters())


def test_the_largest_half_is_taken():
    """The bounds of half precision themselves are fine."""
    assert checked_vector([65_504.0, -65_504.0], 2, "v").dtype == np.float32


async def test_a_repeated_index_is_refused(services: Services, caller: Caller, document_id: int):
    """Two passages of a call can't have one index."""
    with pytest.raises(InvalidInput) as caught:
        await services.store.insert_chunks(caller, document_id, [chunk(0, "a"), chunk(1, "b"), chunk(0, "c")])
    assert caught.value.details["argument"] == "chunks[2].chunk_index"


async def test_another_tools_document_takes_no_passages(services: Services, caller: Caller):
    """What was ingested has its passages from its source."""
    fields = replace(FIELDS, origin="put_document", source_uri="put:a")
    stored = await services.ingestion.ingest_text(caller, "Some text.", ".txt", fields)
    with pytest.raises(PermissionDenied):
        await services.store.insert_chunks(caller, stored.document_id, [chunk(0, "a")])
    with pytest.raises(PermissionDenied):
        await services.store.add_document(caller, replace(FIELDS, source_uri="put:a"))


async def test_an_unknown_document_and_a_foreign_one_look_the_same(
    services: Services, caller: Caller, document_id: int
):
    """An id of another library is as unknown as one that nobody has."""
    library = temporary_settings(services.settings.data_dir).library
    other = replace(caller, library_id=await services.database.open_library(library), library=library)
    messages = set()
    for who, number in ((caller, 10**12), (other, document_id)):
        with pytest.raises(DocumentNotFound) as caught:
            await services.store.insert_chunks(who, number, [chunk(0, "a")])
        messages.add(caught.value.message)
        assert caught.value.details == {"document_id": str(number)}
    assert len(messages) == 1


async def test_an_empty_library_has_nothing_near(services: Services, caller: Caller):
    """A query of a library without vectors finds nothing, and is checked all the same."""
    assert await services.store.query_similar(caller, axis(0), 5, SearchFilters()) == []
    with pytest.raises(InvalidInput):
        await services.store.query_similar(caller, [1.0], 5, SearchFilters())


async def test_dates_filter_what_is_near(services: Services, caller: Caller):
    """Publication dates narrow a query by vector, exclusively."""
    for year in ("1892", "1900"):
        fields = DocumentFields(origin="add_document", source_uri=year, publication_date=year)
        document_id = await services.store.add_document(caller, fields)
        await services.store.insert_chunks(caller, document_id, [chunk(0, year)])
    filters = SearchFilters(published_after="1892-01-01", published_before="1900-01-02")
    near = await services.store.query_similar(caller, axis(0), 5, filters)
    assert [one.passage.text for one in near] == ["1900"]
