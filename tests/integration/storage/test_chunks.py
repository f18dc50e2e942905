"""Passages that are replaced keep what didn't change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.integration.storage.lexical_reference import counted_index, stored_index
from tests.integration.storage.store_support import (
    SPACE,
    all_vectors,
    fields,
    open_caller,
    passage,
    passages,
    vector_of,
)

from philorag.model import CanonicalReference, Locator, NewChunk
from philorag.storage.repositories.chunks import MissingVectors, identity_of, not_among

if TYPE_CHECKING:
    from collections.abc import Sequence

    from philorag.model import Chunk
    from philorag.storage.repositories.chunks import ChunkIdentity
    from philorag.storage.unit_of_work import UnitOfWork

TEXTS = st.lists(st.sampled_from(["The will.", "The mind.", "Being and time.", "λόγος", "..."]), max_size=7)
LANGUAGES = st.sampled_from(["en", "grc", None])
VERSIONS = st.lists(st.tuples(TEXTS, LANGUAGES), min_size=1, max_size=5)


async def vectors_in(work: UnitOfWork) -> dict[int, Any]:
    rows = await work._connection.execute(text("select chunk_id, embedding from chunk_embeddings"))
    return {row.chunk_id: row.embedding.to_numpy() for row in rows}


async def replaced(
    work: UnitOfWork, chunks: Sequence[NewChunk], vectors: dict[int, Any] | None = None
) -> tuple[int, int, list[Chunk]]:
    """The document's passages become *chunks*, with only the vectors that are needed; how many are new."""
    document_id = (await work.documents.save(fields("file:a"), "")).id
    space = await work.libraries.adopt_space(SPACE)
    fresh = not_among(chunks, await work.chunks.identities(document_id))
    given_vectors = {n: vector_of(chunks[n].text) for n in fresh} if vectors is None else vectors
    added = await work.chunks.replace(document_id, chunks, given_vectors, space.id)
    return document_id, added, await work.chunks.of_document(document_id)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@given(versions=VERSIONS)
async def test_what_is_stored_is_what_was_given(database, versions):
    """After any replacements passages, order, offsets, vectors and postings are those of the last, and ids are kept."""
    caller = await open_caller(database)
    before: list[tuple[ChunkIdentity, int]] = []
    for texts, language in versions:
        async with database.unit_of_work(caller) as work:
            chunks = passages(texts, language)
            _, added, now = await replaced(work, chunks)
            assert [(one.index, one.text, one.locator) for one in now] == [
                (n, chunk.text, chunk.locator) for n, chunk in enumerate(chunks)
            ]
            after = [(identity_of(chunk), one.id) for chunk, one in zip(chunks, now, strict=True)]
            kept = Counter(key for key, _ in before) & Counter(key for key, _ in after)
            assert (len(set(before) & set(after)), added) == (kept.total(), len(chunks) - kept.total())
            vectors = await vectors_in(work)
            assert vectors.keys() == {one.id for one in now}
            assert all(np.array_equal(vectors[one.id], vector_of(one.text)) for one in now)
            assert await stored_index(work) == await counted_index(work)
            await work.commit()
        before = after


async def test_an_unchanged_passage_keeps_id_and_vector(database, caller):
    """A passage that is there again needs no vector, wherever it has moved to."""
    async with database.unit_of_work(caller) as work:
        _, _, before = await replaced(work, passages(["One.", "Two.", "Three."]))
        _, added, after = await replaced(work, passages(["Zero.", "Three.", "One.", "Two."]))
        ids = {one.text: one.id for one in before}
        assert [ids.get(one.text) for one in after[1:]] == [one.id for one in after[1:]]
        assert (added, after[0].id > max(ids.values())) == (1, True)


async def test_an_unchanged_document_changes_nothing(database, caller):
    """The same passages again give the same ids and need no vector at all."""
    async with database.unit_of_work(caller) as work:
        _, _, before = await replaced(work, passages(["One.", "Two.", "One."]))
        _, added, after = await replaced(work, passages(["One.", "Two.", "One."]), vectors={})
        assert (added, after) == (0, before)


async def test_equal_passages_of_one_document_are_two(database, caller):
    """The same text twice has two ids and two vectors, and each serves once."""
    async with database.unit_of_work(caller) as work:
        _, _, first = await replaced(work, passages(["Refrain.", "Refrain."]))
        _, added, second = await replaced(work, passages(["Refrain.", "Refrain.", "Refrain."]))
        assert len({one.id for one in second}) == 3
        assert ([one.id for one in second][:2], added) == ([one.id for one in first], 1)
        assert len(await vectors_in(work)) == 3


