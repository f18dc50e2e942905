"""The lexical leg's index against what can be counted in the passages."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.storage.lexical_reference import counted_index, scores, stored_index
from tests.integration.storage.store_support import fields, open_caller, passage, put, stored

from philorag.model import SearchFilters
from philorag.storage.repositories.passages import Fusion

if TYPE_CHECKING:
    from philorag.model import Caller
    from philorag.storage.database import Database
    from philorag.storage.unit_of_work import UnitOfWork

    Step = tuple[int, list[tuple[str, str | None]]] | None

WORDS = ["being", "not", "the", "will", "Ἀρχή", "virtvs", "virtus", "Geist", "mind", "minds", "...", "σοφός", "a"]
LANGUAGES = [None, "en", "grc", "la", "de"]
QUERIES = ["being", "the will", "not the being", "mind unknownword", "αρχη", "VIRTVS geist minds", "..."]
PASSAGES = st.tuples(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join), st.sampled_from(LANGUAGES)
)
# A document's new passages by its number, or a compaction.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.lists(PASSAGES, max_size=5)) | st.none(), min_size=1, max_size=8)
PROPERTY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)


async def taken(database: Database, caller: Caller, step: Step) -> None:
    async with database.unit_of_work(caller) as work:
        if step is None:
            await work.postings.compact(threshold=0)
        else:
            number, texts = step
            chunks = [passage(text, language=language) for text, language in texts]
            await put(work, chunks, fields(f"file:{number}"))
        await work.commit()


async def lexical(work: UnitOfWork, query: str) -> dict[int, float | None]:
    hits = await work.passages.hybrid(query, None, None, SearchFilters(), limit=100, fusion=Fusion())
    return {hit.passage.chunk_id: hit.lexical for hit in hits}


async def found(database: Database, caller: Caller, query: str) -> dict[int, float | None]:
    async with database.unit_of_work(caller) as work:
        return await lexical(work, query)


@PROPERTY
@given(steps=STEPS)
async def test_the_index_is_what_can_be_counted(database, steps):
    """After any additions, replacements, removals and compactions, postings and statistics are exact."""
    caller = await open_caller(database)
    for step in steps:
        await taken(database, caller, step)
    async with database.unit_of_work(caller) as work:
        assert await stored_index(work) == await counted_index(work)


@PROPERTY
@given(steps=STEPS, query=st.sampled_from(QUERIES))
async def test_scores_are_bm25(database, steps, query):
    """The lexical leg finds exactly the passages that plain BM25 finds, with the same scores."""
    caller = await open_caller(database)
    for step in steps:
        await taken(database, caller, step)
    async with database.unit_of_work(caller) as work:
        assert await lexical(work, query) == pytest.approx(await scores(work, query), rel=1e-9)


async def test_compaction_changes_no_answer(database, caller):
    """Merging the rows of many small additions changes their number, and nothing else."""
    for number in range(12):
        await taken(database, caller, (number, [(f"The will of number {number}.", "en")]))
    async with database.unit_of_work(caller) as work:
        before, index = await lexical(work, "will number"), await stored_index(work)
        rows = await work._connection.exec_driver_sql("select count(*) from lex_postings")
        await work.postings.compact(threshold=11)
        fewer = await work._connection.exec_driver_sql("select count(*) from lex_postings")
        assert (await lexical(work, "will number"), await stored_index(work)) == (before, index)
        assert fewer.scalar() < rows.scalar()


async def test_compaction_waits_until_it_is_worth_it(database, caller):
    """Below the threshold nothing is rewritten, and after a compaction the count begins anew."""
    for number in range(12):
        await taken(database, caller, (number, [("will", "en")]))
    async with database.unit_of_work(caller) as work:
        lengths = "select array_agg(cardinality(postings)) from lex_postings"
        await work.postings.compact(threshold=12)
        assert (await work._connection.exec_driver_sql(lengths)).scalar() == [1] * 12
        await work.postings.compact(threshold=11)
        assert (await work._connection.exec_driver_sql(lengths)).scalar() == [12]
        left = await work._connection.exec_driver_sql("select uncompacted from lex_statistics")
        assert left.scalar() == 0


async def test_long_lists_are_cut_in_slices(database, caller):
    """A term of thousands of passages stays in rows of at most 4,096 postings."""
    for _ in range(9):
        await stored(database, caller, *(passage("will") for _ in range(500)))
    async with database.unit_of_work(caller) as work:
        await work.postings.compact()
        rows = await work._connection.exec_driver_sql("select cardinality(postings) from lex_postings order by 1")
        assert rows.scalars().all() == [404, 4096]
        assert await stored_index(work) == await counted_index(work)


async def test_frequencies_never_cross_libraries(database, caller, stranger):
    """What another library holds changes no score."""
    await stored(database, caller, "The will is free.", "The mind is not.", "Nothing is.")
    before = await found(database, caller, "will")
    await stored(database, stranger, *(f"The will, number {n}." for n in range(20)))
    assert await found(database, caller, "will") == before
    assert len(before) == 1


async def test_a_removed_passage_is_forgotten(database, caller):
    """What was replaced is found no more, and counts no more."""
    await stored(database, caller, "The will is free.", "Being.", source_uri="file:a")
    await stored(database, caller, "Being.", source_uri="file:a")
    assert await found(database, caller, "will") == {}
    assert len(await found(database, caller, "being")) == 1


async def test_words_that_others_stop_at_are_found(database, caller):
    """To a philosopher no word is a stop word."""
    words = ["being", "not", "the", "will", "is", "a", "nothing"]
    await stored(database, caller, *(f"There {word} remains." for word in words))
    assert {word: len(await found(database, caller, word)) for word in words} == dict.fromkeys(words, 1)


TYPED = [
    ("grc", "περὶ ἀρχῆς", "ΑΡΧΗΣ"),
    ("grc", "ὁ λόγος", "λογοσ"),
    ("la", "De VIRTVTE", "virtute"),
    ("la", "Ius naturale", "jus"),
    ("fr", "L'être et le néant", "etre"),
    ("de", "Die Straße", "strasse"),
    ("en", "The ﬁnal œuvre", "final"),
    ("en", "He was willing", "wills"),
    (None, "naïve", "NAIVE"),
]


async def test_a_word_is_found_as_it_is_typed(database, caller):
    """Accents, case, ligatures, final sigma, u and v, and inflection don't hide a word."""
    await stored(database, caller, *(passage(written, language=language) for language, written, _ in TYPED))
    counts = {typed: len(await found(database, caller, typed)) for _, _, typed in TYPED}
    assert counts == dict.fromkeys(counts, 1)


