"""Searching passages: legs, filters, scores, and both ways of looking near a vector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.integration.storage.store_support import (
    SPACE,
    connected,
    fields,
    mentioned,
    open_caller,
    passage,
    put,
    recorded,
    stored,
    vector_of,
)

from philorag.model import SearchFilters
from philorag.storage.repositories import passages as passages_module
from philorag.storage.repositories.passages import Fusion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from philorag.model import Caller, Hit
    from philorag.storage.database import Database
    from philorag.storage.repositories.passages import NearPassage

EVERYTHING = SearchFilters()
INDEXED = replace(SPACE, model="indexed")


async def hybrid(
    database: Database,
    caller: Caller,
    query: str,
    vector: Any = None,
    filters: SearchFilters = EVERYTHING,
    limit: int = 100,
) -> list[Hit]:
    async with database.unit_of_work(caller) as work:
        space = await work.libraries.active_space()
        return await work.passages.hybrid(query, vector, space, filters, limit=limit, fusion=Fusion())


async def nearest(
    database: Database, caller: Caller, vector: Any, filters: SearchFilters = EVERYTHING, limit: int = 100
) -> list[NearPassage]:
    async with database.unit_of_work(caller) as work:
        space = await work.libraries.active_space()
        assert space is not None
        return await work.passages.nearest(vector, space, filters, limit=limit)


def texts(hits: Sequence[Hit | NearPassage]) -> list[str]:
    return [hit.passage.text for hit in hits]


def cosine(one: str, other: str) -> float:
    return float(vector_of(one).astype(float) @ vector_of(other).astype(float))


@pytest.fixture(params=["exact", "indexed"])
def way(request, monkeypatch):
    """Both ways of searching: passage by passage, and by the vector index."""
    if request.param == "indexed":
        monkeypatch.setattr(passages_module, "EXACT_UP_TO", 0)
    return request.param


async def test_a_hit_says_which_legs_found_it(database, caller, way):
    """Meaning alone, words alone and both are told apart, and what words alone found has its true similarity."""
    near, aside = vector_of("query"), vector_of("query") + vector_of("aside") / 2
    crowd = [f"Crowd {n}." for n in range(passages_module._POOL)]
    async with database.unit_of_work(caller) as work:
        vectors: dict[str, Any] = {**dict.fromkeys(crowd, aside), "The will.": -near, "Will near.": near}
        await put(work, ["Will near.", *crowd, "The will."], vectors=vectors)
        await work.commit()
    hits = {hit.passage.text: hit for hit in await hybrid(database, caller, "will", near)}
    assert hits["Will near."].matched_by == ("dense", "lexical")
    assert hits["Crowd 0."].matched_by == ("dense",)
    assert hits["The will."].matched_by == ("lexical",)
    assert hits["The will."].dense == pytest.approx(-1)
    assert hits["Crowd 0."].lexical is None
    assert hits["Will near."].score == pytest.approx(1)


WORDS = st.lists(st.sampled_from(["being", "time", "will", "mind", "not"]), min_size=1, max_size=6).map(" ".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=10)
@given(bodies=st.lists(WORDS, min_size=1, max_size=8), query=WORDS | st.just("..."))
async def test_scores_are_comparable(database, bodies, query):
    """Scores are in 0..1 and descend, ties go by passage number, and cosines are those of the vectors."""
    caller = await open_caller(database)
    await stored(database, caller, *bodies)
    hits = await hybrid(database, caller, query, vector_of(query))
    assert sorted(texts(hits)) == sorted(bodies)
    assert all(0 <= hit.score <= 1 for hit in hits)
    order = [(-hit.score, hit.passage.chunk_id) for hit in hits]
    assert order == sorted(order)
    assert [hit.dense for hit in hits] == pytest.approx([cosine(query, body) for body in texts(hits)], abs=1e-6)


async def test_ties_go_by_the_number_of_the_passage(database, caller, way):
    """Passages that score alike come in the order in which they were made."""
    await stored(database, caller, *["Equal."] * 5)
    hits = await hybrid(database, caller, "equal", vector_of("Equal."))
    ids = [hit.passage.chunk_id for hit in hits]
    assert (ids, len({hit.score for hit in hits})) == (sorted(ids), 1)


async def test_the_best_of_many_is_what_the_whole_would_give(database, caller):
    """A limit cuts the list and changes nothing above the cut."""
    await stored(database, caller, *(f"The will of number {n} is free." for n in range(30)))
    whole = await hybrid(database, caller, "will number 7", vector_of("seven"))
    assert await hybrid(database, caller, "will number 7", vector_of("seven"), limit=3) == whole[:3]


async def test_a_passage_in_another_language_is_judged_by_its_vector_alone(database, caller):
    """An analyzer that doesn't know the query's words doesn't pull its passages down."""
    german = passage("Die Kritik der reinen Vernunft", language="de")
    await stored(database, caller, passage("The free will"), passage("Mind and matter"), german)
    hits = await hybrid(database, caller, "free will", vector_of("free will"))
    similar = {hit.passage.text: hit.dense or 0.0 for hit in hits}
    low, high = min(similar.values()), max(similar.values())
    scaled = {body: (value - low) / (high - low) for body, value in similar.items()}
    score = {hit.passage.text: hit.score for hit in hits}
    assert score[german.text] == pytest.approx(scaled[german.text])
    assert score["Mind and matter"] == pytest.approx(scaled["Mind and matter"] / 2)
    assert score["The free will"] == pytest.approx(scaled["The free will"] / 2 + 0.5)


