"""What an embedding endpoint answers, as vectors that can be stored, or as the reason why not."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from philorag.errors import EmbeddingFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from philorag.embedding.protocol import Vectors

__all__ = ["read_vectors", "said"]

_LARGEST_HALF: Final = 65504.0
_LONGEST_MESSAGE: Final = 200


def read_vectors(body: bytes, count: int, dimensions: int | None) -> Vectors:
    """The *count* vectors of an answer, in the order of the texts. Raises `EmbeddingFailed`.

    Without *dimensions* any length will do, if it is the same for all.
    """
    rows = _ordered(_rows(body), count)
    try:
        vectors = np.array([_numbers(row.get("embedding")) for row in rows], np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _strange("vectors that aren't lists of numbers of one length") from None
    if vectors.ndim != 2 or not vectors.size:  # noqa: PLR2004 - texts by dimensions
        raise _strange("vectors without numbers")
    if dimensions is not None and vectors.shape[1] != dimensions:
        raise EmbeddingFailed(
            f"The embedding endpoint answered vectors of length {vectors.shape[1]} instead of {dimensions}. "
            "Correct PHILORAG_EMBEDDING_MODEL or PHILORAG_EMBEDDING_DIMENSIONS.",
            length=int(vectors.shape[1]),
            expected=dimensions,
        )
    _check_numbers(vectors)
    return vectors.astype(np.float32)


def said(body: bytes) -> str:
    """What an endpoint says about its refusal, short and in one line; empty if it says nothing."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    error = answer.get("error", answer) if isinstance(answer, dict) else None
    message = error if isinstance(error, str) else None
    if isinstance(error, dict):
        message = next((error[key] for key in ("message", "detail") if isinstance(error.get(key), str)), None)
    line = " ".join((message or "").split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[: _LONGEST_MESSAGE - 1]}…"


def _rows(body: bytes) -> list[dict[str, Any]]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise _strange("something that isn't JSON" if body.strip() else "nothing") from None
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise _strange("JSON without embeddings")
    return data


def _ordered(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    if len(rows) != count:
        raise EmbeddingFailed(
            f"The embedding endpoint answered {len(rows)} vectors for {count} texts. "
            "Try a smaller PHILORAG_EMBEDDING_BATCH, or update the endpoint."
        )
    places = [row.get("index") for row in rows]
    if all(place is None for place in places):
        return rows
    by_place = {place: row for place, row in zip(places, rows, strict=True) if isinstance(place, int)}
    if by_place.keys() != set(range(count)):
        raise _strange("embeddings with indexes that are missing or repeated")
    return [by_place[place] for place in range(count)]


def _numbers(embedding: object) -> object:
    """Some servers answer base64 of 32-bit floats although they were asked for numbers."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    if not isinstance(embedding, list) or any(isinstance(number, str | bool) for number in embedding):
        raise TypeError
    return embedding


def _check_numbers(vectors: NDArray[np.float64]) -> None:
    if not np.isfinite(vectors).all():
        raise _strange("vectors that hold NaN or infinity")
    if np.abs(vectors).max() > _LARGEST_HALF:
        raise _strange("vectors that hold numbers beyond half precision")
    if not vectors.astype(np.float16).any(axis=1).all():
        raise _strange("a vector of zeros")


def _strange(what: str) -> EmbeddingFailed:
    return EmbeddingFailed(
        f"The embedding endpoint answered {what}. See whether PHILORAG_EMBEDDING_BASE_URL is that of an "
        "OpenAI-compatible interface (most end with /v1) and PHILORAG_EMBEDDING_MODEL an embedding model."
    )
