"""Finding passages: the dense leg, the lexical leg, and both in one statement.

Up to `EXACT_UP_TO` passages that pass the filters are compared one by one, which is quicker there than the vector
index and loses nothing; above that the index is scanned iteratively.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from philorag.model import Hit, Leg, Locator, StoredPassage
from philorag.storage.analyzers import ANALYZERS
from philorag.storage.repositories.base import Repository
from philorag.storage.repositories.documents import SUMMARY_CHARS, to_document
from philorag.storage.repositories.filters import where
from philorag.storage.tables import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import TextClause

    from philorag.model import SearchFilters
    from philorag.storage.repositories.libraries import EmbeddingSpace

__all__ = ["DEFAULT_FUSION", "EXACT_UP_TO", "Fusion", "NearPassage", "PassageRepository"]

EXACT_UP_TO = 10_000
_POOL = 100
_OVERFETCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """How the legs are joined.

    A passage whose analyzer knows at least *known_share* of the query (by idf) scores
    `(1 - lexical_weight) * dense + lexical_weight * lexical`, each scaled to 0..1 over the candidates; a passage in
    another language is judged by its vector alone.
    """

    lexical_weight: float = 0.5
    known_share: float = 0.35


DEFAULT_FUSION = Fusion()


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPassage:
    """A passage with its cosine similarity to the query vector."""

    passage: StoredPassage
    cosine: float


_DOCUMENT = f"""
d.id, d.kind, d.origin, d.source_uri, d.path, d.title, d.authors, d.publication_date, d.language, d.category, d.tags,
d.metadata_jsonb, d.extracted_text_hash, d.word_count, d.version, d.created_at, d.modified_at, d.last_processed_at,
left(d.content, {SUMMARY_CHARS}) as summary
"""

_SCOPED = """
      from chunks c join documents d on d.library_id = :library_id and d.id = c.document_id
     where c.library_id = :library_id
       and {filters}
