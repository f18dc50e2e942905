"""From a cosine to the similarity in 0..1 that `search_documents` thresholds on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["similarity"]


def similarity(cosine: float, calibration: Mapping[str, float] | None) -> float:
    """`1 / (1 + exp(-(a * cosine + b)))` with the space's fitted a and b; unfitted, `max(0, cosine)`.

    Computed as a hyperbolic tangent, which is the same and never overflows.
    """
    if calibration is None:
        return max(0.0, min(1.0, cosine))
    return (1 + math.tanh((calibration["a"] * cosine + calibration["b"]) / 2)) / 2