@pytest.mark.parametrize("query", ["being", "being not", "Being, not!"])
async def test_common_words_alone_are_searched(database, caller, query):
    """A query of words that most passages have finds them all the same."""
    await stored(database, caller, "Being is not.", "Not being.", "Being, being not.")
    hits = await hybrid(database, caller, query)
    assert len(hits) == 3
    assert {hit.matched_by for hit in hits} == {("lexical",)}


@pytest.mark.parametrize("query", ["", "...", "?!— «»", " \n"])
async def test_a_query_without_words_has_its_vector(database, caller, query, way):
    """Punctuation alone finds nothing by words, and everything by meaning."""
    await stored(database, caller, "Being.", "Time.")
    assert await hybrid(database, caller, query) == []
    assert {hit.matched_by for hit in await hybrid(database, caller, query, vector_of("x"))} == {("dense",)}


async def test_an_empty_library_has_no_hits(database, caller, stranger):
    """A library without passages answers with none, whatever another one holds."""
    await stored(database, stranger, "The will.")
    async with database.unit_of_work(caller) as work:
        await work.libraries.adopt_space(SPACE)
        await work.commit()
    assert await hybrid(database, caller, "will", vector_of("The will.")) == []
    assert await hybrid(database, caller, "will") == []
    assert await nearest(database, caller, vector_of("The will.")) == []


async def test_a_passage_without_a_vector_is_found_by_its_words(database, caller, server, way):
    """A passage whose vector is missing has no similarity, and takes no part in the dense leg."""
    await stored(database, caller, "The will.", "The mind.")
    async with connected(server) as connection:
        await connection.execute("delete from chunk_embeddings where library_id = $1", caller.library_id)
    hits = await hybrid(database, caller, "will", vector_of("x"))
    assert [(hit.dense, hit.matched_by) for hit in hits] == [(None, ("lexical",))]


async def test_nearest_is_nearest(database, caller, way):
    """The passages nearest to a vector come nearest first, with their cosines."""
    bodies = [f"Passage {n}." for n in range(40)]
    await stored(database, caller, *bodies)
    found = await nearest(database, caller, vector_of("query"), limit=10)
    expected = sorted(bodies, key=lambda body: -cosine("query", body))[:10]
    assert texts(found) == expected
    assert [one.cosine for one in found] == pytest.approx([cosine("query", body) for body in expected], abs=1e-6)


