"""`retrieval`: how well each leg and both together find what an editor pointed to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Goal
from benchmarks.libraries import collection, opened
from benchmarks.ranking import interval, ndcg, p_value, recall
from philorag.model import SearchFilters
from philorag.retrieval.service import SearchService
from philorag.storage.repositories.passages import Fusion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.libraries import Collection, Opened

__all__ = ["LEGS", "measure"]

LEGS = {
    "dense": Fusion(lexical_weight=0, known_share=0),
    "lexical": Fusion(lexical_weight=1, known_share=0),
    "hybrid": Fusion(),
}
# A document may have two passages in the list.
_ASKED = 30


@dataclass(frozen=True, slots=True)
class _Scores:
    """By query, in the collection's order."""

    ndcg: Sequence[float]
    recall: Sequence[float]


async def measure(sample: int | None) -> list[Figure]:
    return [*await _compared("jowett", sample), *await _compared("plato_grc_en", sample, across=True)]


async def _compared(name: str, sample: int | None, *, across: bool = False) -> list[Figure]:
    test = collection(name, sample)
    async with opened(test.name) as library:
        await library.add(test)
        scores = {leg: await _scores(library, test, leg) for leg in LEGS}
    size = f"{len(test.queries)} queries, {len(test.corpus):,} documents"
    figures = [_mean(f"{name}: {leg}", found, size) for leg, found in scores.items()]
    others = ["dense"] if across else ["dense", "lexical"]
    return [*figures, *(_difference(name, scores, other, across=across) for other in others)]


async def _scores(library: Opened, test: Collection, leg: str) -> _Scores:
    services = library.services
    search = SearchService(services.database, services.embedder, LEGS[leg])
    gains, recalls = [], []
    for query, text in test.queries.items():
        answer = await search.passages(library.caller, text, SearchFilters(), _ASKED)
        # What the lexical leg didn't find stands at the end of its list, in no order that it gave.
        found = [hit for hit in answer.hits if leg != "lexical" or hit.lexical is not None]
        ranked = list(dict.fromkeys(hit.passage.document.source_uri.partition(":")[2] for hit in found))
        gains.append(ndcg(ranked, test.grades[query]))
        recalls.append(recall(ranked, test.grades[query]))
    return _Scores(gains, recalls)


def _mean(what: str, scores: _Scores, size: str) -> Figure:
    found = sum(scores.recall) / len(scores.recall)
    value = sum(scores.ndcg) / len(scores.ndcg)
    return Figure(what=f"{what}, nDCG@10", value=value, digits=3, note=f"Recall@10 {found:.3f}; {size}")


def _difference(name: str, scores: dict[str, _Scores], other: str, *, across: bool) -> Figure:
    pairs = zip(scores["hybrid"].ndcg, scores[other].ndcg, strict=True)
    differences = [ours - theirs for ours, theirs in pairs]
    low, high = interval(differences)
    return Figure(
        what=f"{name}: hybrid - {other}, nDCG@10",
        value=sum(differences) / len(differences),
        digits=3,
        goal=Goal("≥", 0) if across else Goal(">", 0),
        note=f"95 % interval {low:+.3f} to {high:+.3f}, p = {p_value(differences):.4f}",
    )