"""

_COUNT = "select count(*) from (select {scoped} limit :cap) as counted"

_SCOPE = "scope as materialized (select c.id as chunk_id, c.analyzer {scoped})"

# In two steps: with the limit beside the join the planner expects to be done early, and loops over the scope for each
# vector (at 10,000 passages five times as long).
_DENSE_EXACT = """
measured as materialized (
    select e.chunk_id, e.embedding <=> cast(:vector as vector) as distance
      from chunk_embeddings e join scope s on s.chunk_id = e.chunk_id
     where e.library_id = :library_id and e.space_id = {space}
), dense as materialized (
    select chunk_id, 1 - distance as cosine from measured order by distance, chunk_id limit :pool
)"""

_DENSE_INDEXED = """
dense as materialized (
    select e.chunk_id, 1 - (e.embedding <=> cast(:vector as vector)) as cosine
      from chunk_embeddings e
      join chunks c on c.library_id = :library_id and c.id = e.chunk_id
      join documents d on d.library_id = :library_id and d.id = c.document_id
     where e.library_id = :library_id and e.space_id = {space}
       and {filters}
     order by e.embedding::halfvec({dimensions}) <=> cast(cast(:vector as vector) as halfvec({dimensions})) limit :pool
)"""

_NO_DENSE = "dense as materialized (select 0::bigint as chunk_id, 0::float8 as cosine where false)"

# A term that most passages have says little and its list is long: it is left out when the query has a rarer one.
_LEXICON = """
terms as (
    select a.analyzer, t.term, s.chunks, s.tokens::float8 / greatest(s.chunks, 1) as average
      from unnest(cast(:analyzers as text[]), cast(:configurations as text[]), cast(:queries as text[]))
           as a (analyzer, configuration, query)
      join lex_statistics s on s.library_id = :library_id and s.analyzer = a.analyzer and s.chunks > 0,
           unnest(tsvector_to_array(to_tsvector(a.configuration::regconfig, a.query))) as t (term)
), lists as materialized (
    select t.analyzer, t.term, p.postings
      from terms t
      join lex_postings p on p.library_id = :library_id and p.analyzer = t.analyzer and p.term = t.term
), frequencies as (
    select analyzer, term, sum(cardinality(postings)) as frequency from lists group by 1, 2
), weighted as (
    select t.analyzer, t.term, t.average, f.frequency is not null as known,
           coalesce(f.frequency, 0) > 0.5 * t.chunks as common,
           ln(1 + (t.chunks - coalesce(f.frequency, 0) + 0.5)::float8 / (coalesce(f.frequency, 0) + 0.5)) as idf
      from terms t left join frequencies f using (analyzer, term)
), coverage as (
    select analyzer, coalesce(sum(idf) filter (where known), 0) / sum(idf) as share,
           bool_and(common) filter (where known) as all_common
      from weighted group by analyzer
), lexical_all as materialized (
    select (posting >> 23) as chunk_id,
           sum(w.idf * 2.2 * ((posting >> 15) & 255)
               / (((posting >> 15) & 255) + 1.2 * (0.25 + 0.75 * (posting & 32767) / w.average))) as bm25
      from lists l
      join weighted w using (analyzer, term)
      join coverage v using (analyzer), unnest(l.postings) as posting
     where v.all_common or not w.common
     group by 1
)"""

_LEXICAL_EXACT = """
lexical as materialized (
    select l.chunk_id, l.bm25 from lexical_all l join scope s using (chunk_id)
     order by l.bm25 desc, l.chunk_id limit :pool
)"""

_LEXICAL_INDEXED = """
lexical as materialized (
    select l.chunk_id, l.bm25
      from (select chunk_id, bm25 from lexical_all order by bm25 desc, chunk_id limit :overfetch) as l
      join chunks c on c.library_id = :library_id and c.id = l.chunk_id
      join documents d on d.library_id = :library_id and d.id = c.document_id
     where {filters}
     order by l.bm25 desc, l.chunk_id limit :pool
)"""

# A passage that only the lexical leg found gets its true similarity too: one outside the pool isn't a zero.
# Materialised and looked up one by one, or the planner would read whole tables: it expects many rows, and under row
# security it uses no index for what a full join coalesces.
_FUSED = """
candidates as materialized (
    select chunk_id, v.cosine, t.bm25, v.chunk_id is not null as by_dense, t.chunk_id is not null as by_lexical
      from dense v full join lexical t using (chunk_id)
), completed as materialized (
    select k.chunk_id, coalesce(k.cosine, {similarity}) as cosine, k.bm25, k.by_dense, k.by_lexical, c.analyzer
      from candidates k
      join lateral (select analyzer from chunks where library_id = :library_id and id = k.chunk_id limit 1) as c on true
      left join lateral (select embedding from chunk_embeddings
                          where library_id = :library_id and chunk_id = k.chunk_id and space_id = {space} limit 1) as e
                on true
), scaled as (
    select chunk_id, cosine, bm25, by_dense, by_lexical,
           case when cosine is null then 0
                else coalesce((cosine - min(cosine) over ()) / nullif(max(cosine) over () - min(cosine) over (), 0), 1)
           end as dense_part,
           coalesce(bm25 / nullif(max(bm25) over (), 0), 0) as lexical_part,
           case when coalesce(share, 0) >= cast(:known_share as float8) then {lexical_weight}
                else {foreign_weight} end as weight
      from completed left join coverage using (analyzer)
), ranked as (
    select *, (1 - weight) * dense_part + weight * lexical_part as score from scaled
     order by score desc, chunk_id limit :limit
)
select r.score, r.cosine, r.bm25, r.by_dense, r.by_lexical, c.id as chunk_id, c.chunk_text, c.locator, {document}
  from ranked r
  join chunks c on c.library_id = :library_id and c.id = r.chunk_id
  join documents d on d.library_id = :library_id and d.id = c.document_id
 order by r.score desc, r.chunk_id
"""

_NEAREST = """
select v.cosine, c.id as chunk_id, c.chunk_text, c.locator, {document}
  from dense v
  join chunks c on c.library_id = :library_id and c.id = v.chunk_id
  join documents d on d.library_id = :library_id and d.id = c.document_id
 order by v.cosine desc, v.chunk_id
"""

_SIZE = text("select coalesce(sum(chunks), 0) from lex_statistics where library_id = :library_id")
_HAS_KEY = text("""
select exists (select from documents where library_id = :library_id and kind <> 'material'
                                       and jsonb_exists(metadata_jsonb, :key))