async def test_the_same_text_in_another_language_is_new(database, caller):
    """A passage that another analyzer reads is another passage."""
    async with database.unit_of_work(caller) as work:
        _, _, before = await replaced(work, passages(["Die Kunst."], "en"))
        _, added, after = await replaced(work, passages(["Die Kunst."], "de"))
        assert (added, after[0].id == before[0].id) == (1, False)


async def test_a_missing_vector_stops_everything(database, caller):
    """A new passage without a vector is `MissingVectors`, and what was there stays."""
    async with database.unit_of_work(caller) as work:
        await replaced(work, passages(["One."]))
        await work.commit()
    with pytest.raises(MissingVectors):
        async with database.unit_of_work(caller) as work:
            await replaced(work, passages(["One.", "Two.", "Three."]), vectors={1: vector_of("Two.")})
    async with database.unit_of_work(caller) as work:
        document_id = await work.documents.id_of("file:a")
        assert [one.text for one in await work.chunks.of_document(document_id)] == ["One."]


async def test_a_vector_too_many_is_not_used(database, caller):
    """A vector for a passage that turned out to be known doesn't replace the stored one."""
    async with database.unit_of_work(caller) as work:
        await replaced(work, passages(["One."]))
        _, _, (one,) = await replaced(work, passages(["One."]), vectors={0: vector_of("other")})
        assert np.array_equal((await vectors_in(work))[one.id], vector_of("One."))


async def test_vectors_are_replaced_by_id(database, caller):
    """`save_vectors` puts new vectors in the place of old ones, as often as it is called."""
    async with database.unit_of_work(caller) as work:
        _, _, (one,) = await replaced(work, passages(["One."]))
        space = await work.libraries.adopt_space(SPACE)
        for name in ("first", "second"):
            await work.chunks.save_vectors({one.id: vector_of(name)}, space.id)
        assert np.array_equal((await vectors_in(work))[one.id], vector_of("second"))


async def test_numbers_that_a_client_gave_are_kept(database, caller):
    """Passages carry the numbers they were given, with gaps, and are in their order."""
    async with database.unit_of_work(caller) as work:
        _, _, found = await replaced(work, [passage("Nine.", index=9), passage("Two.", index=2)])
        assert [(one.index, one.text) for one in found] == [(2, "Two."), (9, "Nine.")]
        _, added, found = await replaced(work, [passage("Nine.", index=2), passage("Two.", index=9)])
        assert ([(one.index, one.text) for one in found], added) == ([(2, "Nine."), (9, "Two.")], 0)


async def test_a_moved_passage_gets_its_new_place(database, caller):
    """Offsets, page, references, layer and section of a kept passage are those of its new place."""
    reference = CanonicalReference("stephanus", "514a", "Rep. 514a")
    place = Locator(
        char_start=7, char_end=11, page_label="iv", section_path=("A", "Ü"), canonical=(reference,), layer="note"
    )
    old = passage("One.")
    new = NewChunk(text=old.text, content_hash=old.content_hash, token_count=2, language="en", locator=place)
    async with database.unit_of_work(caller) as work:
        await replaced(work, [old])
        _, added, (one,) = await replaced(work, [new])
        assert (added, one.locator) == (0, place)
        row = (await work._connection.execute(text("select layer, section_path from chunks"))).one()
        assert (row.layer, row.section_path) == ("note", ["A", "Ü"])


async def test_no_passages_leave_nothing(database, caller):
    """A document without passages has neither vectors nor postings."""
    async with database.unit_of_work(caller) as work:
        document_id, _, _ = await replaced(work, passages(["One.", "Two."]))
        await work.chunks.delete_all(document_id)
        assert await work.chunks.of_document(document_id) == []
        assert await vectors_in(work) == {}
        assert await stored_index(work) == ({}, {})


async def test_passages_of_another_document_are_not_touched(database, caller):
    """Equal passages of two documents have nothing to do with each other."""
    async with database.unit_of_work(caller) as work:
        document_id, _, before = await replaced(work, passages(["One.", "Two."]))
        other = await work.documents.save(fields("file:b"), "")
        space = await work.libraries.adopt_space(SPACE)
        same = passages(["One.", "Two."])
        assert await work.chunks.replace(other.id, same, all_vectors(same), space.id) == 2
        assert await work.chunks.of_document(document_id) == before
