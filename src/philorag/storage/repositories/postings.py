"""BM25's inverted index: per library, analyzer and term, the passages that have the term.

A posting packs a chunk id, the term's frequency there (8 bits) and the passage's length in terms (15 bits) into one
bigint, so that scores are exact BM25 whatever the average length has become. Removing a passage takes its postings
out at once, so document frequencies are exact too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from philorag.storage.analyzers import ANALYZERS
from philorag.storage.repositories.base import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Indexed", "PostingsRepository"]


@dataclass(frozen=True, slots=True)
class Indexed:
    """A passage and the analyzer that makes its terms."""

    chunk_id: int
    analyzer: str
    text: str


_ANALYSED = """
analysed as (
    select c.id, u.lexeme as term, least(cardinality(u.positions), 255) as frequency,
           sum(cardinality(u.positions)) over (partition by c.id) as length
      from unnest(cast(:ids as bigint[]), cast(:texts as text[])) as c (id, body),
           unnest(to_tsvector(cast(:configuration as regconfig), c.body)) as u
), lengths as (
    select distinct id, length from analysed
)
"""

_ADD = text(f"""
with {_ANALYSED}, added as (
    insert into lex_postings (library_id, analyzer, term, first_chunk, last_chunk, postings)
    select :library_id, :analyzer, term, min(id), max(id),
           array_agg((id << 23) | (frequency::bigint << 15) | least(length, 32767)::bigint order by id)
      from analysed group by term
)
insert into lex_statistics (library_id, analyzer, chunks, tokens, uncompacted)
select :library_id, :analyzer, count(*), coalesce(sum(length), 0), count(*) from lengths
on conflict (library_id, analyzer) do update
   set chunks = lex_statistics.chunks + excluded.chunks, tokens = lex_statistics.tokens + excluded.tokens,
       uncompacted = lex_statistics.uncompacted + excluded.uncompacted
""")  # noqa: S608 - joined from constants

_REMOVE = text(f"""
with {_ANALYSED}, counted as (
    update lex_statistics set chunks = chunks - (select count(*) from lengths),
                              tokens = tokens - (select coalesce(sum(length), 0) from lengths)
     where library_id = :library_id and analyzer = :analyzer
)
update lex_postings
   set postings = array(select posting from unnest(postings) as posting
                         where not (posting >> 23) = any (cast(:ids as bigint[])) order by posting)
 where library_id = :library_id and analyzer = :analyzer and term in (select term from analysed)
   and last_chunk >= (select min(id) from analysed) and first_chunk <= (select max(id) from analysed)
""")  # noqa: S608 - joined from constants

_SWEEP = text("""
delete from lex_postings
 where library_id = :library_id and analyzer = :analyzer and postings = '{}'
   and last_chunk >= :first and first_chunk <= :last
""")

_CROWDED = text("select analyzer from lex_statistics where library_id = :library_id and uncompacted > :threshold")

# Rows of many small documents become rows of up to 4,096 postings (32 kB): long enough to read at once, short enough
# to rewrite when a passage goes.
_COMPACT = text("""
with crowded as (
    select term from lex_postings
     where library_id = :library_id and analyzer = :analyzer and cardinality(postings) < 2048
     group by term having count(*) > 8
), taken as (
    delete from lex_postings p using crowded c
     where p.library_id = :library_id and p.analyzer = :analyzer and p.term = c.term and cardinality(p.postings) < 2048
    returning p.term, p.postings
), numbered as (
    select term, posting, (row_number() over (partition by term order by posting) - 1) / 4096 as slice
      from taken, unnest(postings) as posting
)
insert into lex_postings (library_id, analyzer, term, first_chunk, last_chunk, postings)
select :library_id, :analyzer, term, min(posting) >> 23, max(posting) >> 23, array_agg(posting order by posting)
  from numbered group by term, slice
""")

_SETTLED = text("update lex_statistics set uncompacted = 0 where library_id = :library_id and analyzer = :analyzer")

# Removing and compacting both rewrite rows, and one that missed the other's work would bring postings back.
_LOCK = text("select pg_advisory_xact_lock(7483002, hashint8(:library_id))")


class PostingsRepository(Repository):
    """Keeps the lexical leg in step with the passages."""

    async def change(self, *, removed: Iterable[Indexed] = (), added: Iterable[Indexed] = ()) -> None:
        """Take passages out and put others in; at most once in a unit of work."""
        leaving, coming = _by_analyzer(removed), _by_analyzer(added)
        if leaving:
            await self._connection.execute(_LOCK, {"library_id": self._library_id})
        # Each analyzer's statistics stay locked from here on: all take them in the same order, or two could deadlock.
        for analyzer in sorted(leaving.keys() | coming.keys()):
            if analyzer in leaving:
                await self._remove(analyzer, leaving[analyzer])
            if analyzer in coming:
                await self._connection.execute(_ADD, self._parameters(analyzer, coming[analyzer]))

    async def compact(self, threshold: int = 2_000) -> None:
        """Merge the rows of many small additions, once more than *threshold* passages came since the last time."""
        crowded = {"library_id": self._library_id, "threshold": threshold}
        analyzers = (await self._connection.execute(_CROWDED, crowded)).scalars().all()
        if analyzers:
            await self._connection.execute(_LOCK, {"library_id": self._library_id})
        for analyzer in analyzers:
            key = {"library_id": self._library_id, "analyzer": analyzer}
            await self._connection.execute(_COMPACT, key)
            await self._connection.execute(_SETTLED, key)

    async def _remove(self, analyzer: str, passages: Sequence[Indexed]) -> None:
        await self._connection.execute(_REMOVE, self._parameters(analyzer, passages))
        ids = [passage.chunk_id for passage in passages]
        span = {"library_id": self._library_id, "analyzer": analyzer, "first": min(ids), "last": max(ids)}
        await self._connection.execute(_SWEEP, span)

    def _parameters(self, name: str, group: Sequence[Indexed]) -> dict[str, object]:
        analyzer = ANALYZERS[name]
        return {
            "library_id": self._library_id,
            "analyzer": name,
            "configuration": analyzer.configuration,
            "ids": [passage.chunk_id for passage in group],
            "texts": [analyzer.prepare(passage.text) for passage in group],
        }


def _by_analyzer(passages: Iterable[Indexed]) -> dict[str, list[Indexed]]:
    grouped: dict[str, list[Indexed]] = defaultdict(list)
    for passage in passages:
        grouped[passage.analyzer].append(passage)
    return grouped