""")


class PassageRepository(Repository):
    """Searches the library's passages. Filters narrow; the library is imposed here and nowhere else."""

    async def hybrid(
        self,
        query: str,
        vector: NDArray[np.float32] | None,
        space: EmbeddingSpace | None,
        filters: SearchFilters,
        *,
        limit: int,
        fusion: Fusion,
    ) -> list[Hit]:
        """The best passages for *query* by both legs, or by the lexical one alone when *vector* is None."""
        conditions, parameters = where(filters)
        exact = await self._small_scope(conditions, parameters)
        statement = _hybrid_statement(conditions, space if vector is not None else None, exact=exact)
        analyzers = list(ANALYZERS.values())
        parameters |= {
            "library_id": self._library_id,
            "analyzers": [analyzer.name for analyzer in analyzers],
            "configurations": [analyzer.configuration for analyzer in analyzers],
            "queries": [analyzer.prepare(query) for analyzer in analyzers],
            "known_share": fusion.known_share,
            "pool": max(_POOL, limit),
            "limit": limit,
        }
        if vector is not None:
            parameters |= {"vector": vector, "lexical_weight": fusion.lexical_weight}
        if not exact:
            parameters["overfetch"] = max(_OVERFETCH, limit)
        rows = await self._connection.execute(statement, parameters)
        return [_hit(row) for row in rows.mappings()]

    async def nearest(
        self, vector: NDArray[np.float32], space: EmbeddingSpace, filters: SearchFilters, *, limit: int
    ) -> list[NearPassage]:
        """The passages whose vectors are nearest to *vector*, nearest first."""
        conditions, parameters = where(filters)
        exact = await self._small_scope(conditions, parameters)
        parts = [_SCOPE.format(scoped=_SCOPED.format(filters=conditions))] if exact else []
        parts.append(_dense(conditions, space, exact=exact))
        statement = text(f"with {', '.join(parts)} {_NEAREST.format(document=_DOCUMENT)}")
        statement = statement.bindparams(bindparam("vector", type_=Vector()), *_arrays(parameters))
        parameters |= {"library_id": self._library_id, "vector": vector, "pool": limit}
        rows = await self._connection.execute(statement, parameters)
        return [NearPassage(passage=_passage(row), cosine=row["cosine"]) for row in rows.mappings()]

    async def size(self) -> int:
        """How many passages the library has."""
        return int(await self._connection.scalar(_SIZE, {"library_id": self._library_id}) or 0)

    async def has_metadata_key(self, key: str) -> bool:
        """Whether any visible document's metadata has *key*."""
        return bool(await self._connection.scalar(_HAS_KEY, {"library_id": self._library_id, "key": key}))

    async def _small_scope(self, conditions: str, parameters: Mapping[str, Any]) -> bool:
        if await self.size() <= EXACT_UP_TO:
            return True
        statement = text(_COUNT.format(scoped=_SCOPED.format(filters=conditions))).bindparams(*_arrays(parameters))
        scope = {**parameters, "library_id": self._library_id, "cap": EXACT_UP_TO + 1}
        return (await self._connection.scalar(statement, scope) or 0) <= EXACT_UP_TO


def _hybrid_statement(conditions: str, space: EmbeddingSpace | None, *, exact: bool) -> TextClause:
    scope = [_SCOPE.format(scoped=_SCOPED.format(filters=conditions))] if exact else []
    lexical = _LEXICAL_EXACT if exact else _LEXICAL_INDEXED.format(filters=conditions)
    fused = _FUSED.format(
        document=_DOCUMENT,
        space=space.id if space else 0,
        similarity="1 - (e.embedding <=> cast(:vector as vector))" if space else "null",
        lexical_weight="cast(:lexical_weight as float8)" if space else "1",
        foreign_weight="0" if space else "1",
    )
    parts = [*scope, _dense(conditions, space, exact=exact), _LEXICON, lexical, fused]
    typed = [bindparam("vector", type_=Vector())] if space else []
    return text(f"with {', '.join(parts)}").bindparams(*typed, *_arrays({"kinds": None}))


def _dense(conditions: str, space: EmbeddingSpace | None, *, exact: bool) -> str:
    if space is None:
        return _NO_DENSE
    if exact:
        return _DENSE_EXACT.format(space=space.id)
    return _DENSE_INDEXED.format(space=space.id, dimensions=space.identity.dimensions, filters=conditions)


def _arrays(parameters: Mapping[str, Any]) -> list[Any]:
    return [bindparam("kinds", type_=ARRAY(TEXT))] if "kinds" in parameters else []


def _passage(row: Mapping[Any, Any]) -> StoredPassage:
    return StoredPassage(
        chunk_id=row["chunk_id"],
        text=row["chunk_text"],
        locator=Locator.from_json(row["locator"]),
        document=to_document(row),
    )


def _hit(row: Mapping[Any, Any]) -> Hit:
    legs: Sequence[tuple[Leg, Literal["by_dense", "by_lexical"]]] = (("dense", "by_dense"), ("lexical", "by_lexical"))
    return Hit(
        passage=_passage(row),
        score=float(row["score"]),
        dense=row["cosine"],
        lexical=None if row["bm25"] is None else float(row["bm25"]),
        matched_by=tuple(leg for leg, column in legs if row[column]),
    )
