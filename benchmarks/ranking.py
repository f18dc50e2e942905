"""How good a ranking is, and whether one is better than another beyond chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["interval", "ndcg", "p_value", "recall"]

_DRAWS = 10_000


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], depth: int = 10) -> float:
    """Normalised discounted cumulative gain at *depth*, with gain 2^grade - 1."""
    best = _dcg(sorted(grades.values(), reverse=True)[:depth])
    return _dcg([grades.get(entry, 0) for entry in ranked[:depth]]) / best if best else 0.0


def recall(ranked: Sequence[str], grades: Mapping[str, int], depth: int = 10) -> float:
    """The share of the relevant entries that is among the first *depth*."""
    return len(grades.keys() & set(ranked[:depth])) / len(grades)


def interval(differences: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """The 95 % paired bootstrap interval of the mean of *differences*."""
    values = np.asarray(differences)
    drawn = np.random.default_rng(seed).integers(len(values), size=(_DRAWS, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def p_value(differences: Sequence[float], seed: int = 1) -> float:
    """Two-sided paired permutation test (random signs) of a mean of zero."""
    values = np.asarray(differences)
    signs = np.random.default_rng(seed).choice([-1, 1], size=(_DRAWS, len(values)))
    extreme = np.abs((signs * values).mean(axis=1)) >= abs(values.mean()) - 1e-12
    return float((extreme.sum() + 1) / (_DRAWS + 1))


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum((2.0**gain - 1) / math.log2(place + 2) for place, gain in enumerate(gains))