FILTERS = [
    (EVERYTHING, "abd"),
    (SearchFilters(kinds=("generated",)), "c"),
    (SearchFilters(kinds=("captured", "generated")), "abcd"),
    (SearchFilters(author="arendt"), "ab"),
    (SearchFilters(author="a_endt"), ""),
    (SearchFilters(author="Plato"), "b"),
    (SearchFilters(title="LIFE"), "a"),
    (SearchFilters(title="100%"), "b"),
    (SearchFilters(title="1%0"), ""),
    (SearchFilters(year_from=1978), "ab"),
    (SearchFilters(year_to=1978), "ad"),
    (SearchFilters(year_from=1958, year_to=1958), "d"),
    (SearchFilters(published_after="1978"), "b"),
    (SearchFilters(published_after="1977-12-31"), "ab"),
    (SearchFilters(published_before="1978"), "d"),
    (SearchFilters(created_from="2000-01-01", created_to="2100-01-01"), "abd"),
    (SearchFilters(created_to="2000-01-01"), ""),
    (SearchFilters(created_from="2100-01-01"), ""),
    (SearchFilters(language="grc"), "b"),
    (SearchFilters(tags=("mind",)), "ab"),
    (SearchFilters(tags=("mind", "will")), "a"),
    (SearchFilters(category="book"), "a"),
    (SearchFilters(layer="note"), "d"),
    (SearchFilters(metadata={"place": {"city": "New York"}}), "a"),
    (SearchFilters(metadata={"place": {"city": "Rome"}, "n": 1}), "b"),
    (SearchFilters(metadata={"place": {}}), "ab"),
    (SearchFilters(metadata={"n": "1"}), ""),
    (SearchFilters(author="Arendt", tags=("mind",), year_from=1980), "b"),
]


@pytest.fixture
async def shelf(database, caller):
    """Four documents and a material, each with a passage of its own letter."""
    a: dict[str, Any] = {
        "title": "The Life of the Mind",
        "authors": ("Hannah Arendt",),
        "tags": ("mind", "will"),
        "category": "book",
    }
    b: dict[str, Any] = {
        "title": "100% Plato",
        "authors": ("Plato", "H. Arendt"),
        "tags": ("mind",),
        "publication_date": "1999-05-01",
    }
    a |= {"publication_date": "1978", "metadata": {"place": {"city": "New York", "state": "NY"}}}
    b |= {"metadata": {"place": {"city": "Rome"}, "n": 1}}
    await stored(database, caller, "word a", **a)
    await stored(database, caller, passage("word b", language="grc"), **b)
    await stored(database, caller, "word c", kind="generated")
    await stored(database, caller, passage("word d", layer="note"), publication_date="1958-05")
    await stored(database, caller, "word e", kind="material")
    return caller


@pytest.mark.parametrize("leg", ["lexical", "dense", "nearest"])
async def test_each_filter_narrows_to_what_it_names(database, shelf, way, leg):
    """Each filter leaves the same passages whichever leg and whichever way is taken."""
    for filters, expected in FILTERS:
        ask: dict[str, Any] = {
            "lexical": lambda chosen: hybrid(database, shelf, "word", filters=chosen),
            "dense": lambda chosen: hybrid(database, shelf, "...", vector_of("x"), chosen),
            "nearest": lambda chosen: nearest(database, shelf, vector_of("x"), chosen),
        }
        assert "".join(sorted(body[-1] for body in texts(await ask[leg](filters)))) == expected, filters


async def test_a_document_is_searched_by_itself(database, caller, way):
    """`document_id` leaves one document, and another library's leaves none."""
    wanted = await stored(database, caller, "The will.", "The free will.")
    await stored(database, caller, "The will.")
    foreign = await stored(database, await open_caller(database), "The will.")
    assert len(await hybrid(database, caller, "will", filters=SearchFilters(document_id=wanted))) == 2
    assert await hybrid(database, caller, "will", filters=SearchFilters(document_id=foreign)) == []


