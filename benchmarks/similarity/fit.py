"""Fit the curve that turns the local model's cosines into similarities, on labelled pairs over examples/library.

`python benchmarks/similarity/fit.py` prints a and b as they stand in `philorag.retrieval.similarity.CALIBRATIONS`, and
how well a similarity of 0.6 tells the documents that answer a query from those that don't.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from philorag.model import SearchFilters
from philorag.services import Services
from philorag.testing import temporary_database, temporary_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Cosines = NDArray[np.float64]
    Labels = NDArray[np.bool_]

PAIRS: Final = Path(__file__).parent / "pairs.jsonl"
LIBRARY: Final = Path(__file__).resolve().parents[2] / "examples" / "library"
THRESHOLD: Final = 0.6
LOWER_THRESHOLD: Final = 0.3
FOLDS: Final = 5
# Weak enough to change no digit that counts; it keeps the slope finite where the labels can be separated.
_RIDGE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Pair:
    """Whether *document*, a file of examples/library, answers *query*."""

    query: str
    document: str
    relevant: bool


@dataclass(frozen=True, slots=True)
class Score:
    f1: float
    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The curve 1/(1+exp(-(a·cos+b))), which is 0.6 at *threshold*, the cosine with the best F1."""

    a: float
    b: float
    threshold: float


def read_pairs(path: Path = PAIRS) -> list[Pair]:
    return [Pair(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def fit(cosines: Cosines, relevant: Labels) -> Fit:
    """The slope is the likeliest one. The likeliest offset isn't kept: it depends on how many pairs are positive."""
    a = round(likeliest_slope(cosines, relevant), 2)
    threshold = best_threshold(cosines, relevant)
    return Fit(a, round(math.log(THRESHOLD / (1 - THRESHOLD)) - a * threshold, 4), threshold)


def likeliest_slope(cosines: Cosines, relevant: Labels) -> float:
    """Logistic regression by Newton's method, on standardised cosines, since theirs lie within 0.75..0.92."""
    mean, deviation = cosines.mean(), cosines.std()
    design = np.column_stack([(cosines - mean) / deviation, np.ones_like(cosines)])
    ridge = np.diag([_RIDGE, 0.0])
    weights = np.zeros(2)
    for _ in range(50):
        probable = 1 / (1 + np.exp(-design @ weights))
        gradient = design.T @ (relevant - probable) - ridge @ weights
        curvature = (design.T * (probable * (1 - probable))) @ design + ridge
        weights += np.linalg.solve(curvature, gradient)
    return float(weights[0] / deviation)


def best_threshold(cosines: Cosines, relevant: Labels) -> float:
    """Halfway between the last pair to take and the first to leave, for the best F1."""
    order = np.argsort(-cosines, kind="stable")
    descending, taken = cosines[order], np.arange(1, len(cosines) + 1)
    f1 = 2 * np.cumsum(relevant[order]) / (taken + relevant.sum())
    best = int(f1[:-1].argmax())
    return float(descending[best : best + 2].mean())


def score(chosen: Labels, relevant: Labels) -> Score:
    right = int((chosen & relevant).sum())
    return Score(
        f1=2 * right / max(1, int(chosen.sum() + relevant.sum())),
        precision=right / max(1, int(chosen.sum())),
        recall=right / max(1, int(relevant.sum())),
    )


def cross_validated(pairs: Sequence[Pair], cosines: Cosines, relevant: Labels) -> Score:
    """Every query judged by the threshold of the other folds. Neighbours in the file go to different folds."""
    queries = {query: at for at, query in enumerate(dict.fromkeys(pair.query for pair in pairs))}
    folds = np.array([queries[pair.query] % FOLDS for pair in pairs])
    chosen = np.zeros_like(relevant)
    for fold in range(FOLDS):
        held_out = folds == fold
        chosen[held_out] = cosines[held_out] >= best_threshold(cosines[~held_out], relevant[~held_out])
    return score(chosen, relevant)


def ranked_first(pairs: Sequence[Pair], cosines: Cosines) -> float:
    """The share of positive pairs whose document is nearer to the query than any other that was judged."""
    best: dict[str, float] = {}
    for pair, cosine in zip(pairs, cosines, strict=True):
        best[pair.query] = max(best.get(pair.query, -1.0), cosine)
    firsts = [bool(best[pair.query] == cosine) for pair, cosine in zip(pairs, cosines, strict=True) if pair.relevant]
    return firsts.count(True) / len(firsts)


async def best_cosines(pairs: Sequence[Pair], data_dir: Path) -> Cosines:
    """For each pair the cosine of the document's best passage, found as `search_documents` finds it."""
    found: dict[tuple[str, str], float] = {}
    async with await Services.open(temporary_settings(data_dir, source_dir=LIBRARY)) as services:
        caller = await services.local_caller()
        await services.ingestion.ingest(caller, ".")
        async with services.database.unit_of_work(caller) as work:
            space = await work.libraries.active_space()
            assert space is not None
            for query in dict.fromkeys(pair.query for pair in pairs):
                vector = services.embedder.embed_query(query)
                for near in await work.passages.nearest(vector, space, SearchFilters(), limit=1_000):
                    document = Path(near.passage.document.path or "").name
                    found.setdefault((query, document), near.cosine)
    return np.array([found[pair.query, pair.document] for pair in pairs])


def main() -> None:
    pairs = read_pairs()
    relevant = np.array([pair.relevant for pair in pairs])
    with temporary_database() as data_dir:
        cosines = asyncio.run(best_cosines(pairs, data_dir))
    fitted = fit(cosines, relevant)
    print(f"pairs {len(pairs)}, positive {relevant.sum()}, queries {len({pair.query for pair in pairs})}")
    print(f"a {fitted.a}, b {fitted.b}, cosine at {THRESHOLD}: {fitted.threshold:.4f}")
    for similarity in (THRESHOLD, LOWER_THRESHOLD):
        # By the rounded constants, as they are used.
        chosen = fitted.a * cosines + fitted.b >= math.log(similarity / (1 - similarity))
        print(f"at {similarity}: {_line(score(chosen, relevant))}")
    print(f"cross-validated ({FOLDS} folds by query): {_line(cross_validated(pairs, cosines, relevant))}")
    print(f"positive pairs whose document ranks first: {ranked_first(pairs, cosines):.3f}")


def _line(result: Score) -> str:
    return f"F1 {result.f1:.3f}, precision {result.precision:.3f}, recall {result.recall:.3f}"


if __name__ == "__main__":
    main()
