"""BM25 and its statistics counted plainly from the stored passages: what the postings must come to."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import text

from philorag.storage.analyzers import ANALYZERS

if TYPE_CHECKING:
    from philorag.storage.unit_of_work import UnitOfWork

Terms = dict[str, int]
# (analyzer, term) -> chunk id -> (frequency, length of the passage)
Index = dict[tuple[str, str], dict[int, tuple[int, int]]]
K1, B = 1.2, 0.75
_KNOWN: dict[tuple[str, str], Terms] = {}


async def terms_of(work: UnitOfWork, analyzer: str, body: str) -> Terms:
    """How often each term is in *body*."""
    if (analyzer, body) not in _KNOWN:
        chosen = ANALYZERS[analyzer]
        query = text("select lexeme, cardinality(positions) from unnest(to_tsvector(cast(:c as regconfig), :body))")
        rows = await work._connection.execute(query, {"c": chosen.configuration, "body": chosen.prepare(body)})
        _KNOWN[analyzer, body] = {lexeme: frequency for lexeme, frequency in rows}  # noqa: C416 - rows aren't pairs
    return _KNOWN[analyzer, body]


async def passages_of(work: UnitOfWork) -> dict[str, dict[int, Terms]]:
    """The terms of every stored passage that has any, by analyzer and id."""
    found: dict[str, dict[int, Terms]] = defaultdict(dict)
    query = text("select id, analyzer, chunk_text from chunks where library_id = :library_id")
    for row in await work._connection.execute(query, {"library_id": work.caller.library_id}):
        if terms := await terms_of(work, row.analyzer, row.chunk_text):
            found[row.analyzer][row.id] = terms
    return found


async def counted_index(work: UnitOfWork) -> tuple[Index, dict[str, tuple[int, int]]]:
    """Postings and statistics as they should be."""
    index: Index = defaultdict(dict)
    statistics = {}
    for analyzer, bodies in (await passages_of(work)).items():
        for chunk_id, terms in bodies.items():
            for term, frequency in terms.items():
                index[analyzer, term][chunk_id] = (frequency, sum(terms.values()))
        statistics[analyzer] = (len(bodies), sum(sum(terms.values()) for terms in bodies.values()))
    return dict(index), statistics


async def stored_index(work: UnitOfWork) -> tuple[Index, dict[str, tuple[int, int]]]:
    """Postings and statistics as they are; rows must be in order, and within their bounds."""
    index: Index = defaultdict(dict)
    query = text("select * from lex_postings where library_id = :library_id")
    for row in await work._connection.execute(query, {"library_id": work.caller.library_id}):
        ids = [posting >> 23 for posting in row.postings]
        assert ids == sorted(set(ids))
        assert row.first_chunk <= ids[0] <= ids[-1] <= row.last_chunk
        there = index[row.analyzer, row.term]
        assert not there.keys() & set(ids)
        there |= {posting >> 23: (posting >> 15 & 255, posting & 32767) for posting in row.postings}
    query = text("select analyzer, chunks, tokens from lex_statistics where library_id = :library_id and chunks > 0")
    rows = await work._connection.execute(query, {"library_id": work.caller.library_id})
    return dict(index), {row.analyzer: (row.chunks, row.tokens) for row in rows}


async def scores(work: UnitOfWork, query: str) -> dict[int, float]:
    """BM25 of every passage that has a term of *query* that counts."""
    found: dict[int, float] = {}
    for analyzer, bodies in (await passages_of(work)).items():
        wanted = await terms_of(work, analyzer, query)
        having = {term: [c for c, terms in bodies.items() if term in terms] for term in wanted}
        known = {term: chunks for term, chunks in having.items() if chunks}
        rare = {term: chunks for term, chunks in known.items() if len(chunks) <= len(bodies) / 2}
        average = sum(sum(terms.values()) for terms in bodies.values()) / len(bodies)
        for term, chunks in (rare or known).items():
            idf = math.log(1 + (len(bodies) - len(chunks) + 0.5) / (len(chunks) + 0.5))
            for chunk_id in chunks:
                terms = bodies[chunk_id]
                part = terms[term] + K1 * (1 - B + B * sum(terms.values()) / average)
                found[chunk_id] = found.get(chunk_id, 0.0) + idf * (K1 + 1) * terms[term] / part
    return found