async def test_what_is_kept_of_metadata_is_known(database, shelf, stranger):
    """A key is known when a visible document of the library has it at the top."""
    async with database.unit_of_work(shelf) as work:
        assert [await work.passages.has_metadata_key(key) for key in ("place", "city", "x")] == [True, False, False]
        assert await work.passages.size() == 5
    async with database.unit_of_work(stranger) as work:
        assert not await work.passages.has_metadata_key("place")


@pytest.fixture
async def crowded(database, caller):
    """Six hundred passages whose space has its vector index."""
    async with database.unit_of_work(caller) as work:
        space = await work.libraries.adopt_space(INDEXED)
        for part in range(3):
            await put(work, [f"Passage {part}-{n} of the will." for n in range(200)], fields(f"file:{part}"))
        await work.commit()
    await database.index_space(space.id)
    await database.index_space(space.id)
    return caller


async def test_the_index_finds_what_comparing_each_finds(database, crowded, monkeypatch):
    """With the index, nearly the same passages are nearest, and the fused list is nearly the same too."""
    for number in range(5):
        vector, query = vector_of(f"query {number}"), f"{number}-{number} will"
        exact = texts(await nearest(database, crowded, vector, limit=50))
        exact_hybrid = texts(await hybrid(database, crowded, query, vector, limit=20))
        with monkeypatch.context() as patched:
            patched.setattr(passages_module, "EXACT_UP_TO", 0)
            assert len({*exact} & {*texts(await nearest(database, crowded, vector, limit=50))}) >= 45
            assert len({*exact_hybrid} & {*texts(await hybrid(database, crowded, query, vector, limit=20))}) >= 17


async def test_the_dense_leg_can_use_the_index(database, crowded, server, monkeypatch):
    """As the serving role, under row security, the ordering by distance is the vector index's."""
    monkeypatch.setattr(passages_module, "EXACT_UP_TO", 0)
    async with connected(server) as connection:
        indexes = await connection.fetch("""
            select i.relname from pg_class i join pg_am a on a.oid = i.relam where a.amname = 'hnsw'
        """)
    async with database.unit_of_work(crowded) as work:
        space = await work.libraries.active_space()
        # Six hundred passages are sorted sooner than looked up, and one forbids it to see whether it could be.
        await work._connection.execute(text("set local enable_sort = off"))
        recorder = recorded(work)
        await work.passages.nearest(vector_of("query"), space, EVERYTHING, limit=10)
        plan = await recorder.plan()
    assert mentioned(plan, "Index Name") & {row["relname"] for row in indexes}


async def test_a_space_that_does_not_exist_gets_no_index(database, server):
    """Asking for the index of an unknown space does nothing."""
    await database.index_space(2**30)
    async with connected(server) as connection:
        assert await connection.fetchval("select to_regclass('chunk_embeddings_space_1073741824')") is None


async def test_vectors_of_another_space_are_not_compared(database, caller, stranger):
    """A library's space is its own: what was embedded in another one is never near."""
    await stored(database, caller, "The will.")
    async with database.unit_of_work(stranger) as work:
        await work.libraries.adopt_space(INDEXED)
        await put(work, ["The will."])
        other = await work.libraries.active_space()
        await work.commit()
    async with database.unit_of_work(caller) as work:
        assert await work.passages.nearest(vector_of("The will."), other, EVERYTHING, limit=5) == []


async def test_the_first_space_stays(database, caller):
    """A library that has a space keeps it, whatever model comes later."""
    async with database.unit_of_work(caller) as work:
        first = await work.libraries.adopt_space(SPACE)
        assert first.identity == SPACE
        assert await work.libraries.adopt_space(INDEXED) == first