async def test_a_common_word_beside_an_unknown_one_is_still_found(database, caller):
    """A common word is left out for the sake of a rarer one that the library has, not of one that it hasn't."""
    await stored(database, caller, "Being is.", "Being was.", "Being and time.")
    assert len(await found(database, caller, "being")) == 3
    assert len(await found(database, caller, "being qwertyuiop")) == 3
    assert len(await found(database, caller, "being time")) == 1


async def test_documents_that_come_at_once_do_not_block_each_other(database, caller):
    """Documents in several languages that are replaced and added at the same time are all stored, without deadlock."""
    numbers = count()

    async def busy(number: int) -> None:
        for _ in range(3):
            shift = next(numbers)
            texts = [(f"word{shift}x{n}", LANGUAGES[(shift + n) % len(LANGUAGES)]) for n in range(1, 4)]
            await taken(database, caller, (number, texts))

    await asyncio.gather(*(busy(number) for number in range(6)), taken(database, caller, None))
    async with database.unit_of_work(caller) as work:
        assert await stored_index(work) == await counted_index(work)


async def test_a_very_long_passage_is_indexed(database, caller):
    """More words than a posting can count are clamped, and the passage is found and can be removed."""
    await stored(database, caller, "word " * 40_000 + "end", source_uri="file:a")
    assert len(await found(database, caller, "end")) == 1
    await stored(database, caller, source_uri="file:a")
    async with database.unit_of_work(caller) as work:
        assert await stored_index(work) == ({}, {})
